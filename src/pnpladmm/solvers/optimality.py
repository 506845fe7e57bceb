"""How far a picture is from where its method would stop, whatever the length of its steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pnpladmm.solvers.method import Method
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.state import State
from pnpladmm.tensors import squared_norm

TINY = torch.finfo(torch.float64).tiny


def relative_residual(problem: Problem, method: Method[Any], state: State) -> Tensor | None:
    """`||grad E(x)|| / (c ||H||^2 ||x||)` of each picture, (B,); None where the method does not know its gradient.

    `c` is the curvature of the data term at a typical pixel: 1 over the mean variance of the observation. This is the
    relative change that a gradient step of ordinary length would make. So for `L_x` near `c ||H||^2` it is about the
    change of an iteration, and for much shorter steps it is much larger. `L_h` would be too mild in place of `c`: for
    counts it is the curvature of one bright pixel at 0.
    """
    gradient = method.gradient(problem, state)
    if gradient is None:
        return None
    norm = problem.norm_squared
    upper = torch.where(torch.isfinite(norm.upper), norm.upper, norm.lower).to(gradient.device)
    smallest = (squared_norm(problem.observed) / upper).clamp_min(TINY)  # `x` may be 0
    size = torch.maximum(squared_norm(state.x), smallest).sqrt()
    return squared_norm(gradient).sqrt() / (_curvature(problem, method, state) * upper * size)


def _curvature(problem: Problem, method: Method[Any], state: State) -> Tensor:
    """1 over the mean variance of the pixels that count, (1,) or (B,)."""
    y = problem.observed
    known = problem.data_term.mean_and_precision(method.blurred(problem, state), y)
    if known is None:
        return problem.L_h().to(y.device)
    precision = known[1].double().expand_as(y).flatten(1)
    counts = precision > 0
    variance = torch.where(counts, precision.clamp_min(TINY).reciprocal(), 0.0).sum(1) / counts.sum(1).clamp_min(1)
    return variance.clamp_min(TINY).reciprocal()
