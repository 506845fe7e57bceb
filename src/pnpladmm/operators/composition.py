"""`outer @ inner`: one operator after another."""

from __future__ import annotations

import torch
from torch import Tensor

from pnpladmm.operators.base import LinearOperator, Shape, as_map
from pnpladmm.operators.norm import NormBound, bound_norm_squared
from pnpladmm.operators.preconditioning import Preconditioner


class Composition(LinearOperator):
    """`A = outer inner`, `A^T = inner^T outer^T`; made by `outer @ inner`."""

    def __init__(self, outer: LinearOperator, inner: LinearOperator) -> None:
        self.outer, self.inner = outer, inner
        self.channelwise = outer.channelwise and inner.channelwise
        if self.domain is not None:
            self.output_shape(self.domain)  # sizes that do not fit are refused here

    def __repr__(self) -> str:
        """`outer @ inner`."""
        return f"{self.outer!r} @ {self.inner!r}"

    def forward(self, x: Tensor) -> Tensor:
        """`outer(inner(x))`."""
        return self.outer.forward(self.inner.forward(x))

    def adjoint(self, y: Tensor) -> Tensor:
        """`inner^T(outer^T(y))`."""
        return self.inner.adjoint(self.outer.adjoint(y))

    def output_shape(self, shape: Shape) -> Shape:
        """Shape after both."""
        return self.outer.output_shape(self.inner.output_shape(shape))

    def input_shape(self, shape: Shape) -> Shape:
        """Shape before both."""
        return self.inner.input_shape(self.outer.input_shape(shape))

    @property
    def domain(self) -> Shape | None:
        """The inner operator's domain. If it has none, the domain that it maps to the outer operator's domain."""
        if self.inner.domain is None:
            return None if self.outer.domain is None else self.inner.input_shape(self.outer.domain)
        if self.outer.domain is None:
            return self.inner.domain
        b, c = (max(pair) for pair in zip(self.inner.domain[:2], self.outer.domain[:2], strict=True))
        return b, c, *self.inner.domain[2:]

    def preconditioner(self, precision: Tensor, a: Tensor) -> Preconditioner | None:
        """The preconditioner of the inner operator, for the precision `outer^T p outer` instead of `p`."""
        inner = self.outer.pulled_back(as_map(precision))
        return None if inner is None else self.inner.preconditioner(inner, a)

    def pulled_back(self, precision: Tensor) -> Tensor | None:
        """`A^T p A = inner^T (outer^T p outer) inner`."""
        inner = self.outer.pulled_back(precision)
        return None if inner is None else self.inner.pulled_back(inner)

    @property
    def crop_offset(self) -> tuple[int, int] | None:
        """The crop offset of the inner operator; None if the outer operator changes the size."""
        if self.inner.crop_offset is None or self.domain is None:
            return None
        middle = self.inner.output_shape(self.domain)
        return self.inner.crop_offset if self.outer.output_shape(middle)[2:] == middle[2:] else None

    def start(self, y: Tensor) -> Tensor:
        """The start of the inner operator for the start of the outer one."""
        return self.inner.start(self.outer.start(y))

    @property
    def device(self) -> torch.device | None:
        """The device of the inner operator. If it has none, the device of the outer one."""
        return self.inner.device or self.outer.device

    def absolute(self) -> LinearOperator | None:
        """`|outer inner| <= |outer| |inner|`."""
        outer, inner = self.outer.absolute(), self.inner.absolute()
        if outer is None or inner is None:
            return None
        if outer is self.outer and inner is self.inner:
            return self
        return Composition(outer, inner)

    def norm_squared(self, shape: Shape | None = None) -> NormBound:
        """A bound of the whole if `absolute` is known; else the product of the two bounds, up to 4 times too large."""
        shape = shape or self.domain
        if shape is None or self.absolute() is None:
            product = self.outer.norm_squared(
                None if shape is None else self.inner.output_shape(shape)
            ) * self.inner.norm_squared(shape)
            return product if shape is None else product.intersect(bound_norm_squared(self, shape))
        return bound_norm_squared(self, shape)
