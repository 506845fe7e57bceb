"""One run of a method on a prepared problem, in units that suit the method, and certified iterations after it."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from pnpladmm.allocator import give_back
from pnpladmm.denoisers import Denoiser
from pnpladmm.restoration.options import USUAL, Options
from pnpladmm.restoration.policy import Prepared
from pnpladmm.restoration.units import Units
from pnpladmm.solvers import Problem, Result, make_method, solve
from pnpladmm.solvers.leaping import Certified
from pnpladmm.solvers.loop import Callback
from pnpladmm.solvers.sources import Sources
from pnpladmm.solvers.state import State
from pnpladmm.tiling import Plan, solve_by

TOLERANCE = 1e-4
"""Relative changes below which a picture counts as done."""


def certify_from(
    start: Tensor,
    problem: Problem,
    denoiser: Denoiser,
    noise: Tensor,
    iterations: int,
    strength: float = 1.0,
    callback: Callback | None = None,
) -> Result:
    """Certified iterations from `start`, a picture on the problem's own domain; `noise` (B,) decides their settings.

    The theorem holds from any `x0`, with `z0 = H x0` and the dual that belongs to it.
    """
    method = Certified.after(start, denoiser, problem, noise, strength)
    return solve(problem, method, iterations, TOLERANCE, start=start, callback=callback)


def one_run(
    prepared: Prepared,
    denoiser: Denoiser,
    options: Options,
    callback: Callback | None = None,
    plan: Plan | None = None,
    state: State | None = None,
    share: float = 1.0,
) -> tuple[Result, tuple[str, ...]]:
    """One run of the method, in its own units, with parameters for the noise level if it was given by its name.

    It may go on from the state of a run in the same units, and stop after a share of the schedule. The picture is on
    the problem's own domain and in the numbers of the observation. The notes say how it was divided.
    """
    options = options.decided(USUAL)
    if plan is not None:
        give_back()
    units = units_for(prepared, options)
    problem, noise, callback = _on_scale(units, prepared, callback)
    method = options.method
    if isinstance(method, str):
        method = make_method(method, denoiser, problem, noise, options.strength, options.iterations)
        if prepared.width is not None and isinstance(method, Sources):
            method = replace(method, width=prepared.width)
    iterations = options.iterations or method.iterations_for(noise)
    if method.length is not None and (share < 1 or state is not None):
        iterations = round(share * method.length) - (0 if state is None else state.iteration)
    scale = 1.0 if units is None else float(units.scale.amax())
    result, divided = solve_by(plan, problem, method, iterations, TOLERANCE, callback, state, scale)
    del problem  # as large as the picture
    return _back(units, result), divided


def certified(
    start: Tensor, prepared: Prepared, denoiser: Denoiser, options: Options, callback: Callback | None
) -> Result:
    """Certified iterations from a picture, in the units of the run before."""
    units = units_for(prepared, options)
    problem, noise, callback = _on_scale(units, prepared, callback)
    if units is not None:
        start = (start - units.offset.to(start)) / units.scale.to(start)
    return _back(units, certify_from(start, problem, denoiser, noise, options.certify, options.strength, callback))


def _on_scale(
    units: Units | None, prepared: Prepared, callback: Callback | None
) -> tuple[Problem, Tensor, Callback | None]:
    """The problem, the noise and the callback on the scale of the method."""
    if units is None:
        return prepared.problem, prepared.noise, callback
    return units.problem(prepared.problem), units.noise(prepared.noise), units.callback(callback)


def _back(units: Units | None, result: Result) -> Result:
    if units is None:
        return result
    image = units.back(result.image)
    of_tiles = result.state.x is result.image
    state = State(x=image, iteration=result.state.iteration) if of_tiles else units.state(result.state)
    return replace(result, image=image, state=state)


def units_for(prepared: Prepared, options: Options) -> Units | None:
    """The scale of a method that was chosen by its name; a method with parameters of its own has its scale already."""
    if not isinstance(options.method, str) or not options.method_class.denoiser_calls:
        return None
    return Units.of(prepared.problem, prepared.noise)
