"""Stars that stand alone become single points: their flux and place are those of a least-squares fit.

The method `sources` makes a star of several points on half pixels. Together they may be a little wider or narrower
than one point, as the noise likes it, and the flux goes with the width: faint stars came out up to 3 %
too bright. So at the end such stars are taken off, and fitted again as one point each, with an exact place.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pnpladmm.pictures.arrays import Array
from pnpladmm.restoration.point_fit import Star, between, fit_stars, picture_of, shared
from pnpladmm.restoration.smoothing import smoothed
from pnpladmm.solvers import Problem, Result
from pnpladmm.solvers.source_atoms import SourceAtoms, shared_points
from pnpladmm.solvers.sources import WIDEST, Sources, SourcesState

CORE, ALONE = 2, 4
"""Pixels around the brightest one that hold the light of a star, and those in which there is no other sharp light."""
OTHERS, WIDE = 0.15, 0.05
"""Of the light of the points: what there may be of other points nearby, and of narrow spots."""
LEAST_WIDTH, UNSURE, FEWEST = 0.25, 0.5, 4
"""The least variance of sources that are no points: points that are shared by four pixels have 1/6. It is told by so
many stars at least that know theirs to `UNSURE`."""
OF_MEDIAN = 1.25
"""The noise of a median of n numbers is this times theirs, divided by the root of n."""
NARROW = 3
"""So many sizes of sources are narrow, the points among them."""
REACH, STEPS = 8, 4
CLEAR = 8.0
"""Times the noise of its flux: fainter stars stay as they are."""
CHANGE, WIDER = 0.3, 3.0
"""A star whose flux would change by more than this share stays as it is, and one that is wider or narrower than a point
by more than so many times the noise of its width: the PSF does not fit, or it is none."""


def with_single_stars(problem: Problem, result: Result) -> Result:
    """The result of `sources` with its stars as single points; as it was where it has none."""
    state, method = result.state, result.method
    if not isinstance(state, SourcesState) or not isinstance(method, Sources):
        return result
    atoms = method.atoms(problem)
    fitted = [star for star in _fitted(problem, atoms, state) if _is_better(star)]
    if not fitted:
        return result
    rest = _without(problem, atoms, state.light, fitted)
    x = atoms.shown(rest) + picture_of(problem, fitted, shared, atoms.shown_width)
    seen = problem.operator.forward(atoms.seen(rest) + picture_of(problem, fitted, between, atoms.width))
    return replace(result, image=x, state=replace(state, x=x, Hx=seen))


def common_width(problem: Problem, result: Result) -> Tensor | None:
    """By how much the small sources of each picture are wider than the PSF says: a variance in pixels squared, (B,).

    Beads and vesicles of a picture are about as large as each other. Each one tells its own width; the median counts.
    None where they are points.
    """
    state, method = result.state, result.method
    if not isinstance(state, SourcesState) or not isinstance(method, Sources):
        return None
    atoms = method.atoms(problem)
    stars = [
        star for star in _fitted(problem, atoms, state, points=False) if _is_clear(star) and star.width_error < UNSURE
    ]
    found = atoms.width.clone()
    for number in range(problem.pictures):
        known = np.array([(star.width, star.width_error) for star in stars if star.picture == number])
        if len(known) >= FEWEST:
            middle, error = np.median(known, 0)
            # Wide spots taken for points are a larger fault than points taken for wide spots: doubt is for the spots.
            unsure = OF_MEDIAN * error / np.sqrt(len(known))
            found[number] += float(max(middle, min(LEAST_WIDTH, middle + unsure)))
    # Once found it is only refined: the second estimate is about what the first one left.
    found = torch.where(atoms.width > 0, found.clamp_min(LEAST_WIDTH), found)
    found = torch.where(found >= LEAST_WIDTH, found.clamp_max(WIDEST), 0.0)
    return found if bool((found > 0).any()) else None


def _fitted(problem: Problem, atoms: SourceAtoms, state: SourcesState, points: bool = True) -> list[Star]:
    """The stars that stand alone, fitted to the observation without everything else.

    If they need not be `points`, spots of all sizes around them are taken for their light.
    """
    stars = _alone(problem, atoms, state.light, WIDE if points else 1.0)
    if not stars:
        return []
    sizes = NARROW if points else atoms.sizes
    rest = problem.operator.forward(atoms.seen(_without(problem, atoms, state.light, stars, sizes)))
    y = (problem.observed - rest).double().cpu().numpy()
    p = problem.precision_for("single stars").expand_as(problem.observed).double().cpu().numpy()
    return fit_stars(problem, stars, y, p, REACH, STEPS, atoms.width)


def _is_clear(star: Star) -> bool:
    return star.flux > CLEAR * star.error


def _is_better(star: Star) -> bool:
    assert star.before is not None
    moved = np.hypot(star.row - star.before[0], star.column - star.before[1])
    changed = abs(star.flux / star.before[2] - 1)
    is_point = abs(star.width) < WIDER * star.width_error
    return star.fits and is_point and _is_clear(star) and moved < 1 and changed < CHANGE


def _alone(problem: Problem, atoms: SourceAtoms, light: Tensor, wide: float) -> list[Star]:
    """Points that have no other sharp light around them, where the observation sees them.

    `wide` is what narrow spots there may have of their light.
    """
    points, *spots, _ = atoms.parts(light)
    sharp = shared_points(points)
    narrow = sum(spots[: NARROW - 1], torch.zeros_like(sharp))
    y = problem.observed
    sharp, narrow = (problem.crop_to_observed(part) for part in (sharp, narrow))
    if sharp.shape != y.shape:
        return []
    core, around = (_sums(sharp, radius) for radius in (CORE, CORE + ALONE))
    close = smoothed(sharp)
    peak = (close > 0) & (close == F.max_pool2d(close, 2 * CORE + 1, 1, CORE))
    peak &= (around - core < OTHERS * core) & (_sums(narrow, CORE) < wide * core)
    found = []
    planes = sharp.double().cpu().numpy()
    for b, c, row, column in peak.nonzero().tolist():
        if CORE <= row < y.shape[2] - CORE and CORE <= column < y.shape[3] - CORE:
            found.append(_star(planes[b, c], b, c, row, column))
    return found


def _star(plane: Array, picture: int, channel: int, row: int, column: int) -> Star:
    rows, columns = np.mgrid[row - CORE : row + CORE + 1, column - CORE : column + CORE + 1]
    light = plane[rows, columns]
    flux = float(light.sum())
    place = float((rows * light).sum() / flux), float((columns * light).sum() / flux)
    return Star(picture, channel, *place, flux, before=(*place, flux))


def _sums(values: Tensor, radius: int) -> Tensor:
    return F.avg_pool2d(values, 2 * radius + 1, 1, radius, divisor_override=1)


def _without(problem: Problem, atoms: SourceAtoms, light: Tensor, stars: list[Star], sizes: int = NARROW) -> Tensor:
    """The coefficients without points, and spots of the first sizes, where the stars are."""
    top, left = problem.operator.crop_offset or (0, 0)
    parts = [part.clone() for part in atoms.parts(light)]
    for star in stars:
        assert star.before is not None
        row, column = star.before[0] + top, star.before[1] + left
        for size, part in enumerate(parts[:sizes]):
            fine = 1 if size else 2
            r, k = round(fine * row), round(fine * column)
            reach = fine * CORE + 1 if size < NARROW else CORE + ALONE
            plane = part[star.picture, star.channel]
            plane[max(0, r - reach) : r + reach + 1, max(0, k - reach) : k + reach + 1] = 0
    return atoms.join(parts)
