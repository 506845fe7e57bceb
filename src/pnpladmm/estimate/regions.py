"""Regions with a kernel each, found from a sharp and a blurred picture: neither outlines nor kernels are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from pnpladmm.blur.arrays import Array
from pnpladmm.estimate.kernel_fields import (
    FEWEST,
    WHILE_SEARCHING,
    Field,
    convolved,
    left_over,
    part,
    pixel_sums,
    with_best_priors,
)
from pnpladmm.estimate.kernel_fit import Prior, fit_kernel
from pnpladmm.estimate.outlines import STEPS, fit_outlines
from pnpladmm.estimate.pair import Pair
from pnpladmm.estimate.way import Tell

WHILE_ADAPTING = 16000
"""Pixels that a kernel is fitted to while outlines and kernels take turns."""
MOST_REGIONS = 8
SEED = 40
"""Side of the window that a new region starts from."""
WORSE = 0.2
"""Excess over the noise, in its units, from which a window is worth a kernel of its own."""
FAILURES = 2
"""Windows in a row that give no new region after which the search ends."""
PASSES = 3
"""How often regions and kernels are adapted to each other."""
SHOWN = 100
"""Pixels that a region must have in the end; fewer say nothing about its kernel."""
START = 0.8
"""Share of its window that a new region has before its outline is fitted."""
WORTH = 300.0
"""Decrease of the squared residual, over the noise, that a new region must bring: about 100 numbers say what it is."""
SMOOTH = 2.5
"""Pixels over which it is judged at first which kernel fits."""
TOGETHER = 1.5
"""How strongly neighbours belong to the same region, in units of log-likelihood."""


def regions_of_kernels(pair: Pair, seen: Array, start: Field) -> Iterator[Field]:
    """Ever more regions: each begins where the kernels so far fit worst."""
    field, tried, failures = start, np.zeros(pair.sharp.shape, bool), 0
    while len(field.kernels) < MOST_REGIONS and failures < FAILURES:
        window = _worst_window(pair, seen, field, tried)
        if window is None:
            return
        tried |= window
        new = fit_kernel(pixel_sums(pair, window, WHILE_SEARCHING), pair.noise, field.priors[0])
        more = fit_regions(pair, seen, np.concatenate([field.kernels, new[None]]), start.priors[0])
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
        kernels = np.stack([fit_kernel(pixel_sums(pair, sure[i], WHILE_SEARCHING), pair.noise, prior) for i in kept])
        shares = regions_of(pair, seen, kernels)
    return Field(
        f"{len(kernels)} regions", kernels, with_seams(shares, kernels), _middles(shares), (prior,) * len(kernels)
    )


def refined(pair: Pair, seen: Array, field: Field, tell: Tell) -> Field:
    """Outlines and kernels adapted to each other, to the pixel and with all pixels, which may show more regions."""
    from scipy.ndimage import gaussian_filter

    tell("outlines", 0.7)
    field, shares = _adapted(pair, field, field.weights, range(len(field.kernels)), PASSES)
    tried, failures = np.zeros(pair.sharp.shape, bool), 0
    while len(field.kernels) < MOST_REGIONS and failures < FAILURES:
        window = _worst_window(pair, pair.valid, field, tried)
        if window is None:
            break
        tried |= window
        tell(f"outlines, {len(field.kernels) + 1} regions", 0.75 + 0.02 * min(len(field.kernels), 6))
        new = fit_kernel(pixel_sums(pair, window, WHILE_SEARCHING), pair.noise, field.priors[0])
        soft = START * gaussian_filter(window.astype(float), SMOOTH)
        added = np.concatenate([shares * (1 - soft), soft[None]])
        more = Field(
            field.kind,
            np.concatenate([field.kernels, new[None]]),
            added,
            _middles(added),
            (*field.priors, field.priors[0]),
        )
        more, added = _adapted(pair, more, added, [len(field.kernels)], 2, steps=STEPS // 2)
        gain = left_over(pair, field, pair.valid).sum() - left_over(pair, more, pair.valid).sum()
        if gain > WORTH:
            field, shares, failures = more, added, 0
        else:
            failures += 1
    usable = pair.usable()
    kept = [i for i, weight in enumerate(field.weights) if usable[weight > 0.5].sum() >= SHOWN]
    if kept:
        field, shares = field.taken(kept), shares[kept]
    field = with_best_priors(pair, seen, field)
    field, _ = _adapted(pair, field, shares, range(len(field.kernels)), 1)
    return replace(field, kind=f"{len(field.kernels)} regions", places=_middles(field.weights))


def _adapted(
    pair: Pair, field: Field, shares: Array, changed: Sequence[int], passes: int, steps: int = STEPS
) -> tuple[Field, Array]:
    """Outlines and some of the kernels in turn: the field, and what belongs to each region (P, H, W)."""
    for _ in range(passes):
        shares, weights = fit_outlines(pair, field, shares, steps)
        field = replace(field, weights=weights)
        for i in changed:
            kernel = fit_kernel(part(pair, field, i, pair.valid, WHILE_ADAPTING), pair.noise, field.priors[i])
            field = field.with_kernel(i, kernel)
    shares, weights = fit_outlines(pair, field, shares, steps)
    return replace(field, weights=weights), shares


def _middles(shares: Array) -> Array:
    """The centres (P, 2) of regions, as x, y."""
    rows, columns = np.mgrid[: shares.shape[1], : shares.shape[2]]
    return np.array([[(s * columns).sum() / s.sum(), (s * rows).sum() / s.sum()] for s in shares.clip(1e-9)])


def with_seams(shares: Array, kernels: Array) -> Array:
    """Weights (P, H, W) of regions: each reaches as far beyond its outline as its own kernel carries its light."""
    spread = np.stack([convolved(share, kernel) for share, kernel in zip(shares, kernels, strict=True)]).clip(1e-9)
    result: Array = spread / spread.sum(0)
    return result


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
