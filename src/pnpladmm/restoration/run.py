"""From checked input to the result: page by page, or a batch at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from pnpladmm.blur import Blur
from pnpladmm.denoisers import Denoiser, load_denoiser
from pnpladmm.operators import LinearOperator, as_operator
from pnpladmm.pictures import Picture
from pnpladmm.pictures.raw import DAMAGE
from pnpladmm.restoration.counts import few_photons, finished_on_counts
from pnpladmm.restoration.fitted_noise import with_fitted_noise
from pnpladmm.restoration.hidden_stars import with_hidden_stars
from pnpladmm.restoration.inputs import Given, operator_of
from pnpladmm.restoration.maps import page_of
from pnpladmm.restoration.network_choice import WORDS, is_prior_only, network_for, prior_of_certificate
from pnpladmm.restoration.never_worse import Judged, never_worse, returned, with_known_error
from pnpladmm.restoration.noise import ResidualCheck, check_residual
from pnpladmm.restoration.noise_model import joined_noise
from pnpladmm.restoration.one_run import certified, one_run
from pnpladmm.restoration.options import FOR_SOURCES, USUAL, Options
from pnpladmm.restoration.plausible import mostly_noise, no_blur
from pnpladmm.restoration.policy import Pages, Prepared, prepare
from pnpladmm.restoration.result import Restoration, joined, put_together
from pnpladmm.restoration.single_stars import with_single_stars
from pnpladmm.restoration.sources import shows_sources, too_wide
from pnpladmm.solvers import Result, Status
from pnpladmm.solvers.leaping import Certified
from pnpladmm.solvers.loop import Callback
from pnpladmm.tensors import InputError
from pnpladmm.tiling import Plan, plan_for, read_size

CHOSEN = "bright spots on a dark sky: restored by the method sources; method fast takes a network instead"
"""What users are told where the picture decided on the method."""


@dataclass(frozen=True)
class Done:
    """The result of some pages."""

    prepared: Prepared
    result: Result
    """Its image lies on the picture's own domain."""
    checks: tuple[ResidualCheck, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """What the residuals show; those of pictures that are not returned do not matter."""
        pairs = zip(self.checks, self.result.statuses, strict=False)
        return tuple(words for check, status in pairs if status is not Status.WITHDRAWN for words in check.problems)


def run(
    given: Given,
    blur: Blur | LinearOperator,
    dead: Tensor | None,
    variance: tuple[Tensor, Tensor] | None,
    options: Options,
    callback: Callback | None,
) -> Restoration:
    """Restore every page and put the results together."""
    stars = options.is_open and (len(given.picture.pixels) == 1 or not given.together)
    stars = stars and shows_sources(given.picture, blur, options.gain)
    options = options.decided(FOR_SOURCES if stars else USUAL)
    operator = as_operator(operator_of(blur, options.boundary), given.picture.pixels)
    denoiser, words = chosen_denoiser(given.picture, operator, options)
    plan = _plan(given, operator, denoiser, options)
    operator = operator if plan is None else plan.operator(operator)
    uncertainty = blur.uncertainty if isinstance(blur, Blur) else None
    done: list[Done] = []
    for pages in _pages(given, dead, variance, options):
        done.append(_restore(pages, operator, denoiser, options, callback, plan, uncertainty))
        if Status.STOPPED in done[-1].result.statuses:
            break
    working = given.picture.to_linear() if options.linear else given.picture
    image = put_together([d.result.image for d in done])
    # Pages that an interrupt left out stay as they were.
    left = working.pixels[len(image) :].to(image)
    if left.shape[1:] != image.shape[1:]:  # the operator changes the size: no picture could replace them
        left = image[:0]
    noise = torch.cat([d.prepared.noise for d in done])
    notes, warnings = _words(given.picture, blur, options, done, stars)
    notes = (*notes, *words)
    image = put_together([image, left])
    return Restoration(
        **joined([d.result for d in done], image, len(left)),
        noise=torch.cat([noise, noise.new_full((len(left),), torch.nan)]),
        noise_model=joined_noise([d.prepared.model for d in done], len(left)),
        checks=tuple(check for d in done for check in d.checks),
        warnings=warnings,
        notes=notes,
        problem=done[0].prepared.problem,
        picture=_with_image(working, image),
        before=given.picture,
        blur=blur,
        rebuild=given.rebuild,
    )


def _words(
    picture: Picture, blur: Blur | LinearOperator, options: Options, done: list[Done], chosen: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The notes and the warnings on all pages, each once."""
    known = blur.notes if isinstance(blur, Blur) else ()
    found = [*picture.notes, *known, *(note for d in done for note in d.notes)]
    damage = [note for note in found if DAMAGE in note]
    notes = [note for note in found if note not in damage]
    if chosen:
        notes.append(CHOSEN)
    hint = picture.metadata.electrons_per_count
    if hint is not None and options.takes_errors_of_file and picture.quality is None:
        notes.append(
            f"its header states a gain of {hint:g}: electrons_per_count={hint:g} would use it, if it still holds"
        )
    found_before = [no_blur(blur), too_wide(picture, blur)]
    warnings = [
        *damage,
        *(status.sentence for d in done for status in d.result.statuses if status.failed),
        *(warning for d in done for warning in d.warnings),
        *(words for words in found_before if words),
        *(problem for d in done for problem in d.problems),
    ]
    return tuple(dict.fromkeys(notes)), tuple(dict.fromkeys(warnings))


def chosen_denoiser(picture: Picture, operator: LinearOperator, options: Options) -> tuple[Denoiser, tuple[str, ...]]:
    """The denoiser, and a note where it was chosen for the picture.

    Networks whose iterations are to converge compute in float32: the rounding of float16 changes a picture by 1e-4 at
    each iteration.
    """
    denoiser = options.denoiser
    words: tuple[str, ...] = ()
    if denoiser is None or is_prior_only(operator, options):
        denoiser = network_for(picture, operator, options)
        words = tuple(text for name, text in WORDS.items() if name == denoiser)
    if isinstance(denoiser, str | Path):
        certified_too = options.certify and denoiser is options.denoiser
        precision = torch.float32 if certified_too or options.method_class.needs_full_precision else None
        device = None if options.device is None else str(options.device)
        return load_denoiser(denoiser, device, precision), words
    return denoiser, words


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
    device = given.picture.pixels.device if options.device is None else torch.device(options.device)
    return plan_for((together, channels, height, width), sample, operator, denoiser, memory, options.tiles, device)


def _restore(
    pages: Pages,
    operator: LinearOperator,
    denoiser: Denoiser,
    options: Options,
    callback: Callback | None,
    plan: Plan | None,
    uncertainty: float | None = None,
) -> Done:
    prepared, state = prepare(pages, operator, options), None
    if isinstance(options.method, str) and options.method_class.models_all_light:
        prepared, state = with_fitted_noise(prepared, pages.picture.scale, denoiser, options, callback, plan)

    def attempt(prepared: Prepared) -> tuple[Result, tuple[str, ...]]:
        return one_run(prepared, denoiser, options, callback, plan, state)

    if isinstance(options.method, str):
        judged = never_worse(attempt, with_known_error(prepared, uncertainty), options.strength)
    else:  # its parameters do not follow the noise level
        nothing = torch.zeros(len(pages.picture.pixels), dtype=torch.bool)
        result, divided = attempt(prepared)
        judged = Judged(prepared, result, nothing, divided)
    notes = [*prepared.notes, *judged.notes]
    prepared = judged.prepared
    result = judged.result
    if isinstance(options.method, str):
        result = with_single_stars(prepared.problem, result)
    result, words = finished_on_counts(result, prepared, options, pages.picture.scale)
    notes += words
    problem, method = prepared.problem, result.method
    ended = result.status in (Status.FINISHED, Status.CONVERGED, Status.ITERATION_LIMIT)
    if options.certify and ended and not bool(judged.withdrawn.all()):
        count, prior = len(result.history), prior_of_certificate(denoiser, operator, options)
        result = certified(result.image, prepared, prior, options, callback)
        note = f"certified iterations after {count} of {method.name}: the certificate covers only these"
        notes.append(f"{note}, with the prior {Certified.prior_in_words(result.method)}")
    is_jpeg = bool(pages.picture.metadata.jpeg_table)
    white = [not (is_jpeg or prepared.model.has_other_parts(i)) for i in range(len(pages.picture.pixels))]
    hx = result.state.Hx if options.method_class.models_all_light else None
    hx = None if hx is None or hx.shape != problem.observed.shape else hx
    estimated = prepared.model.source == "estimated" or few_photons(prepared, options, pages.picture.scale)
    checks = tuple(replace(c, estimated=estimated) for c in check_residual(problem, result.image, white, hx))
    prepared, result = with_hidden_stars(prepared, result)
    problem = prepared.problem
    noise_only = mostly_noise(problem, prepared.model)
    working = pages.picture.to_linear() if options.linear else pages.picture
    result = returned(result, problem, working.pixels, judged.withdrawn)
    warnings = judged.warnings + ((noise_only,) if noise_only else ())
    return Done(prepared, result, checks, tuple(notes), warnings)


def _with_image(picture: Picture, image: Tensor) -> Picture:
    """The picture with restored pixels; where an operator changes the size, without what belongs to the old pixels."""
    pixels = image.cpu().to(picture.pixels.dtype)
    if pixels.shape == picture.pixels.shape:
        return picture.with_pixels(pixels)
    return replace(picture, pixels=pixels, alpha=None, valid=None, blank_values=None, quality=None)
