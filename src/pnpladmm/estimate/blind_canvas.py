"""A picture on a torus, for blind estimates: Fourier transforms without a jump at the border, and derivatives."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

DECAY = 3
"""Pixels without data are means of the others, weighted by `distance^-DECAY`."""
OPTICS = 0.6
"""Pixels: standard deviation of the Gaussian between ideal step edges and the edges of a sharp photograph."""


@dataclass(frozen=True, eq=False)
class Canvas:
    """A picture `y` with room around it for the kernel: (H, W) float32, larger than the picture.

    `known` is 1 on pixels of the picture that have data, and 0 elsewhere; those are filled smoothly. `fitted` is 1
    where the kernel is fitted: its whole footprint lies in the picture.
    """

    y: Tensor
    known: Tensor
    fitted: Tensor

    @property
    def size(self) -> tuple[int, int]:
        """(H, W)."""
        return self.y.shape[0], self.y.shape[1]

    @cached_property
    def spectrum(self) -> Tensor:
        """The Fourier transform of `y`."""
        return torch.fft.rfft2(self.y)

    @cached_property
    def slopes(self) -> tuple[Tensor, Tensor]:
        """The derivatives of `y` along x and y."""
        return derivatives(self.y)

    @cached_property
    def roughness(self) -> Tensor:
        """`|D_x|^2 + |D_y|^2` of each frequency."""
        down, across = self._frequencies
        return 4 - 2 * torch.cos(2 * math.pi * down) - 2 * torch.cos(2 * math.pi * across)

    @cached_property
    def optics(self) -> Tensor:
        """The transfer function of a sharp photograph's edges, a Gaussian of `OPTICS` pixels."""
        down, across = self._frequencies
        return torch.exp(-2 * (math.pi * OPTICS) ** 2 * (down**2 + across**2))

    @property
    def _frequencies(self) -> tuple[Tensor, Tensor]:
        height, width = self.size
        where = self.y.device
        return torch.fft.fftfreq(height, device=where)[:, None], torch.fft.rfftfreq(width, device=where)[None, :]

    def fitted_in(self, part: Tensor) -> Canvas:
        """The same canvas, on which the kernel is fitted in `part` (h, w) of the picture only."""
        fitted = self.fitted.clone()
        fitted[: part.shape[0], : part.shape[1]] *= part
        return replace(self, fitted=fitted)

    def back(self, spectrum: Tensor) -> Tensor:
        """The picture of a spectrum."""
        return torch.fft.irfft2(spectrum, s=self.size)

    def transfer(self, kernel: Tensor) -> Tensor:
        """The transfer function of a kernel (k, k) with its centre at `k // 2`."""
        return torch.fft.rfft2(self.placed(kernel))

    def placed(self, kernel: Tensor) -> Tensor:
        """A kernel on the canvas, its centre at pixel (0, 0)."""
        side = kernel.shape[0]
        empty = kernel.new_zeros(self.size)
        empty[:side, :side] = kernel
        return empty.roll((-(side // 2), -(side // 2)), (0, 1))

    def cut(self, picture: Tensor, side: int) -> Tensor:
        """The part (side, side) of a picture that `placed` fills."""
        return picture.roll((side // 2, side // 2), (0, 1))[:side, :side]


def canvas_of(picture: Tensor, counts: Tensor, side: int) -> Canvas:
    """The canvas for kernels of `side` pixels; `counts` (H, W) is False on pixels that say nothing."""
    from scipy.fft import next_fast_len
    from scipy.ndimage import binary_erosion

    height, width = picture.shape
    tall, wide = (next_fast_len(n + side + 1, real=True) for n in picture.shape)
    y, known, fitted = (picture.new_zeros(tall, wide) for _ in range(3))
    y[:height, :width] = torch.where(counts, picture, picture.new_zeros(()))
    known[:height, :width] = counts.float()
    half = side // 2
    inner = torch.zeros_like(counts)
    inner[half : height - half - 1, half : width - half - 1] = True
    # A derivative takes two pixels, and the light of a saturated pixel is missing in its neighbours too.
    whole = counts
    if not bool(counts.all()):
        whole = torch.from_numpy(binary_erosion(counts.cpu().numpy(), iterations=3)).to(counts.device)
    fitted[:height, :width] = (inner & whole).float()
    return Canvas(torch.where(known > 0, y, _spread(y, known)), known, fitted)


def _spread(y: Tensor, known: Tensor) -> Tensor:
    """Shepard's interpolation on the torus: at each pixel the mean of the known ones, weighted by their distance."""
    rows, columns = (torch.fft.fftfreq(n, device=y.device) * n for n in y.shape)
    distance2 = rows[:, None] ** 2 + columns[None, :] ** 2
    distance2[0, 0] = 1
    near = torch.fft.rfft2(distance2 ** (-DECAY / 2))
    total = torch.fft.irfft2(torch.fft.rfft2(y) * near, s=y.shape)
    return total / torch.fft.irfft2(torch.fft.rfft2(known) * near, s=y.shape).clamp_min(1e-6)


def derivatives(x: Tensor) -> tuple[Tensor, Tensor]:
    """Forward differences along x and y on the torus."""
    return x.roll(-1, 1) - x, x.roll(-1, 0) - x


def divergence(u: Tensor, v: Tensor) -> Tensor:
    """The adjoint of `derivatives`."""
    return u.roll(1, 1) - u + v.roll(1, 0) - v
