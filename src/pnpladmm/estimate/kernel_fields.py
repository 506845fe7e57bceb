"""How a blur changes over a pair of pictures: not at all, smoothly (a grid), or from thing to thing (regions)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pnpladmm.blur.arrays import Array
from pnpladmm.blur.forms.grid import bilinear
from pnpladmm.estimate.kernel_fit import PRIORS, Prior, Sums, fit_kernel, sums_over
from pnpladmm.estimate.pair import Pair
from pnpladmm.estimate.psf_field import lattice, places_of

MOST_PIXELS = (24000, 60000)
"""Pixels that a kernel is fitted to: up to the first number for all kernels, and up to the second for small ones."""
SMALL = 33
"""Pixels: up to this side the larger number costs a second or two; the cost grows with its fourth power."""
WHILE_SEARCHING = 8000
FEWEST = 300
"""A region that has fewer usable pixels is none."""
MOST_REGIONS = 8
SEED = 40
"""Side of the window that a new region starts from."""
WORSE = 0.2
"""Excess over the noise, in its units, from which a window is worth a kernel of its own."""
FAILURES = 2
"""Windows in a row that give no new region after which the search ends."""
PASSES = 3
"""How often regions and kernels are adapted to each other."""
SMOOTH = 2.5
"""Pixels over which it is judged which kernel fits."""
TOGETHER = 1.5
"""How strongly neighbours belong to the same region, in units of log-likelihood."""
APART = (0.5, 0.15)
"""Neighbours on a grid differ by this share of the kernel."""
GRIDS = (2, 3, 5)
SWEEPS = 2
"""How often the kernels of regions are fitted in turn at the end."""
NODE, SEAM = 0.25, 0.3
"""Weights of a node, and of a region, from which pixels count."""
MEDIAN_OF_CHI2 = 0.4549
SMALLEST_NOISE = 1e-4
"""Rounding of 12 bits."""
PER_NODE = 2500
"""Usable pixels for each node of a grid."""
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
    prior: Prior
    apart: float = 0.0

    def shown(self, sharp: Array) -> Array:
        """The sharp picture, blurred."""
        result: Array = sum(w * convolved(sharp, k) for w, k in zip(self.weights, self.kernels, strict=True))
        return result


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
    sums = _sums(pair, usable & seen, _most(pair))
    if prior is None:
        hidden = _sums(pair, usable & ~seen, _most(pair))
        found = [fit_kernel(sums, pair.noise, p) for p in PRIORS]
        best = int(np.argmin([hidden.residual(k) for k in found]))
        return Field("one", found[best][None], np.ones((1, *size)), middle, PRIORS[best])
    return Field("one", fit_kernel(sums, pair.noise, prior)[None], np.ones((1, *size)), middle, prior)


def grid_of_kernels(pair: Pair, seen: Array, start: Field, nodes: int, apart: float) -> Field:
    """Kernels on a grid, each like its neighbours; between the nodes they are mixed."""
    size = pair.sharp.shape
    x, y = lattice(size, nodes)
    places = places_of(x, y)
    weights = bilinear(x, y, size).reshape(len(places), *size)
    usable = pair.usable() & seen
    sums = [_sums(pair, usable & (w > NODE), WHILE_SEARCHING) for w in weights]
    kernels = np.repeat(start.kernels[:1], len(places), 0)
    step = np.array([x[1] - x[0], y[1] - y[0]])
    for _ in range(2):
        for i, place in enumerate(places):
            beside = (np.abs((places - place) / step).sum(1) - 1) < 0.1
            kernels[i] = fit_kernel(sums[i], pair.noise, start.prior, kernels[beside].mean(0), apart)
    return Field(f"a grid of {len(x)}x{len(y)}", kernels, weights, places, start.prior, apart)


def regions_of_kernels(pair: Pair, seen: Array, start: Field) -> Iterator[Field]:
    """Ever more regions: each begins where the kernels so far fit worst."""
    field, tried, failures = start, np.zeros(pair.sharp.shape, bool), 0
    while len(field.kernels) < MOST_REGIONS and failures < FAILURES:
        window = _worst_window(pair, seen, field, tried)
        if window is None:
            return
        tried |= window
        new = fit_kernel(_sums(pair, window, WHILE_SEARCHING), pair.noise, field.prior)
        more = fit_regions(pair, seen, np.concatenate([field.kernels, new[None]]), start.prior)
        if len(more.kernels) > len(field.kernels):
            field, failures = more, 0
            yield field
        else:
            failures += 1


def fit_regions(pair: Pair, seen: Array, kernels: Array, prior: Prior) -> Field:
    """Regions and their kernels adapted to each other, from first kernels; regions that nothing shows are dropped."""
    usable = pair.usable()
    shares = regions_of(pair, seen, kernels)
    for _ in range(PASSES):
        sure = [usable & seen & (share > 0.9) for share in shares]
        kept = [i for i, pixels in enumerate(sure) if pixels.sum() >= FEWEST] or [
            int(np.argmax([s.sum() for s in sure]))
        ]
        kernels = np.stack([fit_kernel(_sums(pair, sure[i], WHILE_SEARCHING), pair.noise, prior) for i in kept])
        shares = regions_of(pair, seen, kernels)
    height, width = pair.sharp.shape
    rows, columns = np.mgrid[:height, :width]
    places = np.array([[(s * columns).sum() / s.sum(), (s * rows).sum() / s.sum()] for s in shares.clip(1e-9)])
    return Field(f"{len(kernels)} regions", kernels, with_seams(shares, kernels), places, prior)


def with_seams(shares: Array, kernels: Array) -> Array:
    """Weights (P, H, W) of regions: each reaches as far beyond its outline as its own kernel carries its light."""
    spread = np.stack([convolved(share, kernel) for share, kernel in zip(shares, kernels, strict=True)]).clip(1e-9)
    result: Array = spread / spread.sum(0)
    return result


def finished(pair: Pair, seen: Array, field: Field) -> tuple[Field, Array]:
    """The field from all pixels, and the relative error (P,) of each kernel.

    The error is half the difference of the kernels of two halves of the pixels.
    """
    if field.apart:
        return _finished_grid(pair, seen, field)
    priors = [field.prior] * len(field.kernels)
    if len(priors) > 1:  # each region has a prior of its own
        priors = [_best_prior(pair, seen, field, i) for i in range(len(priors))]
        for _ in range(SWEEPS):
            for i, prior in enumerate(priors):
                kernel = fit_kernel(_part(pair, field, i, np.ones_like(seen)), pair.noise, prior)
                field = replace(
                    field, kernels=np.concatenate([field.kernels[:i], kernel[None], field.kernels[i + 1 :]])
                )
            shares = regions_of(pair, np.ones_like(seen), field.kernels)
            field = replace(field, weights=with_seams(shares, field.kernels))
    kernels, errors = [], []
    for i, prior in enumerate(priors):
        a, b = (_part(pair, field, i, half) for half in (seen, ~seen))
        kernels.append(fit_kernel(a.plus(b), pair.noise, prior))
        one, other = (fit_kernel(half, pair.noise, prior) for half in (a, b))
        errors.append(float(np.linalg.norm(one - other) / np.linalg.norm(kernels[-1])) / 2)
    return replace(field, kernels=np.stack(kernels)), np.array(errors)


def _finished_grid(pair: Pair, seen: Array, field: Field) -> tuple[Field, Array]:
    kernels, errors = [], []
    for near, weight in zip(field.kernels, field.weights, strict=True):
        pixels = pair.usable() & (weight > NODE)
        a, b = (_sums(pair, pixels & half, _most(pair)) for half in (seen, ~seen))
        kernels.append(fit_kernel(a.plus(b), pair.noise, field.prior, near, field.apart))
        one, other = (fit_kernel(half, pair.noise, field.prior, near, field.apart) for half in (a, b))
        errors.append(float(np.linalg.norm(one - other) / np.linalg.norm(kernels[-1])) / 2)
    return replace(field, kernels=np.stack(kernels)), np.array(errors)


def _best_prior(pair: Pair, seen: Array, field: Field, i: int) -> Prior:
    a, b = (_part(pair, field, i, half) for half in (seen, ~seen))
    return PRIORS[int(np.argmin([b.residual(fit_kernel(a, pair.noise, prior)) for prior in PRIORS]))]


def _part(pair: Pair, field: Field, i: int, where: Array) -> Sums:
    """The sums of one region, what the others add at its seams taken off."""
    if len(field.kernels) == 1:
        return _sums(pair, pair.usable() & where, _most(pair))
    kept = [k for k in range(len(field.kernels)) if k != i]
    others = replace(field, kernels=field.kernels[kept], weights=field.weights[kept]).shown(pair.sharp)
    alone = replace(pair, blurred=pair.blurred - others)
    counted = pair.usable() & where & (field.weights[i] > SEAM)
    if counted.sum() < FEWEST:
        counted = pair.usable() & where & (field.weights[i] > field.weights[i].max() / 2)
    return _sums(alone, counted, _most(pair), field.weights[i])


def regions_of(pair: Pair, seen: Array, kernels: Array) -> Array:
    """Which kernel fits where, (P, H, W): probabilities of labels that neighbours share.

    Mean field of `sum_n e_n / (2 sigma^2) - TOGETHER * (agreement with the neighbourhood)`.
    """
    from scipy.ndimage import distance_transform_edt, gaussian_filter

    counted = pair.inner() & pair.valid & seen
    known = gaussian_filter(counted.astype(float), SMOOTH).clip(1e-3)
    errors = np.stack(
        [
            gaussian_filter(np.where(counted, (pair.blurred - convolved(pair.sharp, k)) ** 2, 0), SMOOTH) / known
            for k in kernels
        ]
    ) / (2 * pair.noise**2)
    window = 2 * np.pi * SMOOTH**2 * float(counted.mean())
    cost = np.minimum(errors - errors.min(0), 4.0) * window / 4
    # Where nothing is known, it is as at the nearest place where something is.
    unknown = known < 0.2 * counted.mean()
    nearest = distance_transform_edt(unknown, return_distances=False, return_indices=True)
    cost = cost[:, nearest[0], nearest[1]]
    shares = _softmax(-cost)
    for _ in range(12):
        around = np.stack([gaussian_filter(s, 2 * SMOOTH) for s in shares])
        shares = _softmax(-cost + TOGETHER * 4 * around)
    return shares


def _softmax(values: Array) -> Array:
    exp = np.exp(values - values.max(0))
    result: Array = exp / exp.sum(0)
    return result


def _worst_window(pair: Pair, seen: Array, field: Field, tried: Array) -> Array | None:
    """The window where the field fits worst, of those not tried yet; None if that is hardly worse than the noise."""
    from scipy.ndimage import uniform_filter

    usable = pair.usable() & seen
    excess = np.where(usable, (pair.blurred - field.shown(pair.sharp)) ** 2 - pair.noise**2, 0)
    side = min(SEED, min(pair.sharp.shape) // 3)
    total = np.where(tried, 0, uniform_filter(excess, side, mode="constant") * side**2)
    row, column = np.unravel_index(int(total.argmax()), total.shape)
    window = np.zeros_like(usable)
    window[max(0, row - side // 2) : row + side // 2, max(0, column - side // 2) : column + side // 2] = True
    window &= usable
    return None if window.sum() < FEWEST or total.max() < WORSE * window.sum() * pair.noise**2 else window


def _most(pair: Pair) -> int:
    """How many pixels a kernel is fitted to."""
    return int(np.clip(MOST_PIXELS[1] * (SMALL / pair.side) ** 4, *MOST_PIXELS))


def _sums(pair: Pair, counted: Array, most: int, weight: Array | None = None) -> Sums:
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
