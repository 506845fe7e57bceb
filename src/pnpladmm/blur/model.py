"""What a blur is, whatever it came from: kernels, the weights that mix them, and the order of the two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pnpladmm.blur.trust import Estimate, check_uncertainty
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.operators.blur import Order
from pnpladmm.operators.boundary import Boundary
from pnpladmm.tensors import InputError


@dataclass(frozen=True)
class Blur:
    """The blur of one picture, a sum of convolutions `K_i` with weights `U_i`.

    `H = sum_i U_i K_i` (`convolve-then-weight`) or `H = sum_i K_i U_i` (`weight-then-convolve`).

    Parameters
    ----------
    kernels : Tensor or array, (P, k, k) or (P, C, kh, kw)
        Kept as (P, C, kh, kw) float64, with C = 1 if all channels share them. True convolution. The centre of a kernel
        is its index `k // 2`, so a kernel looks like the picture of a point: the first axis is rows (down), the
        second is columns (right).
    weights : Tensor or array, (P, H, W)
        On the picture's pixels. The readers give float32, which needs half the memory.
    order : {"convolve-then-weight", "weight-then-convolve"}
        Where the weights act. `weight-then-convolve` gives every source the PSF of its own place, which is
        what astronomers and microscopists measure; `convolve-then-weight` is the paper's.
    notes : tuple of str
        What the reader did and found, one sentence each with its numbers.
    source : str
        What the blur was made from.
    uncertainty : float, optional
        The relative l2 error `||k - k_true|| / ||k_true||` that its PSFs are expected to have; None if nothing is
        known about it.
    estimate : Estimate, optional
        Where an estimated blur comes from, and how far to trust it.

    Examples
    --------
    A blur that changes from left to right:

    >>> import torch
    >>> from pnpladmm.blur import Blur, common_size, gaussian, motion
    >>> left = torch.linspace(1, 0, 64).expand(48, 64)
    >>> blur = Blur(common_size([gaussian(1.0), motion(9)]), torch.stack([left, 1 - left]))
    >>> blur.size, blur.kernel_size
    ((48, 64), (11, 11))
    >>> blur.operator("zero").forward(torch.rand(1, 3, 48, 64)).shape
    torch.Size([1, 3, 48, 64])
    """

    kernels: Tensor
    weights: Tensor
    order: Order = "convolve-then-weight"
    notes: tuple[str, ...] = ()
    source: str = "kernels and weights"
    uncertainty: float | None = None
    estimate: Estimate | None = None

    def __post_init__(self) -> None:
        kernels = torch.as_tensor(self.kernels, dtype=torch.float64)
        if kernels.ndim == 3:
            kernels = kernels.unsqueeze(1)
        weights = torch.as_tensor(self.weights)
        if not weights.is_floating_point():
            weights = weights.float()
        if kernels.ndim != 4 or weights.ndim != 3 or len(kernels) != len(weights):
            raise InputError(
                f"kernels have shape {tuple(kernels.shape)}, weights {tuple(weights.shape)}: "
                "give (P, k, k) or (P, C, k, k), and (P, H, W)"
            )
        object.__setattr__(self, "kernels", kernels)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "notes", tuple(self.notes))
        object.__setattr__(self, "uncertainty", check_uncertainty(self.uncertainty))

    def __repr__(self) -> str:
        """Kernels, size of the picture and order in one line."""
        count, (kh, kw), (height, width) = len(self.kernels), self.kernel_size, self.size
        kernels = f"{count} kernel{'s' if count > 1 else ''} of {kh}x{kw}"
        return f"{type(self).__name__}({kernels} for {height}x{width}, {self.order})"

    @property
    def size(self) -> tuple[int, int]:
        """Size (H, W) of the picture that the blur belongs to."""
        return self.weights.shape[1], self.weights.shape[2]

    @property
    def kernel_size(self) -> tuple[int, int]:
        """Size of the kernels, (kh, kw)."""
        return self.kernels.shape[2], self.kernels.shape[3]

    def operator(self, boundary: Boundary = "unknown") -> SpatiallyVaryingBlur:
        """The operator of this blur.

        Weights that act on the scene (`weight-then-convolve`) are known on the picture only; beyond it each
        keeps the value that it has at the border.

        Parameters
        ----------
        boundary : {"unknown", "circular", "replicate", "reflect", "zero"}
            What lies beyond the border. With `unknown` the operator maps the scene, which is `k - 1` rows and columns
            larger, to the picture.

        Returns
        -------
        SpatiallyVaryingBlur
        """
        weights = self.weights
        if boundary == "unknown" and self.order == "weight-then-convolve":
            rows, columns = (
                torch.arange(-(k - 1 - k // 2), n + k // 2).clamp(0, n - 1)
                for k, n in zip(self.kernel_size, self.size, strict=True)
            )
            weights = weights[:, rows][:, :, columns]
        return SpatiallyVaryingBlur(self.kernels, weights, boundary, self.order)

    def psf_at(self, row: int, column: int) -> Tensor:
        """The picture of a point source of flux 1 in one pixel.

        With `convolve-then-weight` the light is weighted where it arrives, so each pixel of the PSF has its own
        weights.

        Parameters
        ----------
        row, column : int
            The pixel, counted from 0.

        Returns
        -------
        Tensor, (C, kh, kw)
            The source is at index `k // 2`.

        Examples
        --------
        >>> import torch
        >>> from pnpladmm.blur import Blur, gaussian
        >>> blur = Blur(gaussian(1.0)[None], torch.ones(1, 48, 64))
        >>> torch.allclose(blur.psf_at(20, 30)[0], gaussian(1.0))
        True
        """
        (height, width), (kh, kw) = self.size, self.kernel_size
        if not (0 <= row < height and 0 <= column < width):
            raise InputError(f"row {row}, column {column}: the picture has {height} rows and {width} columns")
        if self.order == "weight-then-convolve":
            return torch.einsum("p,pcij->cij", self.weights[:, row, column].double(), self.kernels)
        rows = (torch.arange(kh) - kh // 2 + row).clamp(0, height - 1)
        columns = (torch.arange(kw) - kw // 2 + column).clamp(0, width - 1)
        weights = self.weights[:, rows][:, :, columns].double()
        return torch.einsum("pij,pcij->cij", weights, self.kernels)

    def noted(self, *notes: str, **changes: Any) -> Blur:
        """A copy of the blur with more notes, or other fields."""
        return replace(self, notes=(*self.notes, *notes), **changes)
