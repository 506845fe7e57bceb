"""Runs with a proof (docs/reference/proof.md): certified LADMM, followed for up to a thousand iterations.

Each picture runs twice, from the observation and after 8 calls of the annealed method, until nothing changes. With a
gradient step (`prox-drunet`) the certificate rests on what is measured in the run; with a plain network (`drunet`,
`light`) the same iterations show whether it drifts. Methods outside the theorem are scored beside them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pnpladmm.denoisers import Promise, promise_of
from pnpladmm.metrics import PAPER, psnr
from pnpladmm.solvers import LADMM, Progress, Result, State
from pnpladmm.solvers.ladmm import LADMMState
from pnpladmm.solvers.settings import Row
from pnpladmm.tensors import squared_norm
from pnpladmm.workshop.experiments.batches import Batch, solve_all
from pnpladmm.workshop.experiments.comparison import Compared, chosen_methods, settings_of
from pnpladmm.workshop.experiments.output import write_result
from pnpladmm.workshop.experiments.proof_page import draw_proof
from pnpladmm.workshop.experiments.setup import Setup
from pnpladmm.workshop.experiments.units import Advance, Run, Unit, run_units

DENOISER = "prox-drunet"
COUNT = 20
ITERATIONS, QUICK_ITERATIONS = 1000, 12
CONVERGED, TOLERANCE = 1e-5, 2e-6
"""A picture has converged when `||x+ - x|| / ||x||` is below the first. Its run goes on until `x`, `z` and `u` change
by less than the second, to show where it leads."""
POINTS = 48
"""Of each curve, evenly spaced in the logarithm of the iteration; its end is added."""
STARTS = ("observed", "warm")
BESIDE = ("ladmm", "fast-8", "fast-24")
"""The methods that the price of a proof is measured against."""


def make_proof(setup: Setup) -> dict[str, Any]:
    """Run, and write `proof.json` and what is drawn from it."""
    # float16 keeps changing a picture by 1e-4 of itself: no run would converge.
    setup = dataclasses.replace(setup, denoiser_name=setup.denoiser_name or DENOISER, precision=torch.float32)
    (certified, first), beside = chosen_methods(("certified", "fast-8")), chosen_methods(BESIDE)
    iterations = QUICK_ITERATIONS if setup.quick else ITERATIONS
    units: list[Unit] = []
    loaded = setup.samples("test", count=COUNT)
    for noise, samples in loaded.items():
        row = _row(setup, certified, noise)
        for batch in setup.batches(samples):
            run = Run(setup, batch, certified, noise, given_settings=row, given_iterations=iterations)
            units += [_certified_unit(run, Run(setup, batch, first, noise), start) for start in STARTS]
            units += [_beside_unit(Run(setup, batch, method, noise)) for method in beside]
    runs: list[dict[str, Any]] = []
    scores: list[dict[str, Any]] = []
    for unit, values in run_units(setup, "proof", units):
        if "runs" in values:
            runs += [{**one, "noise": unit.key["noise"], "start": unit.key["start"]} for one in values["runs"]]
        else:
            scores += [{**one, "noise": unit.key["noise"], "method": unit.key["method"]} for one in values["scores"]]
    data = {
        "experiment": "proof",
        **setup.described(loaded),
        "iterations": iterations,
        "converged": CONVERGED,
        "tolerance": TOLERANCE,
        "titles": {method.name: method.title_of_run(setup.quick) for method in beside},
        "runs": runs,
        "scores": scores,
    }
    write_result(setup.out, "proof", data, draw_proof)
    return data


def _certified_unit(run: Run, warm: Run, start: str) -> Unit:
    """A run from the observation, or from the picture that `warm` restores."""
    batch, points = run.batch, _points(run.iterations)

    def compute(advance: Advance) -> dict[str, Any]:
        sharp = batch.sharp
        method = run.make_method()
        assert isinstance(method, LADMM)
        x = batch.start
        if start == "warm":
            x = warm.solve(warm.make_method(), lambda _: None).image
            method = method.started_from_blurred()
        seen = _Seen(psnr(x, sharp, PAPER))

        def look(step: Progress) -> None:
            if step.iteration in points:
                seen.points.append(step.iteration)
                seen.psnr.append(psnr(step.state.x, sharp, PAPER))
                seen.gradient.append(_gradient_norm(method, batch, step.state))
            advance(len(batch.names))

        result = solve_all(batch, method, run.iterations, TOLERANCE, x, callback=look, record=True)
        ended = psnr(result.image, sharp, PAPER), _gradient_norm(method, batch, result.state)
        strength = {name: run.settings[name] for name in ("sigma_d", "relaxation")}
        return {"runs": [{**_run(n, result, seen, ended, i), **strength} for i, n in enumerate(batch.names)]}

    first = warm.settings if start == "warm" else None
    unit = run.unit("proof", compute, start=start, first=first, tolerance=TOLERANCE)
    return dataclasses.replace(unit, label=f"{unit.label}, start {start}")


def _row(setup: Setup, method: Compared, noise: float) -> Row:
    """All networks run with `prox-drunet`'s settings, so that they can be compared."""
    if promise_of(setup.denoiser) is Promise.CONVEX:
        return setup.row(method, noise)
    return settings_of(setup.settings, DENOISER, setup.denoiser, method, noise)


def _beside_unit(run: Run) -> Unit:
    batch = run.batch

    def compute(advance: Advance) -> dict[str, Any]:
        image = run.solve(run.make_method(), advance).image
        values = psnr(image, batch.sharp, PAPER).tolist()
        return {"scores": [{"picture": n, "psnr": v} for n, v in zip(batch.names, values, strict=True)]}

    return run.unit("proof", compute)


@dataclasses.dataclass
class _Seen:
    """Measured during a run, on the device: values (B,) at the points."""

    start_psnr: Tensor
    points: list[int] = dataclasses.field(default_factory=list)
    psnr: list[Tensor] = dataclasses.field(default_factory=list)
    gradient: list[Tensor] = dataclasses.field(default_factory=list)


def _gradient_norm(method: LADMM, batch: Batch, state: State) -> Tensor:
    """`||grad E||` of each picture; of finished ones, at their end."""
    assert isinstance(state, LADMMState)
    gradient = method.gradient(batch.problem, state)
    assert gradient is not None
    return squared_norm(gradient).sqrt()


def _points(iterations: int) -> set[int]:
    return {round(iterations ** (i / (POINTS - 1))) for i in range(POINTS)}


def _run(name: str, result: Result, seen: _Seen, ended: tuple[Tensor, Tensor], i: int) -> dict[str, Any]:
    """All that is kept of one picture's run."""
    h = result.history
    change = h.x_change[:, i]
    change = change[torch.isfinite(change)]
    # Leaps make changes rise and fall: it has converged after the last that was not small.
    large = torch.nonzero(~(change < CONVERGED)).flatten()
    settled = int(large[-1]) + 2 if len(large) else 1
    curvature = None if h.curvature is None else h.curvature[:, i]
    measured = None if curvature is None else curvature[torch.isfinite(curvature)]
    certificate = result.certificates[i]
    before_end = [j for j, k in enumerate(seen.points) if k < len(change)]
    points = [*(seen.points[j] for j in before_end), len(change)]
    rows = [k - 1 for k in points]
    first, last = seen.gradient[0][i], ended[1][i]
    return {
        "picture": name,
        "certificate": certificate.level.value,
        "failures": list(certificate.failures),
        "status": result.statuses[i].label,
        "iterations": len(change),
        "converged_at": settled if settled <= len(change) else None,
        "last_change": float(change[-1]) if len(change) else None,
        "curvature": None if measured is None or not len(measured) else float(measured.max()),
        "rise": _largest_rise(h.lagrangian, i),
        "rounding": h.rounding,
        "gradient_fall": float(first / last.clamp_min(torch.finfo(torch.float64).tiny)),
        "psnr_start": float(seen.start_psnr[i]),
        "psnr_end": float(ended[0][i]),
        "points": points,
        "psnr": _plain([*(seen.psnr[j][i] for j in before_end), ended[0][i]]),
        "gradient": _plain([*(seen.gradient[j][i] for j in before_end), last]),
        "x_change": _plain(list(h.x_change[rows, i])),
        # Its last changes are in the last digits.
        "lagrangian": None if h.lagrangian is None else _plain(list(h.lagrangian[rows, i]), digits=15),
    }


def _largest_rise(lagrangian: Tensor | None, i: int) -> float | None:
    """From one iteration to the next, relative to the Lagrangian; below 0 where it always fell."""
    if lagrangian is None:
        return None
    values = lagrangian[:, i]
    values = values[torch.isfinite(values)]
    return float((values.diff() / values[1:].abs()).max()) if len(values) > 1 else None


def _plain(values: Sequence[Tensor], digits: int = 6) -> list[float | None]:
    """None where a picture grew beyond all numbers."""
    return [float(f"{v:.{digits}g}") if v == v and abs(v) != float("inf") else None for v in map(float, values)]
