"""Time and peak memory of large pictures: in one piece, in tiles within a budget, in parts from file to file; and of
many pictures with one worker and with two.

Each run is a process of its own; its peak includes Python and torch, its time does not include their start. The time of
the cores is measured beside that of the clock: where a machine does other things, too, it says how the work grows.

On a CPU each run has two cores for itself; where there are more, several runs are measured side by side. One that is
stopped goes on where it was, from the finished tiles or pictures, and its times are added.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch

from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.workshop.bench.inputs import choose_denoiser, make_kernels, make_picture
from pnpladmm.workshop.bench.pieces import Cores, groups_of_cores, run_in_pieces
from pnpladmm.workshop.bench.report import Options, Report, Row

SIDE = 17
NOISE = 10.0
CALLS = {"cpu": 2, "cuda": 8}
"""Denoiser calls: memory does not depend on them, and time is proportional."""
BUDGET = "2GB"
"""The memory for pictures in parts; on a GPU, of the GPU."""
FRAMES = 200
CORES = 2
"""That each run has for itself."""


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
    """Growing sizes, each way; on a CPU what takes longest first, so that short runs fill the cores beside it."""
    if options.quick:
        frames = [Case("frames", 64, 64, frames=3, workers=workers) for workers in (1, 2)]
        return [Case("whole", 256, 256), Case("budget", 320, 320, "300MB"), Case("parts", 256, 320), *frames]
    parts = [Case("parts", n, n, BUDGET) for n in (10000, 5000, 2000)]
    if options.device.type == "cuda":
        return [*parts, Case("whole", 2000, 2000), Case("budget", 10000, 10000, "18GB")]
    frames = [Case("frames", 1000, 1000, frames=FRAMES, workers=workers) for workers in (1, 2)]
    budgets = [Case("budget", 4000, 6000, "5GB"), Case("budget", 3000, 4000, "3GB")]
    return [parts[0], *frames, *parts[1:2], *budgets, *parts[2:], Case("whole", 1000, 1000)]


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
    """Measure each case once; a run that was stopped goes on with what is left."""
    denoiser = choose_denoiser(options)
    known = options.known("scale")
    left = [case for case in cases(options) if case.key not in known]
    on_cpu = options.device.type == "cpu"
    free: SimpleQueue[Cores] = SimpleQueue()
    groups = groups_of_cores(CORES) if on_cpu else [None]
    for group in groups:
        free.put(group)
    lock = threading.Lock()

    def measure(case: Case) -> None:
        cores = free.get()
        try:
            options.say(case.key)
            row = _measure(case, denoiser, options, cores)
        finally:
            free.put(cores)
        with lock:
            known[case.key] = row
            options.keep("scale", case.key, row)

    with ThreadPoolExecutor(len(groups)) as pool:
        list(pool.map(measure, left))
    calls = CALLS[options.device.type]
    title = f"Large pictures with {denoiser}, {calls} calls, on {options.device.type}"
    settings = {
        "denoiser": denoiser, "calls": calls, "kernel_side": SIDE, "noise": NOISE,
        "cores": CORES if on_cpu else None, "side_by_side": len(groups),
    }  # fmt: skip
    rows = sorted(known.values(), key=lambda row: (row["way"], row["frames"], row["workers"], row["width"]))
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
    whole = sorted((row for row in rows if row["way"] in ("whole", "budget")), key=lambda row: int(row["width"]))
    each = [_per_pixel(row, "seconds") / _per_pixel(whole[0], "seconds") for row in whole]
    notes.append(f"in memory, time per pixel relative to the smallest: {', '.join(f'{one:.2f}' for one in each)}")
    one, two = (next((row for row in rows if row["workers"] == n and row["way"] == "frames"), None) for n in (1, 2))
    if one is not None and two is not None:
        faster = one["seconds"] / two["seconds"]
        notes.append(f"{two['frames']} frames: two workers are {faster:.2f} times as fast as one")
    return notes


def _measure(case: Case, denoiser: str, options: Options, cores: Cores) -> Row:
    """Write the pictures, restore them in a process of their own, read its time and its peak."""
    with _folder_of(case, options) as folder:
        if not (folder / "psf.npy").exists():  # a new one would be another job
            np.save(folder / "psf.npy", make_kernels(1, SIDE)[0].numpy())
        jobs = [_job(case, denoiser, options, folder, number) for number in range(case.frames)]
        # On a GPU the first run of a process is slower, and is not counted.
        order = {"jobs": jobs, "runs": 2 if options.device.type == "cuda" else 1}
        # Frames are restored with one thread each, whatever the number of workers.
        threads = 1 if case.frames > 1 else None if cores is None else len(cores)
        return {**asdict(case), **run_in_pieces(folder, order, cores, threads)}


@contextmanager
def _folder_of(case: Case, options: Options) -> Iterator[Path]:
    """Where the pictures of a run lie; kept if the run is stopped, so that it can go on."""
    parts = options.parts("scale")
    if parts is None or options.device.type == "cuda":
        with tempfile.TemporaryDirectory() as place:
            yield Path(place)
        return
    folder = parts.with_suffix("").with_suffix(".work") / case.key.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    yield folder
    shutil.rmtree(folder)


def _job(case: Case, denoiser: str, options: Options, folder: Path, number: int) -> dict[str, Any]:
    """A job file for one picture, which is written here."""
    suffix = ".zarr" if case.way == "parts" else ".npy"
    source = folder / f"in-{number}{suffix}"
    if not source.exists():
        beside = folder / f"new{suffix}"
        _write(beside, case)
        beside.rename(source)
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
