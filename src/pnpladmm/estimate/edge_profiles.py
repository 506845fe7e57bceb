"""Straight edges in a picture, and how wide each is: its profile as the integral of a disc or of a Gaussian."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pnpladmm.blur.arrays import Array

SCALES = (1.0, 2.0, 4.0, 8.0)
"""Widths of the Gaussian derivatives that find edges; an edge is seen best at about its own width."""
CONTRAST = 8.0
"""Step of an edge over the noise."""
REACHES = (5.0, 9.0, 16.0, 28.0, 48.0)
"""Half the length of profiles in pixels, tried from the shortest: an edge must be flat on both sides."""
BINS = 2.0
"""Points of a profile per pixel."""
FLAT_FROM = 0.3
"""Sigma over half the length of the profile: the profile must show that both sides are flat."""
STRAIGHT = 0.06
"""Of the step: a profile that differs more from a blurred step (beyond the noise) is no straight edge."""
MOST_EDGES = 400
"""Edges that are looked at, the strongest of each scale first."""


@dataclass(frozen=True, eq=False)
class Edges:
    """Straight edges: places (N, 2) as x, y, widths as sigma and as radius (N,), relative errors (N,), steps (N,)."""

    places: Array
    sigma: Array
    radius: Array
    error: Array
    contrast: Array
    """The step over the noise."""
    misfit: Array
    """(N, 2): unexplained part of the profile as a Gaussian's and as a disc's, squared, over the noise."""
    profiles: tuple[tuple[Array, Array], ...]
    """Distances and values from 0 to 1, for drawings."""


@dataclass(frozen=True, eq=False)
class Measured:
    """One edge, as in `Edges`."""

    sigma: float
    radius: float
    error: float
    contrast: float
    misfit: tuple[float, float]
    profile: tuple[Array, Array]


def gaussian_step(distance: Array, sigma: float) -> Array:
    """A step from 0 to 1, blurred by a Gaussian."""
    from scipy.special import erf  # slow to import

    result: Array = 0.5 + 0.5 * erf(distance / (np.sqrt(2) * max(sigma, 1e-6)))
    return result


def disc_step(distance: Array, radius: float) -> Array:
    """A step from 0 to 1, blurred by a disc."""
    t = (distance / max(radius, 1e-6)).clip(-1, 1)
    result: Array = 0.5 + (t * np.sqrt(1 - t**2) + np.arcsin(t)) / np.pi
    return result


def find_edges(grey: Array, valid: Array, noise: float) -> Edges:
    """All straight edges whose profile is a blurred step."""
    from scipy.ndimage import distance_transform_edt

    room = distance_transform_edt(np.pad(valid, 1))[1:-1, 1:-1]
    taken = np.zeros(grey.shape, bool)
    found: list[tuple[Array, Measured]] = []
    for scale in SCALES:
        lines = _segments(grey, valid, noise, scale)
        for start, end in lines[: MOST_EDGES // len(SCALES)]:
            middle = (start + end) / 2
            column, row = np.round(middle).astype(int)
            if taken[row, column]:
                continue
            edge = _measured(grey, room, noise, start, end)
            if edge is not None:
                found.append((middle, edge))
                reach = max(3, int(np.linalg.norm(end - start) / 2))
                taken[max(0, row - reach) : row + reach + 1, max(0, column - reach) : column + reach + 1] = True
    if not found:
        none = np.zeros(0)
        return Edges(np.zeros((0, 2)), none, none, none, none, np.zeros((0, 2)), ())
    return Edges(
        np.array([middle for middle, _ in found]),
        np.array([edge.sigma for _, edge in found]),
        np.array([edge.radius for _, edge in found]),
        np.array([edge.error for _, edge in found]),
        np.array([edge.contrast for _, edge in found]),
        np.array([edge.misfit for _, edge in found]),
        tuple(edge.profile for _, edge in found),
    )


def _segments(grey: Array, valid: Array, noise: float, scale: float) -> list[tuple[Array, Array]]:
    """Straight pieces (start, end as x, y) of the ridges of the gradient, the longest first."""
    from scipy.ndimage import gaussian_filter
    from skimage.feature import canny
    from skimage.transform import probabilistic_hough_line

    # Noise of the gradient of a Gaussian of this width: sigma / (sqrt(8 pi) scale^2).
    low = 4 * noise / (np.sqrt(8 * np.pi) * scale**2)
    gradient = np.hypot(*(gaussian_filter(grey, scale, order=o) for o in ((0, 1), (1, 0))))
    high = max(2 * low, float(np.percentile(gradient[valid], 85)) if valid.any() else 0.0)
    ridges = canny(grey, scale, low_threshold=8 * max(low, high / 3), high_threshold=8 * high, mask=valid)
    length = max(8, round(5 * scale))
    lines = probabilistic_hough_line(ridges, threshold=length, line_length=length, line_gap=1, rng=0)
    pieces = [(np.array(a, float), np.array(b, float)) for a, b in lines]
    longest = 6 * length
    cut = []
    for a, b in pieces:  # long edges give several measurements
        count = max(1, int(np.linalg.norm(b - a) // longest))
        cut += list(pairwise(np.linspace(a, b, count + 1)))
    return sorted(cut, key=lambda line: -float(np.linalg.norm(line[1] - line[0])))


def _measured(grey: Array, room: Array, noise: float, start: Array, end: Array) -> Measured | None:
    """Sigma, radius, relative error, misfits and profile of an edge; None if it is no blurred step."""
    for reach in REACHES:
        profile = _profile(grey, room, start, end, reach)
        if profile is None:
            return None
        distance, values, count = profile
        fit = _fitted(distance, values, count, noise)
        if fit is None:
            return None
        if fit.sigma < FLAT_FROM * reach:  # flat on both sides within the profile
            return fit
    return None


def _profile(grey: Array, room: Array, start: Array, end: Array, reach: float) -> tuple[Array, Array, Array] | None:
    """Means over bins of the distance from the line through a segment, turned so that they become steepest."""
    middle, length = (start + end) / 2, float(np.linalg.norm(end - start))
    box = int(np.ceil(np.hypot(reach, length / 2))) + 1
    column, row = np.round(middle).astype(int)
    top, left = max(0, row - box), max(0, column - box)
    rows, columns = np.mgrid[top : min(grey.shape[0], row + box + 1), left : min(grey.shape[1], column + box + 1)]
    x, y = columns - middle[0], rows - middle[1]
    angle = float(np.arctan2(*(end - start)[::-1]))
    best: tuple[float, Array, Array, Array] | None = None
    for turn in np.deg2rad(np.linspace(-4, 4, 9)):
        ux, uy = np.cos(angle + turn), np.sin(angle + turn)
        along, across = x * ux + y * uy, y * ux - x * uy
        inside = (np.abs(along) <= length / 2) & (np.abs(across) < reach)
        if (room[rows[inside], columns[inside]] < 1).any() or inside.sum() < 1.6 * reach * length:
            return None  # off the picture or over holes
        bins = np.floor((across[inside] + reach) * BINS).astype(int)
        count = np.bincount(bins, minlength=int(2 * reach * BINS))
        used = count > 0
        values = np.bincount(bins, grey[rows, columns][inside], minlength=len(count))[used] / count[used]
        distance = np.bincount(bins, across[inside], minlength=len(count))[used] / count[used]
        steep = float(np.square(np.diff(values)).sum())
        if best is None or steep > best[0]:
            best = steep, distance, values, count[used]
    assert best is not None  # nine turns were tried
    return best[1:]


def _fitted(distance: Array, values: Array, count: Array, noise: float) -> Measured | None:
    from scipy.optimize import least_squares

    ends = max(2, len(values) // 6)
    step = float(values[-ends:].mean() - values[:ends].mean())
    if abs(step) < CONTRAST * noise / np.sqrt(count.sum() / len(count)) or abs(step) < 3 * noise:
        return None
    scaled, error = (values - values[:ends].mean()) / step, noise / abs(step) / np.sqrt(count)
    error = np.hypot(error, 0.01)
    widths, misfits, relative = [], [], 0.0
    for shape, first in ((gaussian_step, 1.0), (disc_step, 2.0)):

        def left(p: Array, shape: object = shape) -> Array:
            return (p[2] + p[3] * shape(distance - p[0], np.exp(p[1])) - scaled) / error  # type: ignore[operator]

        start = np.array([0.0, np.log(first * max(1.0, distance[-1] / 8)), 0.0, 1.0])
        fit = least_squares(left, start, method="lm", max_nfev=60)
        widths.append(float(np.exp(fit.x[1])))
        misfits.append(float((fit.fun**2).mean()))
        if shape is gaussian_step:
            spread = np.linalg.pinv(fit.jac.T @ fit.jac)
            relative = float(np.sqrt(spread[1, 1] * max(1.0, misfits[0])))
            off = float(np.sqrt(((fit.fun * error) ** 2).mean()))
            middle = float(fit.x[0])
    if min(off, 1.0) > STRAIGHT + 2 * noise / abs(step) or abs(middle) > 0.3 * distance[-1] or relative > 0.3:
        return None
    return Measured(
        widths[0], widths[1], relative, abs(step) / noise, (misfits[0], misfits[1]), (distance - middle, scaled)
    )
