"""Compressed sensing."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from pnpladmm.operators.base import LinearOperator, Shape, as_map, check_size, shape_of
from pnpladmm.operators.norm import NormBound
from pnpladmm.operators.preconditioning import FormulaPreconditioner, Preconditioner
from pnpladmm.operators.transforms import DCT, Hadamard
from pnpladmm.tensors import InputError

TransformName: TypeAlias = Literal["dct", "hadamard"]


class SubsampledTransform(LinearOperator):
    """Compressed sensing: `A = R T S`, with random signs, an orthonormal transform and a random subset of rows.

    Pictures (B, C, H, W) become measurements (B, C, 1, m). The rows of `A` are orthonormal, so `A A^T = Id` and
    `||A|| = 1`.

    Parameters
    ----------
    size : (int, int)
        (H, W) of the pictures. Powers of two for `hadamard`.
    fraction : float
        m / (H W), above 0 and at most 1.
    transform : {"dct", "hadamard"}
        The cosine transform or the Walsh-Hadamard transform.
    seed : int
        Of the signs and of the subset.

    Raises
    ------
    InputError
        If the fraction, the transform or the size does not fit.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> A = pl.SubsampledTransform((8, 8), fraction=0.25)
    >>> y = A.forward(torch.rand(1, 1, 8, 8))
    >>> y.shape
    torch.Size([1, 1, 1, 16])
    >>> bool(torch.allclose(A.forward(A.adjoint(y)), y, atol=1e-6))
    True
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
        """Signs and rows on the device of the pictures; copied once."""
        key = (x.device, x.dtype)
        if key not in self._copies:
            self._copies[key] = self.signs.to(*key), self.rows.to(x.device)
        return self._copies[key]

    def preconditioner(self, precision: Tensor, a: Tensor) -> Preconditioner | None:
        """The inverse itself for one precision per picture, as `A A^T = Id`: `(r - p/(p + a) A^T A r) / a`."""
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
