"""Where the time of the fast method goes: denoiser, blur and adjoint, preconditioner, the rest; and how near the
denoiser comes to what the machine can do at all.

On a GPU the denoiser's share is measured in a run with instruments on it alone; what is outside is divided in
proportion to a run with instruments on all, where steps are not recorded. The total beside them is of runs without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.denoisers.loading import load_network
from pnpladmm.denoisers.shipped import SHIPPED
from pnpladmm.solvers import Problem
from pnpladmm.solvers.registry import make_method
from pnpladmm.tensor_files import SUFFIXES
from pnpladmm.workshop.bench.instruments import (
    BLUR,
    DENOISER,
    PRECONDITIONER,
    Watched,
    matrix_rate,
    operations_per_pixel,
    run_bare,
    watched_run,
)
from pnpladmm.workshop.bench.report import Options, Report, Table
from pnpladmm.workshop.bench.scenes import choose_denoiser, load_samples, make_problem, noise_of, open_denoiser
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
    """Samples of the experiments' dataset, not synthetic pictures."""
    noise: float = 10.0
    """Of 255. The weaker it is, the more conjugate gradient has to do."""


def cases(options: Options) -> list[Case]:
    """On a GPU the batch that the project's aim is stated for comes first."""
    if options.quick:
        return [Case(1, (64, 64), 5), Case(1, (96, 64), 8)]
    if options.device.type == "cuda":
        batches = [Case(40, (256, 256), 5, samples=True, noise=noise) for noise in (10.0, 1.0, 20.0, 40.0)]
        return [*batches, Case(1, (256, 256), 5, samples=True), Case(1, (480, 640), 8), Case(1, (1024, 1024), 8)]
    return [Case(1, (256, 256), 5, samples=True), Case(1, (480, 640), 8)]


def run(options: Options) -> Report:
    """Every case; the first batch on a GPU with the network compiled, too."""
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
        rows.append(_measure(case, problem, denoiser, "eager", operations, rate, options))
        # Compiling takes longer than a few pictures: it is for batches, again and again.
        if i == 0 and case.pictures > 1 and (compiled := _compiled(options)) is not None:
            rows.append(_measure(case, problem, compiled, "compiled", operations, rate, options))
    columns = ("pictures", "noise", "network", "s in all", "s a picture", *PARTS, "outside the denoiser")
    table = Table(
        f"Shares of the time, fast with {CALLS} calls of {name} on {options.device.type}: median (best)",
        (*columns, "TFLOP/s", "of the matrix product"),
        [_cells(row) for row in rows],
    )
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
        "blur: H and H^T, all within the conjugate gradient; shares are of runs with instruments, those",
        "outside the denoiser divided, on a GPU, in proportion to a run whose steps are not recorded",
    ]
    return Report("shares", settings, rows, [table], notes)


def _compiled(options: Options) -> Denoiser | None:
    """The network compiled anew, where that is worth while; None elsewhere."""
    chosen = choose_denoiser(options)
    if options.quick or options.device.type != "cuda" or not (chosen in SHIPPED or chosen.endswith(SUFFIXES)):
        return None
    return load_network(chosen, device=options.device, compile_network=True)


def _problem(case: Case, options: Options) -> tuple[Problem, str]:
    if case.samples:
        problem, _, source = load_samples(options, case.noise / 255, case.pictures, case.size[0])
        return problem, source
    return make_problem(case.size, case.kernels, case.noise / 255, options.device, pictures=case.pictures)[
        0
    ], "synthetic"


def _measure(
    case: Case,
    problem: Problem,
    denoiser: Denoiser,
    way: str,
    operations: float | None,
    rate: float,
    options: Options,
) -> dict[str, Any]:
    method = make_method("fast", denoiser, problem, noise_of(problem), calls=CALLS)
    samples, budget = (2, 1.0) if options.quick else (5, 60.0)
    bare = take_turns({"run": lambda: run_bare(problem, method)}, options.device, samples, 2, budget)["run"]

    def best(denoiser_only: bool) -> Watched:
        runs = [watched_run(problem, method, denoiser_only) for _ in range(1 if options.quick else 3)]
        return min(runs, key=lambda run: run.total)

    divided = best(denoiser_only=False)
    watched = best(denoiser_only=True) if options.device.type == "cuda" else divided
    total, calls, inside = watched.total, watched.calls | divided.calls, watched.seconds.get(DENOISER, 0.0)
    scale = watched.outside / divided.outside
    parts = {f"{part}_seconds": scale * divided.seconds.get(part, 0.0) for part in PARTS}
    parts[f"{DENOISER}_seconds"] = inside
    parts["rest_seconds"] = max(0.0, total - sum(parts.values()))
    pixels = problem.observed[0, 0].numel() * problem.pictures
    done = None if operations is None else operations * pixels * calls.get(DENOISER, 0) / inside
    return {
        "pictures": problem.pictures,
        "size": list(case.size),
        "kernels": case.kernels,
        "noise": case.noise,
        "network": way,
        "seconds": bare.as_json(),
        "watched_seconds": total,
        **parts,
        "outside_share": watched.outside / total,
        "divided_seconds": divided.total,
        "calls": calls,
        "operations_per_second": done,
        "share_of_matrix_product": None if done is None else done / rate,
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    seconds, total, done = row["seconds"], row["watched_seconds"], row["operations_per_second"]
    share = row["share_of_matrix_product"]
    parts = (f"{row[f'{name}_seconds'] / total:.1%}" for name in PARTS)
    return (
        f"{row['pictures']} of {row['size'][0]}x{row['size'][1]}, P = {row['kernels']}",
        f"{row['noise']:g}",
        row["network"],
        f"{seconds['median']:.3f} ({seconds['best']:.3f}); watched {total:.3f}",
        f"{seconds['median'] / row['pictures']:.4f}",
        *parts,
        f"{row['outside_share']:.1%}",
        "-" if done is None else f"{done / 1e12:.2f}",
        "-" if share is None else f"{share:.0%}",
    )
