"""How large the errors at the seams of tiles are, measured against strips that no tile divides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pnpladmm.tiling.geometry import ALIGNMENT, Grid, Span, Tile, taken

MOST = 2
"""Places that are looked at; each costs the time of a small tile."""
LONGEST = 512
"""The longest side of a strip."""


@dataclass(frozen=True)
class Seams:
    """The difference to the untiled restoration where tiles meet, of 255."""

    largest: float
    rms: float
    places: int

    def scaled(self, scale: float) -> Seams:
        """The same for pictures that are so many times as bright."""
        return Seams(scale * self.largest, scale * self.rms, self.places)

    def __str__(self) -> str:
        """One line."""
        where = f"the {self.places} places" if self.places > 1 else "the place"
        return (
            f"seams: at most {self.largest:.2f} of 255, rms {self.rms:.3f}, against untiled parts at {where} where "
            "most is to be expected"
        )


Restored = Callable[[Span, Span], Tensor]
"""Pixels of the scene (.., h, w) in these rows and columns."""
Disagreement = tuple[float, tuple[int, int]]
"""By how much two tiles differ, and at which pixel of the scene."""


class Overlaps:
    """Compares each tile with those above and to the left of it, where both are blended.

    `picture` are the rows and columns of the scene that are seen: what lies beyond them is cut off in the end.
    """

    def __init__(self, picture: tuple[Span, Span]) -> None:
        self.picture = picture
        self.places: list[Disagreement] = []
        self._below: dict[Span, Tensor] = {}
        self._right: Tensor | None = None

    def add(self, tile: Tile, part: Tensor) -> None:
        """The next tile in the order of the grid, with its written pixels (.., h, w)."""
        rows, columns = tile.rows, tile.columns
        if self._right is not None and columns.core[0] > 0:
            self._compare(self._right, part[..., : 2 * columns.blend], tile)
        if rows.core[0] > 0 and columns.core in self._below:
            self._compare(self._below.pop(columns.core), part[..., : 2 * rows.blend, :], tile)
        last = columns.core[1] == columns.length
        self._right = None if last else part[..., part.shape[-1] - 2 * columns.blend :].clone()
        if rows.core[1] < rows.length:
            self._below[columns.core] = part[..., part.shape[-2] - 2 * rows.blend :, :].clone()

    def _compare(self, one: Tensor, other: Tensor, tile: Tile) -> None:
        if other.numel() == 0:
            return
        difference = (one - other).abs().flatten(0, -3).amax(0)
        first = tile.rows.written[0], tile.columns.written[0]
        for axis, ((begin, end), at) in enumerate(zip(self.picture, first, strict=True)):
            line = torch.arange(at, at + difference.shape[axis], device=difference.device)
            seen = ((line >= begin) & (line < end)).view((-1, 1) if axis == 0 else (1, -1))
            difference = torch.where(seen, difference, 0)
        row, column = divmod(int(difference.argmax()), difference.shape[-1])
        self.places.append((float(difference.max()), (first[0] + row, first[1] + column)))


@dataclass(frozen=True)
class OtherSteps:
    """How much a picture depends on the samples from which the steps of conjugate gradient were found."""

    restored: Restored
    """Untiled, with the steps of fewer samples."""
    weight: float
    """Of the differences: less where the samples see much of the picture."""
    place: tuple[int, int] | None
    """The pixel of the scene where the steps matter most; None: where tiles differ most."""


def measure_seams(
    tiled: Restored, untiled: Restored, grid: Grid, overlaps: Overlaps, other: OtherSteps | None = None
) -> Seams:
    """Restore again, undivided, the surroundings of the places where tiles differ most, and compare the middle.

    The undivided run has steps of its own, which are not known. How much the picture depends on them is seen where they
    matter most: there untiled parts are compared with `other` ones.

    The strip around such a place ends at least twice as far from what is compared as tiles end from what they decide.
    """
    worst = [place for _, place in sorted(overlaps.places, reverse=True)] or grid.corners()
    apart = max(grid.halos)
    chosen: list[tuple[int, int]] = []
    for place in worst:
        if all(max(abs(place[0] - a), abs(place[1] - b)) > apart for a, b in chosen):
            chosen.append(place)
    errors = [_compared(tiled, untiled, grid, place, overlaps.picture) for place in chosen[:MOST]]
    if other is not None:
        errors.append(other.weight * _other(other, untiled, grid, other.place or chosen[0], overlaps.picture))
    found = torch.cat([e.flatten() for e in errors])
    return Seams(255 * float(found.abs().max()), 255 * float(found.square().mean().sqrt()), len(errors))


def _compared(
    tiled: Restored, untiled: Restored, grid: Grid, place: tuple[int, int], picture: tuple[Span, Span]
) -> Tensor:
    """The difference around a place, within the picture."""
    part, near = _around(grid, place, picture)
    inside = taken(untiled(*part), *map(_within, near, part))
    return (tiled(*near).to(inside) - inside).double()


def _other(
    other: OtherSteps, untiled: Restored, grid: Grid, place: tuple[int, int], picture: tuple[Span, Span]
) -> Tensor:
    """The difference that other steps make around a place."""
    part, near = _around(grid, place, picture)
    one, two = (taken(restored(*part), *map(_within, near, part)) for restored in (untiled, other.restored))
    return (one - two).double()


def _around(
    grid: Grid, place: tuple[int, int], picture: tuple[Span, Span]
) -> tuple[tuple[Span, Span], tuple[Span, Span]]:
    """Rows and columns of a part around a place, and of its middle, as far as that is seen."""
    inside = [min(max(at, seen[0]), seen[1] - 1) for at, seen in zip(place, picture, strict=True)]
    spans = [_spans(*given) for given in zip(inside, grid.size, grid.halos, strict=True)]
    near = [(max(inner[0], seen[0]), min(inner[1], seen[1])) for (_, inner), seen in zip(spans, picture, strict=True)]
    return (spans[0][0], spans[1][0]), (near[0], near[1])


def _within(span: Span, whole: Span) -> Span:
    return span[0] - whole[0], span[1] - whole[0]


def _spans(at: int, length: int, halo: int) -> tuple[Span, Span]:
    """What is restored, and of it what is compared: all within a halo of the seam."""
    at = at // ALIGNMENT * ALIGNMENT
    reach = min(3 * halo, max(LONGEST // 2, 2 * halo)) // ALIGNMENT * ALIGNMENT
    first, last = max(0, at - reach), at + reach + length % ALIGNMENT
    last = length if last >= length else last
    near = reach // 3
    return (first, last), (max(0, at - near), min(length, at + near))
