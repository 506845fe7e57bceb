"""How large the errors at the seams of tiles are, measured against strips that no tile divides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pnpladmm.tiling.geometry import ALIGNMENT, Grid, Span, taken

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

    def __str__(self) -> str:
        """One line."""
        return (
            f"seams: at most {self.largest:.2f} of 255, rms {self.rms:.3f}, against {self.places} untiled "
            f"part{'s' * (self.places > 1)}"
        )


Restored = Callable[[Span, Span], Tensor]
"""Pixels of the scene (.., h, w) in these rows and columns."""


def measure_seams(tiled: Restored, untiled: Restored, grid: Grid) -> Seams:
    """Restore again, undivided, the surroundings of places where tiles meet, and compare the middle.

    The strip around such a place ends at least twice as far from what is compared as tiles end from what they decide.
    """
    corners = grid.corners()
    step = max(1, len(corners) // MOST)
    errors = [_compared(tiled, untiled, grid, place) for place in corners[step // 2 :: step][:MOST]]
    found = torch.cat([e.flatten() for e in errors])
    return Seams(255 * float(found.abs().max()), 255 * float(found.square().mean().sqrt()), len(errors))


def _compared(tiled: Restored, untiled: Restored, grid: Grid, place: tuple[int, int]) -> Tensor:
    """The difference around a place."""
    (rows, near_rows), (columns, near_columns) = (
        _spans(*given) for given in zip(place, grid.size, _halos(grid), strict=True)
    )
    inside = taken(untiled(rows, columns), _within(near_rows, rows), _within(near_columns, columns))
    return (tiled(near_rows, near_columns).to(inside) - inside).double()


def _within(span: Span, whole: Span) -> Span:
    return span[0] - whole[0], span[1] - whole[0]


def _halos(grid: Grid) -> tuple[int, int]:
    halos = [max(part.core[0] - part.extent[0] for part in parts) for parts in (grid.rows, grid.columns)]
    return halos[0] or max(halos), halos[1] or max(halos)


def _spans(at: int, length: int, halo: int) -> tuple[Span, Span]:
    """What is restored, and of it what is compared: all within a halo of the seam."""
    reach = min(3 * halo, max(LONGEST // 2, 2 * halo)) // ALIGNMENT * ALIGNMENT
    first, last = max(0, at - reach), at + reach + length % ALIGNMENT
    last = length if last >= length else last
    near = reach // 3
    return (first, last), (max(0, at - near), min(length, at + near))
