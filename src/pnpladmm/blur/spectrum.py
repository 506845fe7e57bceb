"""The spectrum of a blurred picture as a model: blur, times a smooth spectrum of the scene, plus noise.

    S(f) = |K(f)|^2 exp(sum_j c_j B_j(f)) + sigma^2

The scene's spectrum falls as a power of the frequency that depends on the direction (`B` are powers of log f and
harmonics of the angle). Its speckle, and the lines of real scenes, are errors of the logarithm with heavy tails, so the
coefficients `c` and the noise are fitted to `log S` as Student's t with 4 degrees of freedom.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pnpladmm.blur.arrays import Array

CELLS = 128
"""Cells of the frequency plane in each direction, over which the periodogram is averaged."""
MISFIT = 0.35
"""Variance of the logarithm of a cell beside that of its speckle."""
TAILS = 4.0
"""Degrees of freedom of Student's t."""
LOWEST = 0.02
"""Cycles per pixel; slower changes are light and shade."""
CORRELATED = 20.0
"""How much weaker the data is than if all cells were independent, against the prior of the scene."""
MEAN = np.array([0.0, -2.2, 0, 0, 0, 0, 0, 0, 0, 0])
SPREAD = np.array([1e3, 0.5, 0.15, 0.5, 0.5, 0.3, 0.3, 0.3, 0.3, 1.0])
"""Prior of the coefficients and of the logarithm of the noise against its first value."""
STEPS = 4
QUARTERS = np.array([-0.25, 0.25]) / CELLS


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The averaged periodogram of a region: frequencies, powers, and how many independent values each cell holds."""

    fx: Array
    fy: Array
    power: Array
    count: Array

    def likelihood(self, transfer: Array) -> float:
        """The logarithm of the likelihood of a blur, the scene's spectrum and the noise being those that fit best.

        `transfer` is `|K|^2` in the cells.
        """
        basis, weight = self._basis, 1 / (1 / self.count.clip(1) + MISFIT)
        seen = np.log(self.power + 1e-300)
        floor = float(np.log(np.percentile(self.power, 3) + 1e-300))
        c = MEAN.copy()
        c[0] = np.log(self.power[np.hypot(self.fx, self.fy) < 0.15].mean() + 1e-300)
        precision = CORRELATED / SPREAD**2
        left = seen
        for step in range(STEPS + 1):
            scene = transfer * np.exp((basis @ c[:-1]).clip(-60, 60))
            noise = np.exp(floor + c[-1])
            total = scene + noise
            left = seen - np.log(total)
            if step == STEPS:
                break
            robust = weight / (1 + left**2 * weight / TAILS)
            slope = np.concatenate([basis * (scene / total)[:, None], (noise / total)[:, None]], 1)
            normal = (slope * robust[:, None]).T @ slope + np.diag(precision)
            c = c + np.linalg.solve(normal, slope.T @ (robust * left) - precision * (c - MEAN)).clip(-2, 2)
        value = -(TAILS + 1) / 2 * np.log1p(left**2 * weight / TAILS).sum()
        return float(value - 0.5 * (precision * (c - MEAN) ** 2).sum())

    @cached_property
    def _basis(self) -> Array:
        turn = np.arctan2(self.fy, self.fx)
        fall = np.log(np.hypot(self.fx, self.fy) / 0.1)
        waves = [np.cos(2 * turn), np.sin(2 * turn), np.cos(4 * turn), np.sin(4 * turn)]
        return np.stack([np.ones_like(fall), fall, fall**2, *waves, fall * waves[0], fall * waves[1]], 1)


def spectrum_of(pixels: Array, inside: Array | None = None) -> Spectrum:
    """The spectrum of a picture (H, W), or of its pixels `inside`, under a window that falls to 0 at the outline."""
    if inside is None or inside.all():
        height, width = pixels.shape
        window = np.outer(np.hanning(height + 2)[1:-1], np.hanning(width + 2)[1:-1])
    else:
        pixels, window = _cut(pixels, inside)
    height, width = pixels.shape
    values = (pixels - (pixels * window).sum() / window.sum()) * window
    power = np.abs(np.fft.fft2(values)) ** 2 / (window**2).sum()
    fy, fx = np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None, :]
    turned = np.where(fx < 0, -1, 1)  # a real picture's spectrum is the same at -f
    row, column = np.round(fy * turned * CELLS).astype(int) % CELLS, np.round(np.abs(fx) * CELLS).astype(int)
    across = CELLS // 2 + 1
    cell = (row * across + column).ravel()
    count = np.bincount(cell, minlength=CELLS * across)
    total = np.bincount(cell, power.ravel(), minlength=CELLS * across)
    gy, gx = (g.ravel() for g in np.broadcast_arrays(np.fft.fftfreq(CELLS)[:, None], np.arange(across) / CELLS))
    radius = np.hypot(gx, gy)
    used = (count > 0) & (radius > max(LOWEST, 2.5 / min(height, width))) & (radius < 0.5) & ~((gx == 0) & (gy < 0))
    # Each frequency was counted with its mirror image, and the window joins neighbours.
    share = float((window**2).sum() / window.size)
    return Spectrum(gx[used], gy[used], total[used] / count[used], count[used] / 2 * share)


def transfer_of(kind: str, values: tuple[float, ...], spectrum: Spectrum) -> Array:
    """`|K|^2` of the kernel of this kind, averaged over each cell; pixels average, too."""
    total = np.zeros_like(spectrum.fx)
    for ox in QUARTERS:
        for oy in QUARTERS:
            fx, fy = spectrum.fx + ox, spectrum.fy + oy
            total += (_kernel(kind, values, fx, fy) * np.sinc(fx) * np.sinc(fy)) ** 2
    return total / 4


def _kernel(kind: str, values: tuple[float, ...], fx: Array, fy: Array) -> Array:
    """The transform of a disc, a Gaussian, or a line one pixel wide (angles from the right towards the top)."""
    from scipy.special import j1  # slow to import

    if kind == "defocus":
        z = 2 * np.pi * values[0] * np.hypot(fx, fy)
        return np.where(z < 1e-6, 1.0, 2 * j1(z) / z.clip(1e-12))
    if kind == "gaussian":
        return np.exp(-2 * (np.pi * values[0]) ** 2 * (fx**2 + fy**2))
    length, angle = values[0], np.deg2rad(values[1])
    along, across = fx * np.cos(angle) - fy * np.sin(angle), fx * np.sin(angle) + fy * np.cos(angle)
    return np.sinc(length * along) * np.sinc(across)


def _cut(pixels: Array, inside: Array) -> tuple[Array, Array]:
    """The box around a region, and a window that rises from its outline to its middle."""
    from scipy.ndimage import distance_transform_edt

    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    box = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    depth = distance_transform_edt(np.pad(inside[box], 1))[1:-1, 1:-1]
    window: Array = np.sin(np.pi / 2 * (depth / depth.max()).clip(0, 1)) ** 2
    return pixels[box], window
