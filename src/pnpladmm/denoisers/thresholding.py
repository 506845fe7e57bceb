"""Sparse pictures: thresholding in an orthonormal basis."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Promise
from pnpladmm.denoisers.registry import classical_prior
from pnpladmm.operators.transforms import Transform, Wavelet
from pnpladmm.tensors import PerPicture, check_positive, per_picture


@classical_prior
@dataclass(frozen=True)
class SoftThreshold:
    """`prox_{sigma^2 f}` of `f(x) = weight sum |c_i|`, `c = W x`: each `|c_i|` shrunk by `sigma^2 weight`. Convex.

    The sum runs over the details. The coarse block (a wavelet's approximation, the mean of a DCT) is not penalised.
    """

    transform: Transform = field(default_factory=Wavelet)
    weight: float = 20.0

    name = "soft"
    promise = Promise.CONVEX

    def __post_init__(self) -> None:
        """Check the weight."""
        check_positive("weight", self.weight)

    def __call__(self, v: Tensor, sigma: PerPicture) -> Tensor:
        """Transform, shrink, transform back."""
        c = self.transform.forward(v)
        shrunk = c.sign() * (c.abs() - per_picture(sigma, v) ** 2 * self.weight).clamp_min(0)
        return self.transform.inverse(torch.where(_details(self.transform, c), shrunk, c))

    def prior(self, x: Tensor, v: Tensor | None, sigma: PerPicture) -> Tensor:
        """`sigma^2 weight sum |c_i|` of each picture."""
        c = self.transform.forward(x.double())
        total = (c.abs() * _details(self.transform, c)).flatten(1).sum(1)
        return torch.as_tensor(sigma, dtype=torch.float64, device=x.device) ** 2 * self.weight * total


@classical_prior
@dataclass(frozen=True)
class HardThreshold:
    """`prox_{sigma^2 f}` of `f(x) = weight #{c_i != 0}`, `c = W x`. Not convex.

    Details below `sigma sqrt(2 weight)` become 0. The default weight puts the threshold at three sigma.
    """

    transform: Transform = field(default_factory=Wavelet)
    weight: float = 4.5

    name = "hard"
    promise = Promise.PROX

    def __post_init__(self) -> None:
        """Check the weight."""
        check_positive("weight", self.weight)

    def __call__(self, v: Tensor, sigma: PerPicture) -> Tensor:
        """Transform, cut, transform back."""
        c = self.transform.forward(v)
        large = c.abs() > self._threshold(sigma, v)
        return self.transform.inverse(c * (large | ~_details(self.transform, c)))

    def prior(self, x: Tensor, v: Tensor | None, sigma: PerPicture) -> Tensor:
        """`sigma^2 weight` times the number of details of `x = D(v)` that are not 0, counted in `v`.

        In `x` the transform to pixels and back leaves rounding errors where the threshold left 0.
        """
        c = self.transform.forward(x if v is None else v)
        nonzero = c != 0 if v is None else c.abs() > self._threshold(sigma, v)
        count = (nonzero & _details(self.transform, c)).flatten(1).sum(1)
        return torch.as_tensor(sigma, dtype=torch.float64, device=x.device) ** 2 * self.weight * count

    def _threshold(self, sigma: PerPicture, like: Tensor) -> Tensor:
        """`sigma sqrt(2 weight)`."""
        return per_picture(sigma, like) * (2 * self.weight) ** 0.5


def _details(transform: Transform, c: Tensor) -> Tensor:
    """False on the coarse block."""
    rows, columns = transform.coarse(cast(tuple[int, int], tuple(c.shape[-2:])))
    mask = torch.ones(c.shape[-2:], dtype=torch.bool, device=c.device)
    mask[:rows, :columns] = False
    return mask
