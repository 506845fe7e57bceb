"""How time and memory of the fast method grow with the pixels and with the number of kernels.

Memory on a GPU is what torch held at most during the run; on a CPU the peak of the resident memory of a process of
its own that does nothing else, less what it had before the pictures were made.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any

import torch

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.solvers.registry import make_method
from pnpladmm.tensors import InputError
from pnpladmm.workshop.bench.instruments import run_bare
from pnpladmm.workshop.bench.report import Options, Report, Table
from pnpladmm.workshop.bench.scenes import Weights, choose_denoiser, make_problem, noise_of, open_denoiser
from pnpladmm.workshop.bench.timing import Timing, take_turns

CALLS = 8
NOISE = 10 / 255


@dataclass(frozen=True)
class Case:
    """Pictures of one size in a batch, each with a blur of its own."""

    axis: str
    """`pixels`: one picture, larger and larger; `batch`: as many pixels in each batch; `kernels`: P grows."""
    size: int
    kernels: int = 8
    pictures: int = 1
    weights: Weights = "segments"

    @property
    def pixels(self) -> int:
        """Of the batch."""
        return self.pictures * self.size**2


def cases(options: Options) -> list[Case]:
    """Sizes, then numbers of kernels."""
    counts, sizes, side = [1, 4, 8, 16, 32, 64], [256, 512, 1024, 2048], 512
    if options.quick:
        counts, sizes, side = [1, 4], [64, 96], 64
    found = [Case("pixels", size) for size in sizes]
    if options.device.type == "cuda":
        # One small picture does not fill a GPU: time per pixel is compared between batches of as many pixels.
        found += [Case("batch", size, pictures=(sizes[-1] // size) ** 2) for size in sizes]
    kinds: tuple[Weights, ...] = ("segments", "dense")
    found += [Case("kernels", side, count, weights=kind) for kind in kinds for count in counts]
    return found


def run(options: Options) -> Report:
    """Each case timed alone, with its memory."""
    denoiser, name = open_denoiser(options)
    rows = [_measure(case, denoiser, options) for case in cases(options)]
    firsts = {(row["axis"], row["weights"]): row for row in reversed(rows)}
    for row in rows:
        row["per_pixel_ratio"] = row["per_pixel"] / firsts[row["axis"], row["weights"]]["per_pixel"]
    columns = (
        "growth with",
        "pictures",
        "P",
        "weights",
        "s",
        "us a pixel",
        "of the first",
        "peak, MB",
        "MB a megapixel",
    )
    title = f"Growth of fast with {CALLS} calls of {name} on {options.device.type}: best"
    table = Table(title, columns, [_cells(row) for row in rows])
    notes = _spread(rows)
    settings = {"denoiser": name, "calls": CALLS, "noise": round(255 * NOISE, 3), "kernel_side": 33}
    return Report("growth", settings, rows, [table], notes)


def _measure(case: Case, denoiser: Denoiser, options: Options) -> dict[str, Any]:
    options.say(f"{case.pictures} of {case.size}x{case.size}, P = {case.kernels}, {case.weights}")
    timing, peak = _timed(case, denoiser, options)
    if options.device.type == "cpu":
        # Each process loads torch: in a quick run one of them shows that it works.
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
    """Seconds, and on a GPU the most bytes held, with the problem's own."""
    device, on_gpu = options.device, options.device.type == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
    size = (case.size, case.size)
    problem, _ = make_problem(
        size, case.kernels, NOISE, device, pictures=case.pictures, weights=case.weights, side=min(33, case.size - 1)
    )
    method = make_method("fast", denoiser, problem, noise_of(problem), calls=CALLS)
    samples, budget = (2, 0.5) if options.quick else (3, 20.0)
    timing = take_turns({"run": lambda: run_bare(problem, method)}, device, samples, 1, budget)["run"]
    return timing, torch.cuda.max_memory_allocated(device) - before if on_gpu else None


def _peak_apart(case: Case, options: Options) -> int | None:
    """Bytes that a process of its own needs for the case beyond torch and the network; None where it cannot be told."""
    if sys.platform == "win32":
        return None
    order = {**asdict(case), "denoiser": choose_denoiser(options)}
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(
        [sys.executable, "-m", "pnpladmm.workshop.bench.memory", json.dumps(order)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise InputError(f"measuring memory failed: {lines[-1]}")
    return int(json.loads(done.stdout)["peak_bytes"])


def _spread(rows: list[dict[str, Any]]) -> list[str]:
    notes = []
    for axis in ("pixels", "batch"):
        times = [row["per_pixel"] for row in rows if row["axis"] == axis]
        if times:
            notes.append(
                f"time per pixel over {axis}: from {min(times) * 1e6:.3g} to {max(times) * 1e6:.3g} us, "
                f"{max(times) / min(times) - 1:.0%} apart"
            )
    return notes


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    peak, per_megapixel = row["peak_bytes"], row["bytes_per_megapixel"]
    return (
        row["axis"],
        f"{row['pictures']} of {row['size']}x{row['size']}",
        str(row["kernels"]),
        row["weights"],
        f"{row['seconds']['best']:.3f}",
        f"{1e6 * row['per_pixel']:.3f}",
        f"{row['per_pixel_ratio']:.2f}",
        "-" if peak is None else f"{peak / 1e6:.0f}",
        "-" if per_megapixel is None else f"{per_megapixel / 1e6:.0f}",
    )
