"""Decisions before a restoration: which pixels count, how strong the noise is, and the data term for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pnpladmm.data_terms import DataTerm, Gaussian, Poisson, WeightedGaussian
from pnpladmm.operators import LinearOperator
from pnpladmm.pictures import Picture
from pnpladmm.pictures.samples import fill_blank
from pnpladmm.restoration.hot_pixels import hot_pixels
from pnpladmm.restoration.jpeg import compression_errors
from pnpladmm.restoration.noise import estimate_noise
from pnpladmm.restoration.noise_model import NoiseModel
from pnpladmm.restoration.options import Options
from pnpladmm.restoration.smoothing import smoothed
from pnpladmm.solvers import METHODS, Problem, method_class
from pnpladmm.tensors import InputError, check_pictures, per_picture

if TYPE_CHECKING:
    from pnpladmm.restoration.hidden_stars import HiddenStars

MOST_SATURATED = 0.3
"""With a larger share of saturated pixels on a page, these are taken for white areas of the picture and count."""


@dataclass(frozen=True)
class Pages:
    """Some pages of a picture that are restored together, with all that was given for them."""

    picture: Picture
    """As it was given."""
    dead: Tensor | None = None
    variance: tuple[Tensor, Tensor] | None = None
    """In the picture's own units, and where it is known."""
    noise: Tensor | None = None
    """In [0, 1], (1,) or (B,); None where it is to be estimated."""
    hot_are_dead: bool = False
    """Were hot pixels looked for already? They are among the dead ones then."""


@dataclass(frozen=True)
class Prepared:
    """The problem to be solved, and what was assumed for it."""

    problem: Problem
    noise: Tensor
    """The level that the method works with: (B,), float64, in [0, 1]; for a map its median."""
    model: NoiseModel
    """The parts of the noise, in the picture as it was given."""
    notes: tuple[str, ...]
    stars: HiddenStars | None = None
    """Saturated stars that were taken off the observation."""
    width: Tensor | None = None
    """The variance of small sources in pixels squared, (B,); None where they are points."""


def prepare(pages: Pages, operator: LinearOperator, options: Options) -> Prepared:
    """The problem of some pages."""
    picture, notes = pages.picture, []
    working = picture.to_linear() if options.linear else picture
    pixels = working.pixels.to(options.device)
    valid = _counting(pages, options, pixels)
    looks = options.can_leave_out and not pages.hot_are_dead
    hot = hot_pixels(pixels, operator, valid) if looks else None
    if hot is not None:
        notes.append(
            f"{int(hot.sum())} single pixels stand out further than the PSF lets light stand out (hot or dead): "
            "they do not count"
        )
        valid = ~hot if valid is None else valid & ~hot
    if valid is not None:
        lost = 1 - float(valid.double().mean())
        notes.append(f"{lost:.2%} of the pixels do not count (dead, saturated or missing)")
        # Their precision is 0, but the start is made of the observation: a wild value there would spread.
        pixels = torch.from_numpy(fill_blank(pixels.cpu().numpy(), (~valid).cpu().numpy())).to(pixels)
    check_pictures("picture", pixels)
    variance = _given_variance(pages, options, pixels, valid)
    if variance is None:
        encoded = picture.pixels.to(pixels) if options.linear else pixels
        model = _noise_model(pages, encoded, valid)
        noise = model.level
        if options.linear:
            variance = noise.square().to(pixels.dtype).view(-1, 1, 1, 1) * slope(picture).to(pixels).square()
            noise = _median(variance, valid)
    else:
        noise = _median(variance, valid)
        model = NoiseModel("counts" if pages.variance is None else "variance map", noise)
    if model.source == "estimated":
        notes.append(model.words(unit_of(picture)))
    if options.linear:
        levels = ", ".join(f"{255 * float(level):.2f}" for level in noise)
        notes.append(f"the noise in linear light: a median of {levels} of 255")
    observed, term = _data_term(pixels, noise, variance, valid, options, picture.scale)
    return Prepared(Problem(observed, operator, term), noise, model, tuple(notes))


def unsaturated(picture: Picture) -> Tensor | None:
    """False on pixels at the top of an integer file's range; None where all pixels count.

    Pages with a larger share of such pixels than `MOST_SATURATED` count as a whole: their white areas are no accident.
    """
    if np.dtype(picture.dtype).kind not in "ui":
        return None
    top = picture.pixels >= 1 - 0.5 / picture.scale
    share = top.double().mean((1, 2, 3), keepdim=True)
    top = top & (share <= MOST_SATURATED)
    return ~top if bool(top.any()) else None


def unit_of(picture: Picture) -> float:
    """What a noise level of 1 is given in: white for integers, 1 in the numbers of the file for floats; in pixels."""
    return picture.scale if np.dtype(picture.dtype).kind == "f" else 1.0


def slope(picture: Picture) -> Tensor:
    """Slope of the tone curve at each pixel: even noise of the file becomes uneven in linear light."""
    step = 1 / 255
    pixels = torch.nn.functional.avg_pool2d(picture.pixels, 5, 1, 2, count_include_pad=False)
    high, low = ((pixels + d).clamp(0, 1) for d in (step, -step))
    light = [replace(picture, pixels=p).to_linear().pixels for p in (high, low)]
    return (light[0] - light[1]) / (high - low)


def _counting(pages: Pages, options: Options, pixels: Tensor) -> Tensor | None:
    """True on pixels that count, (B, C, H, W); None where all do."""
    masks = [pages.picture.valid, unsaturated(pages.picture) if options.saturation else None]
    masks += [None if pages.dead is None else ~pages.dead, None if pages.variance is None else pages.variance[1]]
    given = [mask.to(pixels.device).expand_as(pixels) for mask in masks if mask is not None]
    if not given:
        return None
    valid = torch.stack(given).all(0)
    if not bool(valid.any()):
        raise InputError("the mask leaves no pixel that counts")
    return None if bool(valid.all()) else valid


def _given_variance(pages: Pages, options: Options, pixels: Tensor, valid: Tensor | None) -> Tensor | None:
    """The variance of each pixel in [0, 1], from a map or from counts; None with one noise level per picture."""
    scale = pages.picture.scale
    if pages.variance is not None:
        variance = pages.variance[0].to(pixels.device) / (scale * scale)
        if options.linear:
            variance = variance * slope(pages.picture).to(pixels.device).square()
        variance = variance.to(pixels.dtype).expand_as(pixels)
        good = torch.isfinite(variance) & (variance > 0)
        if not bool((good if valid is None else good | ~valid).all()):
            raise InputError("the variance map has values that are not above 0: mask dead pixels instead")
        return torch.where(good, variance, torch.ones_like(variance))
    if options.gain is None:
        return None
    gain = options.gain / scale
    # The mean of a few neighbours: a pixel's own count would favour its downward fluctuations.
    return gain * smoothed(pixels).clamp_min(gain)


def _noise_model(pages: Pages, pixels: Tensor, valid: Tensor | None) -> NoiseModel:
    """The noise of each picture, given or estimated from this picture alone."""
    if pages.noise is not None:
        noise = pages.noise.to(pixels.device) / unit_of(pages.picture)
        per_picture(noise, pixels)  # one number, or one for each picture
        return NoiseModel("given", noise.expand(len(pixels)).clone())
    white = estimate_noise(pixels, valid)
    return NoiseModel("estimated", white, jpeg=compression_errors(pages.picture, white))


def _median(variance: Tensor, valid: Tensor | None) -> Tensor:
    """The level that stands for a map of variances: (B,), float64; of the pixels that count, where there are some."""
    known = variance if valid is None else torch.where(valid, variance, torch.nan)
    levels = known.flatten(1).double().nanmedian(1).values
    return levels.where(levels.isfinite(), variance.flatten(1).double().median(1).values).sqrt()


def _data_term(
    pixels: Tensor,
    noise: Tensor,
    variance: Tensor | None,
    valid: Tensor | None,
    options: Options,
    scale: float,
) -> tuple[Tensor, DataTerm]:
    """The observation and its data term.

    Counts get a Poisson term, or a Gaussian term with their variance if the method needs a quadratic term.
    """
    if options.gain is not None:
        gain, background = options.gain / scale, options.background / scale
        kind = options.method_class
        # A method with a likelihood of its own takes only the background from a Poisson term, which must have one.
        if not kind.needs_quadratic and (kind.uses_data_term or background):
            if valid is not None:
                able = ", ".join(name for name in METHODS if method_class(name).needs_quadratic)
                raise InputError(f"gain with pixels that do not count: use a method for weighted data ({able})")
            return pixels.clamp_min(0), Poisson(gain, background)
        pixels = pixels - background
    if variance is None and valid is None:
        return pixels, Gaussian(noise)
    flat = noise.to(pixels.dtype).view(-1, 1, 1, 1) ** -2
    precision = flat.expand_as(pixels) if variance is None else 1 / variance
    return pixels, WeightedGaussian(precision if valid is None else precision * valid)
