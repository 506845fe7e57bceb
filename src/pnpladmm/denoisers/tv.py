"""Total variation: the classical prior of piecewise smooth pictures."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Promise
from pnpladmm.denoisers.registry import classical_prior
from pnpladmm.tensors import PerPicture, check_positive, dot, per_picture

GROWTH = 0.5
"""How strongly convex the accelerated steps take `1/2 ||x - v||^2` for. It is 1; half of it needs a fifth fewer."""
LOOK_EVERY = 10


@classical_prior
@dataclass(frozen=True)
class TotalVariation:
    """`prox_{sigma^2 f}` of `f(x) = weight sum_pixels |grad x|`, isotropic, each channel by itself. Convex.

    With `tau = sigma^2 weight` it is the saddle point of `1/2 ||x - v||^2 + tau <grad x, p>` over `|p| <= 1`. The
    accelerated primal-dual method (Chambolle and Pock, 2011, algorithm 2) finds it:

        p+ = project(p + s tau grad xbar),    x+ = (x + t (v - tau grad^T p+)) / (1 + t)
        theta = 1 / sqrt(1 + 2 GROWTH t),  t <- theta t,  s <- s / theta,    xbar = x+ + theta (x+ - x),

    with `8 tau^2 s t = 1`. It ends where the duality gap proves `||x - prox|| <= accuracy sqrt(pixels)`: by strong
    convexity `||x - prox||^2 <= 2 gap`. Each channel ends by itself.

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
        """`argmin_x 1/2 ||x - v||^2 + tau sum |grad x|`."""
        tau = (per_picture(sigma, v) ** 2 * self.weight).clamp_min(torch.finfo(v.dtype).tiny).expand(*v.shape[:2], 1, 1)
        planes, taus = v.reshape(-1, *v.shape[-2:]), tau.reshape(-1, 1, 1)
        # One plane at a time stays in the cache of a CPU. A GPU is filled by many.
        together = 1 if v.device.type == "cpu" else len(planes)
        parts = [slice(i, i + together) for i in range(0, len(planes), together)]
        return torch.cat([self._planes(planes[part], taus[part]) for part in parts]).reshape(v.shape)

    def _planes(self, v: Tensor, tau: Tensor) -> Tensor:
        """The equations above for planes (n, H, W) and their `tau` (n, 1, 1)."""
        x, xbar, before, p = v.clone(), v.clone(), torch.empty_like(v), v.new_zeros(2, *v.shape)
        slope, size = torch.zeros_like(p), torch.empty_like(v)
        done, result = torch.zeros(len(v), dtype=torch.bool, device=v.device), x
        goal, t = self.accuracy**2 * v[0].numel(), 1.0
        for k in range(1, self.iterations + 1):
            _gradient_into(slope, xbar)
            p.addcmul_(slope, (1 / (8 * t * tau)).expand_as(slope))  # s tau = 1 / (8 tau t)
            torch.mul(p[0], p[0], out=size).addcmul_(p[1], p[1]).sqrt_().clamp_(min=1)
            p.div_(size)
            x, before = before, x
            _dual_picture_into(x, v, p, tau)
            x.mul_(t).add_(before).div_(1 + t)
            theta = 1 / math.sqrt(1 + 2 * GROWTH * t)
            torch.sub(x, before, out=xbar).mul_(theta).add_(x)
            t *= theta
            if k % LOOK_EVERY == 0 or k == self.iterations:
                # Planes that are accurate enough stay as they are, so that none depends on its neighbours.
                result = torch.where(done.view(-1, 1, 1), result, x)
                done = done | (2 * _gap(x, v, p, tau) <= goal)
                if bool(done.all()):
                    break
        return result

    @property
    def norm_squared(self) -> float:
        """`||weight grad||^2` is below this."""
        return 8 * self.weight**2

    def analysis(self, x: Tensor) -> Tensor:
        """`weight grad x`, (B, 2, C, H, W)."""
        g = x.new_zeros(len(x), 2, *x.shape[1:])
        torch.sub(x[..., 1:, :], x[..., :-1, :], out=g[:, 0, ..., :-1, :])
        torch.sub(x[..., :, 1:], x[..., :, :-1], out=g[:, 1, ..., :, :-1])
        return g if self.weight == 1 else g.mul_(self.weight)

    def synthesis(self, p: Tensor) -> Tensor:
        """The adjoint of `analysis`."""
        x = gradient_adjoint(p.transpose(0, 1))
        return x if self.weight == 1 else x.mul_(self.weight)

    def project(self, p: Tensor) -> Tensor:
        """`p / max(1, |p|)` at each pixel."""
        size = magnitude(p.transpose(0, 1)).clamp_(min=1)
        return p.div_(size.unsqueeze(1))

    def total(self, x: Tensor) -> Tensor:
        """`weight TV(x)` of each picture."""
        return self.weight * magnitude(gradient(x)).double().flatten(1).sum(1)

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


def _gradient_into(g: Tensor, x: Tensor) -> None:
    """`g = grad x` for planes; the last row and column of `g` are 0 already."""
    torch.sub(x[..., 1:, :], x[..., :-1, :], out=g[0, ..., :-1, :])
    torch.sub(x[..., :, 1:], x[..., :, :-1], out=g[1, ..., :, :-1])


def _dual_picture_into(x: Tensor, v: Tensor, p: Tensor, tau: Tensor) -> None:
    """`x = v - tau grad^T p` for planes."""
    down, right = p[0, ..., :-1, :], p[1, ..., :, :-1]
    x.zero_()
    x[..., :-1, :] += down
    x[..., 1:, :] -= down
    x[..., :, :-1] += right
    x[..., :, 1:] -= right
    x.mul_(tau).add_(v)


def _gap(x: Tensor, v: Tensor, p: Tensor, tau: Tensor) -> Tensor:
    """Duality gap of each plane: `1/2 ||x - xd||^2 + tau (sum |grad x| - <grad x, p>)` with `xd = v - tau grad^T p`."""
    other = torch.empty_like(x)
    _dual_picture_into(other, v, p, tau)
    g = torch.zeros_like(p)
    _gradient_into(g, x)
    apart = magnitude(g).double().flatten(1).sum(1) - dot(g[0], p[0]) - dot(g[1], p[1])
    return (x - other).double().square().flatten(1).sum(1) / 2 + tau.double().reshape(-1) * apart
