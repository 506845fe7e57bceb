"""Simulated shake that changes over the picture, and scores that allow a shift: a blind kernel may lie anywhere."""

from __future__ import annotations

import numpy as np
import torch

from pnpladmm.blur import Blur
from pnpladmm.blur.arrays import Array
from pnpladmm.blur.synthesis import soft_regions
from pnpladmm.estimate.psf_field import blur_of_grid, lattice, places_of
from pnpladmm.workshop.experiments.kernels import motion_kernel, motion_path, splat

NODES = 9
"""Places along the longer side at which the PSF of a turning camera is computed."""
TURN = 8.0
"""Pixels by which the corners move at most, beside the shift."""
FEATHER = 2.0
REACH = 12
"""Largest shift in pixels that is tried."""


def turning_camera(size: tuple[int, int], rng: np.random.Generator) -> Blur:
    """A camera that is shifted and turned about the line of sight: place `r` moves along `t(s) + angle(s) J r`."""
    shift, turn = motion_path(rng), motion_path(rng).real
    corner = np.hypot(*size) / 2
    angle = turn / np.abs(turn).max() * rng.uniform(0.5, 1) * TURN / corner
    x, y = lattice(size, NODES)
    places = places_of(x, y) - (np.array(size[::-1]) - 1) / 2
    kernels = [splat(_held(shift / 2 + 1j * angle * (px + 1j * py))) for px, py in places]
    return blur_of_grid(np.stack(kernels), x, y, size, "a turning camera")


def two_objects(mask: Array, rng: np.random.Generator) -> Blur:
    """A thing that moves in one way before a ground that moves in another; `mask` (H, W) bool."""
    kernels = torch.from_numpy(np.stack([motion_kernel(rng), motion_kernel(rng)]))
    return Blur(kernels, soft_regions(mask.astype(int), FEATHER), source="two moving things")


def best_shift_psnr(found: Array, truth: Array, border: int) -> float:
    """PSNR (peak 1) inside `border` pixels, at the best shift, to a quarter of a pixel by cubic splines.

    Pictures are (..., H, W). The shift is found on whole pixels first.
    """
    from scipy.ndimage import shift as moved

    def error(picture: Array, dy: int, dx: int) -> float:
        rows, columns = (slice(border + d, n - border + d) for d, n in zip((dy, dx), truth.shape[-2:], strict=True))
        return float(((picture[..., rows, columns] - inner) ** 2).mean())

    inner = truth[..., border:-border, border:-border]
    reach = range(-min(REACH, border), min(REACH, border) + 1)
    best, dy, dx = min((error(found, a, b), a, b) for a in reach for b in reach)
    steps = (-0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75)
    for sy in steps:
        for sx in steps:
            if (sy, sx) != (0, 0):
                lead = (0,) * (truth.ndim - 2)
                best = min(best, error(moved(found, (*lead, -sy, -sx), order=3, mode="nearest"), dy, dx))
    return -10 * float(np.log10(best))


def _held(path: Array) -> Array:
    """A path whose centre of mass lies in the middle and that fits a kernel of the experiments."""
    path = path - path.mean()
    return path * min(1.0, 15 / max(np.abs(path.real).max(), np.abs(path.imag).max(), 1e-9))
