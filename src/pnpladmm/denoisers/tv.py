"""Total variation: the classical prior of piecewise smooth pictures."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Promise
from pnpladmm.denoisers.registry import classical_prior
from pnpladmm.tensors import PerPicture, check_positive, dot, per_picture


@classical_prior
@dataclass(frozen=True)
class TotalVariation:
    """`prox_{sigma^2 f}` of `f(x) = weight sum_pixels |grad x|`, isotropic, each channel by itself. Convex.

    It is solved in the dual by accelerated projected gradient (Beck and Teboulle), until the duality gap proves
    `||x - prox|| <= accuracy sqrt(pixels)`: by strong convexity `||x - prox||^2 <= 2 gap`.

    Parameters
    ----------
    weight : float
        The factor of `f`.
    accuracy : float
        The root mean square error, in the picture's units; the default is a fortieth of a grey level of 255.
    iterations : int
        A limit, for accuracies below rounding.
    """

    weight: float = 10.0
    accuracy: float = 1e-4
    iterations: int = 5000

    name = "tv"
    promise = Promise.CONVEX

    def __post_init__(self) -> None:
        """Check the two numbers."""
        check_positive("weight", self.weight)
        check_positive("accuracy", self.accuracy)

    def __call__(self, v: Tensor, sigma: PerPicture) -> Tensor:
        """`argmin_x 1/2 ||x - v||^2 + tau sum |grad x|`, `tau = sigma^2 weight`; `x = v - tau grad^T p`, `|p| <= 1`."""
        tau = (per_picture(sigma, v) ** 2 * self.weight).clamp_min(torch.finfo(v.dtype).tiny)
        p = torch.zeros(2, *v.shape, dtype=v.dtype, device=v.device)
        q, t = p, 1.0
        x = v
        running = torch.ones(len(v), dtype=torch.bool, device=v.device)
        for k in range(self.iterations):
            candidate = v - tau * gradient_adjoint(q)
            p_next = q + gradient(candidate) / (8 * tau)
            p_next = p_next / magnitude(p_next).clamp_min(1)
            t_next = (1 + math.sqrt(1 + 4 * t**2)) / 2
            q, p, t = p_next + (t - 1) / t_next * (p_next - p), p_next, t_next
            if k % 5 == 4 or k == self.iterations - 1:
                # Pictures that are accurate enough stay as they are, so that none depends on its neighbours.
                primal = v - tau * gradient_adjoint(p)
                x = torch.where(running.view(-1, 1, 1, 1), primal, x)
                running = running & (2 * _gap(primal, p, tau) > self.accuracy**2 * v[0].numel())
                if not bool(running.any()):
                    break
        return x

    def prior(self, x: Tensor, v: Tensor | None, sigma: PerPicture) -> Tensor:
        """`sigma^2 weight TV(x)` of each picture."""
        total = magnitude(gradient(x)).double().flatten(1).sum(1)
        return torch.as_tensor(sigma, dtype=torch.float64, device=x.device) ** 2 * self.weight * total


def gradient(x: Tensor) -> Tensor:
    """Forward differences down and right, 0 at the last row and column: (B, C, H, W) -> (2, B, C, H, W)."""
    g = x.new_zeros(2, *x.shape)
    torch.sub(x[..., 1:, :], x[..., :-1, :], out=g[0, ..., :-1, :])
    torch.sub(x[..., :, 1:], x[..., :, :-1], out=g[1, ..., :, :-1])
    return g


def magnitude(p: Tensor) -> Tensor:
    """`|p|` at each pixel: (2, B, C, H, W) -> (B, C, H, W)."""
    return (p[0] * p[0]).addcmul_(p[1], p[1]).sqrt_()


def gradient_adjoint(p: Tensor) -> Tensor:
    """`grad^T p`, minus the divergence."""
    down, right = p[0, ..., :-1, :], p[1, ..., :, :-1]
    x = torch.zeros_like(p[0])
    x[..., :-1, :] -= down
    x[..., 1:, :] += down
    x[..., :, :-1] -= right
    x[..., :, 1:] += right
    return x


def _gap(x: Tensor, p: Tensor, tau: Tensor) -> Tensor:
    """Duality gap at `x = v - tau grad^T p`: `tau (sum |grad x| - <grad x, p>)` of each picture."""
    g = gradient(x)
    gap = magnitude(g).double().flatten(1).sum(1) - dot(g[0], p[0]) - dot(g[1], p[1])
    return tau.double().reshape(-1) * gap
