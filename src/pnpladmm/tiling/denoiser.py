"""Denoisers of large pictures, tile by tile, with the same result."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Denoiser, name_of, precision_of, promise_of, reach_of, settings_of
from pnpladmm.tensors import PerPicture
from pnpladmm.tiling.geometry import ALIGNMENT, plan_tiles, taken


class TiledDenoiser:
    """`D(x)` computed in tiles, for denoisers of finite reach: equal to `D` on the whole picture but for rounding.

    Parameters
    ----------
    denoiser : Denoiser
        A pixel of its result depends on no pixel that is farther away than its `reach`.
    side : int
        The longest side of a tile with its halo.
    """

    def __init__(self, denoiser: Denoiser, reach: int, side: int) -> None:
        self.denoiser, self.reach = denoiser, reach
        self.halo = -(-reach // ALIGNMENT) * ALIGNMENT
        self.side = max(side, 2 * self.halo + 16 * ALIGNMENT)
        self.promise, self.name = promise_of(denoiser), name_of(denoiser)
        self.settings, self.precision = settings_of(denoiser), precision_of(denoiser)

    def __call__(self, x: Tensor, sigma: PerPicture, /) -> Tensor:
        """Denoise each tile with its halo, and keep its core."""
        height, width = x.shape[-2:]
        restored = torch.empty_like(x)
        for tile in plan_tiles((height, width), self.side, self.halo, 0):
            restored[(..., *tile.written)] = self.denoiser(taken(x, *tile.extent), sigma)[(..., *tile.inside)]
        return restored

    def __repr__(self) -> str:
        """The denoiser, and the size of the tiles."""
        return f"{self.denoiser!r} in tiles of {self.side}"


def in_tiles(denoiser: Denoiser, side: int) -> Denoiser | None:
    """The denoiser with the memory of one tile and the same result; None where that is impossible.

    Gradient steps sum their `g` over tiles themselves. Total variation and unknown callables have no finite reach.
    """
    tiled: Any = getattr(denoiser, "with_tile", None)
    if tiled is not None:
        found: Denoiser = tiled(side)
        return found
    reach = reach_of(denoiser)
    return None if reach is None else TiledDenoiser(denoiser, reach, side)
