"""A blur in words and numbers: what `pnpladmm inspect` prints."""

from __future__ import annotations

import math

import numpy as np
import torch

from pnpladmm.blur.arrays import Array
from pnpladmm.blur.conditioning import centroids, spread
from pnpladmm.blur.model import Blur
from pnpladmm.operators.norm import NormBound, bound_norm_squared

AFFORDABLE = 1e10
"""Operations that a bound of the norm may cost when it was not asked for: about ten seconds."""
ITERATIONS = 30
SHIFT_COST = 10
"""How much more an operation costs when it is done shift by shift and not by FFT."""


def describe(blur: Blur, norm: bool | None = None) -> str:
    """A blur in words: kernels, order, sums, centroids, widths, weights, rank, norm and notes.

    Parameters
    ----------
    blur : Blur
    norm : bool, optional
        Bound `||H||^2`? If not given, only where it takes seconds (large fields take minutes).

    Returns
    -------
    str
        One fact per line.

    Examples
    --------
    >>> from pnpladmm.blur import as_blur, describe, gaussian
    >>> print(describe(as_blur(gaussian(2.0), (48, 64)), norm=False).splitlines()[1])
    kernels       1 of 17x17, shared by all channels
    """
    count, channels, kh, kw = blur.kernels.shape
    height, width = blur.size
    shared = "shared by all channels" if channels == 1 else f"one for each of {channels} channels"
    lines = [
        f"blur          {blur.source}",
        f"kernels       {count} of {kh}x{kw}, {shared}",
        f"picture       {height}x{width}",
        f"order         {blur.order}",
    ]
    psfs = _field(blur)
    sums = psfs.sum((-2, -1))
    lines.append(f"PSF sum       {spread(sums)} over the field")
    offsets = centroids(psfs)
    lines.append(
        f"PSF centroid  x {spread(offsets[..., 0], 'z.3f')}, y {spread(offsets[..., 1], 'z.3f')} pixels from the source"
    )
    widths = np.array([fwhm(psf.mean(0)) for psf in psfs])
    lines.append(f"PSF FWHM      {spread(widths, '.3g')} pixels (of the area above half the peak)")
    lines.append(
        f"weights       {spread(blur.weights.numpy(), '.3g')}, sum {spread(blur.weights.sum(0).numpy(), '.3g')}"
    )
    lines.append(f"rank          {_rank(blur)}")
    lines.append(f"||H||^2       {_norm_text(norm_bound(blur, norm))}")
    lines += [f"note          {note}" for note in blur.notes]
    return "\n".join(lines)


def _norm_text(bound: NormBound | None) -> str:
    if bound is None:
        return "not bounded: it takes long on a field of this size"
    lower, upper = float(bound.lower.max()), float(bound.upper.max())
    if math.isinf(upper):
        return f"at least {lower:.4f}; a bound from above takes long on a field of this size"
    return f"between {lower:.4f} and {upper:.4f}"


def norm_bound(blur: Blur, wanted: bool | None = None) -> NormBound | None:
    """Bounds of `||H||^2` with the border unknown, from a few iterations; None where even that would take long.

    A signed blur is bounded from above through its absolute value, entry by entry, one shift at a time. That is slow,
    so one step of it has to do (Collatz-Wielandt with `p = 1`), and large fields have no bound from above.
    """
    if wanted is False:
        return None
    operator = blur.operator("unknown")
    pixels, count = math.prod(blur.size), len(blur.kernels)
    if wanted is None and ITERATIONS * 4.0 * (1 + count) * pixels * math.log2(pixels + 1) > AFFORDABLE:
        return None
    shifts = 2.0 * math.prod(blur.kernel_size) * (3 + count) * pixels
    slow = wanted is None and SHIFT_COST * shifts > AFFORDABLE
    return bound_norm_squared(operator, operator.domain, ITERATIONS, 0.01, absolute_iterations=0 if slow else 1)


def fwhm(psf: Array) -> float:
    """Full width at half maximum of (k, k), in pixels: the diameter of a disc with the area above half the peak."""
    from scipy.ndimage import zoom

    fine = zoom(np.pad(psf, 1), 8, order=3, grid_mode=True, mode="grid-constant")
    area = float((fine >= fine.max() / 2).sum()) / 64
    return 2 * math.sqrt(area / math.pi)


def _field(blur: Blur) -> Array:
    """PSFs (n, C, kh, kw) at a lattice of places."""
    rows, columns = (np.unique(np.linspace(0, n - 1, 5).round().astype(int)) for n in blur.size)
    return torch.stack([blur.psf_at(int(r), int(c)) for r in rows for c in columns]).numpy()


def _rank(blur: Blur) -> str:
    """How many kernels are needed for 99 % and 99.99 % of the energy of all the PSFs of the field."""
    kernels = blur.kernels.flatten(1)
    weights = blur.weights.flatten(1)
    # The field of PSFs is `U^T K`; its singular values are those of a P x P product of Gram matrices.
    gram_k, gram_u = (kernels @ kernels.T).numpy(), (weights @ weights.T).double().numpy()
    values, vectors = np.linalg.eigh(gram_k)
    root = vectors * np.sqrt(values.clip(0))
    energy = np.linalg.eigvalsh(root.T @ gram_u @ root)[::-1].clip(0)
    shares = np.cumsum(energy) / max(energy.sum(), 1e-300)
    some, most = (int(np.searchsorted(shares, level)) + 1 for level in (0.99, 0.9999))
    count = len(blur.kernels)
    return f"kernels needed: {min(some, count)} for 99 % of the energy, {min(most, count)} for 99.99 %"
