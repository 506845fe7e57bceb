"""Simulated frames of stars whose PSF changes over the field, known everywhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pnpladmm.blur.arrays import Array

SUBSAMPLES = 5
"""Samples per pixel in each direction over which the light of a pixel is integrated."""
LOBES = ((0.0, 0.62, 1.0), (0.35, 0.2, 1.12), (0.8, 0.12, 1.3), (1.4, 0.06, 1.6))
"""Coma as a sum of Moffat profiles: shift along the radius, share of the light, width."""


@dataclass(frozen=True)
class StarField:
    """A Moffat profile whose width, ellipticity and coma grow away from the axis.

    `fwhm` in pixels at the centre; `coma` the shift of the lobes in pixels in the corners; `ellipticity` and `growth`
    (of the width) in the corners.
    """

    size: tuple[int, int] = (512, 512)
    fwhm: float = 3.0
    beta: float = 3.0
    coma: float = 2.0
    ellipticity: float = 0.15
    growth: float = 0.2

    def psf(self, x: float, y: float, dx: Array, dy: Array) -> Array:
        """The effective PSF (integrated over pixels) of a source at (x, y), at offsets (dx, dy) from it."""
        step = (np.arange(SUBSAMPLES) - (SUBSAMPLES - 1) / 2) / SUBSAMPLES
        value = np.zeros(np.broadcast_shapes(dx.shape, dy.shape))
        for sx in step:
            for sy in step:
                value += self._density(x, y, dx + sx, dy + sy)
        return value / SUBSAMPLES**2

    def kernel(self, x: float, y: float, estimate: Array) -> Array:
        """The true kernel at (x, y) as large as `estimate`, sum 1, shifted by a fraction of a pixel to where it fits.

        Stars show the PSF up to a shift only: nobody knows where they stand. Both have their centre at `k // 2`.
        """
        from scipy.optimize import minimize

        dy, dx = (np.arange(n) - n // 2 for n in estimate.shape)

        def shifted(shift: Array) -> Array:
            kernel = self.psf(x, y, dx[None, :] - shift[0], dy[:, None] - shift[1])
            return kernel / kernel.sum()

        found = minimize(lambda s: ((shifted(s) - estimate) ** 2).sum() / (estimate**2).sum(), np.zeros(2), tol=1e-9)
        return shifted(found.x)

    def frame(
        self, places: Array, fluxes: Array, noise: float, background: float = 100.0, gain: float = 0.0, seed: int = 0
    ) -> Array:
        """A frame (H, W) with sources at `places` (N, 2) as x, y; a photon adds `gain`, 0 for no shot noise."""
        height, width = self.size
        frame = np.zeros(self.size)
        reach = int(12 * self.fwhm)
        for (x, y), flux in zip(places, fluxes, strict=True):
            rows = np.arange(max(0, int(y) - reach), min(height, int(y) + reach + 1))
            columns = np.arange(max(0, int(x) - reach), min(width, int(x) + reach + 1))
            if len(rows) and len(columns):
                frame[np.ix_(rows, columns)] += flux * self.psf(x, y, columns[None, :] - x, rows[:, None] - y)
        rng = np.random.default_rng(seed)
        variance = noise**2 + gain * frame.clip(0)
        return background + frame + np.sqrt(variance) * rng.standard_normal(frame.shape)

    def _density(self, x: float, y: float, dx: Array, dy: Array) -> Array:
        height, width = self.size
        px, py = (2 * x / (width - 1) - 1) / np.sqrt(2), (2 * y / (height - 1) - 1) / np.sqrt(2)
        radius = float(np.hypot(px, py))
        ux, uy = (px / radius, py / radius) if radius > 0 else (1.0, 0.0)
        along, across = dx * ux + dy * uy, dy * ux - dx * uy
        e = self.ellipticity * radius**2
        total = np.zeros(np.broadcast_shapes(dx.shape, dy.shape))
        for shift, share, wider in LOBES:
            alpha = self.fwhm * wider * (1 + self.growth * radius**2) / 2 / np.sqrt(2 ** (1 / self.beta) - 1)
            a, b = (along - shift * self.coma * radius) / (alpha * (1 + e)), across / (alpha * (1 - e))
            norm = (self.beta - 1) / (np.pi * alpha**2 * (1 - e**2))
            total += share * norm * (1 + a**2 + b**2) ** -self.beta
        return total


def random_stars(
    size: tuple[int, int], count: int, brightest: float, faintest: float, seed: int = 0
) -> tuple[Array, Array]:
    """Places (N, 2) as x, y anywhere on the frame, and fluxes, as many of each decade as a cluster has (slope 0.5)."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(-0.5, np.array([size[1], size[0]]) - 0.5, (count, 2))
    u = rng.random(count)
    slope = 0.5
    low, high = faintest**-slope, brightest**-slope
    return places, (low + u * (high - low)) ** (-1 / slope)
