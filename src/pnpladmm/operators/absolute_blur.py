"""The entrywise absolute value of a signed blur, which bounds its norm from above."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pnpladmm.operators.base import LinearOperator, Shape

if TYPE_CHECKING:
    from pnpladmm.operators.blur import SpatiallyVaryingBlur


class FromBlur(LinearOperator):
    """An operator made of a blur, on the same pictures."""

    def __init__(self, blur: SpatiallyVaryingBlur) -> None:
        self.blur = blur

    @property
    def domain(self) -> Shape:
        """The domain of the blur."""
        return self.blur.domain

    @property
    def device(self) -> torch.device:
        """The device of the blur."""
        return self.blur.device

    def output_shape(self, shape: Shape) -> Shape:
        """The blur's output shape."""
        return self.blur.output_shape(shape)

    def input_shape(self, shape: Shape) -> Shape:
        """The blur's input shape."""
        return self.blur.input_shape(shape)


class AbsoluteBlur(FromBlur):
    """`|sum_i U_i K_i|`: the absolute value of every entry of a signed blur. Exact, one shift at a time.

    Much tighter than `sum_i |U_i| |K_i|`, which counts what cancels, and much slower than a blur: it serves
    to bound norms. Beyond the border `|A E| <= |A| E`, since `E` is non-negative.
    """

    def absolute(self) -> LinearOperator:
        """The operator itself: its entries are not negative."""
        return self

    def forward(self, x: Tensor) -> Tensor:
        """`sum_d |c_d| shift_d(x)` with `c_d = sum_i u_i k_i[d]`."""
        return self._apply(x, transposed=False)

    def adjoint(self, y: Tensor) -> Tensor:
        """The shifts undone, each weighted with the same `|c_d|`."""
        return self._apply(y, transposed=True)

    def _apply(self, v: Tensor, transposed: bool) -> Tensor:
        data = self.blur.data(v)
        extension = self.blur.extension
        kh, kw = data.kernel_size
        h, w = self.blur.observed
        if transposed:
            result = v.new_zeros(*v.shape[:2], h + kh - 1, w + kw - 1)
        else:
            result = v.new_zeros(*v.shape[:2], h, w)
            v = v if extension is None else extension.forward(v)
        for a, b in torch.nonzero(data.kernels.abs().amax((0, 1, 2))).tolist():
            top, left = kh - 1 - a, kw - 1 - b
            window = (..., slice(top, top + h), slice(left, left + w))
            weights = data.weights if data.weights_on == "observed" else data.weights[window]
            size = torch.einsum("bpohw,bpc->bchw", weights, data.kernels[..., a, b]).abs()
            if transposed:
                result[window] += size * v
            else:
                result += size * v[window]
        return extension.adjoint(result) if transposed and extension is not None else result
