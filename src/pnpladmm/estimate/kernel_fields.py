"""How a blur changes over a pair of pictures: not at all, smoothly (a grid), or from thing to thing (regions)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pnpladmm.blur.arrays import Array
from pnpladmm.blur.forms.grid import bilinear
from pnpladmm.estimate.kernel_fit import PRIORS, Prior, Sums, fit_kernel, sums_over
from pnpladmm.estimate.pair import SIDES, Pair
from pnpladmm.estimate.psf_field import lattice, places_of

MOST_PIXELS = (24000, 60000)
"""Pixels that a kernel is fitted to: up to the first number for all kernels, and up to the second for small ones."""
SMALL = 33
"""Pixels: up to this side the larger number costs a second or two; the cost grows with its fourth power."""
WHILE_SEARCHING = 8000
"""Pixels that a kernel is fitted to while it is not settled how the blur changes."""
FEWEST = 300
"""A region that has fewer usable pixels is none."""
APART = (0.5, 0.15)
"""Neighbours on a grid differ by this share of the kernel."""
GRIDS = (2, 3, 5)
NODE, SEAM = 0.25, 0.3
"""Weights of a node, and of a region, from which pixels count."""
MEDIAN_OF_CHI2 = 0.4549
SMALLEST_NOISE = 1e-4
"""Rounding of 12 bits."""
PER_NODE = 2500
"""Usable pixels for each node of a grid."""
AT_THE_RIM = 0.02
"""Share of the light in the outer pixels of a kernel that says that the kernel is cut off."""
WIDER = 1.6
"""How much larger kernels become that were cut off."""
DETAIL = 9
"""Pixels, as in `restoration/signs.py`."""


@dataclass(frozen=True, eq=False)
class Field:
    """Kernels (P, k, k) with weights (P, H, W) that sum to one at every pixel; `H = sum_p U_p K_p`."""

    kind: str
    kernels: Array
    weights: Array
    places: Array
    """(P, 2): where each kernel was found, as x, y."""
    priors: tuple[Prior, ...]
    """How each kernel looks."""
    apart: float = 0.0

    def shown(self, sharp: Array) -> Array:
        """The sharp picture, blurred."""
        result: Array = sum(w * convolved(sharp, k) for w, k in zip(self.weights, self.kernels, strict=True))
        return result

    def taken(self, kept: list[int]) -> Field:
        """Some of the kernels; their weights no longer sum to one."""
        priors = tuple(self.priors[i] for i in kept)
        return replace(
            self, kernels=self.kernels[kept], weights=self.weights[kept], places=self.places[kept], priors=priors
        )

    def with_kernel(self, i: int, kernel: Array) -> Field:
        """The field with another kernel in place of one."""
        return replace(self, kernels=np.concatenate([self.kernels[:i], kernel[None], self.kernels[i + 1 :]]))


def convolved(sharp: Array, kernel: Array) -> Array:
    """True convolution; beyond the border the picture is mirrored."""
    from scipy.signal import fftconvolve

    half = kernel.shape[0] // 2
    result: Array = fftconvolve(np.pad(sharp, half, mode="reflect"), kernel, mode="valid")
    return result


def one_kernel(pair: Pair, seen: Array, prior: Prior | None = None) -> Field:
    """The same kernel everywhere; without a prior the one that predicts best what was not `seen`."""
    size = pair.sharp.shape
    middle = np.array([[(size[1] - 1) / 2, (size[0] - 1) / 2]])
    usable = pair.usable()
    sums = pixel_sums(pair, usable & seen, most_pixels(pair))
    if prior is None:
        hidden = pixel_sums(pair, usable & ~seen, most_pixels(pair))
        found = [fit_kernel(sums, pair.noise, p) for p in PRIORS]
        best = int(np.argmin([hidden.residual(k) for k in found]))
        return Field("one", found[best][None], np.ones((1, *size)), middle, (PRIORS[best],))
    return Field("one", fit_kernel(sums, pair.noise, prior)[None], np.ones((1, *size)), middle, (prior,))


def grid_of_kernels(pair: Pair, seen: Array, start: Field, nodes: int, apart: float) -> Field:
    """Kernels on a grid, each like its neighbours; between the nodes they are mixed."""
    size = pair.sharp.shape
    x, y = lattice(size, nodes)
    places = places_of(x, y)
    weights = bilinear(x, y, size).reshape(len(places), *size)
    usable = pair.usable() & seen
    sums = [pixel_sums(pair, usable & (w > NODE), WHILE_SEARCHING) for w in weights]
    kernels = np.repeat(start.kernels[:1], len(places), 0)
    step = np.array([x[1] - x[0], y[1] - y[0]])
    for _ in range(2):
        for i, place in enumerate(places):
            beside = (np.abs((places - place) / step).sum(1) - 1) < 0.1
            kernels[i] = fit_kernel(sums[i], pair.noise, start.priors[0], kernels[beside].mean(0), apart)
    return Field(f"a grid of {len(x)}x{len(y)}", kernels, weights, places, start.priors * len(places), apart)


def cut_off(field: Field) -> bool:
    """Whether a kernel carries light to its rim."""
    side = field.kernels.shape[-1]
    offset = np.arange(side) - side // 2
    rim = offset[:, None] ** 2 + offset[None, :] ** 2 >= (side // 2) ** 2
    return side > SIDES[0] and float((field.kernels * rim).sum((1, 2)).max()) > AT_THE_RIM


def wide_enough(pair: Pair, field: Field) -> tuple[Pair, Field]:
    """Room for larger kernels, if one of them is cut off."""
    side = min(int(WIDER * pair.side) | 1, SIDES[1], (min(pair.sharp.shape) // 2 - 1) | 1)
    if side <= pair.side or not cut_off(field):
        return pair, field
    margin = (side - pair.side) // 2
    return replace(pair, side=side), replace(field, kernels=np.pad(field.kernels, ((0, 0), *((margin,) * 2,) * 2)))


def finished(pair: Pair, seen: Array, field: Field) -> tuple[Field, Array]:
    """The field from all pixels, and the relative error (P,) of each kernel.

    The error is half the difference of the kernels of two halves of the pixels.
    """
    if field.apart:
        return _finished_grid(pair, seen, field)
    kernels, errors = [], []
    for i, prior in enumerate(field.priors):
        halves = [part(pair, field, i, half, most_pixels(pair)) for half in (seen, ~seen)]
        kernels.append(fit_kernel(halves[0].plus(halves[1]), pair.noise, prior))
        one, other = (fit_kernel(half, pair.noise, prior) for half in halves)
        errors.append(float(np.linalg.norm(one - other) / np.linalg.norm(kernels[-1])) / 2)
    return replace(field, kernels=np.stack(kernels)), np.array(errors)


def _finished_grid(pair: Pair, seen: Array, field: Field) -> tuple[Field, Array]:
    kernels, errors = [], []
    prior = field.priors[0]
    for near, weight in zip(field.kernels, field.weights, strict=True):
        pixels = pair.usable() & (weight > NODE)
        a, b = (pixel_sums(pair, pixels & half, most_pixels(pair)) for half in (seen, ~seen))
        kernels.append(fit_kernel(a.plus(b), pair.noise, prior, near, field.apart))
        one, other = (fit_kernel(half, pair.noise, prior, near, field.apart) for half in (a, b))
        errors.append(float(np.linalg.norm(one - other) / np.linalg.norm(kernels[-1])) / 2)
    return replace(field, kernels=np.stack(kernels)), np.array(errors)


def with_best_priors(pair: Pair, seen: Array, field: Field) -> Field:
    """For each kernel the prior with which one half of its pixels predicts the other best."""
    found = []
    for i in range(len(field.kernels)):
        half, hidden = (part(pair, field, i, where, most_pixels(pair)) for where in (seen, ~seen))
        errors = [hidden.residual(fit_kernel(half, pair.noise, prior)) for prior in PRIORS]
        found.append(PRIORS[int(np.argmin(errors))])
    return replace(field, priors=tuple(found))


def part(pair: Pair, field: Field, i: int, where: Array, most: int) -> Sums:
    """The sums of one region from at most so many pixels, what the others add at its seams taken off."""
    if len(field.kernels) == 1:
        return pixel_sums(pair, pair.usable() & where, most)
    kept = [k for k in range(len(field.kernels)) if k != i]
    others = replace(field, kernels=field.kernels[kept], weights=field.weights[kept]).shown(pair.sharp)
    alone = replace(pair, blurred=pair.blurred - others)
    counted = pair.usable() & where & (field.weights[i] > SEAM)
    if counted.sum() < FEWEST:
        counted = pair.usable() & where & (field.weights[i] > field.weights[i].max() / 2)
    return pixel_sums(alone, counted, most, field.weights[i])


def most_pixels(pair: Pair) -> int:
    """How many pixels a kernel is fitted to."""
    return int(np.clip(MOST_PIXELS[1] * (SMALL / pair.side) ** 4, *MOST_PIXELS))


def pixel_sums(pair: Pair, counted: Array, most: int, weight: Array | None = None) -> Sums:
    """The sums over `most` of the pixels that count."""
    pixels = np.flatnonzero(counted)
    if len(pixels) > most:
        pixels = np.random.default_rng(0).choice(pixels, most, replace=False)
    return sums_over(pair.sharp, pair.blurred, np.sort(pixels), pair.side, weight)


def left_over(pair: Pair, field: Field, where: Array) -> Array:
    """Squared residuals over the noise, of the usable pixels of `where`."""
    result: Array = ((pair.blurred - field.shown(pair.sharp))[pair.usable() & where] / pair.noise) ** 2
    return result


def unexplained(pair: Pair, field: Field, where: Array) -> float:
    """The relative error of the PSF that explains what noise does not, in `where`: a region that was not found counts.

        sqrt((mean (y - Hx)^2 - sigma^2) / (mean detail(y)^2 - sigma^2)),

    as `restore` uses it; detail is what differs from the mean over `DETAIL` pixels.
    """
    from scipy.ndimage import uniform_filter

    usable = pair.usable() & where
    detail = (pair.blurred - uniform_filter(pair.blurred, DETAIL, mode="nearest"))[usable] / pair.noise
    excess = max(float(left_over(pair, field, where).mean()) - 1, 0.0)
    return min(1.0, float(np.sqrt(excess / max(float((detail**2).mean()) - 1, 1e-12))))


def typical_error(pair: Pair, field: Field, where: Array) -> float:
    """The residual as the standard deviation of noise of which it could be; a few things that moved do not count."""
    typical = float(np.median(left_over(pair, field, where)))
    return max(pair.noise * float(np.sqrt(typical / MEDIAN_OF_CHI2)), SMALLEST_NOISE)
