"""Colour planes: mixtures of the channels that have nothing in common, strongest first.

A blur that treats all channels alike commutes with every mixture of them. In the principal axes of the correlation of
its channels, a photograph has nearly all of the detail that the blur removed in one plane, grey. The other planes are
weak and need fewer steps of conjugate gradient. All channels count alike, however dim they are. Where they have nothing
in common, as in fluorescence, all planes are equally strong and get the same number of steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pnpladmm.operators import LinearOperator

MAX_CHANNELS = 4
"""With more channels, mixing them costs more than it saves."""
MIN_STEPS = 2
"""The fewest steps of a plane, however weak it is, unless the strongest plane has fewer."""
OUTLIER_QUANTILE = 0.99
"""Pixels with more detail than this share of all pixels are shortened to that quantile: a few hot pixels must not
decide which mixtures of channels the planes are."""
SAMPLES = 1 << 16
"""Pixels from which that quantile is estimated."""
MIN_RELATIVE_ENERGY = 1e-6
"""Channels are scaled to the same energy. One with less than this share of the strongest channel's energy is scaled as
if it had this share, so that a channel that is almost empty is not amplified to noise."""


@dataclass(frozen=True)
class ColourPlanes:
    """Principal axes of the correlation between the channels of each picture."""

    mixing: Tensor
    """(B, C, C): channels to planes."""
    unmixing: Tensor
    """(B, C, C): back."""
    energy: Tensor
    """(B, C) on the CPU: the energy of each plane relative to the first, falling from 1."""

    @classmethod
    def of(cls, detail: Tensor) -> ColourPlanes:
        """The planes of pictures (B, C, H, W). Waits for the GPU, once."""
        flat = _without_outliers(detail.flatten(2).double().nan_to_num(0, 0, 0))
        covariance = (flat @ flat.mT).cpu()
        power = covariance.diagonal(dim1=1, dim2=2)
        most = power.amax(1, keepdim=True)
        gain = torch.where(most > 0, (most / power.clamp_min(MIN_RELATIVE_ENERGY * most)).sqrt(), 1.0)
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
        """Steps of each plane, (B, calls, C): `most`, (B, calls), for the strongest, fewer for weaker amplitudes."""
        limit = most.unsqueeze(-1)
        return torch.minimum((limit * self.energy.sqrt().unsqueeze(1)).ceil().long().clamp_min(MIN_STEPS), limit)


def planes_of_detail(operator: LinearOperator, observed: Tensor, precision: Tensor | None) -> ColourPlanes | None:
    """The planes of the detail that is missing in the start; None where the channels cannot be mixed."""
    detail = detail_of(operator, observed, precision)
    return None if detail is None else ColourPlanes.of(detail)


def detail_of(operator: LinearOperator, observed: Tensor, precision: Tensor | None) -> Tensor | None:
    """`H^T p (y - H x0)`, the detail that is missing in the start `x0`.

    None unless the operator and the precision `p` treat all channels alike, and there are 2 to `MAX_CHANNELS`.
    """
    H, y = operator, observed
    if not H.channels_alike or not 1 < y.shape[1] <= MAX_CHANNELS or precision is None:
        return None
    p = precision.expand_as(y)
    if bool((p != p[:, :1]).any()):
        return None
    mean = (p * y).sum((2, 3), keepdim=True) / p.sum((2, 3), keepdim=True).clamp_min(torch.finfo(p.dtype).tiny)
    start = H.start(torch.where(p > 0, y, mean))  # the values of dead pixels are no colour
    return H.adjoint(p * (y - H.forward(start)))


def _without_outliers(flat: Tensor) -> Tensor:
    """Pixels (B, C, N), with the longest shortened, so that a few do not decide for all."""
    length = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
    sample = length[..., :: max(1, length.shape[-1] // SAMPLES)].sort(-1).values
    longest = sample[..., round(OUTLIER_QUANTILE * (sample.shape[-1] - 1)), None]
    return torch.where((length > longest) & (longest > 0), flat * (longest / length), flat)


def _mixed(matrix: Tensor, x: Tensor) -> Tensor:
    """`sum_j matrix_ij x_j`, not computed as a matrix product, which may have fewer digits."""
    mixed = torch.empty_like(x)
    first, *others = x.unbind(1)
    for plane, row in zip(mixed.unbind(1), matrix[..., None, None].unbind(1), strict=True):
        torch.mul(row[:, 0], first, out=plane)
        for j, other in enumerate(others, 1):
            plane.addcmul_(row[:, j], other)
    return mixed
