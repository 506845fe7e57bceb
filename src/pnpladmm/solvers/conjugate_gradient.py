"""Preconditioned conjugate gradient on a batch of pictures, each with its own steps and its own stop.

The data step of half-quadratic splitting and ADMM, `(H^T p H + a) z = H^T p y + a v`, is `DataStep`. Its
residual is `r = g + a (v - z)` with `g = H^T p (y - H z)`: taking `H^T` of the small `y - H z`, and not the
difference of two large pictures, spares digits that float32 has not got at weak noise. The `g` of the solution
is known for free, so a solve that goes on from the last `z` applies `H` to no picture before its first step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from pnpladmm.operators import LinearOperator
from pnpladmm.solvers.colour import ColourPlanes

Map: TypeAlias = Callable[[Tensor], Tensor]

TINY = torch.finfo(torch.float64).tiny


def conjugate_gradient(
    apply: Map, b: Tensor, x: Tensor, iterations: int, tolerance: float, precondition: Map | None = None
) -> Tensor:
    """Solve `A x = b` from `x`, `A` symmetric positive definite, until `||b - A x|| <= tolerance ||b||`.

    `precondition` is `r -> M^-1 r`, symmetric positive definite, near `A^-1`; the stop is then at
    `||M^-1 (b - A x)|| <= tolerance ||M^-1 b||`, about the relative error of `x`. A picture that is done stays as
    it is, so that its result does not depend on its neighbours. Nothing that is given is modified.
    """
    size = squared(b if precondition is None else precondition(b))
    return descend(apply, x, b - apply(x), tolerance**2 * size, iterations, precondition)[0]


def descend(
    apply: Map, x: Tensor, r: Tensor, goal: Tensor, iterations: int | Tensor, precondition: Map | None = None
) -> tuple[Tensor, Tensor]:
    """`x` and its residual after at most `iterations` steps from `x`, whose residual is `r = b - A x`.

    A picture stops at `||M^-1 r||^2 <= goal`, (B,), or after its own number of `iterations`, (B,) on the CPU. With
    `iterations` (B, C), falling along the channels, each channel is a system of its own, as `A` and `M` must allow for,
    and those that are done are left out: the first ones go on alone.
    """
    limits = torch.as_tensor(iterations)
    inner = _channel_dot if limits.ndim == 2 else _picture_dot
    limits = limits if limits.ndim == 2 else limits.reshape(-1, 1)
    goal = goal[:, None] / limits.shape[1]
    last = limits.amax(0).tolist()  # of each channel
    bounds = limits.to(x.device, non_blocking=True)
    finished: list[tuple[Tensor, Tensor]] = []
    p: Tensor | None = None
    rz: Tensor | None = None
    for k in range(last[0]):
        if (active := sum(n > k for n in last)) < len(last):
            finished.append((x[:, active:], r[:, active:]))
            x, r, bounds, last = x[:, :active], r[:, :active], bounds[:, :active], last[:active]
            if p is not None and rz is not None:
                p, rz = p[:, :active], rz[:, :active]
        z = r if precondition is None else precondition(r)
        running = (inner(z, z) > goal) & (bounds > k)
        if not x.is_cuda and not bool(running.any()):  # on a GPU asking would cost a wait
            break
        rz_new = inner(r, z)
        p = z if p is None or rz is None else torch.addcmul(z, _column(rz_new / rz.clamp_min(TINY), p), p)
        rz = rz_new
        Ap = apply(p)
        alpha = _column(torch.where(running, rz / inner(p, Ap).clamp_min(TINY), 0.0), x)
        x = torch.addcmul(x, alpha, p)
        r = torch.addcmul(r, alpha, Ap, value=-1)
    if finished:
        x, r = (torch.cat(parts, 1) for parts in zip((x, r), *reversed(finished), strict=True))
    return x, r


@dataclass(frozen=True)
class DataStep:
    """`argmin_z h(Hz) + a/2 ||z - v||^2` for quadratic `h` of precision `p`: `(H^T p H + a) z = H^T p y + a v`."""

    operator: LinearOperator
    precision: Tensor
    observed: Tensor
    iterations: int | Tensor
    tolerance: float
    planes: ColourPlanes | None = None
    """Where given, each is a system of its own with its own number of `iterations`, (B, C)."""

    def gradient(self, z: Tensor) -> Tensor:
        """`g = H^T p (y - H z)`: the direction in which the data fit improves."""
        H = self.operator
        return H.adjoint(self.precision * (self.observed - H.forward(z)))

    def solve(self, a: Tensor, v: Tensor, z: Tensor, g: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The new `z` and its `g`, from a `z` to start with and its `g` (found here where it is not given).

        `a` is () or (B, 1, 1, 1). Stops where the next correction is below about `tolerance ||v||`.
        """
        H, p = self.operator, self.precision
        if self.planes is not None and p.ndim > 2:
            p = p[..., :1, :, :]  # it is that of all channels
        g = self.gradient(z) if g is None else g
        precondition = H.preconditioner(p, a)
        # Without a preconditioner the error is known to be at most ||r|| / a.
        goal = self.tolerance**2 * squared(v if precondition is not None else a * v)
        r = torch.addcmul(g, a, v - z)
        r = r if self.planes is None else self.planes.split(r)
        change, r = descend(
            lambda q: torch.addcmul(H.adjoint(p * H.forward(q)), a, q),
            torch.zeros_like(r),
            r,
            goal,
            self.iterations,
            precondition,
        )
        if self.planes is not None:
            change, r = self.planes.join(change), self.planes.join(r)
        z = z + change
        return z, torch.addcmul(r, a, v - z, value=-1)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner product of each picture, (B,): each line in the pictures' dtype, the lines in float64.

    As good as sums in float64 to float32 pictures, without copies of them twice as large.
    """
    return _picture_dot(a, b).squeeze(1)


def squared(a: Tensor) -> Tensor:
    """`||a||^2` of each picture, (B,)."""
    return dot(a, a)


def _picture_dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1).flatten(1).sum(1, keepdim=True, dtype=torch.float64)


def _channel_dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1).sum(-1, dtype=torch.float64)


def _column(value: Tensor, like: Tensor) -> Tensor:
    """(B, 1) or (B, C) as a factor of pictures."""
    return value.to(like.dtype)[:, :, None, None]
