"""PSFs at the nodes of a grid as a `Blur` with few kernels, and lattices of places over a picture."""

from __future__ import annotations

import numpy as np
import torch

from pnpladmm.blur import Blur
from pnpladmm.blur.arrays import Array
from pnpladmm.blur.forms.grid import bilinear
from pnpladmm.blur.forms.scattered import low_rank
from pnpladmm.blur.options import Size

TOLERANCE = 2e-3
"""Relative error that few kernels may cost."""
MOST_KERNELS = 16


def lattice(size: Size, nodes: int) -> tuple[Array, Array]:
    """x and y of a lattice from border to border: (nodes,) along the longer side, fewer along the shorter one."""
    height, width = size
    longer = max(size)
    x, y = (np.linspace(0, n - 1, max(2, round(nodes * n / longer))) for n in (width, height))
    return x, y


def places_of(x: Array, y: Array) -> Array:
    """All places (N, 2) of a lattice, y slowest."""
    return np.stack([np.tile(x, len(y)), np.repeat(y, len(x))], 1)


def blur_of_grid(psfs: Array, x: Array, y: Array, size: Size, source: str) -> Blur:
    """The blur of PSFs (len(y) len(x), k, k), y slowest, bilinear between the places, as a mean and few more kernels.

    Each PSF is brought to sum 1. A source has the PSF of its own place (weight, then convolve).
    """
    psfs = psfs / psfs.sum((-2, -1), keepdims=True)
    mean = psfs.mean(0)
    allowed = TOLERANCE * float(np.linalg.norm(psfs))
    vectors, coefficients = low_rank(psfs - mean, allowed, MOST_KERNELS - 1)
    weights = np.einsum("nr,nhw->rhw", coefficients.astype(np.float32), bilinear(x, y, size))
    kernels = np.concatenate([mean[None], vectors])
    maps = np.concatenate([np.ones((1, *size), np.float32), weights])
    return Blur(torch.from_numpy(kernels), torch.from_numpy(maps), "weight-then-convolve", (), source)


def uniform_blur(kernel: Array, size: Size, source: str) -> Blur:
    """The blur of one kernel (k, k) for the whole picture, brought to sum 1."""
    return Blur(torch.from_numpy(kernel / kernel.sum())[None], torch.ones(1, *size), "convolve-then-weight", (), source)


def relative_l2(a: Array, b: Array) -> Array:
    """`||a - b|| / ||b||` of kernels (N, k, k)."""
    result: Array = np.sqrt(((a - b) ** 2).sum((-2, -1)) / (b**2).sum((-2, -1)).clip(1e-300))
    return result
