"""Stars as single points between the pixels: flux, place and width by least squares on the pixels around each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from pnpladmm.pictures.arrays import Array
from pnpladmm.solvers import Problem
from pnpladmm.solvers.source_atoms import widened

TAPS = 8
"""Half the width of the interpolation that puts a point between pixels."""
LONGEST = 0.5
"""Pixels by which a place changes in one step at most."""
LARGEST_MISFIT, LARGEST_EXCESS = 0.1, 4.0
"""What differs from a star by more than this share of its light, and by more than noise of so many times the variance,
is none: a galaxy, or a PSF that does not fit."""

Spread: TypeAlias = Callable[[float, float], tuple[Array, Array, Array]]
"""From a place (row, column) between pixels to rows, columns and their values."""


@dataclass
class Star:
    """What is known of a star in the observation."""

    picture: int
    channel: int
    row: float
    column: float
    flux: float
    pixels: tuple[Array, Array] | None = None
    """Where its light was in a picture before."""
    before: tuple[float, float, float] | None = None
    """Row, column and flux there."""
    fits: bool = False
    """Does it look like a star there?"""
    error: float = np.inf
    """The noise of the flux."""
    width: float = 0.0
    """By how much it is wider than all are taken for: a variance in pixels squared."""
    width_error: float = np.inf


def fit_stars(
    problem: Problem, stars: list[Star], y: Array, p: Array, reach: int, steps: int, width: Tensor | None = None
) -> list[Star]:
    """The stars after a few steps of Gauss and Newton, each on the pixels within `reach` that are nearest to it.

    `y` is the observation without everything else, `p` the precision of its pixels. `width` (B,) is the variance that
    all of them have.
    """
    for left in range(steps - 1, -1, -1):
        spreads = (between, _downward, _across) if left else (between, _downward, _across, _wider)
        parts = [problem.operator.forward(picture_of(problem, stars, one, width)) for one in spreads]
        looks = [part.double().cpu().numpy() for part in parts]
        for star, there in zip(stars, _windows(stars, y.shape, reach), strict=True):
            at = (star.picture, star.channel, *there)
            weight = np.sqrt(p[at])
            columns = np.stack([*(look[at] for look in looks), np.ones_like(weight)], 1) * weight[:, None]
            wanted = (y[at] - looks[0][at]) * weight
            if not left:
                _measure_width(star, columns, wanted)
                columns = np.delete(columns, 3, 1)
            _improve(star, columns, wanted)
    return stars


def _improve(star: Star, columns: Array, wanted: Array) -> None:
    """One step, and whether it is a star, by the star, its slopes and the sky."""
    covariance = np.linalg.pinv(columns.T @ columns, hermitian=True)
    step = covariance @ (columns.T @ wanted)
    star.error = float(star.flux * np.sqrt(covariance[0, 0]))
    star.flux *= 1 + max(-0.5, min(1.0, step[0]))
    star.row += max(-LONGEST, min(LONGEST, step[1]))
    star.column += max(-LONGEST, min(LONGEST, step[2]))
    left, light = wanted - columns @ step, columns[:, 0]
    allowed = max(LARGEST_MISFIT**2 * (light**2).sum(), LARGEST_EXCESS * (light != 0).sum())
    star.fits = bool(star.flux > 0 and (left**2).sum() < allowed)


def _measure_width(star: Star, columns: Array, wanted: Array) -> None:
    covariance = np.linalg.pinv(columns.T @ columns, hermitian=True)
    star.width = float((covariance @ (columns.T @ wanted))[3])
    star.width_error = float(np.sqrt(covariance[3, 3])) or np.inf


def _windows(stars: list[Star], shape: tuple[int, ...], reach: int) -> list[tuple[Array, Array]]:
    """The pixels around each star to which no other is nearer."""
    from scipy.spatial import cKDTree

    # Far apart, so that stars of other pictures and channels are no neighbours.
    layer = [4 * reach * (star.picture * shape[1] + star.channel) for star in stars]
    places = np.array([(star.row, star.column) for star in stars])
    near = cKDTree(np.column_stack([places, layer])).query_ball_point(np.column_stack([places, layer]), 2 * reach)
    found = []
    for i, (row, column) in enumerate(places):
        rows, columns = np.mgrid[
            max(0, round(row) - reach) : min(shape[2], round(row) + reach + 1),
            max(0, round(column) - reach) : min(shape[3], round(column) + reach + 1),
        ]
        rows, columns = rows.ravel(), columns.ravel()
        distance = np.hypot(rows - row, columns - column)
        nearest = distance <= reach
        for j in near[i]:
            if j != i:
                nearest &= distance <= np.hypot(rows - places[j, 0], columns - places[j, 1])
        found.append((rows[nearest], columns[nearest]))
    return found


def picture_of(problem: Problem, stars: list[Star], spread: Spread, width: Tensor | None = None) -> Tensor:
    """A picture of the stars with the variances `width` (B,); `spread` puts a point between pixels on them."""
    picture = np.zeros(problem.shape)
    top, left = problem.operator.crop_offset or (0, 0)
    for star in stars:
        rows, columns, values = spread(star.row + top, star.column + left)
        inside = (rows >= 0) & (rows < picture.shape[2]), (columns >= 0) & (columns < picture.shape[3])
        at = np.ix_(rows[inside[0]], columns[inside[1]])
        picture[star.picture, star.channel][at] += star.flux * values[np.ix_(*inside)]
    points = torch.from_numpy(picture)
    return (points if width is None else widened(points, width, 1)).to(problem.observed)


def _taps(place: float) -> tuple[Array, Array, Array, Array]:
    """Pixels around a place, the values of a point there by a windowed sinc, and their derivatives as it moves."""
    middle = round(place)
    pixels = np.arange(middle - TAPS, middle + TAPS + 1)

    def values(at: float) -> Array:
        distance = pixels - at
        window = np.cos(np.pi * distance / (2 * TAPS + 2)) ** 2
        found: Array = np.sinc(distance) * window
        return found / found.sum()

    here, before, after = values(place), values(place - 0.01), values(place + 0.01)
    return pixels, here, (after - before) / 0.02, (after + before - 2 * here) / 0.01**2


def between(row: float, column: float) -> tuple[Array, Array, Array]:
    """What a point looks like through a PSF that is known on the pixels."""
    (rows, down, _, _), (columns, across, _, _) = _taps(row), _taps(column)
    return rows, columns, np.outer(down, across)


def _downward(row: float, column: float) -> tuple[Array, Array, Array]:
    (rows, _, slope, _), (columns, across, _, _) = _taps(row), _taps(column)
    return rows, columns, np.outer(slope, across)


def _across(row: float, column: float) -> tuple[Array, Array, Array]:
    (rows, down, _, _), (columns, _, slope, _) = _taps(row), _taps(column)
    return rows, columns, np.outer(down, slope)


def _wider(row: float, column: float) -> tuple[Array, Array, Array]:
    """Half the Laplacian: what a point gains with each pixel squared of variance."""
    (rows, down, _, bend), (columns, across, _, bow) = _taps(row), _taps(column)
    return rows, columns, (np.outer(bend, across) + np.outer(down, bow)) / 2


def shared(row: float, column: float) -> tuple[Array, Array, Array]:
    """The light is shared by the four pixels around the place."""
    top, left = int(np.floor(row)), int(np.floor(column))
    down, right = row - top, column - left
    return np.array([top, top + 1]), np.array([left, left + 1]), np.outer([1 - down, down], [1 - right, right])
