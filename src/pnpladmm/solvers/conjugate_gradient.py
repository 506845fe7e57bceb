"""Conjugate gradient on a batch of pictures, each with its own steps and its own stop."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pnpladmm.tensors import dot, squared_norm


def conjugate_gradient(
    apply: Callable[[Tensor], Tensor], b: Tensor, x: Tensor, iterations: int, tolerance: float
) -> Tensor:
    """Solve `A x = b` from `x`, `A` symmetric positive definite, until `||b - A x|| <= tolerance ||b||`.

    A picture that is done stays as it is, so that its result does not depend on its neighbours.
    """
    r = b - apply(x)
    p = r
    rr = squared_norm(r)
    goal = tolerance**2 * squared_norm(b)
    for _ in range(iterations):
        running = rr > goal
        if not x.is_cuda and not bool(running.any()):  # on a GPU asking would cost a wait
            break
        Ap = apply(p)
        alpha = torch.where(running, rr / dot(p, Ap).clamp_min(torch.finfo(torch.float64).tiny), 0.0)
        x = x + _column(alpha, x) * p
        r = r - _column(alpha, x) * Ap
        rr_new = squared_norm(r)
        p = r + _column(torch.where(running, rr_new / rr.clamp_min(torch.finfo(torch.float64).tiny), 0.0), x) * p
        rr = rr_new
    return x


def _column(value: Tensor, like: Tensor) -> Tensor:
    return value.to(like.dtype).view(-1, 1, 1, 1)
