"""Operators that keep some of the pixels: decimation and masks."""

from __future__ import annotations

import operator
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpladmm.operators.base import LinearOperator, Shape, check_size, shape_of
from pnpladmm.operators.norm import NormBound
from pnpladmm.tensors import InputError


class Decimation(LinearOperator):
    """Every f-th pixel of each axis, from the first: `(S x)[i, j] = x[f i, f j]`. After a blur: super-resolution.

    Pictures (B, C, H, W), with H and W multiples of f, become (B, C, H/f, W/f).

    Parameters
    ----------
    factor : int
        f, 1 or more.

    Raises
    ------
    InputError
        If the factor is no whole number above 0.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> S = pl.Decimation(2)
    >>> S.forward(torch.arange(16.0).view(1, 1, 4, 4))
    tensor([[[[ 0.,  2.],
              [ 8., 10.]]]])
    >>> pl.check_adjoint(S, (1, 3, 8, 8)) < 1e-14
    True
    """

    def __init__(self, factor: int) -> None:
        try:
            self.factor = operator.index(factor)
        except TypeError:
            raise InputError(f"decimation factor {factor!r}: give a whole number, 1 or more") from None
        if self.factor < 1:
            raise InputError(f"decimation factor {factor!r}: give a whole number, 1 or more")

    def __repr__(self) -> str:
        """`Decimation(2)`."""
        return f"{type(self).__name__}({self.factor})"

    def forward(self, x: Tensor) -> Tensor:
        """Keep every f-th pixel of each axis."""
        self.output_shape(shape_of("the picture", x))
        return x[..., :: self.factor, :: self.factor].contiguous()

    def adjoint(self, y: Tensor) -> Tensor:
        """Put the pixels back, zeros between them."""
        x = y.new_zeros(self.input_shape(shape_of("the measurement", y)))
        x[..., :: self.factor, :: self.factor] = y
        return x

    def start(self, y: Tensor) -> Tensor:
        """Linear interpolation; pixel (i, j) of `y` lies at (f i, f j), not in the middle of its block."""
        for axis in (-2, -1):
            n = y.shape[axis]
            position = torch.arange(n * self.factor, device=y.device, dtype=y.dtype) / self.factor
            left = position.long().clamp_max(n - 1)
            right = (left + 1).clamp_max(n - 1)
            share = (position - left).view([-1, 1] if axis == -2 else [-1])
            y = torch.lerp(y.index_select(axis, left), y.index_select(axis, right), share)
        return y

    def pulled_back(self, precision: Tensor) -> Tensor:
        """The precision at the pixels of `S x`, 0 between them; for one number per picture its mean over all pixels."""
        if precision.ndim and precision.shape[-2:] != (1, 1):
            return self.adjoint(precision)
        return precision / self.factor**2

    def output_shape(self, shape: Shape) -> Shape:
        """Sides divided by the factor; they must be multiples of it."""
        b, c, h, w = shape
        if h % self.factor or w % self.factor:
            raise InputError(f"a picture of {h}x{w} cannot be decimated by {self.factor}: crop it to a multiple")
        return b, c, h // self.factor, w // self.factor

    def input_shape(self, shape: Shape) -> Shape:
        """Sides times the factor."""
        b, c, h, w = shape
        return b, c, h * self.factor, w * self.factor

    def absolute(self) -> LinearOperator:
        """The operator itself: its entries are not negative."""
        return self

    def norm_squared(self, shape: Shape | None = None) -> NormBound:
        """1."""
        return NormBound.exactly(1.0)


class Mask(LinearOperator):
    """Pixel by pixel product: `M x = mask x`. Inpainting for a mask of zeros and ones.

    Parameters
    ----------
    mask : array or Tensor
        (H, W), (C, H, W) or (B, C, H, W): 1 (or True) for pixels that are known, 0 for missing ones. Other numbers are
        factors.

    Raises
    ------
    InputError
        If the mask has another shape, values that are not finite, or keeps no pixel.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> M = pl.Mask(torch.eye(2))
    >>> M.forward(torch.full((1, 1, 2, 2), 3.0))
    tensor([[[[3., 0.],
              [0., 3.]]]])
    """

    def __init__(self, mask: Any) -> None:
        mask = torch.as_tensor(mask)
        if mask.ndim not in (2, 3, 4) or 0 in mask.shape:
            raise InputError(f"mask has shape {tuple(mask.shape)}: give (H, W), (C, H, W) or (B, C, H, W)")
        if not mask.is_floating_point():
            mask = mask.float()
        if not bool(torch.isfinite(mask).all()) or not bool(mask.any()):
            raise InputError("the mask is all zero, NaN or infinite: it must keep some pixels")
        self.mask = mask.reshape((1,) * (4 - mask.ndim) + tuple(mask.shape))
        self._copies: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def __repr__(self) -> str:
        """Its size and the share of known pixels."""
        height, width = self.mask.shape[-2:]
        known = float((self.mask != 0).double().mean())
        return f"{type(self).__name__}({height}x{width}, {100 * known:.3g} % known)"

    def forward(self, x: Tensor) -> Tensor:
        """`mask x`."""
        self.output_shape(shape_of("the picture", x))
        return self._like(x) * x

    def _like(self, x: Tensor) -> Tensor:
        """The mask in the dtype and on the device of the pictures; copied once."""
        key = (x.device, x.dtype)
        if key not in self._copies:
            self._copies[key] = self.mask.to(*key)
        return self._copies[key]

    def adjoint(self, y: Tensor) -> Tensor:
        """`mask * y`: a mask is its own adjoint."""
        return self.forward(y)

    def start(self, y: Tensor) -> Tensor:
        """`y / mask` where the mask is not 0; elsewhere the mean of known pixels in the smallest square with any.

        Missing pixels are 0 in `y`: black holes, which a denoiser would take for detail.
        """
        mask = self.mask.to(y.device, y.dtype).expand_as(y)
        known = mask != 0
        filled = torch.where(known, y / torch.where(known, mask, 1), 0)
        values, seen, radius = filled, known.to(y.dtype), 1
        while radius < 2 * max(y.shape[-2:]) and not bool(known.all()):
            side = 2 * radius + 1
            total, share = (F.avg_pool2d(t, side, stride=1, padding=radius) for t in (values, seen))
            near = ~known & (share > 0)
            filled = torch.where(near, total / torch.where(near, share, 1), filled)
            known = known | near
            radius *= 2
        return filled

    def pulled_back(self, precision: Tensor) -> Tensor:
        """`mask^2 p`."""
        return self._like(precision).square() * precision

    def output_shape(self, shape: Shape) -> Shape:
        """The shape of the picture: a mask keeps it."""
        check_size("the picture", shape[2:], cast(tuple[int, int], tuple(self.mask.shape[2:])))
        for have, given, what in zip(self.mask.shape[:2], shape[:2], ("pictures", "channels"), strict=True):
            if have not in (1, given):
                raise InputError(f"the mask has {have} {what}, the batch {given}: they must match")
        return shape

    def input_shape(self, shape: Shape) -> Shape:
        """The shape of the masked picture: a mask keeps it."""
        return self.output_shape(shape)

    @property
    def domain(self) -> Shape:
        """Shape of the mask."""
        return cast(Shape, tuple(self.mask.shape))

    @property
    def device(self) -> torch.device:
        """Where the mask lies."""
        return self.mask.device

    def absolute(self) -> LinearOperator:
        """`|mask|`."""
        return self if bool((self.mask >= 0).all()) else Mask(self.mask.abs())

    def norm_squared(self, shape: Shape | None = None) -> NormBound:
        """`max |mask|^2` of each picture, exactly."""
        return NormBound.exactly(self.mask.double().square().flatten(1).amax(1))


def mask_of(physics: Any) -> Mask | None:
    """The mask of an object with `A` (deepinv's `Inpainting`), where `A x = mask x` as tried on random numbers.

    A mask fills the holes before anything starts, which a denoiser would take for black detail.
    """
    factors = getattr(physics, "mask", None)
    if not isinstance(factors, Tensor) or factors.ndim != 4 or not factors.is_floating_point():
        return None
    x = torch.randn(factors.shape, generator=torch.Generator().manual_seed(0)).to(factors)
    try:
        seen = physics.A(x)
        return Mask(factors) if torch.equal(seen, factors * x) else None
    except (InputError, RuntimeError, TypeError, ValueError):  # a mask of another kind
        return None
