"""A PSF that changes over the field, from the stamps of many stars.

    P(u; x) = M(u; shape(x)) + sum_t c_t(x) R_t(u)

`M` is an elliptical Moffat profile, exact at any fraction of a pixel; `R_t` are corrections on the pixel grid. Both
change over the field with the same functions `c_t`. A star at `x` with flux `F` is `F P(i - x; x) + b`.

The corrections are linear: what a star leaves of `M` is moved to the pixel grid, and a weighted regression on `c_t`
gives them, with a Gaussian process as prior: smooth, and as large as `tau` times the profile. Being small, they lose
nothing when they are moved, as long as the picture is not sampled too coarsely.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pnpladmm.blur.arrays import Array
from pnpladmm.estimate.moffat import profile
from pnpladmm.estimate.terms import Terms, regress

FLOOR = 1e-3
"""Of the peak: where the profile is 0 the corrections may still be as large as this times `tau`."""
SMOOTH = 0.33
"""FWHM: the distance over which corrections are smooth; optics and seeing make nothing finer."""
SHAPE = 0.2
"""By which the logarithm of the width, and the ellipticity, change from the middle to the border."""
MOST_FUNCTIONS = 80
"""Of the corrections in each term."""


@dataclass(frozen=True, eq=False)
class Stars:
    """Stamps (N, k, k) around whole pixels `corner`, with what is known of each star."""

    stamps: Array
    weights: Array
    """1 / variance; 0 on pixels that do not count."""
    pixel: Array
    """(N, 2): the pixel in the middle of each stamp, x, y."""
    shift: Array
    """(N, 2): the star from that pixel."""
    flux: Array
    background: Array
    shape: Array
    shape_error: Array

    @property
    def places(self) -> Array:
        """(N, 2): x, y."""
        return self.pixel + self.shift

    def take(self, index: Array) -> Stars:
        """Some of the stars."""
        return Stars(*(getattr(self, name)[index] for name in self.__dataclass_fields__))


@dataclass(frozen=True, eq=False)
class PsfField:
    """The PSF at any place; see the top of this file."""

    terms: Terms
    beta: float
    shape: Array
    """(T, 3)."""
    corrections: Array
    """(T, k, k)."""

    def at(self, places: Array, shifts: Array) -> Array:
        """PSFs (N, k, k) at places (N, 2), the source `shifts` (N, 2) beyond the middle pixel."""
        side = self.corrections.shape[-1]
        design = self.terms.at(places)
        base = base_at(design @ self.shape, self.beta, shifts, side)
        moved = np.tensordot(design, self.corrections, 1)
        return base + np.stack([moved_by(r, s) for r, s in zip(moved, shifts, strict=True)]) if moved.any() else base


def base_at(shape: Array, beta: float, shifts: Array, side: int) -> Array:
    """Moffat profiles (N, k, k)."""
    offset = np.arange(side) - side // 2
    dx = offset[None, None, :] - shifts[:, 0, None, None]
    dy = offset[None, :, None] - shifts[:, 1, None, None]
    return profile(shape, beta, dx, dy)


def moved_by(image: Array, shift: Array) -> Array:
    """An image moved by (x, y) pixels, by cubic splines."""
    from scipy.ndimage import shift as move

    return move(image, shift[::-1], order=3, mode="constant")


@dataclass(frozen=True, eq=False)
class Regression:
    """What does not depend on the field that is fitted: the basis of the corrections, and the weights in it."""

    basis: Array
    """(k k, m): corrections are `basis @ a` with `a` normal of width `tau`."""
    weights: Array
    """(N, k k): of each star's leftovers on the pixel grid."""
    gram: Array
    """(N, m, m)."""


def prepare(stars: Stars, beta: float) -> Regression:
    """The regression for some stars."""
    from scipy.ndimage import minimum_filter

    side = stars.stamps.shape[-1]
    typical = base_at(np.median(stars.shape, 0)[None], beta, np.zeros((1, 2)), side)[0]
    basis = smooth_basis(typical, SMOOTH * float(np.exp(np.median(stars.shape[:, 0]))))
    good = stars.weights > 0
    counts = np.stack([minimum_filter(ok.astype(np.uint8), 3) for ok in good]) if not good.all() else good
    weights = (stars.weights * stars.flux[:, None, None] ** 2 * counts).reshape(len(good), -1)
    gram = np.stack([basis.T @ (w[:, None] * basis) for w in weights])
    return Regression(basis, weights, gram)


def smooth_basis(typical: Array, length: float) -> Array:
    """The leading functions of a Gaussian process: as large as the profile, smooth over `length` pixels."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    side = typical.shape[-1]
    offset = np.arange(side) - side // 2
    near = np.exp(-((offset[:, None] - offset[None, :]) ** 2) / (2 * length**2))
    size = typical + FLOOR * typical.max()

    def covariance(v: Array) -> Array:
        result: Array = (size * (near @ (size * v.reshape(size.shape)) @ near)).ravel()
        return result

    count = min(MOST_FUNCTIONS, side * side - 2)
    operator = LinearOperator((side * side, side * side), matvec=covariance, dtype=np.float64)
    values, vectors = eigsh(operator, count, v0=np.ones(side * side), tol=1e-6)
    kept = values > 1e-7 * values.max()
    result: Array = vectors[:, kept] * np.sqrt(values[kept])
    return result


def fit_field(stars: Stars, terms: Terms, beta: float, tau: float) -> PsfField:
    """The PSF field of some stars."""
    return fit_fields(stars, terms, beta, (tau,), prepare(stars, beta))[0]


def fit_fields(
    stars: Stars, terms: Terms, beta: float, taus: tuple[float, ...], regression: Regression
) -> list[PsfField]:
    """The PSF field for each width of the prior."""
    side = stars.stamps.shape[-1]
    design = terms.at(stars.places)
    from scipy.linalg import cho_factor, cho_solve  # slow to import

    shape = fit_shape(stars, design, terms)
    left = leftovers(stars, base_at(design @ shape, beta, stars.shift, side))
    count, size = design.shape[1], regression.basis.shape[1]
    right = design.T @ ((regression.weights * left.reshape(len(left), -1)) @ regression.basis)
    pairs = (design[:, :, None] * design[:, None, :]).reshape(len(design), -1)
    blocks = (pairs.T @ regression.gram.reshape(len(left), -1)).reshape(count, count, size, size)
    normal = blocks.transpose(0, 2, 1, 3).reshape(count * size, count * size)
    found = []
    for tau in taus:
        lifted = normal.copy()
        lifted[np.diag_indices_from(lifted)] += np.repeat(1 / (tau * terms.changes.clip(max=1)) ** 2, size)
        a = cho_solve(cho_factor(lifted, overwrite_a=True), right.ravel()).reshape(count, size)
        found.append(PsfField(terms, beta, shape, (a @ regression.basis.T).reshape(count, side, side)))
    return found


def fit_shape(stars: Stars, design: Array, terms: Terms) -> Array:
    """Width and ellipticity over the field (T, 3); faint stars count less, bright ones not without limit."""
    error = stars.shape_error.max(1)
    spread = 1.4826 * np.median(np.abs(stars.shape - np.median(stars.shape, 0)), 0).max()
    return regress(design, stars.shape, 1 / (error**2 + (0.2 * spread) ** 2 + 1e-8), SHAPE * terms.changes)


def leftovers(stars: Stars, base: Array) -> Array:
    """What each star of flux 1 leaves of `base`, moved to the pixel grid: (N, k, k)."""
    light = (stars.stamps - stars.background[:, None, None]) / stars.flux[:, None, None]
    left = np.where(stars.weights > 0, light - base, 0)
    return np.stack([moved_by(image, -shift) for image, shift in zip(left, stars.shift, strict=True)])


def refit(stars: Stars, field: PsfField, steps: int = 2) -> tuple[Stars, Array]:
    """Flux, place and background of each star with the PSF known, and chi^2 per pixel (N,)."""
    side = stars.stamps.shape[-1]
    shift, flux, background = stars.shift, stars.flux, stars.background
    for step in range(steps + 1):
        psf = field.at(stars.pixel + shift, shift)
        gy, gx = np.gradient(psf, axis=(1, 2))
        ones = np.ones_like(psf)
        columns = np.stack([psf, -gx * flux[:, None, None], -gy * flux[:, None, None], ones], 1)
        columns = columns.reshape(len(psf), 4, -1)
        weighted = columns * stars.weights.reshape(len(psf), 1, -1)
        residual = stars.stamps - background[:, None, None] - flux[:, None, None] * psf
        normal = weighted @ columns.transpose(0, 2, 1)
        scale = np.sqrt(np.einsum("nii->ni", normal)).clip(1e-300)
        normal = normal / scale[:, :, None] / scale[:, None, :] + 1e-9 * np.eye(4)
        slope = (weighted @ residual.reshape(len(psf), -1, 1))[..., 0] / scale
        move = np.linalg.solve(normal, slope[..., None])[..., 0] / scale
        if step == steps:
            break
        flux, background = flux + move[:, 0], background + move[:, 3]
        shift = (shift + move[:, 1:3].clip(-0.5, 0.5)).clip(-0.2 * side, 0.2 * side)
    chi2 = (stars.weights * residual**2).sum((1, 2)) / (stars.weights > 0).sum((1, 2)).clip(1)
    return replace(stars, shift=shift, flux=flux, background=background), chi2


def unexplained(stars: Stars, field: PsfField) -> Array:
    """chi^2 (N,) of each star against a PSF that did not see it; flux, place and background are free."""
    psf = field.at(stars.places, stars.shift)
    gy, gx = np.gradient(psf, axis=(1, 2))
    columns = np.stack([psf, gx, gy, np.ones_like(psf)], 1).reshape(len(psf), 4, -1)
    root = np.sqrt(stars.weights).reshape(len(psf), 1, -1)
    q, _ = np.linalg.qr((columns * root).transpose(0, 2, 1))
    data = stars.stamps.reshape(len(psf), -1) * root[:, 0]
    inside = (q.transpose(0, 2, 1) @ data[..., None])[..., 0]
    return (data**2).sum(1) - (inside**2).sum(1)
