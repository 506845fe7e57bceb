"""Operators that keep some of what there is: decimation, masks, subsampled transforms."""

from __future__ import annotations

import operator
from typing import Any, Literal, TypeAlias, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpladmm.operators.base import LinearOperator, Shape, as_map, check_size, shape_of
from pnpladmm.operators.norm import NormBound
from pnpladmm.operators.preconditioning import FormulaPreconditioner, Preconditioner
from pnpladmm.operators.transforms import DCT, Hadamard
from pnpladmm.tensors import InputError

TransformName: TypeAlias = Literal["dct", "hadamard"]


class Decimation(LinearOperator):
    """`(S x)[i, j] = x[f i, f j]`: every f-th pixel, from the first. After a blur: super-resolution."""

    def __init__(self, factor: int) -> None:
        try:
            self.factor = operator.index(factor)
        except TypeError:
            raise InputError(f"decimation factor {factor!r}: give a whole number, 1 or more") from None
        if self.factor < 1:
            raise InputError(f"decimation factor {factor!r}: give a whole number, 1 or more")

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
        """Linear interpolation with pixel (i, j) of `y` at (f i, f j), not at the middle of its block."""
        for axis in (-2, -1):
            n = y.shape[axis]
            position = torch.arange(n * self.factor, device=y.device, dtype=y.dtype) / self.factor
            left = position.long().clamp_max(n - 1)
            right = (left + 1).clamp_max(n - 1)
            share = (position - left).view([-1, 1] if axis == -2 else [-1])
            y = torch.lerp(y.index_select(axis, left), y.index_select(axis, right), share)
        return y

    def pulled_back(self, precision: Tensor) -> Tensor:
        """The precision at the pixels kept, 0 between them; where it is one number, its mean over all pixels."""
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
        """Itself."""
        return self

    def norm_squared(self, shape: Shape | None = None) -> NormBound:
        """1."""
        return NormBound.exactly(1.0)


class Mask(LinearOperator):
    """`M x = mask x`: inpainting for a mask of zeros and ones. (H, W), (C, H, W) or (B, C, H, W)."""

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

    def forward(self, x: Tensor) -> Tensor:
        """`mask x`."""
        self.output_shape(shape_of("the picture", x))
        return self._like(x) * x

    def _like(self, x: Tensor) -> Tensor:
        """The mask where the pictures are, copied there once."""
        key = (x.device, x.dtype)
        if key not in self._copies:
            self._copies[key] = self.mask.to(*key)
        return self._copies[key]

    def adjoint(self, y: Tensor) -> Tensor:
        """The same."""
        return self.forward(y)

    def start(self, y: Tensor) -> Tensor:
        """`y / mask` where the mask is not 0; elsewhere the mean of the known pixels in the smallest square with any.

        Missing pixels are 0 in `y`: black holes, which a denoiser takes for detail.
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
        """The same."""
        check_size("the picture", shape[2:], cast(tuple[int, int], tuple(self.mask.shape[2:])))
        for have, given, what in zip(self.mask.shape[:2], shape[:2], ("pictures", "channels"), strict=True):
            if have not in (1, given):
                raise InputError(f"the mask has {have} {what}, the batch {given}: they must match")
        return shape

    def input_shape(self, shape: Shape) -> Shape:
        """The same."""
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


class SubsampledTransform(LinearOperator):
    """Compressed sensing: `A = R T S`. Random signs, an orthonormal transform, a random subset of rows.

    Measurements have shape (B, C, 1, m). The rows of `A` are orthonormal, so `A A^T = Id` and `||A|| = 1`.
    """

    def __init__(self, size: tuple[int, int], fraction: float, transform: TransformName = "dct", seed: int = 0) -> None:
        if not 0 < fraction <= 1:
            raise InputError(f"fraction {fraction}: give the share of measurements, above 0 and at most 1")
        if transform not in get_args(TransformName):
            raise InputError(f"transform {transform!r}: choose one of {', '.join(get_args(TransformName))}")
        self.size = size
        self.transform = DCT() if transform == "dct" else Hadamard()
        generator = torch.Generator().manual_seed(seed)
        pixels = size[0] * size[1]
        self.rows = torch.randperm(pixels, generator=generator)[: max(1, round(fraction * pixels))].sort().values
        self.signs = torch.randint(0, 2, size, generator=generator).float() * 2 - 1
        self._copies: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor]] = {}
        self.transform.forward(torch.zeros(1, 1, *size))  # a size that does not fit is refused here

    def forward(self, x: Tensor) -> Tensor:
        """`R T S x`: (B, C, H, W) -> (B, C, 1, m)."""
        self.output_shape(shape_of("the picture", x))
        signs, rows = self._like(x)
        spectrum = self.transform.forward(signs * x)
        return spectrum.flatten(-2).index_select(-1, rows).unsqueeze(-2)

    def adjoint(self, y: Tensor) -> Tensor:
        """`S T^T R^T y`."""
        b, c, h, w = self.input_shape(shape_of("the measurement", y))
        signs, rows = self._like(y)
        spectrum = y.new_zeros(b, c, h * w).index_copy_(-1, rows, y.squeeze(2))
        return signs * self.transform.inverse(spectrum.reshape(b, c, h, w))

    def _like(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Signs and rows where the pictures are, copied there once."""
        key = (x.device, x.dtype)
        if key not in self._copies:
            self._copies[key] = self.signs.to(*key), self.rows.to(x.device)
        return self._copies[key]

    def preconditioner(self, precision: Tensor, a: Tensor) -> Preconditioner | None:
        """With `A A^T = Id` the inverse itself for one precision a picture: `(r - p/(p + a) A^T A r) / a`."""
        p = as_map(precision)
        if p.ndim and p.shape[1:] != (1, 1, 1):
            return None
        return FormulaPreconditioner(lambda r, a: (r - p / (p + a) * self.adjoint(self.forward(r))) / a, a)

    def output_shape(self, shape: Shape) -> Shape:
        """(B, C, 1, m)."""
        check_size("the picture", shape[2:], self.size)
        return *shape[:2], 1, len(self.rows)

    def input_shape(self, shape: Shape) -> Shape:
        """(B, C, H, W)."""
        check_size("the measurement", shape[2:], (1, len(self.rows)))
        return *shape[:2], *self.size

    @property
    def domain(self) -> Shape:
        """One picture, one channel."""
        return 1, 1, *self.size

    def norm_squared(self, shape: Shape | None = None) -> NormBound:
        """1."""
        return NormBound.exactly(1.0)
