"""The noise of each pixel, fitted to what a first restoration leaves: shot noise, and errors of the PSF.

A method whose picture is a model of all the light says how bright each pixel is without noise. So the residual of a
first run shows how the noise grows with the light `m` above the sky:

    v = a + b m + c^2 H(x m0),    m = H x,

`a` the noise of the sky, `b` what one photon adds, `c` the error of the PSF relative to its peak, `m0` the brightest
light near a source. Around a star that is `c^2 m m0`, out to the border of the PSF. With `v` proportional to `m` a
least-squares fit keeps the flux of a star, whatever the PSF looks like; with `m^2` the wings would decide. A variance
map that was given stays, and so does a gain: then only `c` is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpladmm.data_terms import WeightedGaussian
from pnpladmm.denoisers import Denoiser
from pnpladmm.pictures.arrays import Array
from pnpladmm.restoration.hidden_stars import without_hidden_stars
from pnpladmm.restoration.one_run import one_run
from pnpladmm.restoration.options import Options
from pnpladmm.restoration.policy import Prepared
from pnpladmm.restoration.single_stars import common_width
from pnpladmm.restoration.smoothing import smoothed
from pnpladmm.solvers import Problem, Result, Status
from pnpladmm.solvers.loop import Callback
from pnpladmm.solvers.state import State
from pnpladmm.tiling import Plan

FIRST_ERROR = 0.05
"""`c` of the first run: bright stars count little, so that it does not fit their noise."""
FIRST_RUNS, FIRST_SHARE = 2, 0.6
"""Short runs before the last one, and the share of the schedule after which they end."""
NEAR = 5
"""Pixels."""
LEAST_NUMBER = 12
"""Pixels of one brightness whose scatter says something."""
BINS, PEAK_BINS, REPEATS = 24, 4, 5
FEW_BINS = 12
"""With fewer bins the light nearby is not told apart."""
SCATTER = 1.4826
"""Standard deviation of normal numbers of which the median absolute value is 1."""
FAINT = 3.0
"""Light, in units of the noise of the sky, from which on pixels tell about `b` and `c`."""
WIDER = "small sources are wider than the PSF says: as spots of sigma {} pixels"
LEAST_TOLD = 0.002
"""A smaller error of the PSF is not worth a word."""


@dataclass(frozen=True)
class Counts:
    """What was stated of photons, in [0, 1]: what one adds, and the level that was taken off."""

    gain: float
    background: float


@dataclass(frozen=True)
class LightNoise:
    """`b` and `c` of a picture."""

    per_light: float = 0.0
    error: float = 0.0

    def words(self, unit: float) -> str:
        """A note; `unit` is what 1 is in the numbers of the picture. Empty where nothing was found."""
        found = []
        if self.per_light > 0:
            found.append(f"one photon adds {unit * self.per_light:.3g}")
        if self.error > LEAST_TOLD:
            found.append(f"the PSF is off by {self.error:.1%} of the light")
        return "noise of bright pixels, from what a first run leaves: " + ", ".join(found) if found else ""


def with_fitted_noise(
    prepared: Prepared,
    scale: float,
    denoiser: Denoiser,
    options: Options,
    callback: Callback | None,
    plan: Plan | None,
) -> tuple[Prepared, State | None]:
    """The problem with the noise of each pixel as short runs show it, the first a gentle one, and where to go on."""
    counts = None if options.gain is None else Counts(options.gain / scale, options.background / scale)
    stated = prepared.model.source in ("counts", "variance map")
    known, state = gentle(prepared), None
    found: tuple[LightNoise, ...] = ()
    for _ in range(FIRST_RUNS):
        result, _ = one_run(known, denoiser, options, callback, plan, state, FIRST_SHARE)
        if any(status.failed or status is Status.STOPPED for status in result.statuses):
            return prepared, None
        known, found = fitted(prepared, result, stated, counts)
        state = None if plan is not None else result.method.again(result.state)
        if counts is not None:
            prepared = replace(prepared, width=common_width(known.problem, result))
            known = replace(known, width=prepared.width)
        without = without_hidden_stars(prepared, known, result)
        if without is not None:
            state = None if prepared.stars is None else state
            prepared, term = without, known.problem.data_term
            known = replace(without, problem=replace(without.problem, data_term=term))
    notes = tuple(words for noise in found if (words := noise.words(scale)))
    notes += () if prepared.stars is None else (prepared.stars.words(),)
    notes += () if prepared.width is None else (WIDER.format(", ".join(f"{s:.2f}" for s in prepared.width.sqrt())),)
    return replace(known, notes=(*prepared.notes, *notes)), state


def gentle(prepared: Prepared) -> Prepared:
    """The problem of the first run: bright places have the noise of a PSF that is off by `FIRST_ERROR`."""
    problem = prepared.problem
    precision = _precision(problem)
    sky = torch.stack([_sky(y, p) for y, p in zip(problem.observed, precision, strict=True)]).view(-1, 1, 1, 1)
    blurry = blurred_errors(replace(problem, observed=smoothed(problem.observed)).default_start(), sky, problem)
    return with_variance(prepared, precision, FIRST_ERROR**2 * blurry)


def blurred_errors(image: Tensor, sky: Tensor, problem: Problem) -> Tensor:
    """`H(x m0)`, at least `m^2`, with `x` the light of a picture above the sky (B, 1, 1, 1), like the observation.

    It goes as far as the PSF does: far from a star nothing may count more than beside it.
    """
    H = problem.operator
    light = (image - sky.to(image)).clamp_min(0)
    seen = H.forward(light)
    bright = nearby(seen)
    if H.crop_offset is not None and bright.shape != light.shape:
        (top, left), (rows, columns) = H.crop_offset, bright.shape[-2:]
        rims = (left, light.shape[-1] - columns - left, top, light.shape[-2] - rows - top)
        bright = torch.nn.functional.pad(bright, rims, mode="replicate")
    elif bright.shape != light.shape:
        bright = torch.nn.functional.interpolate(bright, light.shape[-2:])
    return torch.maximum(H.forward(light * bright), seen.square())


def nearby(light: Tensor) -> Tensor:
    """The brightest light nearby, (..., H, W)."""
    return torch.nn.functional.max_pool2d(light, 2 * NEAR + 1, 1, NEAR)


def fitted(
    prepared: Prepared, first: Result, stated: bool, counts: Counts | None = None
) -> tuple[Prepared, tuple[LightNoise, ...]]:
    """The problem with the noise that the first run shows; `stated`: the noise of photons is known already."""
    problem, precision = prepared.problem, _precision(prepared.problem)
    seen = first.state.Hx
    if seen is None or seen.shape != problem.observed.shape:
        seen = problem.operator.forward(first.image)
    residuals, image = problem.observed - seen, first.image
    if prepared.stars is not None:
        seen, image = seen + prepared.stars.seen, image + prepared.stars.shown
    if counts is not None:
        precision = _of_counts(residuals, seen, precision, counts)
    found, more = [], []
    sky = torch.stack([_sky(mean, p) for mean, p in zip(seen, precision, strict=True)]).view(-1, 1, 1, 1)
    lights, blurs = (seen - sky).clamp_min(0), blurred_errors(image, sky, problem)
    for residual, light, blurry, p in zip(residuals, lights, blurs, precision, strict=True):
        noise = _fit(residual, light, blurry, p, stated)
        found.append(noise)
        more.append(noise.per_light * light + noise.error**2 * blurry)
    return with_variance(prepared, precision, torch.stack(more)), tuple(found)


def _of_counts(residuals: Tensor, seen: Tensor, precision: Tensor, counts: Counts) -> Tensor:
    """The precision of photons and of the read noise, which is what the sky has on top."""
    photons = counts.gain * (seen + counts.background).clamp_min(counts.gain)
    read = []
    for residual, p, v in zip(residuals, precision, photons, strict=True):
        dark = (p > 0) & (v <= v[p > 0].median())
        read.append(((SCATTER * residual[dark].abs().median()).square() - v[dark].median()).clamp_min(0))
    variance = photons + torch.stack(read).view(-1, 1, 1, 1)
    return torch.where(precision > 0, 1 / variance, 0.0)


def with_variance(prepared: Prepared, precision: Tensor, more: Tensor) -> Prepared:
    """The problem with the variance `more` on top, for each pixel."""
    problem = prepared.problem
    term = WeightedGaussian(precision / (1 + precision * more.to(precision)))
    return replace(prepared, problem=Problem(problem.observed, problem.operator, term))


def _fit(residual: Tensor, light: Tensor, blurry: Tensor, precision: Tensor, stated: bool) -> LightNoise:
    """`b` and `c` from the scatter of the residual in bins of brightness, and of the brightest light nearby."""
    from scipy.optimize import nnls  # slow to import

    e, m, q, p = (value.detach().double().cpu().numpy().ravel() for value in (residual, light, blurry, precision))
    e, m, q, a = e[p > 0], m[p > 0], q[p > 0], 1 / p[p > 0]
    floor = FAINT * np.sqrt(np.median(a))
    bright = (m > floor) & (q > 0)
    if bright.sum() < 2 * LEAST_NUMBER:
        return LightNoise()
    e, m, q, a = e[bright], m[bright], q[bright], a[bright]
    for peaks in (PEAK_BINS, 1):
        rows, wanted = _bins(e, m, q, a, peaks)
        if len(rows) >= FEW_BINS:
            break
    if not rows:
        return LightNoise()
    middle, blurry_middle, base, count = np.array(rows).T
    columns = np.stack([0 * middle if stated else middle, blurry_middle], 1)
    return LightNoise(*_solve(nnls, columns, base, np.array(wanted), count))


def _bins(e: Array, m: Array, q: Array, a: Array, peaks: int) -> tuple[list[tuple[float, ...]], list[float]]:
    """Medians of `m`, `q` and `a` and the number of pixels in each bin, and the variance of the residual there."""
    peak = q / m
    rows: list[tuple[float, ...]] = []
    wanted: list[float] = []
    for low, high in product(_steps(m, BINS), _steps(peak, peaks)):
        inside = (m >= low[0]) & (m < low[1]) & (peak >= high[0]) & (peak < high[1])
        if inside.sum() >= LEAST_NUMBER:
            rows.append((np.median(m[inside]), np.median(q[inside]), np.median(a[inside]), inside.sum()))
            wanted.append((SCATTER * np.median(np.abs(e[inside]))) ** 2)
    return rows, wanted


def _steps(values: Array, count: int) -> list[tuple[float, float]]:
    """Bins of equal ratios from the least value to the largest."""
    return list(pairwise(np.geomspace(values.min(), values.max() * (1 + 1e-9), count + 1)))


def _solve(nnls: Any, columns: Array, a: Array, wanted: Array, count: Array) -> tuple[float, float]:
    """`b` and `c` by weighted least squares: a scatter of n values is known to `sqrt(2 / n)` of itself."""
    weight = np.sqrt(count) / np.maximum(wanted, a)
    found = np.zeros(2)
    for _ in range(REPEATS):
        scale = np.maximum(np.linalg.norm(columns * weight[:, None], axis=0), np.finfo(float).tiny)
        found = nnls(columns * weight[:, None] / scale, (wanted - a) * weight)[0] / scale
        weight = np.sqrt(count) / (a + columns @ found)
    return float(found[0]), float(np.sqrt(found[1]))


def _precision(problem: Problem) -> Tensor:
    return problem.precision_for("a fit of the noise").expand_as(problem.observed)


def _sky(levels: Tensor, precision: Tensor) -> Tensor:
    """The median of the pixels that count of one picture."""
    return levels[precision > 0].median()
