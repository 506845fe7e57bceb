"""How the time of the fast method is divided: denoiser, blur and adjoint, preconditioner, rest. And how close the
denoiser comes to the speed of a matrix product.

On a GPU the denoiser's share is measured in a run in which only the denoiser is timed. The time outside it is divided
as in a second run in which all parts are timed, and steps are therefore not recorded. The total is from runs without
instruments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.denoisers.loading import load_network
from pnpladmm.denoisers.network import NetworkDenoiser
from pnpladmm.solvers import Problem
from pnpladmm.solvers.registry import make_method
from pnpladmm.workshop.bench.inputs import choose_denoiser, load_samples, make_problem, noise_of, open_denoiser
from pnpladmm.workshop.bench.instruments import (
    BLUR,
    DENOISER,
    PRECONDITIONER,
    TimedRun,
    matrix_rate,
    operations_per_pixel,
    run_bare,
    timed_run,
)
from pnpladmm.workshop.bench.report import Options, Report, Row
from pnpladmm.workshop.bench.timing import take_turns

CALLS = 8
PARTS = (DENOISER, BLUR, PRECONDITIONER, "rest")


@dataclass(frozen=True)
class Case:
    """Pictures restored in one batch."""

    pictures: int
    size: tuple[int, int]
    kernels: int
    samples: bool = False
    """Samples of the experiments' dataset instead of synthetic pictures."""
    noise: float = 10.0
    """Of 255. The weaker it is, the more steps the conjugate gradient needs."""


def cases(options: Options) -> list[Case]:
    """On a GPU the batch of the project's goal comes first."""
    if options.quick:
        return [Case(1, (64, 64), 5), Case(1, (96, 64), 8)]
    if options.device.type == "cuda":
        batches = [Case(40, (256, 256), 5, samples=True, noise=noise) for noise in (10.0, 1.0, 20.0, 40.0)]
        return [*batches, Case(1, (256, 256), 5, samples=True), Case(1, (480, 640), 8), Case(1, (1024, 1024), 8)]
    return [Case(1, (256, 256), 5, samples=True), Case(1, (480, 640), 8)]


def _pictures(row: Row) -> str:
    height, width = row["size"]
    return f"{row['pictures']} of {height}x{width}, P = {row['kernels']}"


def _total(row: Row) -> str:
    return f"{row['seconds']['median']:.3f} ({row['seconds']['best']:.3f}); timed {row['watched_seconds']:.3f}"


def _part(name: str) -> Callable[[Row], str]:
    return lambda row: f"{row[f'{name}_seconds'] / row['watched_seconds']:.1%}"


def _rate(row: Row) -> str:
    rate = row["operations_per_second"]
    return "-" if rate is None else f"{rate / 1e12:.2f}"


def _rate_share(row: Row) -> str:
    share = row["share_of_matrix_product"]
    return "-" if share is None else f"{share:.0%}"


COLUMNS: dict[str, Callable[[Row], str]] = {
    "pictures": _pictures,
    "noise": lambda row: f"{row['noise']:g}",
    "network": lambda row: row["network"],
    "s in total": _total,
    "s per picture": lambda row: f"{row['seconds']['median'] / row['pictures']:.4f}",
    **{part: _part(part) for part in PARTS},
    "outside the denoiser": lambda row: f"{row['outside_share']:.1%}",
    "TFLOP/s": _rate,
    "of the matrix product": _rate_share,
}


def run(options: Options) -> Report:
    """Measure every case; on a GPU the first batch with a compiled network, too."""
    side = 512 if options.quick else 8192 if options.device.type == "cuda" else 3072
    rate = matrix_rate(options.device, side)
    denoiser, name = open_denoiser(options)
    operations = operations_per_pixel(denoiser, 3, options.device)
    rows = []
    sources = []
    for i, case in enumerate(cases(options)):
        problem, source = _problem(case, options)
        sources.append(source)
        options.say(f"{case.pictures} of {case.size[0]}x{case.size[1]}, P = {case.kernels}, noise {case.noise:g}")
        networks = {"eager": denoiser}
        # Compilation takes longer than a few pictures: it is for many batches of one shape.
        if i == 0 and case.pictures > 1 and (compiled := _compiled(denoiser, options)) is not None:
            networks["compiled"] = compiled
        for network, d in networks.items():
            row = {"pictures": problem.pictures, "size": list(case.size), "kernels": case.kernels, "noise": case.noise}
            rows.append({**row, "network": network, **_measure(problem, d, operations, rate, options)})
    settings = {
        "denoiser": name,
        "calls": CALLS,
        "operations_per_pixel": operations,
        "matrix_product": {"side": side, "operations_per_second": rate},
        "sources": sources,
    }
    per_picture = "unknown" if operations is None else f"{operations * 256**2 / 1e9:.0f} GFLOP for 256x256"
    notes = [
        f"matrix product of {side}^3: {rate / 1e12:.2f} TFLOP/s; one denoiser call: {per_picture}",
        "blur: H and H^T, all in the conjugate gradient; the shares are from runs with instruments, and on a GPU",
        "the time outside the denoiser is divided as in a run whose steps are not recorded",
    ]
    title = f"Shares of the time, fast with {CALLS} calls of {name} on {options.device.type}: median (best)"
    return Report("shares", title, COLUMNS, rows, settings, notes)


def _compiled(denoiser: Denoiser, options: Options) -> Denoiser | None:
    """The network, compiled, on a GPU; else None."""
    if options.quick or options.device.type != "cuda" or not isinstance(denoiser, NetworkDenoiser):
        return None
    return load_network(choose_denoiser(options), device=options.device, compile_network=True)


def _problem(case: Case, options: Options) -> tuple[Problem, str]:
    if case.samples:
        problem, _, source = load_samples(options, case.noise / 255, case.pictures, case.size[0])
        return problem, source
    problem, _ = make_problem(case.size, case.kernels, case.noise / 255, options.device, pictures=case.pictures)
    return problem, "synthetic"


def _measure(problem: Problem, denoiser: Denoiser, operations: float | None, rate: float, options: Options) -> Row:
    """Seconds of runs without instruments, and the shares of runs with them."""
    method = make_method("fast", denoiser, problem, noise_of(problem), calls=CALLS)
    samples, budget = (2, 1.0) if options.quick else (5, 60.0)
    bare = take_turns({"run": lambda: run_bare(problem, method)}, options.device, samples, 2, budget)["run"]

    def best(denoiser_only: bool) -> TimedRun:
        runs = [timed_run(problem, method, denoiser_only) for _ in range(1 if options.quick else 3)]
        return min(runs, key=lambda run: run.total)

    divided = best(denoiser_only=False)
    timed = best(denoiser_only=True) if options.device.type == "cuda" else divided
    total, calls, inside = timed.total, timed.calls | divided.calls, timed.seconds.get(DENOISER, 0.0)
    scale = timed.outside / divided.outside
    parts = {f"{part}_seconds": scale * divided.seconds.get(part, 0.0) for part in PARTS}
    parts[f"{DENOISER}_seconds"] = inside
    parts["rest_seconds"] = max(0.0, total - sum(parts.values()))
    pixels = problem.observed[0, 0].numel() * problem.pictures
    reached = None if operations is None else operations * pixels * calls.get(DENOISER, 0) / inside
    return {
        "seconds": bare.as_json(),
        "watched_seconds": total,
        **parts,
        "outside_share": timed.outside / total,
        "divided_seconds": divided.total,
        "calls": calls,
        "operations_per_second": reached,
        "share_of_matrix_product": None if reached is None else reached / rate,
    }
