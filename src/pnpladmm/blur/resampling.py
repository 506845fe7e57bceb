"""PSFs whose pixels are not as large as the picture's, brought to the picture's pixels.

The light in a pixel of the picture is the difference of the cumulative light at its two edges. Along each axis the
cumulative light is known at the edges of the PSF's pixels; between them it is a spline of degree 5. So no light is
lost, whatever the two sizes, and the centre stays where it was.
"""

from __future__ import annotations

import math

import numpy as np

from pnpladmm.blur.arrays import Array
from pnpladmm.tensors import InputError

DEGREE = 5
FINEST, COARSEST = 1 / 64, 8.0
"""Pixels of the picture per pixel of the PSF: beyond these the numbers are a mistake."""
LARGEST_SIDE = 4096
SAME = 0.02
"""Sizes that differ by less are one size: headers round, and optics distort by as much."""


def resampled(kernels: Array, scale: tuple[float, float]) -> Array:
    """Kernels (..., k, k) with pixels of `scale` (y, x) pixels of the picture, on the picture's pixels.

    Each value is the light in one pixel of the PSF. The centre is index `k // 2` before and after, the sums stay,
    and kernels without negative values stay so.
    """
    rows, columns = (_matrix(n, s) for n, s in zip(kernels.shape[-2:], scale, strict=True))
    result: Array = np.einsum("ai,...ij,bj->...ab", rows, kernels, columns, optimize=True)
    if (kernels < 0).any():
        return result
    # Splines overshoot beside hard edges.
    positive = np.maximum(result, 0)
    sums = positive.sum((-2, -1), keepdims=True)
    kept: Array = positive * (kernels.sum((-2, -1), keepdims=True) / np.where(sums > 0, sums, 1))
    return kept


def check_scale(name: str, scale: tuple[float, float]) -> None:
    """Refuse sizes that nobody means."""
    if not all(FINEST <= s <= COARSEST for s in scale):
        shown = " x ".join(dict.fromkeys(f"{s:.4g}" for s in scale))
        raise InputError(
            f"{name}: a pixel of the PSF would be {shown} pixels of the picture: "
            "say how large it is (psf_scale; 1: the same)"
        )


def _matrix(count: int, scale: float) -> Array:
    """(k, count): the share of each PSF pixel's light that falls into each pixel of the picture; columns sum to 1."""
    from scipy.interpolate import make_interp_spline

    centre = count // 2
    edges = (np.arange(count + 1) - centre - 0.5) * scale
    half = max(0, math.ceil(max(-edges[0], edges[-1]) - 0.5 - 1e-9))
    if 2 * half + 1 > LARGEST_SIDE:
        raise InputError(f"a PSF of {count} pixels would be {2 * half + 1} pixels of the picture wide: crop it")
    cumulative = np.concatenate([np.zeros((1, count)), np.tril(np.ones((count, count)))])
    degree = min(DEGREE, count)
    degree -= 1 - degree % 2  # odd, so that the spline needs no averages
    spline = make_interp_spline(edges, cumulative, k=degree)
    at = np.clip(np.arange(-half, half + 2) - 0.5, edges[0], edges[-1])
    matrix: Array = np.diff(spline(at), axis=0)
    return matrix
