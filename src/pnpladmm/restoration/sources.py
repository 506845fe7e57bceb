"""What the sources in a frame say: whether the PSF is sampled as the frame is, and which method is made for it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur import Blur
from pnpladmm.blur.describe import fwhm
from pnpladmm.pictures import Picture
from pnpladmm.pictures.arrays import Array
from pnpladmm.restoration.noise import estimate_noise
from pnpladmm.restoration.smoothing import smoothed
from pnpladmm.tensors import InputError

BRIGHT = 25.0
"""Times the noise: fainter peaks say nothing about their width."""
FEWEST, MOST, CANDIDATES = 8, 40, 1000
"""Sources that are needed, those that are measured, and the peaks that are looked at, the brightest first."""
FAINT, FEW = 12.0, 4
"""The same for counts: times the noise, and sources that are needed."""
LEAST_PHOTONS = 15.0
TOO_WIDE = 1.7
"""A PSF is refused as too wide from here on; measured on blurred photographs and star fields in the tests."""
ISOLATED = 0.3
"""Around a source the light has fallen below this share of its peak."""
HOT = 0.1
"""The neighbours of a hot pixel are below this share of it."""
SHARPEST = 0.25
"""The quantile of the widths that stands for the sharpest sources: others may be double, or galaxies."""
LARGEST_PART = 2048
SKY_NOISE, LEAST_SKY = 4.0, 0.5
"""At least this share of a frame of stars is within so many times the noise of its median; measured in the tests."""
SPOT, SKY_SPOT = 2.0, 30.0
"""Sigma in pixels of a filter for spots, and of what is taken off for the sky."""
CLIPPED = 20.0
"""Times the noise."""
OUT, MOST_DARK = 5.0, 0.2
"""Spots stand out by so many times what the filtered sky scatters; so few of them are dark."""


def too_wide(picture: Picture, blur: object) -> str | None:
    """A warning with both widths where no source of the first page is nearly as wide as the PSF; else None."""
    if not isinstance(blur, Blur):
        return None
    height, width = blur.size
    psf = fwhm(blur.psf_at(height // 2, width // 2).mean(0).cpu().numpy())
    reach = int(np.ceil(psf))
    if psf < 3 or min(height, width) < 6 * reach:
        return None
    sharpest = sharpest_sources(picture.pixels[0], reach, None if picture.valid is None else picture.valid[0])
    if sharpest is None or psf < TOO_WIDE * sharpest:
        return None
    return (
        f"the PSF is {psf:.1f} pixels wide (FWHM), the sharpest sources in the picture {sharpest:.1f}: "
        f"is it sampled more finely than the picture? Then psf_scale {sharpest / psf:.2f} or so fits"
    )


def shows_sources(picture: Picture, blur: object, gain: float | None = None) -> bool:
    """Whether a picture is bright spots on a dark, smooth sky, so that the method for them suits it.

    A FITS frame is one where much of it is sky, and where bright spots stand out but no dark ones. Other files of more
    than 8 bits have to show isolated sources as sharp as the PSF allows, too. Where `gain` says what one photon adds,
    a few faint ones will do, but too few photons do not show what is a source.
    """
    if not isinstance(blur, Blur) or np.dtype(picture.dtype) == np.uint8 or picture.metadata.jpeg_table:
        return False
    height, width = blur.size
    reach = max(3, int(np.ceil(fwhm(blur.psf_at(height // 2, width // 2).mean(0).cpu().numpy()))))
    if min(height, width) < 6 * reach:
        return False
    valid = None if picture.valid is None else picture.valid[0]
    if not _bright_on_dark(picture.pixels[0], valid):
        return False
    if picture.format == "FITS":
        return True
    if gain is not None and _photons(picture, gain) < LEAST_PHOTONS:
        return False
    bright, fewest = (BRIGHT, FEWEST) if gain is None else (FAINT, FEW)
    return sharpest_sources(picture.pixels[0], reach, valid, bright, fewest) is not None


def _photons(picture: Picture, gain: float) -> float:
    """The photons at the brightest place above the background."""
    light = smoothed(picture.pixels[:1])
    return float((light - light.flatten(2).median(2).values[..., None, None]).amax()) * picture.scale / gain


def _bright_on_dark(pixels: Tensor, valid: Tensor | None) -> bool:
    from scipy.ndimage import gaussian_filter

    levels = pixels[:, :LARGEST_PART, :LARGEST_PART].double().mean(0).cpu().numpy()
    counts = np.isfinite(levels)
    if valid is not None:
        counts &= valid[:, :LARGEST_PART, :LARGEST_PART].all(0).cpu().numpy()
    if counts.sum() < FEWEST**2:
        return False
    levels = np.where(counts, levels, np.median(levels[counts]))
    try:
        noise = float(estimate_noise(torch.from_numpy(levels)[None, None]))
    except InputError:
        return False
    levels = levels - np.median(levels)
    if np.mean(np.abs(levels) < SKY_NOISE * noise) < LEAST_SKY:
        return False
    # Bright stars would lift the sky around them, which would be dark spots then.
    levels = levels.clip(-CLIPPED * noise, CLIPPED * noise)
    spots = gaussian_filter(levels, SPOT) - gaussian_filter(levels, SKY_SPOT)
    spots -= np.median(spots)
    limit = OUT * 1.4826 * np.median(np.abs(spots))
    bright, dark = int((spots > limit).sum()), int((spots < -limit).sum())
    return bright >= FEWEST and dark <= MOST_DARK * bright


def sharpest_sources(
    pixels: Tensor, reach: int, valid: Tensor | None = None, bright: float = BRIGHT, fewest: int = FEWEST
) -> float | None:
    """FWHM in pixels of the sharpest isolated sources of a page (C, H, W); None where there are too few.

    `reach` is the distance from a source in pixels at which its light has to be gone.
    """
    from scipy.ndimage import maximum_filter

    page = pixels[:, :LARGEST_PART, :LARGEST_PART].double().mean(0).cpu()
    levels = page.cpu().numpy()
    try:
        noise = float(estimate_noise(page[None, None]))
    except InputError:
        return None
    peaks = levels == maximum_filter(levels, 2 * reach + 1)
    peaks &= levels > np.median(levels) + bright * noise
    if valid is not None:
        peaks &= valid[:, :LARGEST_PART, :LARGEST_PART].all(0).cpu().numpy()
    rows, columns = np.nonzero(peaks)
    order = np.argsort(levels[rows, columns])[::-1][:CANDIDATES]
    widths: list[float] = []
    for row, column in zip(rows[order], columns[order], strict=True):
        found = _width(levels, int(row), int(column), reach, bright * noise)
        if found is not None:
            widths.append(found)
        if len(widths) == MOST:
            break
    return float(np.quantile(widths, SHARPEST)) if len(widths) >= fewest else None


def _width(levels: Array, row: int, column: int, reach: int, least: float) -> float | None:
    """FWHM of the source at this peak; None where it is no isolated source, or only a hot pixel."""
    if not (reach <= row < levels.shape[0] - reach and reach <= column < levels.shape[1] - reach):
        return None
    part = levels[row - reach : row + reach + 1, column - reach : column + reach + 1]
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    rim = part[np.hypot(y, x) >= reach - 0.5]
    part = part - np.median(rim)
    peak = part[reach, reach]
    around = [part[reach - 1, reach], part[reach + 1, reach], part[reach, reach - 1], part[reach, reach + 1]]
    if peak < least or np.mean(around) < HOT * peak or np.max(rim) - np.median(rim) > ISOLATED * peak:
        return None
    return fwhm(np.where(np.hypot(y, x) <= reach, part, 0))
