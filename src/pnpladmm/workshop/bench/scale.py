"""Time and peak memory of large pictures: in one piece, in tiles within a budget, and in parts from file to file.

Each run is the command `pnpladmm restore` in a process of its own; its peak includes Python and torch.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pnpladmm.tensors import InputError
from pnpladmm.workshop.bench.inputs import choose_denoiser, make_kernels, make_picture
from pnpladmm.workshop.bench.report import Options, Report, Row

CALLS = 2
"""Denoiser calls: memory does not depend on them, and time is proportional."""
SIDE = 17
NOISE = 10.0


@dataclass(frozen=True)
class Case:
    """One run of the command."""

    way: str
    """`whole`: as it comes; `budget`: with `--memory`; `parts`: from zarr to zarr."""
    height: int
    width: int
    memory: str = ""


def cases(options: Options) -> list[Case]:
    """Growing sizes, each way."""
    if options.quick:
        return [Case("whole", 256, 256), Case("budget", 320, 320, "300MB"), Case("parts", 256, 320)]
    found = [Case("whole", 1000, 1000), Case("budget", 3000, 4000, "3GB"), Case("budget", 4000, 6000, "5GB")]
    return found + [Case("parts", n, n) for n in (2000, 5000, 10000)]


COLUMNS: dict[str, Callable[[Row], str]] = {
    "way": lambda row: row["way"],
    "pixels": lambda row: f"{row['width']}x{row['height']}",
    "budget": lambda row: row["memory"] or "-",
    "s": lambda row: f"{row['seconds']:.1f}",
    "us per pixel": lambda row: f"{1e6 * row['seconds'] / row['width'] / row['height']:.2f}",
    "peak, GB": lambda row: f"{row['peak_bytes'] / 1e9:.2f}",
    "seams": lambda row: row["seams"],
}


def run(options: Options) -> Report:
    """Measure each case once."""
    denoiser = choose_denoiser(options)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(options):
            options.say(f"{case.way}, {case.width}x{case.height}")
            rows.append(_measure(case, denoiser, options, Path(folder)))
    title = f"Large pictures with {denoiser}, {CALLS} calls, on {options.device.type}"
    settings = {"denoiser": denoiser, "calls": CALLS, "kernel_side": SIDE, "noise": NOISE}
    return Report("scale", title, COLUMNS, rows, settings, [])


def _measure(case: Case, denoiser: str, options: Options, folder: Path) -> Row:
    """Write the picture, run the command, read its time and its peak."""
    suffix = ".zarr" if case.way == "parts" else ".npy"
    source, output = folder / f"in{suffix}", folder / f"out{suffix}"
    _write(source, case)
    np.save(folder / "psf.npy", make_kernels(1, SIDE)[0].numpy())
    command = [sys.executable, "-m", "pnpladmm", "restore", str(source), "-b", str(folder / "psf.npy")]
    command += ["-o", str(output), "--noise", str(NOISE), "--denoiser", denoiser, "--iterations", str(CALLS)]
    command += ["--device", options.device.type, *(["--memory", case.memory] if case.memory else [])]
    began = time.perf_counter()
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(command, stderr=said, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        said.seek(0)
        text = said.read()
    if status != 0:
        raise InputError(f"measuring failed: {(text.strip().splitlines() or ['no message'])[-1]}")
    seams = re.search(r"seams: at most ([0-9.e+]+)", text)
    return {
        "way": case.way,
        "height": case.height,
        "width": case.width,
        "memory": case.memory,
        "seconds": time.perf_counter() - began,
        "peak_bytes": used.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        "seams": f"{seams[1]} of 255" if seams else "-",
    }


def _write(path: Path, case: Case) -> None:
    """A noisy picture in colour, made of copies of one of 1 megapixel, so that it needs no memory."""
    side = min(1000, case.height, case.width)
    piece = (make_picture((side, side), torch.device("cpu")).numpy() * 255).round()
    piece = (piece + np.random.default_rng(0).normal(0, NOISE, piece.shape)).clip(0, 255).astype(np.uint8)
    shape = (3, case.height, case.width)
    if path.suffix == ".zarr":
        import shutil

        import zarr

        shutil.rmtree(path, ignore_errors=True)
        target: Any = zarr.create_array(path, shape=shape, chunks=(3, 512, 512), dtype="uint8")
    else:
        target = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    for top in range(0, case.height, side):
        for left in range(0, case.width, side):
            h, w = min(side, case.height - top), min(side, case.width - left)
            target[:, top : top + h, left : left + w] = piece[:, :h, :w]
