r"""Bounds of `||A||^2`: a lower one, and a proven upper one.

For a matrix `M = A^T A` with non-negative entries and any image `p > 0`,

    <p, M p> / <p, p>  <=  ||A||^2  <=  max_i (M p)_i / p_i .

On the left is the Rayleigh quotient. On the right is the Collatz-Wielandt bound: with `D = diag(p)` it is the maximum
row sum of `D^-1 M D`, which has the eigenvalues of `M`. In a power iteration from ones both converge to the norm. Every
iterate gives a valid pair, and the best of each is the result.

A signed operator is bounded by a non-negative one that dominates it entry by entry
(`LinearOperator.absolute`): `|Ax| <= |A||x|`, so `||A|| <= || |A| ||`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pnpladmm.tensors import dot

if TYPE_CHECKING:
    from pnpladmm.operators.base import LinearOperator, Shape

POSITIVE = 1e-3
"""Added to p (of maximum 1): masks, decimation or unknown borders would make it 0 somewhere. Any p > 0 is valid."""
ROUNDING = 1e-9
"""Relative allowance for the rounding of float64 transforms, so that a bound stays a bound."""
FOREIGN_ROUNDING = 1e-5
"""The relative allowance for operators of which nothing is known: they may compute in float32."""
SAFE_MINIMUM = torch.finfo(torch.float64).tiny
"""The smallest normal number, to divide by instead of 0."""


@dataclass(frozen=True)
class NormBound:
    """Bounds of a squared operator norm: `lower <= ||A||^2 <= upper`.

    Attributes
    ----------
    lower : Tensor
        float64, of shape (1,), or (B,) where each picture has an operator of its own.
    upper : Tensor
        The same; infinite where no bound is known.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> kernels, weights = torch.full((1, 3, 3), 1 / 9), torch.ones(1, 8, 8)
    >>> bound = pl.SpatiallyVaryingBlur(kernels, weights).norm_squared()
    >>> print(f"{float(bound.lower):.3f} {float(bound.upper):.3f}")
    1.000 1.000
    """

    lower: Tensor
    upper: Tensor

    @staticmethod
    def exactly(value: float | Tensor) -> NormBound:
        """The bound of a norm that is known."""
        tensor = torch.as_tensor(value, dtype=torch.float64).reshape(-1)
        return NormBound(tensor, tensor)

    def __mul__(self, other: NormBound) -> NormBound:
        """The bound of a product of operators: `||AB|| <= ||A|| ||B||`, and nothing is known from below."""
        upper = self.upper * other.upper
        return NormBound(torch.zeros_like(upper), upper)

    def intersect(self, other: NormBound) -> NormBound:
        """The larger of the lower bounds and the smaller of the upper ones."""
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
    """Both bounds for an operator with no negative entry."""
    p = torch.ones(shape, dtype=torch.float64, device=operator.device)

    def product() -> tuple[Tensor, Tensor]:
        nonlocal p
        before, mp = p, operator.adjoint(operator.forward(p))
        p = next_vector(mp, mp.flatten(1).amax(1))
        return _rayleigh(operator, before, mp), (mp / before).flatten(1).amax(1)

    return collatz_wielandt(product, shape[0], p.device, iterations, gap)


def collatz_wielandt(
    product: Callable[[], tuple[Tensor, Tensor]],
    pictures: int,
    device: torch.device | None = None,
    iterations: int = 100,
    gap: float = 0.005,
) -> NormBound:
    """Both bounds, where `product()` makes the next power iteration and returns `<p, Mp> / <p, p>` and `max Mp / p`."""
    lower = torch.zeros(pictures, dtype=torch.float64, device=device)
    upper = torch.full_like(lower, torch.inf)
    for _ in range(iterations):
        # A picture whose bounds are close keeps them, so that they do not depend on its neighbours.
        loose = upper > (1 + gap) * lower
        if not bool(loose.any()):
            break
        quotient, ratio = product()
        lower = torch.where(loose, torch.maximum(lower, quotient), lower)
        upper = torch.where(loose, torch.minimum(upper, ratio), upper)
    return NormBound(lower * (1 - ROUNDING), upper * (1 + ROUNDING))


def next_vector(mp: Tensor, top: Tensor) -> Tensor:
    """The vector of the next power iteration, from `M p` and its largest values (B,)."""
    return mp.clamp_min(0) / top.clamp_min(SAFE_MINIMUM).view(-1, 1, 1, 1) + POSITIVE


def _power_iteration(operator: LinearOperator, shape: Shape, iterations: int) -> Tensor:
    """A lower bound for an operator of which nothing is known."""
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(shape, dtype=torch.float64, generator=generator).to(operator.device)
    lower = torch.zeros(shape[0], dtype=torch.float64, device=p.device)
    for _ in range(iterations):
        mp = operator.adjoint(operator.forward(p))
        lower = torch.maximum(lower, _rayleigh(operator, p, mp))
        p = mp / mp.flatten(1).norm(dim=1).clamp_min(SAFE_MINIMUM).view(-1, 1, 1, 1)
    return lower * (1 - FOREIGN_ROUNDING)


def _rayleigh(operator: LinearOperator, p: Tensor, mp: Tensor) -> Tensor:
    """The largest Rayleigh quotient of each picture: channel by channel where the channels do not mix."""
    pictures = len(p)
    p, mp = (t.flatten(2 if operator.channelwise else 1).flatten(0, -2) for t in (p, mp))
    quotient = dot(p, mp) / dot(p, p).clamp_min(SAFE_MINIMUM)
    return quotient.reshape(pictures, -1).amax(1)
