"""Frames of stars and galaxies with known light, for the benchmark `stars`: isolated, crowded, galaxies, saturated.

Stars, galaxies and PSF are sums of Gaussians along the axes, integrated over the pixels exactly. So nothing here is
rounded to a grid: stars stand anywhere between the pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.special import erf

from pnpladmm.blur import Blur
from pnpladmm.blur.arrays import Array

Shape: TypeAlias = Sequence[tuple[float, float, float]]
"""A sum of Gaussians: share of the light, sigma along rows, sigma along columns."""

LEFT = ((0.8, 1.2, 1.2), (0.2, 2.4, 2.4))
"""The PSF at the left border: shares of the light with their sigma along rows and columns, in pixels."""
RIGHT = ((0.75, 1.3, 1.6), (0.25, 2.4, 3.2))
"""At the right border; linear in between."""
REACH = 15
POINT = ((1.0, 1e-6, 1e-6),)
"""A star."""
GALAXY = ((0.1, 0.2), (0.3, 0.5), (0.4, 1.0), (0.2, 1.8))
"""A galaxy: shares of the light, and their sigma in units of its own size."""
SKY, GAIN, READ_NOISE = 200.0, 1.5, 4.0
"""Counts; electrons per count; read noise in electrons."""
WHITE = 65535.0


@dataclass(frozen=True)
class Scene:
    """A frame and the truth."""

    name: str
    frame: Array
    stars: Array
    """x, y, flux of each, (N, 3)."""
    galaxies: Array
    """x, y, flux, sigma along x, sigma along y, (M, 5)."""
    sharp: Array
    """The light of stars and galaxies in the pixels, without PSF and sky."""
    mean: Array
    """The frame without noise."""

    @property
    def variance(self) -> Array:
        """Of the noise of each pixel, known only to a benchmark."""
        found: Array = self.mean / GAIN + (READ_NOISE / GAIN) ** 2
        return found

    def isolated(self, distance: float = 14.0) -> Array:
        """Numbers of the stars with nothing but a hundredth of their light around them, and away from the border."""
        places = np.concatenate([self.stars[:, :3], self.galaxies[:, :3]])
        found = []
        for i, (x, y, flux) in enumerate(self.stars):
            apart = np.hypot(places[:, 0] - x, places[:, 1] - y)
            apart[i] = np.inf
            inside = min(x, y, self.frame.shape[1] - 1 - x, self.frame.shape[0] - 1 - y) >= REACH
            if inside and not (places[apart < distance, 2] > 0.01 * flux).any():
                found.append(i)
        return np.array(found, int)

    def without(self, star: int) -> Array:
        """The sharp light of everything but one star."""
        found, (x, y, flux) = self.sharp.copy(), self.stars[star]
        _add(found, x, y, -flux, POINT)
        return found

    def galaxy(self, source: Array) -> Array:
        """The sharp light of one galaxy, given as in `galaxies`."""
        found = np.zeros_like(self.sharp)
        x, y, flux, along, across = source
        _add(found, x, y, flux, galaxy_shape(across, along))
        return found

    def blur(self) -> Blur:
        """The PSF of the frame on the pixels: two kernels and the weights of a source at each place."""
        import torch

        height, width = self.frame.shape
        kernels = np.stack([point(half, 0.0, 0.0) for half in (LEFT, RIGHT)])
        share = np.broadcast_to(np.arange(width) / (width - 1), (height, width))
        weights = np.stack([1 - share, share])
        return Blur(torch.from_numpy(kernels)[:, None], torch.from_numpy(weights.copy()))


def point(shape: Shape, dy: float, dx: float, reach: int = REACH) -> Array:
    """A source of light 1 at (dy, dx) from the middle of (2 reach + 1)^2 pixels."""
    edges = np.arange(-reach, reach + 2) - 0.5
    found = np.zeros((2 * reach + 1, 2 * reach + 1))
    for share, sigma_y, sigma_x in shape:
        rows, columns = (np.diff(0.5 * erf((edges - d) / (np.sqrt(2) * s))) for d, s in ((dy, sigma_y), (dx, sigma_x)))
        found += share * rows[:, None] * columns
    return found


def galaxy_shape(sigma_y: float, sigma_x: float) -> Shape:
    """The sum of Gaussians of a galaxy."""
    return tuple((share, size * sigma_y, size * sigma_x) for share, size in GALAXY)


def blurred(shape: Shape, psf: Shape) -> Shape:
    """A source seen through a PSF: all pairs."""
    return [(a * b, float(np.hypot(s, u)), float(np.hypot(t, v))) for a, s, t in shape for b, u, v in psf]


def scenes(side: int = 256, seed: int = 30) -> list[Scene]:
    """A draw of the four frames."""
    rng = np.random.default_rng(seed)
    isolated = _grid_of_stars(rng, side, 36, 2e3, 3e5)
    few = _grid_of_stars(rng, side, 64, 2e3, 1e5)
    near = few[rng.random(len(few)) < 0.6]
    big = few[rng.random(len(few)) < 0.2]
    wide = side * 8 // 5  # few stars of a crowd are isolated
    count = wide * wide // 150
    crowd = np.column_stack([rng.uniform(3, wide - 4, (count, 2)), 10 ** rng.uniform(2.3, 5, count)])
    bright = _grid_of_stars(rng, side, 25, 5e3, 1e5)
    bright[::5, 2] = 10 ** rng.uniform(6.1, 6.6, len(bright[::5]))
    size = rng.uniform(2.5, 6, (len(big), 2))
    galaxies = np.column_stack([big[:, :2], 10 ** rng.uniform(4.5, 5.3, len(big)), size])
    apart = [np.hypot(*(galaxies[:, :2] - star[:2]).T).min() > 1 for star in near]
    none = np.zeros((0, 5))
    return [
        make_scene("isolated", side, isolated, none, (seed, 1)),
        make_scene("crowded", wide, crowd, none, (seed, 2)),
        make_scene("galaxies", side, near[apart], galaxies, (seed, 3)),
        make_scene("saturated", side, bright, none, (seed, 4)),
    ]


def make_scene(name: str, side: int, stars: Array, galaxies: Array, seed: int | tuple[int, int]) -> Scene:
    """The frame in whole counts, clipped at the top of 16 bits."""
    sharp, mean = np.zeros((side, side)), np.zeros((side, side))
    for x, y, flux, *size in [*stars, *galaxies]:
        shape = galaxy_shape(size[1], size[0]) if size else POINT
        right = x / (side - 1)
        _add(sharp, x, y, flux, shape)
        for share, psf in ((1 - right, LEFT), (right, RIGHT)):
            _add(mean, x, y, flux * share, blurred(shape, psf))
    mean += SKY
    rng = np.random.default_rng(seed)
    frame = (rng.poisson(mean * GAIN) + READ_NOISE * rng.standard_normal(mean.shape)) / GAIN
    return Scene(name, frame.round().clip(0, WHITE), stars, galaxies, sharp, mean)


def _grid_of_stars(rng: np.random.Generator, side: int, count: int, faintest: float, brightest: float) -> Array:
    """Stars that keep their distance: one in each cell of a grid."""
    cells = round(np.sqrt(count))
    pitch = (side - 2 * REACH) / cells
    corner = REACH + pitch * np.stack(np.meshgrid(np.arange(cells), np.arange(cells)), -1).reshape(-1, 2)
    free = min(8.0, pitch / 4)
    places = corner + pitch / 2 + rng.uniform(-free, free, corner.shape)
    return np.column_stack([places, 10 ** rng.uniform(np.log10(faintest), np.log10(brightest), len(places))])


def _add(frame: Array, x: float, y: float, flux: float, shape: Shape) -> None:
    """Add a source to a frame, with all of it that falls into 4 times the reach."""
    reach = 4 * REACH
    row, column = round(y), round(x)
    found = flux * point(shape, y - row, x - column, reach)
    top, left = max(0, row - reach), max(0, column - reach)
    bottom, right = min(frame.shape[0], row + reach + 1), min(frame.shape[1], column + reach + 1)
    frame[top:bottom, left:right] += found[
        top - row + reach : bottom - row + reach, left - column + reach : right - column + reach
    ]
