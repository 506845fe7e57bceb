"""Whole restorations: seconds, denoiser calls and PSNR of our methods and of other tools on the same samples.

Timed is the iteration; operators, transforms of kernels, norm bounds and networks are made before, for everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.metrics import PAPER, psnr
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.solvers import Annealed, Problem, RichardsonLucy
from pnpladmm.solvers.registry import make_method
from pnpladmm.workshop.bench import deepinv_solvers
from pnpladmm.workshop.bench.instruments import run_bare
from pnpladmm.workshop.bench.report import Options, Report, Table
from pnpladmm.workshop.bench.rivals import Missing, first_line
from pnpladmm.workshop.bench.scenes import (
    PHOTOGRAPH,
    choose_denoiser,
    load_samples,
    make_problem,
    noise_of,
    open_denoiser,
    photograph,
)
from pnpladmm.workshop.bench.timing import take_turns

REFERENCE = "LADMM, 100 iterations"
FASTEST = "fast, 8 calls"
LUCY_ITERATIONS = (2, 5, 10, 20, 50, 100)
"""Richardson-Lucy is stopped after the best of these by PSNR, which only a benchmark can know: it flatters it."""

WHOLE = (480, 640)

FLAT = 0.5
"""Where scikit-image's Richardson-Lucy starts, and here ours too: from the noisy observation it is worse."""


@dataclass(frozen=True)
class Contender:
    """One restoration, ready to run."""

    run: Callable[[], Tensor]
    calls: int | None = None
    """Denoiser calls; None for methods without a denoiser."""
    remark: str = ""


def run(options: Options) -> Report:
    """Each noise level in turn; on a CPU then the whole picture that the project's aim is stated for."""
    denoiser, name = open_denoiser(options)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    sources: list[str] = []
    columns = (
        "pictures",
        "noise",
        "method",
        "calls",
        "s a picture",
        f"time / {FASTEST}",
        "PSNR",
        "over LADMM",
        "remark",
    )
    table = Table(f"Restorations with {name} on {options.device.type}: best (median)", columns)
    for problem, sharp, source in _problems(options):
        level = round(255 * float(noise_of(problem)[0]), 3)
        options.say(f"restorations of {_pictures(problem)} at noise {level:g} of 255")
        contenders, missing = _contenders(problem, sharp, denoiser, options)
        found = _measure(contenders, problem, sharp, options)
        rows += found
        table.rows.extend(_cells(row) for row in found)
        notes += [note for note in missing if note not in notes]
        sources += [source] if source not in sources else []
    notes.append(
        "PSNR inside a border of 17 pixels, mean over the pictures; prepared before the clock starts: see README"
    )
    return Report("restoration", {"denoiser": name, "sources": sources}, rows, [table], notes)


def _problems(options: Options) -> Iterator[tuple[Problem, Tensor, str]]:
    """What is restored, with the sharp pictures and where they are from."""
    on_gpu = options.device.type == "cuda"
    if options.quick:
        levels, count, size = [10], 1, 64
    else:
        levels, count, size = ([1, 10, 20, 40], 16, 256) if on_gpu else ([10], 2, 256)
    for level in levels:
        problem, sharp, source = load_samples(options, level / 255, count, size)
        if round(255 * float(noise_of(problem)[0])) != level and level != levels[0]:
            break  # a stored dataset has one noise level
        yield problem, sharp, source
    if not (options.quick or on_gpu):
        sharp = photograph(WHOLE, options.device)
        problem, _ = make_problem(WHOLE, 8, 10 / 255, options.device, sharp=sharp)
        yield problem, sharp, f"{PHOTOGRAPH} of scikit-image, 8 segments"


def _contenders(
    problem: Problem, sharp: Tensor, denoiser: Denoiser, options: Options
) -> tuple[dict[str, Contender], list[str]]:
    """Who takes part, and why others do not."""
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
        except Exception as reason:  # whatever a rival fails of, the others go on
            contenders.pop(name, None)
            missing.append(f"{name}: {first_line(reason)}")
    return contenders, missing


def _deepinv_dpir(problem: Problem, sigma: float, options: Options) -> Contender:
    model = deepinv_solvers.deepinv_drunet(choose_denoiser(options), options.device)
    return Contender(deepinv_solvers.dpir(problem, sigma, model), 8, "its settings, float32")


def _deepinv_schedule(problem: Problem, sigma: float, schedule: object, denoiser: Denoiser) -> Contender:
    if not isinstance(schedule, Annealed):
        raise Missing("for this denoiser our method has no schedule")
    return Contender(deepinv_solvers.half_quadratic(problem, sigma, schedule, denoiser), schedule.calls)


def _lucy(problem: Problem, sharp: Tensor) -> Contender:
    flat = torch.full(problem.shape, FLAT, dtype=sharp.dtype, device=sharp.device)

    def restored(iterations: int) -> Tensor:
        return run_bare(problem, RichardsonLucy(), iterations, flat).image

    best = max(LUCY_ITERATIONS, key=lambda n: _quality(restored(n), sharp))
    return Contender(lambda: restored(best), remark=f"flat start; best iteration: {best}")


def _uniform_lucy(problem: Problem, sharp: Tensor) -> Contender:
    """scikit-image knows one kernel for the whole picture: it gets the mean kernel of each picture."""
    try:
        from skimage.restoration import richardson_lucy
    except ImportError:
        raise Missing("scikit-image is not installed") from None
    blur = problem.operator
    if not isinstance(blur, SpatiallyVaryingBlur) or problem.observed.is_cuda:
        raise Missing("it works on the CPU, on a blur")
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


def _measure(
    contenders: dict[str, Contender], problem: Problem, sharp: Tensor, options: Options
) -> list[dict[str, Any]]:
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


def _row(problem: Problem, name: str, over: float, contender: Contender | None) -> dict[str, Any]:
    return {
        "noise": round(255 * float(noise_of(problem)[0]), 3),
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


def _pictures(problem: Problem) -> str:
    return f"{problem.pictures} of {problem.shape[-2]}x{problem.shape[-1]}"


def _quality(image: Tensor, sharp: Tensor) -> float:
    return float(psnr(image, sharp, PAPER).mean())


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    seconds, ratio = row["seconds"], row["time_ratio"]
    each = row["pictures"]
    return (
        f"{each} of {row['size'][0]}x{row['size'][1]}",
        f"{row['noise']:g}",
        row["method"],
        "-" if row["denoiser_calls"] is None else str(row["denoiser_calls"]),
        "-" if seconds is None else f"{seconds['best'] / each:.4f} ({seconds['median'] / each:.4f})",
        "-" if ratio is None else f"{ratio['best']:.2f} ({ratio['median']:.2f})",
        f"{row['psnr']:.2f}",
        f"{row['over_ladmm']:+.2f}",
        row["remark"],
    )
