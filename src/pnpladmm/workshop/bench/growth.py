"""How time and memory of the fast method grow with the pixels and with the number of kernels.

Memory on a GPU is the most that torch held during the run. On a CPU it is the peak of the resident memory of a separate
process, minus what it held before the pictures were made (memory.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.solvers.registry import make_method
from pnpladmm.tensors import InputError
from pnpladmm.workshop.bench.inputs import Weights, choose_denoiser, make_problem, noise_of, open_denoiser
from pnpladmm.workshop.bench.instruments import run_bare
from pnpladmm.workshop.bench.report import Options, Report, Row
from pnpladmm.workshop.bench.timing import Timing, take_turns

CALLS = 8
NOISE = 10 / 255
SIDE = 33


@dataclass(frozen=True)
class Case:
    """Pictures of one size in a batch, each with its own blur."""

    axis: str
    """`pixels`: one picture of growing size; `batch`: the same number of pixels in each batch; `kernels`: P grows."""
    size: int
    kernels: int = 8
    pictures: int = 1
    weights: Weights = "segments"

    @property
    def pixels(self) -> int:
        """Of the whole batch."""
        return self.pictures * self.size**2


def cases(options: Options) -> list[Case]:
    """Growing sizes, then growing numbers of kernels."""
    counts, sizes, side = [1, 4, 8, 16, 32, 64], [256, 512, 1024, 2048], 512
    if options.quick:
        counts, sizes, side = [1, 4], [64, 96], 64
    found = [Case("pixels", size) for size in sizes]
    if options.device.type == "cuda":
        # A single small picture does not fill a GPU, so the batches have the same number of pixels.
        found += [Case("batch", size, pictures=(sizes[-1] // size) ** 2) for size in sizes]
    kinds: tuple[Weights, ...] = ("segments", "dense")
    found += [Case("kernels", side, count, weights=kind) for kind in kinds for count in counts]
    return found


COLUMNS: dict[str, Callable[[Row], str]] = {
    "growth with": lambda row: row["axis"],
    "pictures": lambda row: f"{row['pictures']} of {row['size']}x{row['size']}",
    "P": lambda row: str(row["kernels"]),
    "weights": lambda row: row["weights"],
    "s": lambda row: f"{row['seconds']['best']:.3f}",
    "us per pixel": lambda row: f"{1e6 * row['per_pixel']:.3f}",
    "of the first": lambda row: f"{row['per_pixel_ratio']:.2f}",
    "peak, MB": lambda row: _megabytes(row["peak_bytes"]),
    "MB per megapixel": lambda row: _megabytes(row["bytes_per_megapixel"]),
}


def run(options: Options) -> Report:
    """Measure time and memory of each case by itself."""
    denoiser, name = open_denoiser(options)
    rows = [_measure(case, denoiser, options) for case in cases(options)]
    firsts = {(row["axis"], row["weights"]): row for row in reversed(rows)}
    for row in rows:
        row["per_pixel_ratio"] = row["per_pixel"] / firsts[row["axis"], row["weights"]]["per_pixel"]
    title = f"Growth of fast with {CALLS} calls of {name} on {options.device.type}: best"
    settings = {"denoiser": name, "calls": CALLS, "noise": round(255 * NOISE, 3), "kernel_side": SIDE}
    return Report("growth", title, COLUMNS, rows, settings, _spread(rows))


def _measure(case: Case, denoiser: Denoiser, options: Options) -> Row:
    options.say(f"{case.pictures} of {case.size}x{case.size}, P = {case.kernels}, {case.weights}")
    timing, peak = _timed(case, denoiser, options)
    if options.device.type == "cpu":
        # Each process loads torch, so quick runs start few of them.
        peak = _peak_apart(case, options) if not options.quick or case.axis == "pixels" else None
    return {
        "axis": case.axis,
        "pictures": case.pictures,
        "size": case.size,
        "kernels": case.kernels,
        "weights": case.weights,
        "seconds": timing.as_json(),
        "per_pixel": timing.best / case.pixels,
        "peak_bytes": peak,
        "bytes_per_megapixel": None if peak is None else peak / case.pixels * 1e6,
    }


def _timed(case: Case, denoiser: Denoiser, options: Options) -> tuple[Timing, int | None]:
    """Seconds, and on a GPU the most bytes held, including the problem's."""
    device, on_gpu = options.device, options.device.type == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
    size = (case.size, case.size)
    problem, _ = make_problem(
        size, case.kernels, NOISE, device, pictures=case.pictures, weights=case.weights, side=min(SIDE, case.size - 1)
    )
    method = make_method("fast", denoiser, problem, noise_of(problem), calls=CALLS)
    samples, budget = (2, 0.5) if options.quick else (3, 20.0)
    timing = take_turns({"run": lambda: run_bare(problem, method)}, device, samples, 1, budget)["run"]
    return timing, torch.cuda.max_memory_allocated(device) - before if on_gpu else None


def _peak_apart(case: Case, options: Options) -> int | None:
    """Bytes that a separate process needs for the case, without torch and the network; None where it is unknown."""
    if sys.platform == "win32":
        return None
    case_and_denoiser = {**asdict(case), "denoiser": choose_denoiser(options)}
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(
        [sys.executable, "-m", "pnpladmm.workshop.bench.memory", json.dumps(case_and_denoiser)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise InputError(f"measuring memory failed: {lines[-1]}")
    return int(json.loads(done.stdout)["peak_bytes"])


def _spread(rows: list[Row]) -> list[str]:
    """How much the time per pixel differs between the sizes."""
    notes = []
    for axis in ("pixels", "batch"):
        times = [row["per_pixel"] for row in rows if row["axis"] == axis]
        if times:
            notes.append(
                f"time per pixel over {axis}: from {min(times) * 1e6:.3g} to {max(times) * 1e6:.3g} us, "
                f"{max(times) / min(times) - 1:.0%} apart"
            )
    return notes


def _megabytes(count: float | None) -> str:
    return "-" if count is None else f"{count / 1e6:.0f}"
