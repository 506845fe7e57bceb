"""Stars whose cores are saturated: one point each, fitted to the wings before anything else is restored.

Where only wings are seen, less light that is more spread out has the same wings, and a sum of sources prefers less
light. So a saturated star lost up to a third of its flux. Here each core gets a flux and a place between the pixels, by
least squares on the pixels around it that count. What it looks like blurred is taken off the observation, and the star
comes back into the picture at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from pnpladmm.pictures.arrays import Array
from pnpladmm.restoration.policy import Prepared
from pnpladmm.solvers import Problem, Result

LEAST_SIDE, LARGEST = 3, 600
"""A core holds a square of this side, and has at most so many pixels: dead columns and missing areas are none."""
RIM = 5
"""Pixels around a core to which the light of its star was spread in a first run."""
REACH = 14
"""Pixels from the star to which it is fitted."""
TAPS = 8
"""Half the width of the interpolation that puts a point between pixels."""
STEPS = 8
LONGEST = 0.5
"""Pixels by which a place changes in one step at most."""
BRIGHT = 100.0
"""Times the noise of the sky: the light that a core has at least, in the mean of its pixels."""
LARGEST_MISFIT, LARGEST_EXCESS = 0.1, 4.0
"""A core whose wings differ from those of a star by more than this share, and by more than noise of so many times the
variance, is none: a galaxy, or a PSF that does not fit."""

Spread: TypeAlias = Callable[[float, float], tuple[Array, Array, Array]]
"""From a place (row, column) between pixels to rows, columns and their values."""


@dataclass(frozen=True)
class HiddenStars:
    """Stars that were found behind cores."""

    count: int
    shown: Tensor
    """Them as they come back into the picture, on the problem's own domain."""
    seen: Tensor
    """Them blurred, as they are in the observation."""

    def words(self) -> str:
        """A note."""
        what = "star is" if self.count == 1 else "stars are"
        return f"{self.count} saturated {what} fitted as points to the wings"


@dataclass
class _Star:
    """One core: where it is in the observation, and what is known of its star."""

    picture: int
    channel: int
    pixels: tuple[Array, Array]
    row: float
    column: float
    flux: float


def without_hidden_stars(prepared: Prepared, known: Prepared, first: Result) -> Prepared | None:
    """The problem without saturated stars, as a first run shows them; None where there are none.

    `known` has the noise of the pixels. Stars that were taken off before are fitted again.
    """
    prepared, first = with_hidden_stars(prepared, first)
    problem = prepared.problem
    stars = hidden_stars(replace(problem, data_term=known.problem.data_term), first.image)
    if stars is None:
        return None
    return replace(prepared, problem=replace(problem, observed=problem.observed - stars.seen), stars=stars)


def with_hidden_stars(prepared: Prepared, result: Result) -> tuple[Prepared, Result]:
    """The whole observation, and the picture with its stars."""
    stars, problem = prepared.stars, prepared.problem
    if stars is None:
        return prepared, result
    whole = replace(problem, observed=problem.observed + stars.seen)
    return replace(prepared, problem=whole, stars=None), replace(result, image=result.image + stars.shown)


def hidden_stars(problem: Problem, image: Tensor) -> HiddenStars | None:
    """The stars behind the cores of a problem, by a restoration `image` on its domain; None where there are none."""
    precision = problem.precision_for("hidden stars").expand_as(problem.observed)
    if problem.crop_to_observed(image).shape != problem.observed.shape or not bool((precision == 0).any()):
        return None
    stars = list(_cores(problem, image, precision))
    if not stars:
        return None
    rest = image.clone()
    for star in stars:
        _take_out(problem, rest, star)
    y = (problem.observed - problem.operator.forward(rest)).double().cpu().numpy()
    p = precision.double().cpu().numpy()
    stars = _fitted(problem, stars, y, p)
    if not stars:
        return None
    shown = _points(problem, stars, _shared)
    return HiddenStars(len(stars), shown, problem.operator.forward(_points(problem, stars, _between)))


def _cores(problem: Problem, image: Tensor, precision: Tensor) -> Iterator[_Star]:
    from scipy.ndimage import binary_dilation, binary_opening, label

    light = problem.crop_to_observed(image).double().cpu().numpy()
    hidden = (precision == 0).cpu().numpy()
    for b, c in np.ndindex(*hidden.shape[:2]):
        if hidden[b, c].all() or not hidden[b, c].any():
            continue
        plane = light[b, c] - np.median(light[b, c][~hidden[b, c]])
        noise = float(precision[b, c][precision[b, c] > 0].median()) ** -0.5
        square = np.ones((LEAST_SIDE, LEAST_SIDE), bool)
        found, count = label(binary_dilation(binary_opening(hidden[b, c], square), square) & hidden[b, c])
        for number in range(1, count + 1):
            core = found == number
            around = binary_dilation(core, iterations=RIM)
            rows, columns = np.nonzero(around)
            flux = plane[around].sum()
            if core.sum() > LARGEST or flux < BRIGHT * noise * core.sum():
                continue
            row, column = ((plane[around] * place).sum() / flux for place in (rows, columns))
            yield _Star(b, c, (rows, columns), row, column, flux)


def _take_out(problem: Problem, image: Tensor, star: _Star) -> None:
    """Take the light of a core off the picture: what stays is what is around it."""
    top, left = problem.operator.crop_offset or (0, 0)
    rows, columns = (torch.from_numpy(place) + shift for place, shift in zip(star.pixels, (top, left), strict=True))
    plane = image[star.picture, star.channel]
    near = plane[
        max(0, int(rows.min()) - RIM) : int(rows.max()) + RIM + 1,
        max(0, int(columns.min()) - RIM) : int(columns.max()) + RIM + 1,
    ]
    plane[rows, columns] = near.median()


def _fitted(problem: Problem, stars: list[_Star], y: Array, p: Array) -> list[_Star]:
    """The stars after a few steps of Gauss and Newton, each on the pixels nearest to it; those that are stars."""
    is_star = np.zeros(len(stars), bool)
    for _ in range(STEPS):
        parts = [problem.operator.forward(_points(problem, stars, one)) for one in (_between, _downward, _across)]
        seen, down, across = (part.double().cpu().numpy() for part in parts)
        for i, star in enumerate(stars):
            there = _window(stars, i, y.shape)
            at = (star.picture, star.channel, *there)
            weight = np.sqrt(p[at])
            columns = np.stack([seen[at], down[at], across[at], np.ones_like(weight)], 1) * weight[:, None]
            wanted = (y[at] - seen[at]) * weight
            step = np.linalg.lstsq(columns, wanted, rcond=None)[0]
            star.flux *= 1 + max(-0.5, min(1.0, step[0]))
            star.row += max(-LONGEST, min(LONGEST, step[1]))
            star.column += max(-LONGEST, min(LONGEST, step[2]))
            left, light = wanted - columns @ step, columns[:, 0]
            allowed = max(LARGEST_MISFIT**2 * (light**2).sum(), LARGEST_EXCESS * (weight > 0).sum())
            is_star[i] = star.flux > 0 and (left**2).sum() < allowed
    return [star for star, good in zip(stars, is_star, strict=True) if good]


def _window(stars: list[_Star], i: int, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """The pixels around a star to which no other is nearer."""
    star = stars[i]
    rows, columns = np.mgrid[
        max(0, round(star.row) - REACH) : min(shape[2], round(star.row) + REACH + 1),
        max(0, round(star.column) - REACH) : min(shape[3], round(star.column) + REACH + 1),
    ]
    rows, columns = rows.ravel(), columns.ravel()
    distance = np.hypot(rows - star.row, columns - star.column)
    nearest = distance <= REACH
    for j, other in enumerate(stars):
        if j != i and (other.picture, other.channel) == (star.picture, star.channel):
            nearest &= distance <= np.hypot(rows - other.row, columns - other.column)
    return rows[nearest], columns[nearest]


def _points(problem: Problem, stars: list[_Star], spread: Spread) -> Tensor:
    """A picture of the stars; `spread` puts a point between pixels on them."""
    picture = torch.zeros(problem.shape, dtype=torch.float64)
    top, left = problem.operator.crop_offset or (0, 0)
    for star in stars:
        rows, columns, values = spread(star.row + top, star.column + left)
        inside = (rows >= 0) & (rows < picture.shape[2]), (columns >= 0) & (columns < picture.shape[3])
        light = torch.from_numpy(star.flux * values[np.ix_(*inside)])
        plane = picture[star.picture, star.channel]
        plane[rows[inside[0]][:, None], columns[inside[1]]] += light
    return picture.to(problem.observed)


def _taps(place: float) -> tuple[Array, Array, Array]:
    """Pixels around a place, the values of a point there by a windowed sinc, and their slope when it moves."""
    middle = round(place)
    pixels = np.arange(middle - TAPS, middle + TAPS + 1)

    def values(at: float) -> Array:
        distance = pixels - at
        window = np.cos(np.pi * distance / (2 * TAPS + 2)) ** 2
        found: Array = np.sinc(distance) * window
        return found / found.sum()

    return pixels, values(place), (values(place + 0.01) - values(place - 0.01)) / 0.02


def _between(row: float, column: float) -> tuple[Array, Array, Array]:
    (rows, down, _), (columns, across, _) = _taps(row), _taps(column)
    return rows, columns, np.outer(down, across)


def _downward(row: float, column: float) -> tuple[Array, Array, Array]:
    (rows, _, slope), (columns, across, _) = _taps(row), _taps(column)
    return rows, columns, np.outer(slope, across)


def _across(row: float, column: float) -> tuple[Array, Array, Array]:
    (rows, down, _), (columns, _, slope) = _taps(row), _taps(column)
    return rows, columns, np.outer(down, slope)


def _shared(row: float, column: float) -> tuple[Array, Array, Array]:
    """The light is shared by the four pixels around the place."""
    top, left = int(np.floor(row)), int(np.floor(column))
    down, right = row - top, column - left
    return np.array([top, top + 1]), np.array([left, left + 1]), np.outer([1 - down, down], [1 - right, right])
