"""Kernels and weights made from numbers: motion, Gaussian, defocus; regions with soft borders.

Kernels are float64, non-negative, of sum 1, of odd size with their centre in the middle pixel. Lengths are
in pixels; angles in degrees, counter-clockwise from the right as the picture is seen (rows run down).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur.arrays import Array
from pnpladmm.blur.conditioning import resized
from pnpladmm.gate import check_size
from pnpladmm.tensors import InputError, check_positive

Density: TypeAlias = Callable[[Array, Array, float], Array]
"""A density at points (x, y); the third argument is the distance between samples, over which edges are softened."""

# Samples per pixel in each direction. With softened edges discs and lines are right to about a thousandth.
SUPERSAMPLING = 8
# The width in pixels from which on these samples suffice. A narrower kernel has more of them, up to FINEST per pixel.
WIDE_ENOUGH, FINEST = 0.5, 128
MOST_SAMPLES = 4096
"""Samples along a side. Kernels that are hundreds of pixels wide need fewer per pixel."""
THINNEST = 0.4
"""Distances between samples; a Gaussian of this standard deviation is still sampled well."""


def gaussian(sigma: float | tuple[float, float], angle: float = 0.0, size: int | None = None) -> Tensor:
    """A Gaussian kernel.

    Parameters
    ----------
    sigma : float or (float, float)
        Standard deviation in pixels, or two: along and across the direction `angle`.
    angle : float
        Degrees, counter-clockwise from the right.
    size : int, optional
        Side of the kernel, odd; 4 sigma on each side if not given.

    Returns
    -------
    Tensor, (k, k) float64
        Sum 1, centre in the middle pixel.

    Examples
    --------
    >>> kernel = gaussian(1.5)
    >>> kernel.shape, round(float(kernel.sum()), 12)
    (torch.Size([13, 13]), 1.0)
    """
    along, across = (sigma, sigma) if isinstance(sigma, int | float) else sigma
    check_positive("sigma", along)
    check_positive("sigma", across)
    turn = math.radians(angle)
    reach = 4 * max(along, across)
    # A kernel so long that samples have to be far apart is no narrower than they can show.
    thinnest = THINNEST / _samples(reach, min(along, across), size)
    along, across = max(along, thinnest), max(across, thinnest)

    def density(x: Array, y: Array, step: float) -> Array:
        a = x * math.cos(turn) + y * math.sin(turn)
        b = -x * math.sin(turn) + y * math.cos(turn)
        result: Array = np.exp(-0.5 * ((a / along) ** 2 + (b / across) ** 2))
        return result

    return _sampled(density, reach, min(along, across), size)


def defocus(radius: float, size: int | None = None) -> Tensor:
    """A uniform disc: a lens out of focus.

    Parameters
    ----------
    radius : float
        Pixels.
    size : int, optional
        Side of the kernel, odd; as large as the disc if not given.

    Returns
    -------
    Tensor, (k, k) float64
        Sum 1, centre in the middle pixel.

    Examples
    --------
    >>> defocus(3.0).shape
    torch.Size([7, 7])
    """
    check_positive("radius", radius)
    return _sampled(lambda x, y, step: _inside(radius - np.hypot(x, y), step), radius, radius, size)


def motion(length: float, angle: float = 0.0, size: int | None = None) -> Tensor:
    """A straight line through the centre at uniform speed, one pixel wide.

    Parameters
    ----------
    length : float
        Length of the path in pixels.
    angle : float
        Its direction in degrees, counter-clockwise from the right.
    size : int, optional
        Side of the kernel, odd; as large as the line if not given.

    Returns
    -------
    Tensor, (k, k) float64
        Sum 1, centre in the middle pixel.

    Examples
    --------
    >>> kernel = motion(5.0)
    >>> [round(float(v), 3) for v in kernel[kernel.shape[0] // 2]]
    [0.0, 0.2, 0.2, 0.2, 0.2, 0.2, 0.0]
    """
    check_positive("length", length)
    turn = math.radians(angle)

    def line(x: Array, y: Array, step: float) -> Array:
        along = x * math.cos(turn) + y * math.sin(turn)
        across = -x * math.sin(turn) + y * math.cos(turn)
        return _inside(length / 2 - np.abs(along), step) * _inside(0.5 - np.abs(across), step)

    return _sampled(line, length / 2 + 0.5, length, size)


def common_size(kernels: list[Tensor]) -> Tensor:
    """Kernels of different sizes as one bank, padded with zeros round their centres.

    Parameters
    ----------
    kernels : list of Tensor, (k, k)
        Odd sizes, centre at `k // 2`.

    Returns
    -------
    Tensor, (P, k, k) float64
        Square, as large as the largest.

    Examples
    --------
    >>> common_size([gaussian(1.0), motion(16)]).shape
    torch.Size([2, 17, 17])
    """
    side = max(max(kernel.shape) for kernel in kernels)
    return torch.from_numpy(np.stack([resized(kernel.detach().cpu().numpy(), (side, side)) for kernel in kernels]))


def soft_regions(labels: Array, feather: float) -> Tensor:
    """A label map as weights that sum to one at every pixel, with soft seams.

    Parameters
    ----------
    labels : array of int, (H, W)
        0 .. P-1.
    feather : float
        Width of the seams in pixels (the standard deviation of the Gaussian that softens them); 0 for hard ones.

    Returns
    -------
    Tensor, (P, H, W) float64

    Examples
    --------
    >>> weights = soft_regions(np.repeat([[0, 1]], 4, axis=0).repeat(3, axis=1), feather=1.0)
    >>> weights.shape, bool(torch.allclose(weights.sum(0), torch.ones(4, 6, dtype=torch.float64)))
    (torch.Size([2, 4, 6]), True)
    """
    from scipy.ndimage import gaussian_filter  # slow to import

    count = int(labels.max()) + 1
    check_size("the weights of the regions", (count, *labels.shape), 4)
    weights = np.empty((count, *labels.shape))
    for i, weight in enumerate(weights):
        weight[...] = labels == i
        if feather > 0:
            weight[...] = gaussian_filter(weight, feather, mode="nearest", truncate=3)
    weights /= weights.sum(0)
    return torch.from_numpy(weights)


def _inside(depth: Array, step: float) -> Array:
    """1 inside, 0 outside, and in between the share of a sample's cell that an edge through it leaves inside.

    Without it a disc's area jumps as its edge passes samples, and kernels of nearly the same width differ.
    """
    result: Array = np.clip(0.5 + depth / step, 0, 1)
    return result


def _sampled(density: Density, reach: float, narrowest: float, size: int | None) -> Tensor:
    """The mean of the density over each pixel. Samples are close enough not to miss its smallest width, `narrowest`."""
    half = _half(reach, size)
    side, n = 2 * half + 1, _samples(reach, narrowest, size)
    fine = (np.arange(side * n) + 0.5) / n - side / 2
    values = density(fine[None, :], -fine[:, None], 1 / n)  # rows run down, y runs up
    kernel = values.reshape(side, n, side, n).mean((1, 3))
    if not kernel.any():  # narrower than any sample: no blur
        kernel[half, half] = 1
    return torch.from_numpy(kernel / kernel.sum())


def _half(reach: float, size: int | None) -> int:
    """Pixels of a kernel on each side of its centre."""
    if size is not None and (size < 1 or size % 2 == 0):
        raise InputError(f"kernel size {size}: give an odd number of pixels")
    return max(0, math.ceil(reach - 0.5)) if size is None else size // 2


def _samples(reach: float, narrowest: float, size: int | None) -> int:
    """Samples per pixel in each direction."""
    n = min(SUPERSAMPLING * max(1, math.ceil(WIDE_ENOUGH / narrowest)), FINEST)
    return max(1, min(n, MOST_SAMPLES // (2 * _half(reach, size) + 1)))
