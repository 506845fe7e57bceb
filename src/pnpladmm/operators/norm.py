r"""Bounds of `||A||^2` from below and, with proof, from above.

For a matrix `M = A^T A` with non-negative entries and any image `p > 0`,

    <p, M p> / <p, p>  <=  ||A||^2  <=  max_i (M p)_i / p_i .

Left: Rayleigh quotient. Right: Collatz-Wielandt; with `D = diag(p)` it is the maximum row sum of
`D^-1 M D`, which has the eigenvalues of `M`. Power iteration from ones drives both to the norm, and every
iterate gives a valid pair, so the best of each is kept.

A signed operator is bounded by a non-negative one that dominates it entry by entry
(`LinearOperator.absolute`): `|Ax| <= |A||x|`, so `||A|| <= || |A| ||`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pnpladmm.tensors import dot

if TYPE_CHECKING:
    from pnpladmm.operators.base import LinearOperator, Shape

# Keeps p positive where masks, decimation or unknown borders would drive it to 0. Any p > 0 is valid.
FLOOR = 1e-3
# Room for the rounding of the float64 transforms, so that the bound stays one.
ROUNDING = 1e-9


@dataclass(frozen=True)
class NormBound:
    """`lower <= ||A||^2 <= upper`: float64 tensors of shape (1,), or (B,) if each picture has its own.

    `upper` is infinite where no bound is known.
    """

    lower: Tensor
    upper: Tensor

    @staticmethod
    def exactly(value: float | Tensor) -> NormBound:
        """A norm that is known."""
        tensor = torch.as_tensor(value, dtype=torch.float64).reshape(-1)
        return NormBound(tensor, tensor)

    def __mul__(self, other: NormBound) -> NormBound:
        """Bound of a product of operators: only the upper ones multiply."""
        upper = self.upper * other.upper
        return NormBound(torch.zeros_like(upper), upper)

    def intersect(self, other: NormBound) -> NormBound:
        """What both bounds together say."""
        return NormBound(torch.maximum(self.lower, other.lower), torch.minimum(self.upper, other.upper))


def bound_norm_squared(
    operator: LinearOperator, shape: Shape, iterations: int = 100, gap: float = 0.005, absolute_iterations: int = 8
) -> NormBound:
    """Bounds of `||A||^2` on pictures of `shape`; stops early once they are within `gap` of each other.

    `absolute_iterations` are those with `|A|` where `A` is signed; with 0 there is no bound from above.
    """
    absolute = operator.absolute()
    if absolute is operator:
        return _non_negative(operator, shape, iterations, gap)
    lower = _power_iteration(operator, shape, iterations)
    if absolute is None:
        return NormBound(lower, torch.full_like(lower, torch.inf))
    # Applying |A| entry by entry is slow, and its bound is loose by more than the last per cent anyway.
    return NormBound(lower, _non_negative(absolute, shape, absolute_iterations, gap).upper)


def _non_negative(operator: LinearOperator, shape: Shape, iterations: int, gap: float) -> NormBound:
    p = torch.ones(shape, dtype=torch.float64, device=operator.device)
    lower = torch.zeros(shape[0], dtype=torch.float64, device=p.device)
    upper = torch.full_like(lower, torch.inf)
    for _ in range(iterations):
        # A picture whose bounds are close keeps them: they must not depend on its neighbours.
        loose = upper > (1 + gap) * lower
        if not bool(loose.any()):
            break
        mp = operator.adjoint(operator.forward(p))
        lower = torch.where(loose, torch.maximum(lower, _rayleigh(operator, p, mp)), lower)
        upper = torch.where(loose, torch.minimum(upper, (mp / p).flatten(1).amax(1)), upper)
        top = mp.flatten(1).amax(1).clamp_min(torch.finfo(torch.float64).tiny)
        p = mp.clamp_min(0) / top.view(-1, 1, 1, 1) + FLOOR
    return NormBound(lower * (1 - ROUNDING), upper * (1 + ROUNDING))


def _power_iteration(operator: LinearOperator, shape: Shape, iterations: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(shape, dtype=torch.float64, generator=generator).to(operator.device)
    lower = torch.zeros(shape[0], dtype=torch.float64, device=p.device)
    for _ in range(iterations):
        mp = operator.adjoint(operator.forward(p))
        lower = torch.maximum(lower, _rayleigh(operator, p, mp))
        p = mp / mp.flatten(1).norm(dim=1).clamp_min(torch.finfo(torch.float64).tiny).view(-1, 1, 1, 1)
    return lower * (1 - 1e-5)  # a foreign operator may compute in float32


def _rayleigh(operator: LinearOperator, p: Tensor, mp: Tensor) -> Tensor:
    """The largest Rayleigh quotient of each picture: channel by channel where the channels do not mix."""
    pictures = len(p)
    p, mp = (t.flatten(2 if operator.channelwise else 1).flatten(0, -2) for t in (p, mp))
    quotient = dot(p, mp) / dot(p, p).clamp_min(torch.finfo(torch.float64).tiny)
    return quotient.reshape(pictures, -1).amax(1)
