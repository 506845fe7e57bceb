r"""The annealed method with gradients: what `solve(problem, Annealed(...))` returns, as a function of its denoiser.

The data step solves `(H^T p H + a) z = H^T p y + a x` by preconditioned conjugate gradient (solvers/data_step.py, where
no gradients pass). Here autograd records each step. `H^T p H` and the preconditioner are symmetric, so each is its own
derivative, and only the vectors of a step are kept, not what happens inside a blur. The gradient is that of the steps
that are done, converged or not. The backward pass applies matrix and preconditioner as often as the forward pass. How
the preconditioner changes with `a` is left out, because it does not change the solution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pnpladmm.operators import LinearOperator
from pnpladmm.solvers.annealed import Annealed, turn, turn_back
from pnpladmm.solvers.conjugate_gradient import TINY
from pnpladmm.solvers.data_step import DataStep
from pnpladmm.solvers.inner_products import products, squared, squares
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.state import start_picture
from pnpladmm.tensors import per_picture

Map: TypeAlias = Callable[[Tensor], Tensor]
"""From pictures (B, C, H, W) to pictures of the same shape."""


def unrolled(problem: Problem, method: Annealed) -> Tensor:
    """The picture after all calls of `method`.

    Parameters
    ----------
    problem : Problem
        What is to be solved.
    method : Annealed
        Gradients reach the parameters of its denoiser, a callable on tensors, and those of `sigma_d`, `mu`,
        `sigma_start`, `bend`, `extrapolation` and `tilt` that are tensors with gradients.

    Returns
    -------
    Tensor, (B, C, H, W)
        On the domain of the problem's operator.

    Examples
    --------
    >>> import torch
    >>> from pnpladmm import Annealed, Gaussian, Problem, SpatiallyVaryingBlur
    >>> blur = SpatiallyVaryingBlur(torch.ones(1, 3, 3) / 9, torch.ones(1, 16, 16))
    >>> problem = Problem(torch.rand(2, 1, 16, 16), blur, Gaussian(0.05))
    >>> shrink = torch.tensor(0.9, requires_grad=True)
    >>> unrolled(problem, Annealed(lambda x, sigma: shrink * x, sigma_d=0.05)).sum().backward()
    >>> bool(shrink.grad != 0)
    True
    """
    x = z = start_picture(problem, None)
    with torch.no_grad():
        g = method.data_step(problem, 0).gradient(x)
    sigmas, weights, leads = _schedule(method, x)
    for k in range(method.calls):
        before = z
        z, g = data_step_with_gradients(method.data_step(problem, k), per_picture(weights[k], x), x, z, g)
        v = z if k == 0 else z + per_picture(leads[k], x) * (z - before)
        sigma = sigmas[k].squeeze(0) if sigmas.shape[1] == 1 else sigmas[k]
        x = turn_back(method.denoise(turn(v, k), sigma), k).contiguous()
    return x


def _schedule(method: Annealed, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`sigma_k`, `a` and the extrapolation, each (calls, 1) or (calls, B), where `x` lies."""
    sigma = torch.stack([method.sigma_at(k).reshape(-1) for k in range(method.calls)])
    mu = torch.stack([method.mu_at(k).reshape(-1) for k in range(method.calls)])
    extrapolation = torch.as_tensor(method.extrapolation, dtype=torch.float64).reshape(1, -1)
    shape = (sigma * mu * extrapolation).shape
    parts = [part.expand(shape) for part in (sigma, mu / sigma**2, extrapolation)]
    # A single copy: in the backward pass each one makes the CPU wait for the GPU.
    sigmas, weights, leads = torch.stack(parts).to(x.device, x.dtype, non_blocking=True).unbind()
    return sigmas, weights, leads


def data_step_with_gradients(step: DataStep, a: Tensor, v: Tensor, z: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """`DataStep.solve` with gradients to `a`, `v`, `z` and `g`."""
    p = step.precision
    if step.planes is not None and p.ndim > 2:
        p = p[..., :1, :, :]  # all channels have the same
    with torch.no_grad():
        precondition = step.operator.preconditioner(p, a.detach().clone())
        goal = step.tolerance**2 * squared(v if precondition is not None else a * v)
    r = g + a * (v - z)
    r = r if step.planes is None else _mixed(step.planes.mixing, r)
    system = _System(NormalPart(step.operator, p), precondition, a, goal, torch.as_tensor(step.iterations))
    change, r = _descend(system, r)
    if step.planes is not None:
        change, r = (_mixed(step.planes.unmixing, planes) for planes in (change, r))
    z = z + change
    return z, r - a * (v - z)


@dataclass(frozen=True)
class NormalPart:
    """`q -> H^T p H q`, without the `a` of `NormalMatrix`, which needs a gradient of its own."""

    operator: LinearOperator
    precision: Tensor

    def __call__(self, q: Tensor) -> Tensor:
        """Of pictures."""
        return self.operator.adjoint(self.precision * self.operator.forward(q))


class SymmetricMap(torch.autograd.Function):
    """A symmetric linear map, which is its own derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Map) -> Tensor:
        """`A x`."""
        ctx.matrix = matrix
        return matrix(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """`A^T g = A g`."""
        with torch.no_grad():
            return ctx.matrix(gradients[0].contiguous()), None


def _apply(matrix: Map, x: Tensor) -> Tensor:
    result: Tensor = SymmetricMap.apply(x, matrix)  # type: ignore[no-untyped-call]
    return result


@dataclass(frozen=True)
class _System:
    """`normal + a`, its preconditioner, and where each picture or channel stops, as for `descend`."""

    normal: Map
    precondition: Map | None
    a: Tensor
    goal: Tensor
    limits: Tensor


def _descend(system: _System, r: Tensor) -> tuple[Tensor, Tensor]:
    """The steps of `conjugate_gradient.descend` from 0 for the right-hand side `r`: the solution and its residual."""
    by_channel = system.limits.ndim == 2
    limits = system.limits if by_channel else system.limits.reshape(-1, 1)
    last = limits.amax(0).tolist() if by_channel else [int(limits.max())] * r.shape[1]
    left = limits.to(r.device, non_blocking=True)
    goal = system.goal[:, None] / limits.shape[1]
    x, rz = torch.zeros_like(r), torch.ones_like(goal)
    p: Tensor | None = None
    finished: list[tuple[Tensor, Tensor]] = []
    for step in range(max(last)):
        width = sum(n > step for n in last)  # this many channels still go on
        if width < r.shape[1]:
            finished.append((x[:, width:], r[:, width:]))
            x, r, left, rz = x[:, :width], r[:, :width], left[:, :width], rz[:, :width]
            p = None if p is None else p[:, :width]
        z = r if system.precondition is None else _apply(system.precondition, r)
        running = (squares(z.detach(), by_channel) > goal) & (left > step)
        if not z.is_cuda and not bool(running.any()):
            break
        before, rz = rz, products(r, z, by_channel)
        # What has stopped divides by 1: its quotients of tiny numbers must not reach the gradient. Its direction is z
        # alone: it would grow with every step until it overflows.
        turned = torch.where(running, rz / torch.where(running, before, 1.0), 0.0)
        p = z if p is None else z + _factor(turned, z) * p
        Ap = _apply(system.normal, p) + system.a * p
        curvature = torch.where(running, products(p, Ap, by_channel).clamp_min(TINY), 1.0)
        alpha = _factor(torch.where(running, rz / curvature, 0.0), z)
        x, r = x + alpha * p, r - alpha * Ap
    if finished:
        x, r = (torch.cat(parts, 1) for parts in zip((x, r), *reversed(finished), strict=True))
    return x, r


def _factor(value: Tensor, like: Tensor) -> Tensor:
    """(B, 1) or (B, C) as a factor of pictures."""
    return value.to(like.dtype)[:, :, None, None]


def _mixed(matrix: Tensor, x: Tensor) -> Tensor:
    """`sum_j matrix_ij x_j` of the channels; `ColourPlanes` does it in place, without gradients."""
    return torch.stack([(row[:, :, None, None] * x).sum(1) for row in matrix.unbind(1)], 1)
