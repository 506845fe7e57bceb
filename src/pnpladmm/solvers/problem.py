"""What is to be solved: the observation, the operator, the noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import torch
from torch import Tensor

from pnpladmm.data_terms import DataTerm
from pnpladmm.operators import LinearOperator, NormBound, Shape, as_operator
from pnpladmm.solvers.colour import ColourPlanes, planes_of_detail
from pnpladmm.tensors import InputError, check_pictures, type_words


@dataclass(frozen=True)
class Problem:
    """`y = Hx + noise`: find `x`. A plain value: nothing in it changes, and many runs can share it.

    Parameters
    ----------
    observed : Tensor
        `y`, of shape (B, C, H', W'), float32 or float64, pictures nominally in [0, 1].
    operator : LinearOperator or object
        `H`: a pnpladmm operator, or any object with `A` and `A_adjoint`.
    data_term : Gaussian, WeightedGaussian or Poisson
        `h`, the noise.

    Raises
    ------
    InputError
        Where the three do not fit together.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> problem = pl.Problem(torch.rand(1, 1, 8, 8), pl.Decimation(2), pl.Gaussian(sigma=0.05))
    >>> problem.shape
    (1, 1, 16, 16)
    """

    observed: Tensor
    operator: LinearOperator
    data_term: DataTerm

    def __post_init__(self) -> None:
        """Check that the three fit together."""
        check_pictures("observed", self.observed)
        if not isinstance(self.data_term, DataTerm):
            raise InputError(f"data_term is {type_words(self.data_term)}: give Gaussian, WeightedGaussian or Poisson")
        object.__setattr__(self, "operator", as_operator(self.operator, self.observed))
        self.operator.input_shape(cast(Shape, tuple(self.observed.shape)))
        self.data_term.check(self.observed)

    @cached_property
    def shape(self) -> Shape:
        """Shape of `x`."""
        return self.operator.input_shape(cast(Shape, tuple(self.observed.shape)))

    @property
    def pictures(self) -> int:
        """Number of pictures, B."""
        return self.shape[0]

    @cached_property
    def norm_squared(self) -> NormBound:
        """Bound of `||H||^2` on this picture's size, shape (1,) or (B,); computed once."""
        return self.operator.norm_squared(self.shape if self.operator.domain is None else None)

    @cached_property
    def colour_planes(self) -> ColourPlanes | None:
        """Colour planes of the detail that the blur removed; None where data steps cannot use them. Computed once."""
        return planes_of_detail(self.operator, self.observed, self.data_term.precision_of(self.observed))

    def L_h(self) -> Tensor:
        """Smoothness of the data term, shape (1,) or (B,)."""
        return self.data_term.L_h(self.observed)

    def precision_for(self, method: str) -> Tensor:
        """`p` of a quadratic data term `1/2 sum p (z - y)^2`; an error that names the method for other data terms."""
        precision = self.data_term.precision_of(self.observed)
        if precision is None:
            term = type(self.data_term).__name__
            raise InputError(
                f"{method} needs a quadratic data term, {term} is not: give WeightedGaussian, or use a method that "
                "takes any data term (its needs_quadratic is False)"
            )
        return precision

    def proven_norm_for(self, method: str) -> Tensor:
        """The upper bound of `||H||^2`, (1,) or (B,); an error that names the method where none is known."""
        norm = self.norm_squared.upper.to(self.observed.device)
        if not bool(torch.isfinite(norm).all()):
            raise InputError(
                f"||H||^2 has no proven upper bound for this operator: {method} needs one, "
                "the default method of restore does not"
            )
        return norm

    def default_start(self) -> Tensor:
        """`x0`: the observation where the shapes agree, padded or enlarged to fit, else the adjoint of it."""
        return self.operator.start(self.observed)

    def crop_to_observed(self, x: Tensor) -> Tensor:
        """`x` without the border that an unknown boundary adds; all of it where the observation is no crop of it."""
        if self.operator.crop_offset is None:
            return x
        (top, left), (rows, columns) = self.operator.crop_offset, self.observed.shape[2:]
        return x[..., top : top + rows, left : left + columns]
