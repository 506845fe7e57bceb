"""Colour planes: mixtures of the channels that have nothing in common, strongest first.

A blur that treats all channels alike commutes with every mixture of them. Mixed along the principal axes of their
correlation, a photograph has nearly all of what the blur took in one plane, grey, and little in the others: those need
fewer steps of conjugate gradient. Every channel counts alike, however dim: where they have nothing in common, as in
fluorescence, all planes are as strong, and none is spared anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

FEWEST = 2
"""Steps that a plane gets however weak it is (or as many as the strongest)."""
ORDINARY = 0.99
"""Share of the pixels that are taken as they are; stronger ones count no more than the strongest of these."""
SAMPLES = 1 << 16
"""Pixels from which that is found."""
WEAKEST = 1e-6
"""A channel of less energy than this, relative to the strongest, counts less than others."""


@dataclass(frozen=True)
class ColourPlanes:
    """Principal axes of the correlation between the channels of each picture."""

    mixing: Tensor
    """(B, C, C): channels to planes."""
    unmixing: Tensor
    """(B, C, C): back."""
    energy: Tensor
    """(B, C) on the CPU: of each plane relative to the first, falling from 1."""

    @classmethod
    def of(cls, detail: Tensor) -> ColourPlanes:
        """Of pictures (B, C, H, W). Waits for a GPU, once."""
        flat = _without_outliers(detail.flatten(2).double().nan_to_num(0, 0, 0))
        covariance = (flat @ flat.mT).cpu()
        power = covariance.diagonal(dim1=1, dim2=2)
        most = power.amax(1, keepdim=True)
        gain = torch.where(most > 0, (most / power.clamp_min(WEAKEST * most)).sqrt(), 1.0)
        energy, axes = torch.linalg.eigh(covariance * gain[:, :, None] * gain[:, None, :])
        energy, axes = energy.flip(-1).clamp_min(0), axes.flip(-1)  # the strongest first
        energy = torch.where(energy[:, :1] > 0, energy / energy[:, :1], 1.0)
        return cls((axes.mT * gain[:, None, :]).to(detail), (axes / gain[:, :, None]).to(detail), energy)

    def split(self, x: Tensor) -> Tensor:
        """Channels to planes, (B, C, H, W)."""
        return _mixed(self.mixing, x)

    def join(self, planes: Tensor) -> Tensor:
        """Planes to channels."""
        return _mixed(self.unmixing, planes)

    def steps(self, most: Tensor) -> Tensor:
        """Steps of each plane, (B, calls, C): `most`, (B, calls), for the strongest, fewer as the amplitude is less."""
        limit = most.unsqueeze(-1)
        return torch.minimum((limit * self.energy.sqrt().unsqueeze(1)).ceil().long().clamp_min(FEWEST), limit)


def _without_outliers(flat: Tensor) -> Tensor:
    """Pixels (B, C, N), none longer than nearly all: a few must not decide for the others."""
    length = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
    sample = length[..., :: max(1, length.shape[-1] // SAMPLES)].sort(-1).values
    longest = sample[..., round(ORDINARY * (sample.shape[-1] - 1)), None]
    return torch.where((length > longest) & (longest > 0), flat * (longest / length), flat)


def _mixed(matrix: Tensor, x: Tensor) -> Tensor:
    """`sum_j matrix_ij x_j`. No matrix product: those may be set to run in fewer digits."""
    mixed = torch.empty_like(x)
    first, *others = x.unbind(1)
    for plane, row in zip(mixed.unbind(1), matrix[..., None, None].unbind(1), strict=True):
        torch.mul(row[:, 0], first, out=plane)
        for j, other in enumerate(others, 1):
            plane.addcmul_(row[:, j], other)
    return mixed
