"""How a picture is divided into tiles: what each decides, what each sees, and how neighbours are blended.

All positions are pixels of the scene that is restored, along one axis or both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from pnpladmm.operators.fft import Size
from pnpladmm.tensors import InputError

ALIGNMENT = 8
"""Tiles begin at multiples of this from the first pixel of the picture and end at multiples of it from the last one,
so that networks, which fold pixels into blocks from either end, see the same blocks as in the whole picture."""

Span = tuple[int, int]
"""First pixel and the one after the last."""


@dataclass(frozen=True)
class Part:
    """One tile along one axis."""

    core: Span
    """The pixels for which this tile is the nearest."""
    extent: Span
    """The pixels that are restored with it. Where the picture goes round, it may reach beyond both ends."""
    blend: int
    """Over so many pixels to each side of an inner end of the core the results of both tiles are mixed."""
    length: int
    """Of the whole axis."""

    @property
    def written(self) -> Span:
        """The pixels that its result takes part in."""
        return max(0, self.core[0] - self.blend), min(self.length, self.core[1] + self.blend)

    def ramp(self) -> Tensor:
        """Its share of the written pixels, float64; the shares of all tiles sum to one."""
        first, last = self.written
        at = torch.arange(first, last, dtype=torch.float64) + 0.5
        share = torch.ones_like(at)
        for end, sign, inner in ((self.core[0], 1, self.core[0] > 0), (self.core[1], -1, self.core[1] < self.length)):
            if inner and self.blend:
                share = torch.minimum(share, (0.5 + sign * (at - end) / (2 * self.blend)).clamp(0, 1))
        return share


@dataclass(frozen=True)
class Tile:
    """A tile of a picture."""

    rows: Part
    columns: Part

    @property
    def extent(self) -> tuple[Span, Span]:
        """What is restored."""
        return self.rows.extent, self.columns.extent

    @property
    def written(self) -> tuple[slice, slice]:
        """Where its result goes, as an index of the scene."""
        return slice(*self.rows.written), slice(*self.columns.written)

    @property
    def inside(self) -> tuple[slice, slice]:
        """The same pixels as an index of the tile's own extent."""
        rows, columns = (
            slice(part.written[0] - part.extent[0], part.written[1] - part.extent[0])
            for part in (self.rows, self.columns)
        )
        return rows, columns

    def share(self, like: Tensor) -> Tensor:
        """Its share of the written pixels."""
        return (self.rows.ramp()[:, None] * self.columns.ramp()).to(like)


@dataclass(frozen=True)
class Grid:
    """The tiles of a picture."""

    size: Size
    """(H, W) of the scene."""
    rows: tuple[Part, ...]
    columns: tuple[Part, ...]

    def __len__(self) -> int:
        return len(self.rows) * len(self.columns)

    def __iter__(self) -> Iterator[Tile]:
        return (Tile(row, column) for row in self.rows for column in self.columns)

    @property
    def side(self) -> Size:
        """The largest extent of a tile."""
        rows, columns = (max(part.extent[1] - part.extent[0] for part in parts) for parts in (self.rows, self.columns))
        return rows, columns

    @property
    def halos(self) -> tuple[int, int]:
        """The halo along each axis; where only one is divided, that of the other one for both."""
        found = [max(part.core[0] - part.extent[0] for part in parts) for parts in (self.rows, self.columns)]
        return found[0] or max(found), found[1] or max(found)

    def corners(self) -> list[tuple[int, int]]:
        """Where four tiles meet, or two where they lie in one line: places where seams can be looked at."""
        height, width = self.size
        rows = [part.core[1] for part in self.rows[:-1]] or [height // 2 // ALIGNMENT * ALIGNMENT]
        columns = [part.core[1] for part in self.columns[:-1]] or [width // 2 // ALIGNMENT * ALIGNMENT]
        return [(row, column) for row in rows for column in columns]


def plan_tiles(size: Size, side: int, halo: int, blend: int, round_trip: bool = False) -> Grid:
    """Tiles of at most `side` pixels that overlap by twice `halo`, for a scene (H, W).

    Parameters
    ----------
    size : (int, int)
        (H, W) of the scene.
    side : int
        The longest side of a tile with its halo.
    halo : int
        Pixels around the core of a tile that are restored with it; a multiple of 8 (`ALIGNMENT`).
    blend : int
        Of these, the pixels over which neighbours are mixed; the others only keep the border away.
    round_trip : bool
        The picture goes on at its other side (a circular boundary): the outer tiles have a halo there, too.
    """
    if halo % ALIGNMENT or not 0 <= blend <= halo:
        raise InputError(f"halo = {halo}, blend = {blend}: give a multiple of {ALIGNMENT}, and at most that")
    rows, columns = (_parts(n, side, halo, blend, round_trip) for n in size)
    return Grid(size, rows, columns)


def _parts(length: int, side: int, halo: int, blend: int, round_trip: bool) -> tuple[Part, ...]:
    """The parts of one axis, of about equal length."""
    if length <= side:
        return (Part((0, length), (0, length), blend, length),)
    # The last tile ends with the picture, and its neighbours have the rest of the division by 8, too.
    core = (side - 2 * halo - length % ALIGNMENT) // ALIGNMENT * ALIGNMENT
    if core < max(2 * blend, 2 * ALIGNMENT):
        raise InputError(f"tiles of {side} pixels leave no room beside a halo of {halo}: allow larger tiles")
    count = -(-length // core)
    cuts = [round(i * length / count / ALIGNMENT) * ALIGNMENT for i in range(count)] + [length]
    parts = []
    for first, last in pairwise(cuts):
        begin, end = first - halo, last + halo + (length % ALIGNMENT if last < length else 0)
        if not round_trip:
            begin, end = max(0, begin), min(length, end)
        parts.append(Part((first, last), (begin, end), blend, length))
    return tuple(parts)


def taken(x: Tensor, rows: Span, columns: Span) -> Tensor:
    """The part of pictures (..., H, W); beyond their ends they go on at the other side."""
    for axis, (first, last) in ((-2, rows), (-1, columns)):
        length = x.shape[axis]
        if first >= 0 and last <= length:
            x = x.narrow(axis, first, last - first)
        else:
            x = x.index_select(axis, torch.arange(first, last, device=x.device) % length)
    return x


def add_into(x: Tensor, part: Tensor, rows: Span, columns: Span) -> None:
    """Add a part to pictures in place: the transpose of `taken`."""
    height, width = x.shape[-2:]
    if rows[0] >= 0 and rows[1] <= height and columns[0] >= 0 and columns[1] <= width:
        x[..., slice(*rows), slice(*columns)] += part
        return
    row, column = (
        torch.arange(first, last, device=x.device) % n for (first, last), n in ((rows, height), (columns, width))
    )
    lines = x.new_zeros(*part.shape[:-2], height, part.shape[-1]).index_add_(-2, row, part)
    x.index_add_(-1, column, lines)
