"""Pictures of one iteration, in one file for each tile: tiles exchange their borders by reading those of the others."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pnpladmm.files import replacing
from pnpladmm.pictures.arrays import Array
from pnpladmm.scale.store import TileStore, is_whole, load, save
from pnpladmm.tensors import InputError
from pnpladmm.tiling.geometry import Grid, Part, Span

Sums = dict[str, Any]
"""What a tile adds to the sums over the picture: numbers, or lists of them."""


@dataclass(frozen=True)
class Field:
    """Planes (n, C, H, W) on the scene, one array for each step; every tile holds its core."""

    store: TileStore
    name: str
    grid: Grid

    def path(self, step: int, number: int) -> Path:
        """The file of a tile."""
        return self.store.folder / f"{self.name}-{step}-{number}.npy"

    def write(self, step: int, number: int, planes: Array, sums: Sums) -> None:
        """Keep a tile of a step and its sums, in this order: where the sums are, the tile is complete."""
        save(self.path(step, number), planes, durable=False)
        with replacing(self._sums(step, number), durable=False) as beside:
            beside.write_text(json.dumps(sums) + "\n")

    def missing(self, step: int) -> list[int]:
        """The tiles of a step that are not there yet."""
        numbers = range(len(self.grid))
        return [n for n in numbers if not (_has_text(self._sums(step, n)) and is_whole(self.path(step, n)))]

    def sums(self, step: int) -> list[Sums]:
        """What each tile of a step adds to the sums."""
        found = []
        for number in range(len(self.grid)):
            path = self._sums(step, number)
            try:
                found.append(json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError) as error:
                raise InputError(f"{path} is damaged ({error}): remove it and run the command again") from error
        return found

    def read(self, step: int, rows: Span, columns: Span) -> Array:
        """The planes in these rows and columns, from the tiles that hold them."""
        found: Array | None = None
        for i, down in enumerate(self.grid.rows):
            for j, across in enumerate(self.grid.columns):
                y, x = _common(down, rows), _common(across, columns)
                if y[0] >= y[1] or x[0] >= x[1]:
                    continue
                part = load(self.path(step, i * len(self.grid.columns) + j))
                if found is None:
                    found = np.empty((*part.shape[:-2], rows[1] - rows[0], columns[1] - columns[0]), part.dtype)
                inside = part[..., _from(y, down.core[0]), _from(x, across.core[0])]
                found[..., _from(y, rows[0]), _from(x, columns[0])] = inside
        assert found is not None  # a part of the scene
        return found

    def drop(self, step: int) -> None:
        """Remove a step."""
        for path in self.store.folder.glob(f"{self.name}-{step}-*"):
            path.unlink(missing_ok=True)

    def _sums(self, step: int, number: int) -> Path:
        return self.store.folder / f"{self.name}-{step}-{number}.json"


def total(sums: list[Sums], name: str) -> float:
    """The sum over all tiles, NaN where a tile does not have it."""
    values = [one[name] for one in sums]
    return math.nan if any(v is None for v in values) else math.fsum(values) if _finite(values) else math.nan


def largest(sums: list[Sums], name: str) -> float:
    """The largest of all tiles that have it, NaN where none does."""
    values = [one[name] for one in sums if one[name] is not None]
    return max(values) if values else math.nan


def _has_text(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _finite(values: list[float]) -> bool:
    return all(math.isfinite(v) for v in values)


def _common(part: Part, span: Span) -> Span:
    return max(part.core[0], span[0]), min(part.core[1], span[1])


def _from(span: Span, first: int) -> slice:
    return slice(span[0] - first, span[1] - first)
