"""How something changes over a picture: constant, polynomial in the place, or linear between the nodes of a grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pnpladmm.blur.arrays import Array
from pnpladmm.blur.interpolation import hats
from pnpladmm.blur.options import Size
from pnpladmm.tensors import InputError

FIELDS = ("auto", "one", "polynomial", "grid")
DEGREES, GRIDS = (1, 2, 3), (2, 3)
DECAY = 0.1
"""The size of a polynomial of one degree more, relative to that of one less, from the second degree on."""
PER_TERM = 3
"""Stars that a term must have at least."""


@dataclass(frozen=True)
class Terms:
    """Functions of the place: `kind` one, polynomial (of degree `order`) or grid (`order` x `order` nodes)."""

    kind: str
    order: int
    size: Size

    @property
    def count(self) -> int:
        """Number of functions."""
        if self.kind == "grid":
            return self.order**2
        return (self.order + 1) * (self.order + 2) // 2

    def at(self, places: Array) -> Array:
        """Values (N, T) at places (N, 2) as x, y. The first polynomial is 1."""
        height, width = self.size
        if self.kind == "grid":
            x, y = (
                hats(places[:, i], np.linspace(0, n - 1, self.order)).astype(np.float64)
                for i, n in enumerate((width, height))
            )
            return np.einsum("jn,in->nji", y, x).reshape(len(places), -1)
        x, y = (2 * places[:, i] / max(n - 1, 1) - 1 for i, n in enumerate((width, height)))
        from numpy.polynomial.legendre import legvander

        of_x, of_y = legvander(x, self.order), legvander(y, self.order)
        return np.stack([of_x[:, i] * of_y[:, j] for i, j in self._powers], 1)

    @property
    def changes(self) -> Array:
        """How large each function's share (T,) may be, relative to that of the first degree: optics change slowly.

        Infinite for the constant, and for the nodes of a grid.
        """
        if self.kind == "grid":
            return np.full(self.count, np.inf)
        return np.array([DECAY ** (i + j - 1) if i + j else np.inf for i, j in self._powers])

    @property
    def _powers(self) -> list[tuple[int, int]]:
        """Of x and y, the constant first."""
        powers = [(i, j) for j in range(self.order + 1) for i in range(self.order + 1 - j)]
        return sorted(powers, key=sum)

    def __str__(self) -> str:
        """In words."""
        if self.count == 1:
            return "one PSF"
        return (
            f"a polynomial of degree {self.order}" if self.kind == "polynomial" else f"a {self.order}x{self.order} grid"
        )


def families(field: str, count: int, size: Size) -> list[Terms]:
    """The fields that `count` stars can determine, the simplest first, as far as `field` allows them."""
    if field not in FIELDS:
        raise InputError(f"field = {field!r}: choose one of {', '.join(FIELDS)}")
    found = [Terms("one", 0, size)] if field in ("auto", "one") else []
    if field in ("auto", "polynomial"):
        found += [Terms("polynomial", d, size) for d in DEGREES]
    if field in ("auto", "grid"):
        found += [Terms("grid", g, size) for g in GRIDS]
    possible = [t for t in found if count >= PER_TERM * t.count or (t.count == 1 and count)]
    if not possible:
        raise InputError(f"field = {field}: {count} usable points are too few for it: use one")
    return sorted(possible, key=lambda t: t.count)


def regress(design: Array, values: Array, weights: Array, sizes: Array | float = np.inf) -> Array:
    """Coefficients (T, m) of weighted least squares for values (N, m), two times without outliers.

    Each is expected to be about as large as `sizes` (T,) says; infinite for no expectation.
    """
    expected = np.diag(np.broadcast_to(1 / np.asarray(sizes), design.shape[1]))
    kept = np.ones(len(values), bool)
    root = np.sqrt(weights)[:, None]
    for _ in range(3):
        coefficients: Array = np.linalg.lstsq(
            np.concatenate([root[kept] * design[kept], expected]),
            np.concatenate([root[kept] * values[kept], np.zeros((len(expected), values.shape[1]))]),
            rcond=1e-8,
        )[0]
        off = np.abs(values - design @ coefficients) * root
        limit = 5 * 1.4826 * np.median(off, 0).clip(1e-300)
        new = (off <= limit).all(1)
        if new.sum() < PER_TERM * design.shape[1] or (new == kept).all():
            break
        kept = new
    return coefficients
