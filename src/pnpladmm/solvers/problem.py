"""What is to be solved: the observation, the operator, the noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from pnpladmm.data_terms import DataTerm
from pnpladmm.operators import LinearOperator, NormBound, Shape, SpatiallyVaryingBlur, as_operator
from pnpladmm.solvers.colour import ColourPlanes
from pnpladmm.tensors import InputError, check_pictures

# With more, mixing them costs more than it saves.
MOST_CHANNELS = 4


@dataclass(frozen=True)
class Problem:
    """`y = Hx + noise`: find `x`. `observed` is (B, C, H', W'), pictures nominally in [0, 1].

    `operator` is one of ours, or any object with `A` and `A_adjoint`.
    """

    observed: Tensor
    operator: LinearOperator
    data_term: DataTerm
    kept: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What data steps leave for the next one of a run (conjugate_gradient.py); `solve` leaves it empty."""

    def __post_init__(self) -> None:
        """Check that the three fit together."""
        check_pictures("observed", self.observed)
        if not isinstance(self.data_term, DataTerm):
            raise InputError(
                f"data_term is a {type(self.data_term).__name__}: give Gaussian, WeightedGaussian or Poisson"
            )
        object.__setattr__(self, "operator", as_operator(self.operator, self.observed))
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

    @cached_property
    def colour_planes(self) -> ColourPlanes | None:
        """Those of `H^T p (y - H x0)`, the missing detail; None unless `H` is a blur and knows no colours, nor `p`."""
        H, y, precision = self.operator, self.observed, self.data_term.precision_of(self.observed)
        alike = isinstance(H, SpatiallyVaryingBlur) and H.kernels.shape[2] == 1 and 1 < y.shape[1] <= MOST_CHANNELS
        if not alike or precision is None:
            return None
        p = precision.expand_as(y)
        if bool((p != p[:, :1]).any()):
            return None
        usual = (p * y).sum((2, 3), keepdim=True) / p.sum((2, 3), keepdim=True).clamp_min(torch.finfo(p.dtype).tiny)
        start = H.start(torch.where(p > 0, y, usual))  # what dead pixels hold is no colour
        return ColourPlanes.of(H.adjoint(p * (y - H.forward(start))))

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
        return self.operator.start(self.observed)

    def observed_part(self, x: Tensor) -> Tensor:
        """`x` without the border that an unknown boundary adds; all of it where the observation is no crop of it."""
        if self.operator.crop_offset is None:
            return x
        (top, left), (rows, columns) = self.operator.crop_offset, self.observed.shape[2:]
        return x[..., top : top + rows, left : left + columns]
