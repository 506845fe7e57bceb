"""Priors with a linear denoiser: smoothness, and none at all."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Promise
from pnpladmm.denoisers.registry import classical_prior
from pnpladmm.denoisers.tv import gradient
from pnpladmm.operators.transforms import DCT
from pnpladmm.tensors import PerPicture, check_positive, per_picture


@classical_prior
@dataclass(frozen=True)
class Tikhonov:
    """`prox_{sigma^2 f}` of `f(x) = weight/2 ||grad x||^2`: `(Id + sigma^2 weight grad^T grad)^-1`. Convex.

    Differences stop at the border (no wrap), so `grad^T grad` is diagonal in the cosine basis.
    """

    weight: float = 300.0

    name = "tikhonov"
    promise = Promise.CONVEX

    def __post_init__(self) -> None:
        """Check the weight."""
        check_positive("weight", self.weight)

    def __call__(self, v: Tensor, sigma: PerPicture) -> Tensor:
        """Divide each frequency by `1 + sigma^2 weight (eigenvalue)`."""
        down, right = (_eigenvalues(n, v) for n in v.shape[-2:])
        damping = 1 + per_picture(sigma, v) ** 2 * self.weight * (down[:, None] + right)
        return DCT().inverse(DCT().forward(v) / damping)

    def prior(self, x: Tensor, v: Tensor | None, sigma: PerPicture) -> Tensor:
        """`sigma^2 weight/2 ||grad x||^2` of each picture."""
        total = gradient(x.double()).square().sum(0).flatten(1).sum(1)
        return torch.as_tensor(sigma, dtype=torch.float64, device=x.device) ** 2 * self.weight / 2 * total


@classical_prior
@dataclass(frozen=True)
class Identity:
    """No prior: `f = 0`, `D(x) = x`."""

    name = "identity"
    promise = Promise.CONVEX

    def __call__(self, v: Tensor, sigma: PerPicture) -> Tensor:
        """`v`."""
        return v

    def prior(self, x: Tensor, v: Tensor | None, sigma: PerPicture) -> Tensor:
        """0."""
        return torch.zeros(len(x), dtype=torch.float64, device=x.device)


def _eigenvalues(n: int, like: Tensor) -> Tensor:
    """Eigenvalues of `grad^T grad` along a line of n pixels, in the order of the cosine transform's frequencies."""
    k = torch.arange(n, dtype=torch.float64, device=like.device)
    return (2 - 2 * torch.cos(math.pi * k / n)).to(like.dtype)
