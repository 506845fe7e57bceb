"""Glowing things under a microscope, with known light, for the benchmark `microscopy`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.signal import fftconvolve

from pnpladmm.blur.arrays import Array

KINDS = ("points", "spots", "filaments", "cells")
"""Points are smaller than a pixel, spots have a sigma of 0.7 pixels."""
WIDE = 1.8
"""Sigma of the core of the PSF in pixels."""
OUTSIDE = 12
"""Pixels around the picture whose light comes in."""
DARK = 0.02
"""Light everywhere, relative to the brightest blurred pixel."""


@dataclass(frozen=True)
class Glow:
    """A recorded picture and the truth, in photons."""

    counts: Array
    sharp: Array
    spots: Array
    """Row and column of each spot, (N, 2)."""


def bead_psf(reach: int = 9) -> Array:
    """A core with wide wings, such as beads show."""
    rows, columns = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    squared = rows**2 + columns**2
    parts = [share * np.exp(-squared / (2 * s * s)) / s**2 for share, s in ((0.85, WIDE), (0.15, 2.2 * WIDE))]
    psf: Array = np.sum(parts, 0)
    return psf / psf.sum()


def glow(kind: str, rng: np.random.Generator, photons: float, side: int) -> Glow:
    """One channel; the brightest pixel gets `photons` photons in the mean."""
    wide = side + 2 * OUTSIDE
    spots = np.zeros((0, 2))
    if kind in ("points", "spots"):
        light, spots = _spots(rng, wide, side * side // 400, 0.0 if kind == "points" else 0.7)
    elif kind == "filaments":
        light = _filaments(rng, wide, 14 * side // 128)
    else:
        light, spots = _spots(rng, wide, 12 * side // 128, 0.7)
        light = light + _cells(rng, wide, 8)
    inner = np.s_[OUTSIDE:-OUTSIDE, OUTSIDE:-OUTSIDE]
    seen = fftconvolve(light, bead_psf(), "same").clip(0)[inner]
    scale = photons / seen.max()
    dark = DARK * photons
    return Glow(rng.poisson(scale * seen + dark).astype(float), scale * light[inner] + dark, spots - OUTSIDE)


def _spots(rng: np.random.Generator, wide: int, count: int, sigma: float) -> tuple[Array, Array]:
    """Spots anywhere between the pixels; points share their light among the four pixels around them."""
    light, rim = np.zeros((wide, wide)), OUTSIDE + 8
    places = rng.uniform(rim, wide - rim, (count, 2))
    for (row, column), bright in zip(places, rng.uniform(0.3, 1, count), strict=True):
        if sigma:
            rows, columns = np.mgrid[:wide, :wide]
            light += bright * np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / (2 * sigma**2))
            continue
        top, left = int(row), int(column)
        down, right = row - top, column - left
        light[top : top + 2, left : left + 2] += bright * np.outer([1 - down, down], [1 - right, right])
    return light, places


def _filaments(rng: np.random.Generator, wide: int, count: int) -> Array:
    """Thin threads that bend a little."""
    light = np.zeros((wide, wide))
    for _ in range(count):
        place, angle, bend = rng.uniform(0, wide, 2), rng.uniform(0, 2 * np.pi), rng.normal(0, 0.02)
        drawn = np.zeros((wide, wide))
        for _ in range(4 * int(rng.integers(60, 200))):
            place = place + 0.25 * np.array([np.sin(angle), np.cos(angle)])
            angle += 0.25 * bend + rng.normal(0, 0.02)
            row, column = place.round().astype(int)
            if 0 <= row < wide and 0 <= column < wide:
                drawn[row, column] += 0.25
        light += 2 * rng.uniform(0.4, 1) * gaussian_filter(drawn, 0.8)
    return light


def _cells(rng: np.random.Generator, wide: int, count: int) -> Array:
    """Round bodies with some texture and a brighter rim."""
    light = np.zeros((wide, wide))
    rows, columns = np.mgrid[:wide, :wide]
    for _ in range(count):
        row, column = rng.uniform(0, wide, 2)
        size, stretch, angle = rng.uniform(8, 18), rng.uniform(0.7, 1.4), rng.uniform(0, np.pi)
        along = (rows - row) * np.cos(angle) + (columns - column) * np.sin(angle)
        across = (columns - column) * np.cos(angle) - (rows - row) * np.sin(angle)
        distance = np.hypot(along * stretch, across / stretch) / size
        texture = (1 + 1.75 * gaussian_filter(rng.standard_normal((wide, wide)), 1.5)).clip(0.1)
        light += rng.uniform(0.15, 0.4) * (distance < 1) * texture
        light += 0.3 * np.exp(-(((distance - 1) * size / 1.2) ** 2))
    return light
