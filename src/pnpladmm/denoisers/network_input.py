"""Pictures as a smooth network gets them, `A x`, and the way back, `A^T`; and tiles for pictures that are too large.

`A` extends pictures by 0 to the stride, and copies a channel into the n channels of a colour network where there is no
network for its number of channels. `A^T A = n`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import EllipsisType

import torch
from torch import Tensor
from torch.nn import functional

from pnpladmm.denoisers.linearisation import Linearisation
from pnpladmm.denoisers.smooth_unet import SmoothUNet


@dataclass(frozen=True)
class Tile:
    """A part of the padded pictures, and which of its own rows and columns count in `g`."""

    rows: slice
    columns: slice
    counted: tuple[slice, slice]

    @property
    def place(self) -> tuple[EllipsisType, slice, slice]:
        """The tile as an index of pictures."""
        return (..., self.rows, self.columns)


@dataclass(frozen=True)
class NetworkInput:
    """`A x` of pictures x, with what is needed to bring gradients back."""

    network: SmoothUNet
    planes: Tensor
    """`A x`, (B', channels of the network, padded H, padded W)."""
    inside: Tensor
    """1 where there is a picture, 0 where it was extended, (1, 1, padded H, padded W)."""
    levels: Tensor
    """Sigma of each of the B' planes."""
    factor: Tensor
    """1 / n of each picture, float64; 0 where sigma is 0, and with it `g`."""
    shape: torch.Size
    """The shape of x."""

    @classmethod
    def of(
        cls,
        networks: Mapping[int, SmoothUNet],
        x: Tensor,
        sigmas: Tensor,
        device: torch.device,
        precision: torch.dtype,
    ) -> NetworkInput:
        """`A x` for one of the networks, which are listed by their number of channels."""
        batch, channels, height, width = x.shape
        planes = x.to(device, precision)
        levels = torch.where(sigmas > 0, sigmas, torch.ones_like(sigmas))  # where sigma is 0, the factor is 0
        copies = 1
        if channels not in networks:
            planes = planes.reshape(batch * channels, 1, height, width)
            levels = levels.repeat_interleave(channels)
            if 1 not in networks:
                # n equal channels have sqrt(n) times the noise along their common direction (see NetworkDenoiser).
                copies = min(networks)
                planes = planes.expand(-1, copies, -1, -1)
                levels = math.sqrt(copies) * levels
        network = networks[planes.shape[1]]
        padding = (0, -width % network.stride, 0, -height % network.stride)
        planes = functional.pad(planes, padding)
        inside = functional.pad(torch.ones_like(planes[:1, :1, :height, :width]), padding)
        return cls(
            network,
            planes.contiguous(memory_format=torch.channels_last),
            inside,
            levels.to(precision).to(device, non_blocking=True),
            ((sigmas > 0).double() / copies).to(device, non_blocking=True),
            x.shape,
        )

    def adjoint(self, planes: Tensor) -> Tensor:
        """`A^T`: the extension is left out, and copies are summed."""
        height, width = self.shape[-2:]
        inside = planes[..., :height, :width]
        if inside.numel() != self.shape.numel():
            inside = inside.sum(1, keepdim=True)
        return inside.reshape(self.shape)

    def linearise(self, tile: Tile, products: bool = False) -> Linearisation:
        """`g` of one tile; `products` keeps what products with its Hessian need."""
        planes, inside = self.planes[tile.place], self.inside[tile.place]
        counted = torch.zeros_like(inside)
        counted[..., tile.counted[0], tile.counted[1]] = 1
        return self.network.linearise(planes, self.levels, inside, counted=counted, products=products)

    def tiles(self, longest: int) -> list[Tile]:
        """Tiles of sides up to `longest`, with all that their counted parts depend on; these cover the picture once."""
        rows, columns = (self._spans(axis, longest) for axis in (-2, -1))
        return [Tile(row, column, (high, wide)) for row, high in rows for column, wide in columns]

    def _spans(self, axis: int, longest: int) -> list[tuple[slice, slice]]:
        """(extent, counted part of it) of the tiles along one axis."""
        length, padded = self.shape[axis], self.planes.shape[axis]
        stride, halo = self.network.stride, self.network.halo
        if padded <= longest:
            return [(slice(0, padded), slice(0, length))]
        core = max(1, (longest - 2 * halo) // stride) * stride
        spans = []
        for first in range(0, length, core):
            last = min(first + core, length)
            begin, end = max(0, first - halo), min(padded, last + -last % stride + halo)
            spans.append((slice(begin, end), slice(first - begin, last - begin)))
        return spans
