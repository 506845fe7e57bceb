"""From sources in a picture to its PSF field: fit, subtract neighbours, leave out what is no point, and again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pnpladmm.blur.arrays import Array
from pnpladmm.estimate import moffat
from pnpladmm.estimate.cross_validation import Choice, choose
from pnpladmm.estimate.detection import USABLE, Sky, Sources
from pnpladmm.estimate.star_model import PsfField, Stars, base_at, fit_field, refit
from pnpladmm.estimate.terms import families
from pnpladmm.estimate.way import Tell

PASSES = (0.03, 0.01, 0.003)
"""The error of the model that each pass reckons with, relative to it: bright stars must not outweigh all others."""
MOST = 400
"""Stars that the PSF is made of; the brightest."""
SIGMAS = 6.0
"""Standard deviations by which a star's width or fit may differ from those of its like."""
ODD = 0.03
"""Relative misfit (l2) from which a star that differs from the others is left out."""
MIDDLE = 0.455
"""The median of a chi^2 of one degree of freedom."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A PSF field, the stars it is made of, and what became of every source."""

    field: PsfField
    choice: Choice
    stars: Stars
    """Those the PSF is made of."""
    chi2: Array
    """Of each of them, per pixel."""
    sources: Stars
    """All of them."""
    reasons: tuple[str, ...]
    """Why each source is left out, empty for those above."""


def fit_stars(sky: Sky, sources: Sources, reasons: list[str], half: int, field: str, tell: Tell) -> Fitted:
    """The PSF field of the sources that have no reason against them."""
    tell("profiles", 0.1)
    stars, certain, beta = _with_profiles(sky, sources, reasons, half)
    reasons = certain
    for number, error in enumerate(PASSES):
        tell(f"PSFs, pass {number + 1} of {len(PASSES)}", 0.2 + 0.25 * number)
        index = _brightest(stars, reasons)
        mine = stars.take(index)
        if number != 1:  # crude at first, and at the end
            choice = choose(mine, families(field, len(index), sky.signal.shape), beta)
        model = fit_field(mine, choice.terms, beta, choice.tau)
        stars = _without_neighbours(sky, stars, model, half)
        stars, chi2 = _weighted(refit(stars, model), model, index, sky.noise, error)
        reasons = _without_odd(
            chi2, _strength(stars, model), certain
        )  # a star that looked odd in a crude model may come back
    index = _brightest(stars, reasons)
    model = fit_field(stars.take(index), choice.terms, beta, choice.tau)
    stars, chi2 = _weighted(refit(stars, model), model, index, sky.noise, PASSES[-1])
    return Fitted(model, choice, stars.take(index), chi2[index], stars, tuple(reasons))


def cut(image: Array, pixel: Array, half: int, fill: float) -> Array:
    """Stamps (N, k, k) around pixels (N, 2) as x, y; `fill` beyond the border."""
    padded = np.pad(image, half, constant_values=fill)
    side = np.arange(2 * half + 1)
    stamps: Array = padded[pixel[:, 1, None, None] + side[None, :, None], pixel[:, 0, None, None] + side[None, None, :]]
    return stamps


def _with_profiles(sky: Sky, sources: Sources, reasons: list[str], half: int) -> tuple[Stars, list[str], float]:
    """Stars with a Moffat profile each, the reasons that it gives, and the exponent that suits all."""
    size = sky.signal.shape
    pixel = np.round(sources.places).astype(int).clip(0, np.array([size[1], size[0]]) - 1)
    stamps = cut(sky.signal, pixel, half, 0.0)
    weights = cut(1.0 - sky.bad, pixel, half, 0.0) / sky.noise**2
    masked = weights * _own_pixels(sources, pixel, half)
    shift, flux = sources.places - pixel, np.zeros(len(pixel))
    shape = np.tile([np.log(sources.fwhm), 0.0, 0.0], (len(pixel), 1))
    error, background = np.ones_like(shape), np.zeros(len(pixel))
    index = np.nonzero([not r for r in reasons])[0]
    # The core says what the profile is; the error of the model keeps the brightest from fitting their wings alone.
    core = min(half, max(4, round(2.5 * sources.fwhm)))
    inner = (slice(None), slice(half - core, half + core + 1), slice(half - core, half + core + 1))
    fits = moffat.fit(stamps[index][inner], masked[index][inner], sources.fwhm)
    beta = float(np.clip(np.median(fits.beta[_bright(fits, sky.noise)]), moffat.LOWEST_BETA, 8.0))
    fits = moffat.fit(stamps[index][inner], masked[index][inner], sources.fwhm, beta)
    shift[index], flux[index], background[index] = fits.shift, fits.flux, fits.background
    shape[index], error[index] = fits.shape, fits.error
    others = np.setdiff1d(np.arange(len(pixel)), index)
    typical = base_at(np.median(shape[index], 0)[None], beta, np.zeros((1, 2)), 2 * half + 1)[0]
    flux[others] = stamps[others, half, half] / typical[half, half]
    reasons = _points(fits, index, sky.noise, beta, reasons)
    return Stars(stamps, masked, pixel.astype(float), shift, flux, background, shape, error), reasons, beta


def _own_pixels(sources: Sources, pixel: Array, half: int) -> Array:
    """1 on the pixels of each stamp that are not the core of a neighbour."""
    from scipy.spatial import cKDTree

    offset = np.arange(-half, half + 1)
    own = np.ones((len(pixel), 2 * half + 1, 2 * half + 1))
    tree = cKDTree(sources.places)
    for i, near in enumerate(tree.query_ball_point(sources.places, 1.5 * half)):
        for j in near:
            if j == i:
                continue
            x, y = sources.places[j] - pixel[i]
            distance = np.hypot(offset[None, :] - x, offset[:, None] - y)
            closer = distance < np.hypot(*(offset[None, :] - 0 * x, offset[:, None] - 0 * y))
            reach = sources.fwhm * (1.0 if sources.flux[j] < sources.flux[i] else 2.0)
            own[i][closer & (distance < reach)] = 0
    return own


def _signal_to_noise(fits: moffat.Fit, beta: Array | float, noise: float) -> Array:
    """Of the matched filter: flux times the norm of the profile over the noise."""
    offset = np.arange(-12, 13)
    shapes = moffat.profile(fits.shape, beta, offset[None, None, :], offset[None, :, None])
    result: Array = fits.flux * np.sqrt((shapes**2).sum((1, 2))) / noise
    return result


def _bright(fits: moffat.Fit, noise: float) -> Array:
    """The stars that show what the profile is: the brighter half, at least five."""
    signal = _signal_to_noise(fits, fits.beta, noise)
    result: Array = signal >= min(np.median(signal), np.sort(signal)[::-1][: max(5, 1)][-1])
    return result


def _points(fits: moffat.Fit, index: Array, noise: float, beta: float, reasons: list[str]) -> list[str]:
    """The reasons, with those of sources that are too faint or whose width is not that of the others."""
    reasons = list(reasons)
    signal = _signal_to_noise(fits, beta, noise)
    strong = signal > USABLE
    if not strong.any():
        strong = signal >= np.sort(signal)[-1]
    middle = np.median(fits.shape[strong, 0])
    spread = 1.4826 * np.median(np.abs(fits.shape[strong, 0] - middle)) + 0.03
    for i, s, width, error in zip(index, signal, fits.shape[:, 0], fits.error[:, 0], strict=True):
        off = (width - middle) / np.hypot(spread, error)
        if s <= USABLE:
            reasons[i] = f"too faint: signal to noise {s:.0f}, {USABLE:g} needed"
        elif abs(off) > SIGMAS:
            kind = "wider" if off > 0 else "narrower"
            reasons[i] = f"no point: {kind} than the others (FWHM {np.exp(width):.1f} pixels)"
    return reasons


def _brightest(stars: Stars, reasons: list[str]) -> Array:
    """The numbers of the stars that can be used, the brightest `MOST` of them."""
    index = np.nonzero([not r for r in reasons])[0]
    return np.sort(index[np.argsort(stars.flux[index])[::-1][:MOST]])


def _without_neighbours(sky: Sky, stars: Stars, model: PsfField, half: int) -> Stars:
    """Stamps from which the light of all other sources is taken out; every pixel with data counts again."""
    pixel = stars.pixel.astype(int)
    light = model.at(stars.places, stars.shift) * stars.flux.clip(0)[:, None, None]
    height, width = sky.signal.shape
    total = np.zeros((height + 2 * half, width + 2 * half))
    side = 2 * half + 1
    for (x, y), own in zip(pixel, light, strict=True):
        total[y : y + side, x : x + side] += own
    total = total[half : half + height, half : half + width]
    stamps = cut(sky.signal - total, pixel, half, 0.0) + light
    weights = cut(1.0 - sky.bad, pixel, half, 0.0)
    # What is left of a bright neighbour is the error of the model, not noise.
    others = (cut(total, pixel, half, 0.0) - light).clip(0)
    weights = weights / (sky.noise**2 + (0.05 * others) ** 2)
    return replace(stars, stamps=stamps, weights=weights)


def _weighted(
    fitted: tuple[Stars, Array], model: PsfField, index: Array, noise: float, error: float
) -> tuple[Stars, Array]:
    """Stars with the variance of sky, photons and model, and chi^2 per pixel (N,) with it."""
    stars, _ = fitted
    light = (model.at(stars.places, stars.shift) * stars.flux[:, None, None]).clip(0)
    residual = stars.stamps - stars.background[:, None, None] - light
    slope = _photons(residual[index], light[index], stars.weights[index] > 0, noise, error)
    known = np.where(stars.weights > 0, 1 / np.maximum(stars.weights, 1e-300), np.inf)
    # The stamp's own variance comes from the sky and the neighbours.
    base = np.maximum(known, noise**2) if error == PASSES[0] else np.where(np.isfinite(known), known, np.inf)
    weights = np.where(np.isfinite(base), 1 / (base + slope * light + (error * light) ** 2), 0.0)
    chi2 = (weights * residual**2).sum((1, 2)) / (weights > 0).sum((1, 2)).clip(1)
    return replace(stars, weights=weights), chi2


def _photons(residual: Array, light: Array, counts: Array, noise: float, error: float) -> float:
    """What one count adds to the variance, from how the residual grows with the light."""
    bright = counts & (light > 3 * noise)
    if bright.sum() < 50:
        return 0.0
    excess = residual[bright] ** 2 / MIDDLE - noise**2 - (error * light[bright]) ** 2
    return max(0.0, float(np.median(excess / light[bright])))


def _strength(stars: Stars, model: PsfField) -> Array:
    """The squared signal to noise (N,) of each star's light, per pixel."""
    light = model.at(stars.places, stars.shift) * stars.flux[:, None, None]
    result: Array = (stars.weights * light**2).sum((1, 2)) / (stars.weights > 0).sum((1, 2)).clip(1)
    return result


def _without_odd(chi2: Array, strength: Array, reasons: list[str]) -> list[str]:
    """The reasons, with those of stars that fit much worse than the others, and not only for being bright."""
    kept = np.array([not r for r in reasons])
    middle = float(np.median(chi2[kept]))
    spread = 1.4826 * float(np.median(np.abs(chi2[kept] - middle)))
    odd = chi2 > max(middle + SIGMAS * spread, 1.5 * middle)
    odd &= (chi2 - middle) > ODD**2 * strength
    if (odd | ~kept).all():
        return reasons
    return [
        f"does not look like the others (chi^2 {value:.1f} per pixel, they have {middle:.1f}): blend, galaxy or defect"
        if not reason and strange
        else reason
        for reason, value, strange in zip(reasons, chi2, odd, strict=True)
    ]
