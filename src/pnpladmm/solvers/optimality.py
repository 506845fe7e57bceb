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
    sums = residual_sums(problem, method, state, gradient)
    norm = problem.norm_squared
    upper = torch.where(torch.isfinite(norm.upper), norm.upper, norm.lower).to(gradient.device)
    return residual_of(sums, upper)


def residual_sums(problem: Problem, method: Method[Any], state: State, gradient: Tensor) -> Tensor:
    """What `residual_of` needs, each a sum over pixels: (5, B), float64."""
    count, variance = _variances(problem, method, state)
    sizes = [squared_norm(part) for part in (gradient, state.x, problem.observed)]
    return torch.stack([*sizes, variance.expand_as(sizes[0]), count.expand_as(sizes[0])])


def residual_of(sums: Tensor, upper: Tensor) -> Tensor:
    """The relative residual, (B,), from the sums over all pixels and a bound of `||H||^2`."""
    gradient, x, y, variance, count = sums
    size = torch.maximum(x, (y / upper).clamp_min(TINY)).sqrt()  # `x` may be 0
    curvature = (variance / count.clamp_min(1)).clamp_min(TINY).reciprocal()
    return gradient.sqrt() / (curvature * upper * size)


def _variances(problem: Problem, method: Method[Any], state: State) -> tuple[Tensor, Tensor]:
    """How many pixels count, and the sum of their variances, (1,) or (B,) each; 1 and 1 / L_h for other data terms."""
    y = problem.observed
    known = problem.data_term.mean_and_precision(method.blurred(problem, state), y)
    if known is None:
        curvature = problem.L_h().to(y.device)
        return torch.ones_like(curvature), curvature.reciprocal()
    precision = known[1].double().expand_as(y).flatten(1)
    counts = precision > 0
    return counts.sum(1).double(), torch.where(counts, precision.clamp_min(TINY).reciprocal(), 0.0).sum(1)
