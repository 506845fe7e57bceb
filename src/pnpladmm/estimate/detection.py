"""Stars and beads in a picture: background, noise, places, and the reason why a source is left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pnpladmm.blur.arrays import Array
from pnpladmm.estimate.scene import Scene
from pnpladmm.files import optional
from pnpladmm.tensors import InputError

DETECTED = 5.0
"""Standard deviations of the noise above which something is a source."""
USABLE = 20.0
"""Signal to noise of a star's matched filter below which it says little about the PSF."""
BLENDED = 1.5
"""FWHM; two sources closer than this cannot be told apart well."""
BOX = 64
"""Pixels; the background may change over this distance."""
NARROWEST = 0.9
"""FWHM in pixels below which a peak is a hot pixel or a cosmic ray, not a source."""


@dataclass(frozen=True, eq=False)
class Sky:
    """The picture without its background, and the noise without that of the stars."""

    signal: Array
    noise: float
    bad: Array
    """True on pixels that say nothing: no data or saturated."""


@dataclass(frozen=True, eq=False)
class Sources:
    """Places (N, 2) as x, y of all that was found, and the first guess of the width."""

    places: Array
    flux: Array
    fwhm: float


def remove_background(scene: Scene) -> Sky:
    """The sky of a scene by photutils' Background2D, a camera's offset with it."""
    background = optional("photutils.background", "finding points")
    stats = optional("astropy.stats", "finding points")
    pixels, bad = scene.grey, ~scene.valid | scene.saturated
    if bad.all():
        raise InputError(f"{scene.name}: no pixel has data below saturation")
    clip = stats.SigmaClip(sigma=3.0, maxiters=10)
    height, width = pixels.shape
    box = (min(BOX, height), min(BOX, width))
    found = background.Background2D(
        pixels,
        box,
        mask=bad,
        filter_size=(3, 3) if min(height // box[0], width // box[1]) >= 3 else (1, 1),
        sigma_clip=clip,
        bkg_estimator=background.SExtractorBackground(sigma_clip=clip),
        bkg_rms_estimator=background.MADStdBackgroundRMS(sigma_clip=clip),
        exclude_percentile=90,
    )
    signal = pixels - found.background
    # Differences of neighbours across: stars and nebulae are smooth, noise is not.
    steps = (signal[:, 2:] - 2 * signal[:, 1:-1] + signal[:, :-2])[~(bad[:, 2:] | bad[:, 1:-1] | bad[:, :-2])]
    noise = min(float(found.background_rms_median), 1.4826 * float(np.median(np.abs(steps))) / np.sqrt(6))
    if noise == 0:
        noise = float(found.background_rms_median) or float(signal.std()) / 1e3
    return Sky(np.where(scene.valid, signal, 0), noise, bad)


def find_sources(scene: Scene, sky: Sky) -> Sources:
    """All points brighter than the noise, by photutils' DAOStarFinder at the width of the bright ones."""
    if not sky.noise > 0:
        raise InputError(f"{scene.name}: no stars or beads were found")
    detection = optional("photutils.detection", "finding points")
    fwhm = first_width(scene, sky)
    # It scales the threshold to the noise of its filtered picture itself.
    finder: Any = detection.DAOStarFinder(
        DETECTED * sky.noise, fwhm, sharpness_range=None, roundness_range=None, min_separation=fwhm
    )
    table = finder(sky.signal)
    if table is None or not len(table):
        raise InputError(f"{scene.name}: no stars or beads were found")
    places = np.stack([np.asarray(table["x_centroid"]), np.asarray(table["y_centroid"])], 1).astype(float)
    return Sources(places, np.asarray(table["flux"], dtype=float), fwhm)


def first_width(scene: Scene, sky: Sky) -> float:
    """The FWHM of the bright peaks: the diameter of a disc with the area above half of each peak."""
    from scipy.ndimage import gaussian_filter, label, maximum_filter

    smooth = gaussian_filter(sky.signal, 0.7)
    peaks = (smooth == maximum_filter(smooth, 7)) & (smooth > 2 * DETECTED * sky.noise) & ~sky.bad
    rows, columns = np.nonzero(peaks)
    order = np.argsort(smooth[rows, columns])[::-1][:200]
    widths, half = [], min(25, min(scene.size) // 2 - 1)
    for row, column in zip(rows[order], columns[order], strict=True):
        box = (slice(max(0, row - half), row + half + 1), slice(max(0, column - half), column + half + 1))
        if sky.bad[row - 1 : row + 2, column - 1 : column + 2].any():
            continue
        patch = sky.signal[box]
        height = sky.signal[row, column]
        above, _ = label(patch > height / 2)
        own = above == above[row - box[0].start, column - box[1].start]
        touches = own[0].any() or own[-1].any() or own[:, 0].any() or own[:, -1].any()
        if not touches and own.sum() >= 2:
            widths.append(2 * np.sqrt(own.sum() / np.pi))
    if not widths:
        raise InputError(f"{scene.name}: no stars or beads were found")
    fwhm = float(np.median(widths))
    if fwhm < NARROWEST:
        raise InputError(f"{scene.name}: the peaks are single pixels (hot pixels or noise), not stars or beads")
    return fwhm


def reasons(scene: Scene, sky: Sky, sources: Sources, half: int) -> list[str]:
    """Why each source is left out; empty for those that can be used."""
    from scipy.spatial import cKDTree

    height, width = scene.size
    tree = cKDTree(sources.places)
    result = []
    reach = max(2, round(sources.fwhm))
    for i, (x, y) in enumerate(sources.places):
        row, column = round(y), round(x)
        core = (slice(max(0, row - reach), row + reach + 1), slice(max(0, column - reach), column + reach + 1))
        if not (half <= row < height - half and half <= column < width - half):
            result.append("border: its light leaves the picture")
        elif scene.saturated[core].any():
            result.append("saturated")
        elif (~scene.valid[core]).any():
            result.append("pixels without data in it")
        elif _is_blended(tree, sources, i):
            result.append("blended with a neighbour")
        else:
            result.append("")
    return result


def _is_blended(tree: Any, sources: Sources, i: int) -> bool:
    """Is a neighbour close enough to mix its light with this one's?"""
    near = [j for j in tree.query_ball_point(sources.places[i], BLENDED * sources.fwhm) if j != i]
    return any(sources.flux[j] > 0.03 * sources.flux[i] for j in near)
