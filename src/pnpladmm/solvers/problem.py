"""What is to be solved: the observation, the operator, the noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpladmm.data_terms import DataTerm
from pnpladmm.operators import LinearOperator, NormBound, Shape, as_operator
from pnpladmm.tensors import InputError, check_pictures


@dataclass(frozen=True)
class Problem:
    """`y = Hx + noise`: find `x`. `observed` is (B, C, H', W'), pictures nominally in [0, 1].

    `operator` is one of ours, or any object with `A` and `A_adjoint`.
    """

    observed: Tensor
    operator: LinearOperator
    data_term: DataTerm

    def __post_init__(self) -> None:
        """Check that the three fit together."""
        check_pictures("observed", self.observed)
        if not isinstance(self.data_term, DataTerm):
            raise InputError(
                f"data_term is a {type(self.data_term).__name__}: give Gaussian, WeightedGaussian or Poisson"
            )
        object.__setattr__(self, "operator", as_operator(self.operator))
        self.operator.input_shape(cast(Shape, tuple(self.observed.shape)))
        self.data_term.check(self.observed)

    @cached_property
    def shape(self) -> Shape:
        """Shape of `x`."""
        return self.operator.input_shape(cast(Shape, tuple(self.observed.shape)))

    @property
    def pictures(self) -> int:
        """B."""
        return self.shape[0]

    @cached_property
    def norm_squared(self) -> NormBound:
        """Bound of `||H||^2` on this picture's size, shape (1,) or (B,); computed once."""
        return self.operator.norm_squared(self.shape if self.operator.domain is None else None)

    def L_h(self) -> Tensor:
        """Smoothness of the data term, shape (1,) or (B,)."""
        return self.data_term.L_h(self.observed)

    def precision_for(self, method: str) -> Tensor:
        """`p` of a quadratic data term `1/2 sum p (z - y)^2`, for methods that need one; refuses the others."""
        precision = self.data_term.precision_of(self.observed)
        if precision is None:
            term = type(self.data_term).__name__
            raise InputError(f"{method} needs a quadratic data term, {term} is not: use LADMM or PrimalDual")
        return precision

    def default_start(self) -> Tensor:
        """`x0`: the observation where the shapes agree, padded or enlarged to fit, else the adjoint of it."""
        y = self.observed
        (h, w), (rows, columns) = self.shape[2:], y.shape[2:]
        if (rows, columns) == (h, w):
            return y.clone()
        if rows == 1 or h < rows or w < columns:
            return self.operator.adjoint(y)
        if h % rows == 0 and w % columns == 0:
            # Decimation keeps the first pixel of each block, so pixel i of y lies at f i, not at its middle.
            return _enlarge(y, h // rows, w // columns)
        top, left = (h - rows) // 2, (w - columns) // 2
        return F.pad(y, (left, w - columns - left, top, h - rows - top), mode="replicate")

    def observed_part(self, x: Tensor) -> Tensor:
        """`x` without the border that an unknown boundary adds: what lies under the observation."""
        (h, w), (rows, columns) = self.shape[2:], self.observed.shape[2:]
        top, left = (h - rows) // 2, (w - columns) // 2
        return x[..., top : top + rows, left : left + columns]


def _enlarge(y: Tensor, rows: int, columns: int) -> Tensor:
    """Linear interpolation with pixel (i, j) of `y` at (rows i, columns j); the last pixel is repeated."""
    for axis, factor in ((-2, rows), (-1, columns)):
        n = y.shape[axis]
        position = torch.arange(n * factor, device=y.device, dtype=y.dtype) / factor
        left = position.long().clamp_max(n - 1)
        right = (left + 1).clamp_max(n - 1)
        share = (position - left).view([-1, 1] if axis == -2 else [-1])
        y = torch.lerp(y.index_select(axis, left), y.index_select(axis, right), share)
    return y
