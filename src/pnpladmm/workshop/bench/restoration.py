"""Whole restorations: seconds, denoiser calls and PSNR of our methods and of other tools on the same samples.

Only the iterations are timed. Operators, transforms of kernels, norm bounds and networks are made before, for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.metrics import PAPER, psnr
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.solvers import Annealed, Problem, RichardsonLucy
from pnpladmm.solvers.registry import make_method
from pnpladmm.workshop.bench import deepinv_solvers
from pnpladmm.workshop.bench.inputs import (
    PHOTOGRAPH,
    choose_denoiser,
    load_samples,
    make_problem,
    noise_of,
    open_denoiser,
    photograph,
)
from pnpladmm.workshop.bench.instruments import run_bare
from pnpladmm.workshop.bench.report import Options, Report, Row
from pnpladmm.workshop.bench.rivals import Missing, first_line
from pnpladmm.workshop.bench.timing import take_turns

REFERENCE = "LADMM, 100 iterations"
FASTEST = "fast, 8 calls"
LUCY_ITERATIONS = (2, 5, 10, 20, 50, 100)
"""Richardson-Lucy is stopped after the best of these by PSNR, an advantage that only a benchmark can give it."""
PHOTOGRAPH_SIZE = (480, 640)
START_VALUE = 0.5
"""Every pixel of the start of Richardson-Lucy, as in scikit-image; it is worse from the noisy observation."""


@dataclass(frozen=True)
class Contender:
    """One restoration, ready to run."""

    run: Callable[[], Tensor]
    calls: int | None = None
    """Denoiser calls; None for methods without a denoiser."""
    remark: str = ""


def _seconds(row: Row) -> str:
    seconds, count = row["seconds"], row["pictures"]
    return "-" if seconds is None else f"{seconds['best'] / count:.4f} ({seconds['median'] / count:.4f})"


def _time_ratio(row: Row) -> str:
    ratio = row["time_ratio"]
    return "-" if ratio is None else f"{ratio['best']:.2f} ({ratio['median']:.2f})"


COLUMNS: dict[str, Callable[[Row], str]] = {
    "pictures": lambda row: f"{row['pictures']} of {row['size'][0]}x{row['size'][1]}",
    "noise": lambda row: f"{row['noise']:g}",
    "method": lambda row: row["method"],
    "calls": lambda row: "-" if row["denoiser_calls"] is None else str(row["denoiser_calls"]),
    "s per picture": _seconds,
    f"time / {FASTEST}": _time_ratio,
    "PSNR": lambda row: f"{row['psnr']:.2f}",
    "over LADMM": lambda row: f"{row['over_ladmm']:+.2f}",
    "remark": lambda row: row["remark"],
}


def run(options: Options) -> Report:
    """Restore at each noise level; on a CPU then the photograph of the project's goal."""
    denoiser, name = open_denoiser(options)
    rows: list[Row] = []
    notes: list[str] = []
    sources: list[str] = []
    for problem, sharp, source in _problems(options):
        count, (height, width), level = problem.pictures, problem.shape[-2:], _level(problem)
        options.say(f"restorations of {count} of {height}x{width} at noise {level:g} of 255")
        contenders, missing = _contenders(problem, sharp, denoiser, options)
        rows += _measure(contenders, problem, sharp, options)
        notes += [note for note in missing if note not in notes]
        sources += [source] if source not in sources else []
    notes.append(
        "PSNR inside a border of 17 pixels, mean over the pictures; what is made before the clock starts: see README"
    )
    title = f"Restorations with {name} on {options.device.type}: best (median)"
    return Report("restoration", title, COLUMNS, rows, {"denoiser": name, "sources": sources}, notes)


def _problems(options: Options) -> Iterator[tuple[Problem, Tensor, str]]:
    """What is restored, the sharp pictures, and their source."""
    on_gpu = options.device.type == "cuda"
    if options.quick:
        levels, count, size = [10], 1, 64
    else:
        levels, count, size = ([1, 10, 20, 40], 16, 256) if on_gpu else ([10], 2, 256)
    for level in levels:
        problem, sharp, source = load_samples(options, level / 255, count, size)
        if round(_level(problem)) != level and level != levels[0]:
            break  # a stored dataset has only one noise level
        yield problem, sharp, source
    if not (options.quick or on_gpu):
        sharp = photograph(PHOTOGRAPH_SIZE, options.device)
        problem, _ = make_problem(PHOTOGRAPH_SIZE, 8, 10 / 255, options.device, sharp=sharp)
        yield problem, sharp, f"{PHOTOGRAPH} of scikit-image, 8 segments"


def _contenders(
    problem: Problem, sharp: Tensor, denoiser: Denoiser, options: Options
) -> tuple[dict[str, Contender], list[str]]:
    """Who takes part, and why others do not, one line each."""
    sigmas = noise_of(problem)
    sigma = float(sigmas[0])

    def ours(name: str, iterations: int, calls: int | None = None) -> Contender:
        method = make_method(name, denoiser, problem, sigmas, calls=calls)
        return Contender(lambda: run_bare(problem, method, iterations).image, iterations)

    contenders = {
        FASTEST: ours("fast", 8, 8),
        "fast, 24 calls": ours("fast", 24, 24),
        REFERENCE: ours("ladmm", 100),
        "ADMM + CG, 40 iterations": ours("admm", 40),
        "Richardson-Lucy, varying": _lucy(problem, sharp),
    }
    schedule = make_method("fast", denoiser, problem, sigmas, calls=8)
    makers: dict[str, Callable[[], Contender]] = {
        "deepinv DPIR, its DRUNet": lambda: _deepinv_dpir(problem, sigma, options),
        "deepinv DPIR, our denoiser": lambda: Contender(
            deepinv_solvers.dpir(problem, sigma, denoiser), 8, "its settings"
        ),
        "deepinv HQS, our schedule": lambda: _deepinv_schedule(problem, sigma, schedule, denoiser),
        "scikit-image Richardson-Lucy": lambda: _uniform_lucy(problem, sharp),
    }
    missing = []
    for name, make in makers.items():
        try:
            contenders[name] = make()
            contenders[name].run()
        except Exception as reason:  # whatever a rival raises, the others continue
            contenders.pop(name, None)
            missing.append(f"{name}: {first_line(reason)}")
    return contenders, missing


def _deepinv_dpir(problem: Problem, sigma: float, options: Options) -> Contender:
    model = deepinv_solvers.deepinv_drunet(choose_denoiser(options), options.device)
    return Contender(deepinv_solvers.dpir(problem, sigma, model), 8, "its settings, float32")


def _deepinv_schedule(problem: Problem, sigma: float, schedule: object, denoiser: Denoiser) -> Contender:
    if not isinstance(schedule, Annealed):
        raise Missing("our method has no schedule for this denoiser")
    return Contender(deepinv_solvers.half_quadratic(problem, sigma, schedule, denoiser), schedule.calls)


def _lucy(problem: Problem, sharp: Tensor) -> Contender:
    flat = torch.full(problem.shape, START_VALUE, dtype=sharp.dtype, device=sharp.device)

    def restored(iterations: int) -> Tensor:
        return run_bare(problem, RichardsonLucy(), iterations, flat).image

    best = max(LUCY_ITERATIONS, key=lambda n: _quality(restored(n), sharp))
    return Contender(lambda: restored(best), remark=f"flat start; best iteration: {best}")


def _uniform_lucy(problem: Problem, sharp: Tensor) -> Contender:
    """scikit-image's Richardson-Lucy with the mean kernel of each picture, since it takes one kernel per picture."""
    from skimage.restoration import richardson_lucy

    blur = problem.operator
    if not isinstance(blur, SpatiallyVaryingBlur) or problem.observed.is_cuda:
        raise Missing("it runs on the CPU only, and on a blur")
    kernels = torch.einsum("bpchw,bp->bchw", blur.kernels.double(), blur.weights.double().mean((2, 3, 4)))
    kernels = kernels / kernels.sum((-2, -1), keepdim=True)
    psfs = kernels.expand(problem.pictures, problem.shape[1], -1, -1).float().numpy()
    observed = problem.observed.clamp_min(0).numpy()

    def restored(iterations: int) -> Tensor:
        pictures = [
            [richardson_lucy(plane, psf, num_iter=iterations, clip=False) for plane, psf in zip(*both, strict=True)]
            for both in zip(observed, psfs, strict=True)
        ]
        return torch.from_numpy(np.array(pictures)).to(problem.observed)

    best = max(LUCY_ITERATIONS, key=lambda n: _quality(restored(n), sharp))
    return Contender(lambda: restored(best), remark=f"mean kernel, flat start; best iteration: {best}")


def _measure(contenders: dict[str, Contender], problem: Problem, sharp: Tensor, options: Options) -> list[Row]:
    """Time all in turn, and compare their results."""
    images: dict[str, Tensor] = {}

    def keeping(name: str) -> Callable[[], object]:
        def call() -> None:
            images[name] = contenders[name].run()

        return call

    samples, budget = (1, 0.5) if options.quick else (5, 20.0)
    timings = take_turns({name: keeping(name) for name in contenders}, options.device, samples, 1, budget)
    quality = {name: _quality(image, sharp) for name, image in images.items()}
    rows = [_row(problem, "blurred", _quality(problem.observed, sharp) - quality[REFERENCE], None)]
    rows[0]["psnr"] = _quality(problem.observed, sharp)
    for name, contender in contenders.items():
        row = _row(problem, name, quality[name] - quality[REFERENCE], contender)
        timing = timings[name]
        row |= {"psnr": quality[name], "seconds": timing.as_json()}
        row["time_ratio"] = {
            "best": timing.best / timings[FASTEST].best,
            "median": timing.median / timings[FASTEST].median,
        }
        rows.append(row)
    return rows


def _row(problem: Problem, name: str, over: float, contender: Contender | None) -> Row:
    return {
        "noise": _level(problem),
        "method": name,
        "pictures": problem.pictures,
        "size": list(problem.shape[-2:]),
        "denoiser_calls": None if contender is None else contender.calls,
        "psnr": None,
        "over_ladmm": over,
        "seconds": None,
        "time_ratio": None,
        "remark": "" if contender is None else contender.remark,
    }


def _level(problem: Problem) -> float:
    """Noise level of the first picture, of 255."""
    return round(255 * float(noise_of(problem)[0]), 3)


def _quality(image: Tensor, sharp: Tensor) -> float:
    return float(psnr(image, sharp, PAPER).mean())
