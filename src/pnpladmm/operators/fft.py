"""Sizes, costs and kernel spectra of fast Fourier transforms."""

from __future__ import annotations

import math
from functools import cache
from typing import TypeAlias

from torch import Tensor
from torch.fft import rfft2

Size: TypeAlias = tuple[int, int]
"""(rows, columns)."""


def kernel_spectra(kernels: Tensor, fft_size: Size, origin: Size) -> Tensor:
    """Transforms of the kernels (..., kh, kw), rolled so that index `origin` multiplies the pixel itself."""
    padded = kernels.new_zeros(*kernels.shape[:-2], *fft_size)
    padded[..., : kernels.shape[-2], : kernels.shape[-1]] = kernels
    return rfft2(padded.roll((-origin[0], -origin[1]), dims=(-2, -1)))


def fast_size(size: Size) -> Size:
    """The next larger size whose sides are 4 times a product of 2, 3 and 5: real transforms of odd sizes are slow."""
    h, w = (4 * _next_smooth(-(-n // 4)) for n in size)
    return h, w


def is_smooth(size: Size) -> bool:
    """Whether both sides are products of 2, 3 and 5."""
    return all(_next_smooth(n) == n for n in size)


def transform_cost(size: Size) -> float:
    """Operations of one transform, up to a factor: n log2 n for n pixels."""
    pixels = size[0] * size[1]
    return pixels * math.log2(max(pixels, 2))


@cache
def _next_smooth(n: int) -> int:
    """The smallest product of 2, 3 and 5 that is at least n."""
    while True:
        rest = n
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        if rest == 1:
            return n
        n += 1
