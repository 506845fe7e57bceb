"""What a blur is, whatever file it came from: kernels, the weights that mix them, and the order of the two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.operators.blur import Order
from pnpladmm.operators.boundary import Boundary
from pnpladmm.tensors import InputError


@dataclass(frozen=True)
class Blur:
    """`H = sum_i U_i K_i` (`convolve-then-weight`) or `sum_i K_i U_i` (`weight-then-convolve`) for one picture.

    kernels : (P, C, kh, kw) float64, with C = 1 if all channels share them. True convolution; the centre of a
        kernel is its index `k // 2`, so a kernel looks like the picture of a point: first axis rows (down),
        second axis columns (right), as in the file's picture.
    weights : (P, H, W) on the picture's pixels. Float32 from the readers: twice the field for the memory.
    order : where the weights act. `weight-then-convolve` gives every source the PSF of its own place, which is
        what astronomers and microscopists measure; `convolve-then-weight` is the paper's.
    notes : what reading did and found, one sentence each with its numbers.
    source : what the blur was made from.
    """

    kernels: Tensor
    weights: Tensor
    order: Order = "convolve-then-weight"
    notes: tuple[str, ...] = ()
    source: str = "kernels and weights"

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

    @property
    def size(self) -> tuple[int, int]:
        """(H, W) of the picture it belongs to."""
        return self.weights.shape[1], self.weights.shape[2]

    @property
    def kernel_size(self) -> tuple[int, int]:
        """(kh, kw)."""
        return self.kernels.shape[2], self.kernels.shape[3]

    def operator(self, boundary: Boundary = "unknown") -> SpatiallyVaryingBlur:
        """The operator. With `unknown` it maps the scene, `k - 1` rows and columns larger, to the picture.

        Weights that act on the scene (`weight-then-convolve`) are known on the picture only; beyond it each
        keeps the value it has at the border.
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
        """What a point source of flux 1 in this pixel shows: (C, kh, kw), the source at index `k // 2`.

        `convolve-then-weight` weighs the light where it arrives, so each pixel of the PSF has its own weights.
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
        """The same blur with more notes, or other fields."""
        return replace(self, notes=(*self.notes, *notes), **changes)
