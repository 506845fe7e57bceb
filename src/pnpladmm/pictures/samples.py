"""Samples as files hold them, and pixels as the solvers want them: nominally in [0, 1].

    file value = scale * pixel

- integers: `scale` is the largest value of the type (255, 65535, ...), so white is 1; 8 and 16 bits become
  float32, 32 bits float64, and the way back (times `scale`, rounded half to even) is exact;
- floats: `scale` is 1 where the largest magnitude lies in [1/256, 1.5], else the power of two that brings it into
  (1/2, 1]: undoing that is exact. There is no offset: zero light stays zero.

Writing integers clips to the range of the type and counts what was clipped; it never wraps around.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpladmm.pictures.arrays import Array
from pnpladmm.tensors import InputError

DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32", "float64")
"""The sample types that can be read and written."""

# Floats whose maximum lies below one step of 8 bits are in other units than [0, 1]: fluxes, volts. Noise and ringing
# lift a nominal picture a little above 1; that must not change its scale.
DARKEST_NOMINAL, BRIGHTEST_NOMINAL = 1 / 256, 1.5


NEAR = sorted(
    ((y, x) for y in range(-2, 3) for x in range(-2, 3) if (y, x) != (0, 0)), key=lambda at: at[0] ** 2 + at[1] ** 2
)
"""The pixels around a pixel, the nearest first."""


def check_dtype(name: str, dtype: np.dtype[Any]) -> str:
    """The plain name of a sample type we can hold exactly; refuses the others."""
    if dtype.name in ("int64", "uint64"):
        raise InputError(
            f"{name}: {dtype.name} has no known white level: convert to uint8 or uint16, or scale to [0, 1]"
        )
    if dtype.name not in DTYPES:
        raise InputError(f"{name} has samples of type {dtype.name}: convert them to one of {', '.join(DTYPES)}")
    return str(dtype.name)


def pixel_dtype(dtype: str) -> torch.dtype:
    """float64 where float32 cannot hold every sample of the type, else float32."""
    return torch.float64 if dtype in ("float64", "uint32", "int32") else torch.float32


def natural_scale(samples: Array) -> float:
    """The scale that the rules above give; `samples` are finite."""
    if samples.dtype.kind in "ui":
        return float(np.iinfo(samples.dtype).max)
    largest = max(abs(float(samples.max())), abs(float(samples.min())))
    if largest == 0 or DARKEST_NOMINAL <= largest <= BRIGHTEST_NOMINAL:
        return 1.0
    mantissa, exponent = math.frexp(largest)  # largest = mantissa * 2**exponent, 1/2 <= mantissa < 1
    widest = 1023 if pixel_dtype(samples.dtype.name) is torch.float64 else 127  # the largest power of two of the type
    return math.ldexp(1.0, min(exponent - 1 if mantissa == 0.5 else exponent, widest))


def to_pixels(samples: Array, scale: float) -> Tensor:
    """`samples / scale` in the float type that holds it."""
    wide = np.float64 if pixel_dtype(samples.dtype.name) is torch.float64 else np.float32
    return torch.from_numpy(np.true_divide(samples.astype(wide), wide(scale)))


def to_samples(pixels: Tensor, dtype: str, scale: float) -> tuple[Array, int]:
    """`scale * pixels` as `dtype`, and how many samples had to be clipped to its range."""
    values = pixels.detach().cpu().numpy()
    target = np.dtype(dtype)
    if target.itemsize >= 4 and target != np.float32:
        values = values.astype(np.float64)
    values = values * values.dtype.type(scale)
    if target.kind in "ui":
        low, high = float(np.iinfo(target).min), min(float(np.iinfo(target).max), scale)
        np.rint(values, out=values)
    else:
        low, high = float(np.finfo(target).min), float(np.finfo(target).max)
    clipped = int(((values < low) | (values > high)).sum())
    if clipped:
        np.clip(values, low, high, out=values)
    return values.astype(target, copy=False), clipped


def fill_blank(samples: Array, blank: Array) -> Array:
    """`samples` (pages, C, H, W) with the value of the nearest good pixel where `blank`.

    The values only start the restoration off: such pixels are to get precision 0.
    """
    from scipy.ndimage import distance_transform_edt

    filled = samples.copy()
    for page, channel in zip(*np.nonzero(blank.any((-1, -2))), strict=True):
        bad, values = blank[page, channel], samples[page, channel]
        if bad.all():
            filled[page, channel] = 0
            continue
        left = _fill_near(filled[page, channel], values, bad)
        if len(left[0]):
            rows, columns = distance_transform_edt(bad, return_distances=False, return_indices=True)
            filled[page, channel][left] = values[rows[left], columns[left]]
    return filled


def _fill_near(filled: Array, values: Array, bad: Array) -> tuple[Array, ...]:
    """Fill bad pixels that have a good one within two pixels, which takes no look at the others; returns the rest."""
    rows, columns = np.nonzero(bad)
    for down, right in NEAR:
        y, x = rows + down, columns + right
        inside = (y >= 0) & (y < bad.shape[0]) & (x >= 0) & (x < bad.shape[1])
        good = inside.copy()
        good[inside] = ~bad[y[inside], x[inside]]
        filled[rows[good], columns[good]] = values[y[good], x[good]]
        rows, columns = rows[~good], columns[~good]
    return rows, columns
