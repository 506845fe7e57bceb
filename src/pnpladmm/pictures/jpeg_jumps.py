"""Damage of JPEG data that leaves the codes whole: from one block on, brightness or colour is shifted.

The mean of a block (of 8x8 pixels, or 16x16 where colours are stored at half the size) is stored as a difference to the
block before it. A wrong difference shifts all blocks from there to the end, row by row:

    . . . . . .
    . . . # # #      Along this staircase the picture jumps by the same amount everywhere, also between the two
    # # # # # #      blocks at its step, and nowhere beside it. Edges of what a picture shows hardly do that.

No decoder sees it, because JPEG has no checksums. It is looked for in the pixels.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pnpladmm.pictures.arrays import Array

SIDES = (8, 16)
"""Of what is coded together."""
REACHES = (1, 3)
"""Pixels on each side of a border; colours at half the size are blurred over it."""
LEAST = 4.0
"""Grey levels of 255: smaller shifts are no visible damage."""
MOST = 30.0
"""Jumps count as no more than this in the first look, so that a few edges of the picture do not decide."""
AGREEING = 0.7
"""The share of a staircase that jumps by half to twice the shift, and of its neighbours that jump by less than half."""
FROM_SIDE = 3
"""Blocks between the step and the sides of the picture: a straight edge across it looks like a staircase without."""
SURE = 5.0
"""How far the mean jump has to be above what jumps of this size have for a mean by chance."""
ALIKE = 0.6
"""The share of the shift that the mean jump of each half of the staircase has at least."""
CANDIDATES = 60
FEWEST = 4 * FROM_SIDE
"""Blocks beside each other; fewer cannot tell."""
WEIGHTS = np.array([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]], np.float32)
"""From RGB to brightness and two colours, as JPEG codes them."""


def jump(samples: Array) -> tuple[int, int] | None:
    """Row and column (in pixels) where a shift begins, or None. Samples of 8 bits (H, W, C), as stored in the file."""
    for side in SIDES:
        if samples.shape[1] // side < FEWEST or samples.shape[0] < 3 * side:
            continue
        for reach in REACHES:
            for component, jumps in enumerate(_jumps(samples, side, reach)):
                for row, column, shift in _staircases(jumps):
                    top, left = (row + 1) * side, column * side
                    block = np.swapaxes(samples[top : top + side, left - 2 * reach : left + 2 * reach], 0, 1)
                    step = float(_across(block, np.array([2 * reach]), reach, side)[component, 0, 0]) / shift
                    if 0.5 < step < 2:
                        return top, left
    return None


def _jumps(samples: Array, side: int, reach: int) -> Array:
    """(components, borders, blocks): the jump at the upper border of each block."""
    return _across(samples, np.arange(side, samples.shape[0] - side + 1, side), reach, side)


def _across(samples: Array, borders: Array, reach: int, side: int) -> Array:
    """The jumps between rows on both sides of a border, without what the slope of the picture explains."""
    offsets = (-2 * reach, -reach, reach - 1, 2 * reach - 1)
    before, above, below, after = (_means(samples[borders + offset], side) for offset in offsets)
    slope = ((above - before) + (after - below)) / (2 * reach)
    jumps = below - above - (2 * reach - 1) * slope
    weights = WEIGHTS if samples.shape[-1] == 3 else np.eye(samples.shape[-1], dtype=np.float32)
    return np.moveaxis(jumps @ weights.T, -1, 0)


def _means(rows: Array, side: int) -> Array:
    """(rows, blocks, channels): means over the width of each block."""
    columns = rows.shape[1] // side
    return rows[:, : columns * side].reshape(len(rows), columns, side, -1).mean(2, dtype=np.float32)


def _staircases(jumps: Array) -> Iterator[tuple[int, int, float]]:
    """Border, column and shift of the staircases that jump by the same amount, and beside which nothing jumps."""
    columns = jumps.shape[1]
    c = np.arange(FROM_SIDE, columns - FROM_SIDE + 1)  # where the right part may begin
    here, below = np.clip(jumps[:-1], -MOST, MOST), np.clip(jumps[1:], -MOST, MOST)
    (before, right), (left, after) = _mean_beside(here, c), _mean_beside(below, c)
    shift = (right * (columns - c) + left * c) / columns
    size, sign = np.abs(shift), np.sign(shift)
    good = np.minimum(right * sign, left * sign) > ALIKE * size
    good &= np.maximum(np.abs(before), np.abs(after)) < (1 - ALIKE) * size
    noise = float(np.sqrt(np.square(here).mean())) + 0.5
    good &= size > max(LEAST / 2, SURE * noise / np.sqrt(columns))
    for place in np.argsort(np.where(good, -size, 0), axis=None)[: min(CANDIDATES, int(good.sum()))]:
        row, at = (int(n) for n in np.unravel_index(int(place), size.shape))
        column = int(c[at])
        values = sign[row, at] * np.concatenate([jumps[row, column:], jumps[row + 1, :column]])
        others = np.concatenate([jumps[row, :column], jumps[row + 1, column:]])
        found = float(np.median(values))
        agree = np.mean((values > found / 2) & (values < 2 * found))
        if found >= LEAST and min(agree, np.mean(np.abs(others) < found / 2)) >= AGREEING:
            yield row, column, float(sign[row, at]) * found


def _mean_beside(values: Array, c: Array) -> tuple[Array, Array]:
    """The means of the columns before each `c`, and from it on."""
    sums = np.pad(np.cumsum(values, 1, dtype=np.float64), ((0, 0), (1, 0)))
    return sums[:, c] / c, (sums[:, -1:] - sums[:, c]) / (values.shape[1] - c)
