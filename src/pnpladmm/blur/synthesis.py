"""Kernels and weights made from numbers: motion, Gaussian, defocus; regions with soft borders.

Kernels are float64, non-negative, of sum 1, of odd size with their centre in the middle pixel. Lengths are
in pixels; angles in degrees, counter-clockwise from the right as the picture is seen (rows run down).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pnpladmm.tensors import InputError, check_positive

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Density: TypeAlias = Callable[[Array, Array, float], Array]
"""A density at points (x, y); the third argument is the distance between samples, over which edges are softened."""

# Samples a pixel in each direction. With softened edges discs and lines are right to about a thousandth.
SUPERSAMPLING = 8
# Widths (pixels) that samples so far apart still see; a narrower kernel has more of them, up to the second number.
SEEN, FINEST = 0.5, 128


def gaussian(sigma: float | tuple[float, float], angle: float = 0.0, size: int | None = None) -> Tensor:
    """A Gaussian of standard deviation `sigma`, or (along, across) the direction `angle`."""
    along, across = (sigma, sigma) if isinstance(sigma, int | float) else sigma
    check_positive("sigma", along)
    check_positive("sigma", across)
    turn = math.radians(angle)

    def density(x: Array, y: Array, step: float) -> Array:
        a = x * math.cos(turn) + y * math.sin(turn)
        b = -x * math.sin(turn) + y * math.cos(turn)
        result: Array = np.exp(-0.5 * ((a / along) ** 2 + (b / across) ** 2))
        return result

    return _sampled(density, 4 * max(along, across), min(along, across), size)


def defocus(radius: float, size: int | None = None) -> Tensor:
    """A uniform disc: a lens out of focus."""
    check_positive("radius", radius)
    return _sampled(lambda x, y, step: _inside(radius - np.hypot(x, y), step), radius, radius, size)


def motion(length: float, angle: float = 0.0, size: int | None = None) -> Tensor:
    """A straight line of uniform speed through the centre, one pixel wide."""
    check_positive("length", length)
    turn = math.radians(angle)

    def line(x: Array, y: Array, step: float) -> Array:
        along = x * math.cos(turn) + y * math.sin(turn)
        across = -x * math.sin(turn) + y * math.cos(turn)
        return _inside(length / 2 - np.abs(along), step) * _inside(0.5 - np.abs(across), step)

    return _sampled(line, length / 2 + 0.5, length, size)


def common_size(kernels: list[Tensor]) -> Tensor:
    """Kernels (k, k) of different odd sizes, padded with zeros round their centres: (P, k, k)."""
    side = max(max(k.shape) for k in kernels)
    bank = torch.zeros(len(kernels), side, side, dtype=torch.float64)
    for target, kernel in zip(bank, kernels, strict=True):
        top, left = side // 2 - kernel.shape[0] // 2, side // 2 - kernel.shape[1] // 2
        target[top : top + kernel.shape[0], left : left + kernel.shape[1]] = kernel
    return bank


def soft_regions(labels: Array, feather: float) -> Tensor:
    """A label map (H, W) of 0 .. P-1 as weights (P, H, W) that sum to one, smooth over `feather` pixels."""
    from scipy.ndimage import gaussian_filter  # slow to import

    count = int(labels.max()) + 1
    hard = np.stack([labels == i for i in range(count)]).astype(np.float64)
    if feather > 0:
        hard = np.stack([gaussian_filter(mask, feather, mode="nearest", truncate=3) for mask in hard])
    return torch.from_numpy(hard / hard.sum(0))


def _inside(depth: Array, step: float) -> Array:
    """1 inside, 0 outside, and in between the share of a sample's cell that an edge through it leaves inside.

    Without it a disc's area jumps as its edge passes samples, and kernels of nearly the same width differ.
    """
    result: Array = np.clip(0.5 + depth / step, 0, 1)
    return result


def _sampled(density: Density, reach: float, narrowest: float, size: int | None) -> Tensor:
    """The density's mean over each pixel; `narrowest` is its least width, which the samples must not miss."""
    half = max(0, math.ceil(reach - 0.5)) if size is None else size // 2
    if size is not None and (size < 1 or size % 2 == 0):
        raise InputError(f"kernel size {size}: give an odd number of pixels")
    side = 2 * half + 1
    n = min(SUPERSAMPLING * max(1, math.ceil(SEEN / narrowest)), FINEST)
    fine = (np.arange(side * n) + 0.5) / n - side / 2
    values = density(fine[None, :], -fine[:, None], 1 / n)  # rows run down, y runs up
    kernel = values.reshape(side, n, side, n).mean((1, 3))
    if not kernel.any():  # narrower than any sample: no blur
        kernel[half, half] = 1
    return torch.from_numpy(kernel / kernel.sum())
