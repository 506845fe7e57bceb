"""Colour planes: the directions in colour space in which a picture lacks detail, strongest first.

A blur that treats all channels alike commutes with every rotation of colour space. Rotated to its principal axes, a
photograph has nearly all of what the blur took in one plane, grey, and little in the two others: those need fewer
steps of conjugate gradient for the same error. Where channels have nothing in common, as in fluorescence, all planes
are strong, and none is spared anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

TINY = torch.finfo(torch.float64).tiny
ORDINARY = 0.99
"""Share of the pixels that are taken as they are."""
FEWEST = 2
"""Steps that a plane gets however weak it is (or as many as the strongest)."""


@dataclass(frozen=True)
class ColourPlanes:
    """Principal axes of the colours of each picture."""

    axes: Tensor
    """(B, C, C), orthonormal rows."""
    energy: Tensor
    """(B, C) on the CPU: of each plane relative to the first, falling from 1."""

    @classmethod
    def of(cls, detail: Tensor) -> ColourPlanes:
        """Of pictures (B, C, H, W). The strongest pixels count no more than others: a few must not decide for all.

        Waits for the GPU, once.
        """
        flat = detail.flatten(2).double()
        length = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
        most = length.kthvalue(max(1, round(ORDINARY * length.shape[-1])), dim=-1, keepdim=True).values
        flat = flat * (most / length.clamp_min(TINY)).clamp_max(1)
        energy, axes = torch.linalg.eigh((flat @ flat.mT).cpu())  # rising
        energy = energy.flip(-1).clamp_min(0)
        return cls(axes.flip(-1).mT.to(detail), energy / energy[:, :1].clamp_min(TINY))

    def split(self, x: Tensor) -> Tensor:
        """Channels to planes, (B, C, H, W)."""
        return _combined(self.axes, x)

    def join(self, planes: Tensor) -> Tensor:
        """Planes to channels."""
        return _combined(self.axes.mT, planes)

    def steps(self, most: int | Tensor) -> Tensor:
        """Steps of each plane, (B, C) on the CPU: `most`, a number or (B,), for the strongest, then by energy."""
        limit = torch.as_tensor(most).reshape(-1, 1)
        return torch.minimum((limit * self.energy).ceil().long().clamp_min(FEWEST), limit)


def _combined(axes: Tensor, x: Tensor) -> Tensor:
    """`sum_j axes_ij x_j`. No matrix product: those may be set to run in fewer digits."""
    return torch.stack([(row[:, :, None, None] * x).sum(1) for row in axes.unbind(1)], 1)
