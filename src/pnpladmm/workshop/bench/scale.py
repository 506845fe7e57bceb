"""Time and peak memory of large pictures: in one piece, in tiles within a budget, in parts from file to file; and of
many pictures with one worker and with two.

Each run is a process of its own; its peak includes Python and torch, its time does not include their start. The time of
the cores is measured beside that of the clock: where a machine does other things, too, it says how the work grows.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.tensors import InputError
from pnpladmm.workshop.bench.inputs import choose_denoiser, make_kernels, make_picture
from pnpladmm.workshop.bench.report import Options, Report, Row

SIDE = 17
NOISE = 10.0
CALLS = {"cpu": 2, "cuda": 8}
"""Denoiser calls: memory does not depend on them, and time is proportional."""
BUDGET = "2GB"
"""The memory for pictures in parts; on a GPU, of the GPU."""
FRAMES = 40


@dataclass(frozen=True)
class Case:
    """One run."""

    way: str
    """`whole`: as it comes; `budget`: with `--memory`; `parts`: from zarr to zarr; `frames`: many pictures."""
    height: int
    width: int
    memory: str = ""
    frames: int = 1
    workers: int = 1

    @property
    def key(self) -> str:
        """Its name in the file of finished runs."""
        return " ".join(str(value) for value in asdict(self).values())


def cases(options: Options) -> list[Case]:
    """Growing sizes, each way; what takes longest last."""
    if options.quick:
        frames = [Case("frames", 64, 64, frames=3, workers=workers) for workers in (1, 2)]
        return [Case("whole", 256, 256), Case("budget", 320, 320, "300MB"), Case("parts", 256, 320), *frames]
    *parts, largest = (Case("parts", n, n, BUDGET) for n in (2000, 5000, 10000))
    if options.device.type == "cuda":
        return [*parts, largest, Case("whole", 2000, 2000), Case("budget", 10000, 10000, "18GB")]
    budgets = [Case("budget", 3000, 4000, "3GB"), Case("budget", 4000, 6000, "5GB")]
    frames = [Case("frames", 1000, 1000, frames=FRAMES, workers=workers) for workers in (1, 2)]
    return [*parts, Case("whole", 1000, 1000), *budgets, *frames, largest]


COLUMNS: dict[str, Callable[[Row], str]] = {
    "way": lambda row: row["way"] if row["frames"] == 1 else f"{row['frames']} frames, workers: {row['workers']}",
    "pixels": lambda row: f"{row['width']}x{row['height']}",
    "budget": lambda row: row["memory"] or "-",
    "s": lambda row: f"{row['seconds']:.1f}",
    "us per pixel": lambda row: f"{_per_pixel(row, 'seconds'):.2f}",
    "us of cores per pixel": lambda row: f"{_per_pixel(row, 'core_seconds'):.2f}",
    "peak, GB": lambda row: f"{row['peak_bytes'] / 1e9:.2f}",
    "peak of the GPU, GB": lambda row: f"{row['gpu_bytes'] / 1e9:.2f}" if row["gpu_bytes"] else "-",
    "seams": lambda row: row["seams"],
}


def run(options: Options) -> Report:
    """Measure each case once; a run that was stopped goes on with the next one."""
    denoiser = choose_denoiser(options)
    known = options.known("scale")
    for case in cases(options):
        if case.key not in known:
            options.say(case.key)
            known[case.key] = _measure(case, denoiser, options)
            options.keep("scale", case.key, known[case.key])
    calls = CALLS[options.device.type]
    title = f"Large pictures with {denoiser}, {calls} calls, on {options.device.type}"
    settings = {"denoiser": denoiser, "calls": calls, "kernel_side": SIDE, "noise": NOISE}
    rows = list(known.values())
    return Report("scale", title, COLUMNS, rows, settings, _growth(rows))


def _per_pixel(row: Row, name: str) -> float:
    """Microseconds."""
    return 1e6 * float(row[name]) / (row["width"] * row["height"] * row["frames"])


def _growth(rows: list[Row]) -> list[str]:
    """How the time per pixel and the peaks of pictures in parts compare, and two workers with one."""
    notes = []
    parts = sorted((row for row in rows if row["way"] == "parts"), key=lambda row: int(row["width"]))
    for name, words in (("seconds", "time"), ("core_seconds", "time of the cores")):
        each = [_per_pixel(row, name) / _per_pixel(parts[0], name) for row in parts]
        notes.append(f"in parts, {words} per pixel relative to the smallest: {', '.join(f'{one:.2f}' for one in each)}")
    one, two = (next((row for row in rows if row["workers"] == n and row["way"] == "frames"), None) for n in (1, 2))
    if one is not None and two is not None:
        faster = one["seconds"] / two["seconds"]
        notes.append(f"{two['frames']} frames: two workers are {faster:.2f} times as fast as one")
    return notes


def _measure(case: Case, denoiser: str, options: Options) -> Row:
    """Write the pictures, restore them in a process of their own, read its time and its peak."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        np.save(folder / "psf.npy", make_kernels(1, SIDE)[0].numpy())
        jobs = [_job(case, denoiser, options, folder, number) for number in range(case.frames)]
        # On a GPU the first run of a process is slower, and is not counted.
        order = {"jobs": jobs, "runs": 2 if options.device.type == "cuda" else 1}
        (folder / "order.json").write_text(json.dumps(order))
        command = [sys.executable, "-m", "pnpladmm.workshop.bench.watched", str(folder / "order.json")]
        # Frames are restored with one thread each, whatever the number of workers.
        environment = os.environ | ({"OMP_NUM_THREADS": "1"} if case.frames > 1 else {})
        with (folder / "said").open("w+") as said:
            process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=environment)
            _, status, used = os.wait4(process.pid, 0)
            said.seek(0)
            lines = said.read().strip().splitlines() or ["no message"]
    if status != 0:
        raise InputError(f"measuring failed: {lines[-1]}")
    found = json.loads(lines[-1])
    return {**asdict(case), **found, "peak_bytes": used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)}


def _job(case: Case, denoiser: str, options: Options, folder: Path, number: int) -> dict[str, Any]:
    """A job file for one picture, which is written here."""
    suffix = ".zarr" if case.way == "parts" else ".npy"
    source = folder / f"in-{number}{suffix}"
    _write(source, case)
    parallel = {"workers": case.workers} if case.way == "frames" else {}
    return {
        "picture": str(source), "blur": str(folder / "psf.npy"), "output": str(folder / f"out-{number}{suffix}"),
        "noise": NOISE, "denoiser": denoiser, "iterations": CALLS[options.device.type],
        "device": options.device.type, "memory": case.memory or None, **parallel,
    }  # fmt: skip


def _write(path: Path, case: Case) -> None:
    """A blurred picture with noise, in colour but for frames, made of copies of one of 1 megapixel to save memory."""
    side = min(1000, case.height, case.width)
    # A circular blur: the copies continue each other.
    blur = SpatiallyVaryingBlur(make_kernels(1, SIDE), torch.ones(1, side, side), "circular")
    piece = 255 * blur.forward(make_picture((side, side), torch.device("cpu"))[None])[0].numpy()
    piece = (piece + np.random.default_rng(0).normal(0, NOISE, piece.shape)).clip(0, 255).astype(np.uint8)
    if case.way == "frames":
        np.save(path, piece[0])
        return
    shape = (3, case.height, case.width)
    if path.suffix == ".zarr":
        import zarr

        shutil.rmtree(path, ignore_errors=True)
        target: Any = zarr.create_array(path, shape=shape, chunks=(3, 512, 512), dtype="uint8")
    else:
        target = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    for top in range(0, case.height, side):
        for left in range(0, case.width, side):
            h, w = min(side, case.height - top), min(side, case.width - left)
            target[:, top : top + h, left : left + w] = piece[:, :h, :w]
