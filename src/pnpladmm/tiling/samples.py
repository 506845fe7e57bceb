"""Parts that are spread over a picture, from which something is decided for all of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from torch import Tensor

from pnpladmm.operators.fft import Size
from pnpladmm.operators.misfit import Point
from pnpladmm.tiling.geometry import ALIGNMENT, Grid, Span

CORE = 128
"""The side of the middle of a sample, which its ends do not reach."""
SHARE = 0.1
"""Samples are at most this share of the picture, but for the fewest."""
FEWEST, MOST = 3, 4
"""Samples along each axis."""
TILES = 2
"""Samples have at most the pixels of so many tiles: they are solved side by side, which takes memory."""
COARSE = 1 << 16
"""Pixels by which weights are judged."""


@dataclass(frozen=True)
class Place:
    """Rows and columns of a sample in the scene."""

    rows: Span
    columns: Span
    share: Tensor
    """(h, w): the pixels of the picture that each pixel of the sample stands for."""
    stays: bool = True
    """Does it stay where one of four of those that are spread evenly is left out?"""


def sample_places(grid: Grid, round_trip: bool = False, needed: Sequence[Point] = ()) -> list[Place]:
    """Places of equal size, spread evenly over the scene of a grid of tiles, and such as are `needed` beside them.

    A place around a point that is needed stands for all places around it that are like it.
    Pixels within the halo of an end of a sample stand for none. At the border of the picture, which is nothing to keep
    away from, a rim as wide stands for itself: solvers have more work there than elsewhere. What lies between stands
    for the middle of the picture. A picture that goes on at its other side (`round_trip`) has no border.
    """
    halo = max(grid.halos)
    side = 2 * halo + CORE
    wanted = math.isqrt(int(SHARE * grid.size[0] * grid.size[1] / side**2))
    room = math.isqrt(TILES * grid.side[0] * grid.side[1] // side**2)
    count = max(2, min(max(FEWEST, wanted), MOST, room))
    rows, columns = (_samples(n, side, halo, count, round_trip) for n in grid.size)
    spread = [
        Place(row, column, down[:, None] * across, number % 4 != 1)
        for number, ((row, down), (column, across)) in enumerate(product(rows, columns))
    ]
    more: list[Place] = []
    for point in needed:
        at = [(int(share * n), n) for share, n in zip(point.place, grid.size, strict=True)]
        if not any(_inside(place, at, halo) for place in (*spread, *more)):
            extents = [share * n for share, n in zip(point.extent, grid.size, strict=True)]
            more.append(_around(at, extents, side, halo, round_trip))
    height, width = grid.size
    rest = 1 - sum(float(place.share.sum()) for place in more) / (height * width)
    return [*(replace(place, share=rest * place.share) for place in spread), *more]


def _inside(place: Place, at: list[tuple[int, int]], halo: int) -> bool:
    """Is a point (pixel, length of the axis) further than a quarter of a halo from the ends of a place?"""
    return all(
        (span[0] == 0 or span[0] + halo // 4 <= pixel) and (span[1] == length or pixel < span[1] - halo // 4)
        for span, (pixel, length) in zip((place.rows, place.columns), at, strict=True)
    )


def _around(at: list[tuple[int, int]], extents: list[float], side: int, halo: int, round_trip: bool) -> Place:
    """A sample with a point in its middle, or as near to that as the picture allows, for places of these extents."""
    spans, shares = [], []
    for (pixel, length), extent in zip(at, extents, strict=True):
        first = max(0, min(pixel - side // 2, length - side)) // ALIGNMENT * ALIGNMENT
        span, share = _sample(first, length, side, halo, round_trip)
        spans.append(span)
        shares.append(torch.where(share < 0, max(1.0, extent / CORE), share))
    return Place(spans[0], spans[1], shares[0][:, None] * shares[1])


def unseen(places: Sequence[Place], size: Size) -> float:
    """The root of the share of a picture (H, W) that is in no sample: steps of samples that see all of it are exact."""
    seen = sum(int((place.share > 0).sum()) for place in places)
    return math.sqrt(max(0.0, 1 - seen / (size[0] * size[1])))


def coarse(weights: Tensor) -> Tensor:
    """Every so many pixels of weights (P, H, W)."""
    step = max(1, math.isqrt(weights.shape[-2] * weights.shape[-1] // COARSE))
    return weights[..., ::step, ::step]


def _samples(length: int, side: int, halo: int, count: int, round_trip: bool) -> list[tuple[Span, Tensor]]:
    """The samples of one axis, and what each pixel stands for."""
    if length <= side:
        return [((0, length), torch.ones(length, dtype=torch.float64))]
    firsts = sorted({int(at) // ALIGNMENT * ALIGNMENT for at in np.linspace(0, length - side, count)})
    spans, found = zip(*(_sample(first, length, side, halo, round_trip) for first in firsts), strict=True)
    rims = sum(float(share[share > 0].sum()) for share in found)
    middle = (length - rims) / sum(int((share < 0).sum()) for share in found)
    return [(span, torch.where(share < 0, middle, share)) for span, share in zip(spans, found, strict=True)]


def _sample(first: int, length: int, side: int, halo: int, round_trip: bool) -> tuple[Span, Tensor]:
    """A sample of one axis and what its pixels stand for: 1 at a border, -1 in the middle, 0 where it feels its end."""
    if length <= side:
        return (0, length), torch.ones(length, dtype=torch.float64)
    # Networks fold pixels into blocks from either end of the picture: a part ends as the picture does.
    last = first + side + length % ALIGNMENT
    share = torch.full((last - first,), -1.0, dtype=torch.float64)
    share[:halo] = float(first == 0 and not round_trip)
    share[len(share) - halo :] = float(last == length and not round_trip)
    return (first, last), share
