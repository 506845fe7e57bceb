"""Orthonormal transforms of pictures along their last two axes. The inverse of each is its transpose."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from pnpladmm.tensors import InputError


class Transform(Protocol):
    """`W` with `W^T W = Id`."""

    def forward(self, x: Tensor) -> Tensor:
        """`W x`."""
        ...

    def inverse(self, coefficients: Tensor) -> Tensor:
        """`W^T c`."""
        ...

    def coarse(self, size: tuple[int, int]) -> tuple[int, int]:
        """Size of the top left block with the coarse content (mean or approximation)."""
        ...


def _both_axes(x: Tensor, along_last: Callable[[Tensor], Tensor]) -> Tensor:
    """A transform along the last axis, applied to the last two axes."""
    return along_last(along_last(x).mT.contiguous()).mT.contiguous()


class DCT:
    """The cosine transform of the whole picture (type II, orthonormal), by FFT."""

    def forward(self, x: Tensor) -> Tensor:
        """The coefficients, with the lowest frequency in the top left corner."""
        return _both_axes(x, _dct)

    def inverse(self, coefficients: Tensor) -> Tensor:
        """Back to pixels."""
        return _both_axes(coefficients, _inverse_dct)

    def coarse(self, size: tuple[int, int]) -> tuple[int, int]:
        """The mean."""
        return 1, 1


class Hadamard:
    """The Walsh-Hadamard transform, orthonormal, natural order. Sides must be powers of two."""

    def forward(self, x: Tensor) -> Tensor:
        """`W x`."""
        for n in x.shape[-2:]:
            if n & (n - 1):
                raise InputError(f"a Hadamard transform of a side of {n} pixels: it must be a power of two")
        return _both_axes(x, _hadamard)

    def inverse(self, coefficients: Tensor) -> Tensor:
        """The transform is its own inverse."""
        return self.forward(coefficients)

    def coarse(self, size: tuple[int, int]) -> tuple[int, int]:
        """The mean."""
        return 1, 1


class Wavelet:
    """Daubechies' wavelets with two vanishing moments, periodic. An odd last sample is not changed."""

    def __init__(self, levels: int = 4) -> None:
        self.levels = levels

    def forward(self, x: Tensor) -> Tensor:
        """Approximation in the top left corner, details around it."""
        x = x.clone()
        for h, w in self._blocks(x):
            x[..., :h, :w] = _both_axes(x[..., :h, :w], _analyse)
        return x

    def inverse(self, coefficients: Tensor) -> Tensor:
        """Back to pixels."""
        x = coefficients.clone()
        for h, w in reversed(self._blocks(x)):
            x[..., :h, :w] = _both_axes(x[..., :h, :w], _synthesise)
        return x

    def coarse(self, size: tuple[int, int]) -> tuple[int, int]:
        """The approximation of the last level."""
        for _ in range(self.levels):
            size = (_half(size[0]), _half(size[1]))
        return size

    def _blocks(self, x: Tensor) -> list[tuple[int, int]]:
        """The sizes of the block that each level transforms."""
        h, w = x.shape[-2:]
        blocks = []
        for _ in range(self.levels):
            blocks.append((h, w))
            h, w = _half(h), _half(w)
        return blocks


def _half(n: int) -> int:
    """Half a side, rounded down, at least 1."""
    return max(1, n // 2)


def _dct(x: Tensor) -> Tensor:
    """Cosine transform along the last axis, by one complex FFT (Makhoul)."""
    n = x.shape[-1]
    folded = torch.cat([x[..., ::2], x[..., 1::2].flip(-1)], dim=-1)
    phase, scale = _dct_factors(n, x)
    return (torch.fft.fft(folded) * phase).real * scale


def _inverse_dct(c: Tensor) -> Tensor:
    """Its inverse."""
    n = c.shape[-1]
    phase, scale = _dct_factors(n, c)
    half = c / scale
    mirrored = torch.cat([torch.zeros_like(half[..., :1]), half[..., 1:].flip(-1)], dim=-1)
    folded = torch.fft.ifft(torch.complex(half, -mirrored) * phase.conj()).real
    x = torch.empty_like(c)
    x[..., ::2] = folded[..., : (n + 1) // 2]
    x[..., 1::2] = folded[..., (n + 1) // 2 :].flip(-1)
    return x


def _dct_factors(n: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Phases and scales of the n frequencies."""
    k = torch.arange(n, dtype=torch.float64, device=like.device)
    angle = -math.pi * k / (2 * n)
    complex_type = torch.complex128 if like.dtype == torch.float64 else torch.complex64
    scale = ((1 + (k > 0).double()) / n).sqrt()  # sqrt(1/n), then sqrt(2/n)
    return torch.polar(torch.ones_like(angle), angle).to(complex_type), scale.to(like.dtype)


def _hadamard(x: Tensor) -> Tensor:
    """The Walsh-Hadamard transform along the last axis."""
    n = x.shape[-1]
    shape, step = x.shape, 1
    while step < n:
        pairs = x.reshape(*shape[:-1], n // (2 * step), 2, step)
        x = torch.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], dim=-2)
        step *= 2
    return x.reshape(shape) / math.sqrt(n)


_LOW = [(1 + math.sqrt(3)), (3 + math.sqrt(3)), (3 - math.sqrt(3)), (1 - math.sqrt(3))]
_LOW = [value / (4 * math.sqrt(2)) for value in _LOW]
_HIGH = [_LOW[3], -_LOW[2], _LOW[1], -_LOW[0]]


def _analyse(x: Tensor) -> Tensor:
    """One level of the wavelet transform along the last axis."""
    pairs = x.shape[-1] // 2
    even, odd, rest = x[..., 0 : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2], x[..., 2 * pairs :]
    parts = [f[0] * even + f[1] * odd + (f[2] * even + f[3] * odd).roll(-1, -1) for f in (_LOW, _HIGH)]
    return torch.cat([*parts, rest], dim=-1)


def _synthesise(c: Tensor) -> Tensor:
    """Its inverse."""
    pairs = c.shape[-1] // 2
    low, high, rest = c[..., :pairs], c[..., pairs : 2 * pairs], c[..., 2 * pairs :]
    even = _LOW[0] * low + _HIGH[0] * high + (_LOW[2] * low + _HIGH[2] * high).roll(1, -1)
    odd = _LOW[1] * low + _HIGH[1] * high + (_LOW[3] * low + _HIGH[3] * high).roll(1, -1)
    return torch.cat([torch.stack([even, odd], dim=-1).flatten(-2), rest], dim=-1)
