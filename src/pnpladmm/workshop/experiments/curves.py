"""Runs followed iteration by iteration: PSNR against time and calls (Figure 2), and the splitting variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from pnpladmm.metrics import PAPER, psnr
from pnpladmm.solvers import Progress
from pnpladmm.tensors import InputError
from pnpladmm.workshop.experiments.batches import Clock, columns, warm_up
from pnpladmm.workshop.experiments.comparison import Compared, iterative
from pnpladmm.workshop.experiments.curves_page import draw_convergence, draw_splitting
from pnpladmm.workshop.experiments.output import write_result
from pnpladmm.workshop.experiments.setup import Setup
from pnpladmm.workshop.experiments.units import Advance, Run, Unit, run_units

CONVERGENCE_COUNT = 40
SPLITTING_COUNT = 20
SPLITTING_ITERATIONS = 200
QUICK_SPLITTING_ITERATIONS = 12


def make_convergence(setup: Setup, methods: Sequence[Compared]) -> dict[str, Any]:
    """PSNR of every method after every iteration, with the seconds and denoiser calls it took."""
    return _make(setup, "convergence", methods, CONVERGENCE_COUNT, None, _convergence_unit, draw_convergence)


def make_splitting(setup: Setup, methods: Sequence[Compared]) -> dict[str, Any]:
    """Relative changes of `x` and `z` of every iterative method, all for the same number of iterations."""
    chosen = iterative(methods)
    if not chosen:
        names = ", ".join(method.name for method in methods)
        raise InputError(f"splitting of {names}: none of them iterates to a fixed point; add ladmm, admm or ista")
    iterations = QUICK_SPLITTING_ITERATIONS if setup.quick else SPLITTING_ITERATIONS
    return _make(setup, "splitting", chosen, SPLITTING_COUNT, iterations, _splitting_unit, draw_splitting)


def _make(
    setup: Setup,
    name: str,
    methods: Sequence[Compared],
    count: int,
    iterations: int | None,
    unit_of: Callable[[Run], Unit],
    draw: Callable[[Mapping[str, Any], Path], None],
) -> dict[str, Any]:
    units: list[Unit] = []
    loaded = setup.samples("test", count=count)
    for noise, samples in loaded.items():
        for batch in setup.batches(samples):
            runs = [Run(setup, batch, method, noise, given_iterations=iterations) for method in methods]
            units += [unit_of(run) for run in runs]
    found: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for unit, values in run_units(setup, name, units):
        found.setdefault((unit.key["method"], unit.key["noise"]), []).append(values)
    data = {
        "experiment": name,
        **setup.described(loaded),
        "titles": {method.name: method.title_of_run(setup.quick) for method in methods},
        "curves": [_curve(m.name, noise, found[m.name, noise]) for noise in setup.noise for m in methods],
    }
    write_result(setup.out, name, data, draw)
    return data


def _convergence_unit(run: Run) -> Unit:
    batch = run.batch

    def compute(advance: Advance) -> dict[str, Any]:
        method = run.make_method()
        warm_up(batch, method, run.iterations)
        clock, seconds = Clock(batch.device), [0.0]
        scores = [psnr(batch.start, batch.sharp, PAPER)]

        def look(step: Progress) -> None:
            seconds.append(clock.read())
            clock.pause(lambda: scores.append(psnr(step.state.x, batch.sharp, PAPER)))

        clock.start()
        run.solve(method, advance, callback=look)
        return {
            "psnr": columns(scores),
            "seconds": seconds,
            "calls": [method.calls_after(k) for k in range(run.iterations + 1)],
        }

    return run.unit("convergence", compute)


def _splitting_unit(run: Run) -> Unit:
    def compute(advance: Advance) -> dict[str, Any]:
        method = run.make_method()
        history = run.solve(method, advance, record=True).history
        return {
            "x_change": columns(history.x_change),
            "z_change": None if history.z_change is None else columns(history.z_change),
            "calls": [method.calls_after(k) for k in range(run.iterations + 1)],
        }

    return run.unit("splitting", compute)


def _curve(method: str, noise: float, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A method at a noise level: arithmetic means of PSNR, geometric means of changes; time per picture."""
    curve: dict[str, Any] = {"method": method, "noise": noise}
    pictures = 0
    for name in ("psnr", "x_change", "z_change"):
        if name in parts[0]:
            every = None if parts[0][name] is None else [column for part in parts for column in part[name]]
            curve[name] = None if every is None else _mean(every, geometric=name != "psnr")
            pictures = len(every) if every is not None else pictures
    length = len(curve.get("psnr") or curve["x_change"])
    first = 0 if "psnr" in curve else 1
    curve["calls"] = parts[0]["calls"][first : first + length]
    if "seconds" in parts[0]:
        totals = [sum(part["seconds"][i] for part in parts) for i in range(length)]
        curve["seconds"] = [total / pictures for total in totals]
    return curve


def _mean(pictures: Sequence[Sequence[float | None]], geometric: bool) -> list[float | None]:
    """Over the pictures that are still running."""
    means: list[float | None] = []
    for row in zip(*pictures, strict=True):
        values = torch.tensor([v for v in row if v is not None], dtype=torch.float64)
        if not len(values):
            means.append(None)
        elif geometric:
            means.append(float(values.clamp_min(1e-300).log().mean().exp()))
        else:
            means.append(float(values.mean()))
    return means
