"""Elliptical Moffat profiles fitted to many stars at once.

    M(u) = (beta - 1) / (pi a^2 (1 - e^2)) (1 + |S^-1 u|^2 / a^2)^-beta,   S = [[1 + e1, e2], [e2, 1 - e1]],

`a = fwhm / (2 sqrt(2^(1/beta) - 1))`, e^2 = e1^2 + e2^2. It is a good first guess of most PSFs; what it does not fit
is estimated pixel by pixel afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pnpladmm.blur.arrays import Array

LOWEST_BETA, HIGHEST_BETA = 1.3, 12.0
LARGEST_E = 0.8
STEPS = 25
PARAMETERS = 7
"""x, y, log fwhm, e1, e2, log beta, background; the flux is linear and solved for."""


@dataclass(frozen=True)
class Fit:
    """Fitted profiles of N stars, places in pixels from the centre of each stamp."""

    shift: Array
    """(N, 2): x, y."""
    shape: Array
    """(N, 3): log fwhm, e1, e2."""
    error: Array
    """(N, 3): standard deviations of the shape."""
    beta: Array
    flux: Array
    background: Array
    chi2: Array
    """Per pixel."""


def profile(shape: Array, beta: Array | float, dx: Array, dy: Array) -> Array:
    """Profiles of flux 1, (N, k, k): shapes (N, 3), offsets (N, k, k) or what broadcasts to it."""
    fwhm, e1, e2 = (shape[:, i, None, None] for i in range(3))
    beta = np.asarray(beta, dtype=float).reshape(-1, 1, 1)
    alpha = np.exp(fwhm) / (2 * np.sqrt(2 ** (1 / beta) - 1))
    determinant = 1 - e1**2 - e2**2
    ax, ay = ((1 - e1) * dx - e2 * dy) / determinant, ((1 + e1) * dy - e2 * dx) / determinant
    value: Array = (1 + (ax**2 + ay**2) / alpha**2) ** -beta * (beta - 1) / (np.pi * alpha**2 * determinant)
    return value


def fit(stamps: Array, weights: Array, fwhm: float, beta: float | None = None) -> Fit:
    """Fit each stamp (N, k, k) with weights (N, k, k), 1 / variance, 0 on pixels that do not count.

    With `beta` it is held, else each star has its own.
    """
    count, side = len(stamps), stamps.shape[-1]
    offset = np.arange(side) - side // 2
    dx, dy = offset[None, None, :], offset[None, :, None]
    free = np.array([True] * 5 + [beta is None, True])
    p = np.zeros((count, PARAMETERS))
    p[:, 2], p[:, 5] = np.log(fwhm), np.log(3.0 if beta is None else beta)
    p[:, 6] = np.median(stamps[:, [0, -1]].reshape(count, -1), 1)
    damping = np.full(count, 1e-2)
    model, flux = _model(p, stamps, weights, dx, dy)
    cost = (weights * (stamps - model) ** 2).sum((1, 2))
    for _ in range(STEPS):
        jacobian = _jacobian(p, flux, dx, dy)
        normal, slope = _normal(jacobian, weights, stamps - model, free)
        lifted = normal + damping[:, None, None] * np.einsum("nij,ij->nij", normal, np.eye(normal.shape[1]))
        step = np.linalg.solve(lifted, slope[..., None])[..., 0]
        trial = p.copy()
        trial[:, free] += step[:, :-1]
        trial = _bounded(trial, fwhm, side)
        new_model, new_flux = _model(trial, stamps, weights, dx, dy)
        new_cost = (weights * (stamps - new_model) ** 2).sum((1, 2))
        better = new_cost < cost
        p[better], model[better], flux[better], cost[better] = (
            trial[better],
            new_model[better],
            new_flux[better],
            new_cost[better],
        )
        damping = np.where(better, damping / 5, damping * 5).clip(1e-8, 1e8)
    normal, _ = _normal(_jacobian(p, flux, dx, dy), weights, stamps - model, free)
    spread = np.sqrt(np.diagonal(np.linalg.pinv(normal, hermitian=True), axis1=1, axis2=2).clip(1e-16))
    pixels = (weights > 0).sum((1, 2)).clip(1)
    return Fit(p[:, :2], p[:, 2:5], spread[:, 2:5], np.exp(p[:, 5]), flux, p[:, 6], cost / pixels)


def _model(p: Array, stamps: Array, weights: Array, dx: Array, dy: Array) -> tuple[Array, Array]:
    """The model with the flux that fits best, and that flux."""
    shape = profile(p[:, 2:5], np.exp(p[:, 5]), dx - p[:, 0, None, None], dy - p[:, 1, None, None])
    level = p[:, 6, None, None]
    flux = (weights * shape * (stamps - level)).sum((1, 2)) / (weights * shape**2).sum((1, 2)).clip(1e-300)
    return flux[:, None, None] * shape + level, flux


def _jacobian(p: Array, flux: Array, dx: Array, dy: Array) -> Array:
    """Derivatives (N, 8, k, k) by the parameters and, last, the flux."""

    def shape(q: Array) -> Array:
        return profile(q[:, 2:5], np.exp(q[:, 5]), dx - q[:, 0, None, None], dy - q[:, 1, None, None])

    parts = []
    for i in range(PARAMETERS - 1):
        up, down = p.copy(), p.copy()
        up[:, i] += 1e-4
        down[:, i] -= 1e-4
        parts.append(flux[:, None, None] * (shape(up) - shape(down)) / 2e-4)
    here = shape(p)
    return np.stack([*parts, np.ones_like(here), here], 1)


def _normal(jacobian: Array, weights: Array, residual: Array, free: Array) -> tuple[Array, Array]:
    kept = jacobian[:, np.append(free, True)].reshape(len(jacobian), -1, weights[0].size)
    flat = weights.reshape(len(weights), 1, -1)
    normal = (kept * flat) @ kept.transpose(0, 2, 1)
    normal += 1e-12 * np.einsum("nij,ij->nij", normal, np.eye(normal.shape[1])) + 1e-300 * np.eye(normal.shape[1])
    slope = ((kept * flat) @ residual.reshape(len(residual), -1, 1))[..., 0]
    return normal, slope


def _bounded(p: Array, fwhm: float, side: int) -> Array:
    p[:, :2] = p[:, :2].clip(-0.2 * side, 0.2 * side)
    p[:, 2] = p[:, 2].clip(np.log(fwhm / 5), np.log(fwhm * 5))
    size = np.hypot(p[:, 3], p[:, 4])
    p[:, 3:5] *= (LARGEST_E / np.maximum(size, LARGEST_E))[:, None]
    p[:, 5] = p[:, 5].clip(np.log(LOWEST_BETA), np.log(HIGHEST_BETA))
    return p
