"""From checked input to the result: page by page, or a batch at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from pnpladmm.blur import Blur
from pnpladmm.denoisers import Denoiser, load_denoiser
from pnpladmm.operators import LinearOperator
from pnpladmm.pictures import Picture
from pnpladmm.pictures.raw import DAMAGE
from pnpladmm.restoration.inputs import Given, operator_of
from pnpladmm.restoration.maps import page_of
from pnpladmm.restoration.noise import ResidualCheck, check_residual
from pnpladmm.restoration.noise_model import joined_noise
from pnpladmm.restoration.options import Options
from pnpladmm.restoration.policy import Pages, Prepared, prepare
from pnpladmm.restoration.result import Restoration, joined
from pnpladmm.restoration.sources import too_wide
from pnpladmm.restoration.units import Units
from pnpladmm.solvers import Problem, Result, Status, make_method, solve
from pnpladmm.solvers.loop import Callback
from pnpladmm.tensors import InputError
from pnpladmm.tiling import Plan, plan_for, read_size, solve_by

TOLERANCE = 1e-4
"""Relative changes below which a picture counts as done."""
CERTIFYING = "certified"
"""The method of the iterations that `certify` asks for: convergence is proved of it."""


@dataclass(frozen=True)
class Done:
    """The result of some pages."""

    prepared: Prepared
    result: Result
    """Its image lies on the picture's own domain."""
    checks: tuple[ResidualCheck, ...]
    notes: tuple[str, ...]


def run(
    given: Given,
    blur: Blur | LinearOperator,
    dead: Tensor | None,
    variance: tuple[Tensor, Tensor] | None,
    options: Options,
    callback: Callback | None,
) -> Restoration:
    """Restore every page and put the results together."""
    operator = operator_of(blur, options.boundary)
    denoiser = chosen_denoiser(options)
    plan = _plan(given, operator, denoiser, options)
    operator = operator if plan is None else plan.operator(operator)
    done: list[Done] = []
    for pages in _pages(given, dead, variance, options):
        done.append(_restore(pages, operator, denoiser, options, callback, plan))
        if done[-1].result.status is Status.STOPPED:
            break
    working = given.picture.to_linear() if options.linear else given.picture
    image = torch.cat([d.result.image for d in done])
    # Pages that an interrupt left out stay as they were.
    left = working.pixels[len(image) :].to(image)
    if left.shape[1:] != image.shape[1:]:  # the operator changes the size: no picture could replace them
        left = image[:0]
    noise = torch.cat([d.prepared.noise for d in done])
    checks = tuple(check for d in done for check in d.checks)
    failed = [status.sentence for d in done for status in d.result.statuses if status.failed]
    wide = too_wide(given.picture, blur)
    known = blur.notes if isinstance(blur, Blur) else ()
    notes = [*given.picture.notes, *known, *(note for d in done for note in d.notes)]
    damage = [note for note in notes if DAMAGE in note]
    notes = [note for note in notes if note not in damage]
    hint = given.picture.metadata.electrons_per_count
    if hint is not None and options.takes_errors_of_file and given.picture.quality is None:
        notes.append(
            f"its header states a gain of {hint:g}: electrons_per_count={hint:g} would use it, if it still holds"
        )
    image = torch.cat([image, left])
    return Restoration(
        **joined([d.result for d in done], image, len(left)),
        noise=torch.cat([noise, noise.new_full((len(left),), torch.nan)]),
        noise_model=joined_noise([d.prepared.model for d in done], len(left)),
        checks=checks,
        warnings=tuple(
            dict.fromkeys(
                (
                    *damage,
                    *failed,
                    *([wide] if wide else []),
                    *(problem for check in checks for problem in check.problems),
                )
            )
        ),
        notes=tuple(dict.fromkeys(notes)),
        problem=done[0].prepared.problem,
        picture=_with_image(working, image),
        before=given.picture,
        blur=blur,
        rebuild=given.rebuild,
    )


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
    method = make_method(CERTIFYING, denoiser, problem, noise, strength).started_from_blurred()
    return solve(problem, method, iterations, TOLERANCE, start=start, callback=callback)


def chosen_denoiser(options: Options) -> Denoiser:
    """The denoiser; networks whose iterations are to converge compute in float32.

    The rounding of float16 changes a picture by 1e-4 at each iteration.
    """
    denoiser = options.denoiser
    if denoiser is None or isinstance(denoiser, str | Path):
        precise = options.certify or options.method_class.needs_full_precision
        precision = torch.float32 if precise else None
        device = None if options.device is None else str(options.device)
        return load_denoiser(denoiser or "light", device, precision)
    return denoiser


def _pages(
    given: Given, dead: Tensor | None, variance: tuple[Tensor, Tensor] | None, options: Options
) -> Iterator[Pages]:
    count, levels = len(given.picture.pixels), options.levels
    if levels is not None and len(levels) not in (1, count):
        raise InputError(f"noise levels: {len(levels)}, pictures: {count}: give one number, or one for each picture")
    parts = [slice(0, count)] if given.together else [slice(i, i + 1) for i in range(count)]
    for part in parts:
        yield Pages(
            given.picture if count == 1 or given.together else _page(given.picture, part),
            None if dead is None else page_of(dead, part),
            None if variance is None else (page_of(variance[0], part), page_of(variance[1], part)),
            None if levels is None else page_of(levels, part),
        )


def _page(picture: Picture, part: slice) -> Picture:
    def at(value: Tensor | None) -> Tensor | None:
        return None if value is None else value[part]

    return replace(
        picture,
        pixels=picture.pixels[part],
        alpha=at(picture.alpha),
        valid=at(picture.valid),
        blank_values=None,
        quality=None,
    )


def _plan(given: Given, operator: LinearOperator, denoiser: Denoiser, options: Options) -> Plan | None:
    """Tiles, where the pictures that are restored together need more memory than there is."""
    pages, channels, height, width = given.picture.pixels.shape
    together = pages if given.together else 1
    sample = given.picture.pixels.element_size()
    memory = None if options.memory is None else read_size(options.memory)
    return plan_for((together, channels, height, width), sample, operator, denoiser, memory, options.tiles)


def _restore(
    pages: Pages,
    operator: LinearOperator,
    denoiser: Denoiser,
    options: Options,
    callback: Callback | None,
    plan: Plan | None,
) -> Done:
    prepared = prepare(pages, operator, options)
    notes = list(prepared.notes)
    units = units_for(prepared, options)
    problem = prepared.problem if units is None else units.problem(prepared.problem)
    noise = prepared.noise if units is None else units.noise(prepared.noise)
    callback = callback if units is None else units.callback(callback)
    method = options.method
    if isinstance(method, str):
        method = make_method(method, denoiser, problem, noise, options.strength, options.iterations)
    iterations = options.iterations or method.iterations_for(noise)
    result, divided = solve_by(plan, problem, method, iterations, TOLERANCE, callback)
    notes.extend(divided)
    if options.certify and result.status in (Status.FINISHED, Status.CONVERGED, Status.ITERATION_LIMIT):
        notes.append(
            f"certified iterations after {len(result.history)} of {method.name}: the certificate covers only these"
        )
        result = certify_from(result.image, problem, denoiser, noise, options.certify, options.strength, callback)
    problem = prepared.problem
    if units is not None:
        state = replace(result.state, x=units.back(result.state.x))
        result = replace(result, image=units.back(result.image), state=state)
    checks = check_residual(problem, result.image)
    return Done(prepared, replace(result, image=problem.crop_to_observed(result.image)), checks, tuple(notes))


def units_for(prepared: Prepared, options: Options) -> Units | None:
    """The scale of a method that was chosen by its name; a method with parameters of its own has its scale already."""
    if not isinstance(options.method, str) or not options.method_class.denoiser_calls:
        return None
    return Units.of(prepared.problem, prepared.noise)


def _with_image(picture: Picture, image: Tensor) -> Picture:
    """The picture with restored pixels; where an operator changes the size, without what belongs to the old pixels."""
    pixels = image.cpu().to(picture.pixels.dtype)
    if pixels.shape == picture.pixels.shape:
        return picture.with_pixels(pixels)
    return replace(picture, pixels=pixels, alpha=None, valid=None, blank_values=None, quality=None)
