"""Stars whose cores are saturated: one point each, fitted to the wings before anything else is restored.

Where only wings are seen, less light that is more spread out has the same wings, and a sum of sources prefers less
light. So a saturated star lost up to a third of its flux. Here each core gets a flux and a place between the pixels, by
least squares on the pixels around it that count. What it looks like blurred is taken off the observation, and the star
comes back into the picture at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pnpladmm.restoration.point_fit import Star, between, fit_stars, picture_of, shared
from pnpladmm.restoration.policy import Prepared
from pnpladmm.solvers import Problem, Result

LEAST_SIDE, LARGEST = 3, 600
"""A core holds a square of this side, and has at most so many pixels: dead columns and missing areas are none."""
RIM = 5
"""Pixels around a core to which the light of its star was spread in a first run."""
REACH = 14
"""Pixels from the star to which it is fitted."""
STEPS = 8
BRIGHT = 100.0
"""Times the noise of the sky: the light that a core has at least, in the mean of its pixels."""


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
    stars = [star for star in fit_stars(problem, stars, y, p, REACH, STEPS) if star.fits]
    if not stars:
        return None
    shown = picture_of(problem, stars, shared)
    return HiddenStars(len(stars), shown, problem.operator.forward(picture_of(problem, stars, between)))


def _cores(problem: Problem, image: Tensor, precision: Tensor) -> Iterator[Star]:
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
            yield Star(b, c, row, column, flux, (rows, columns))


def _take_out(problem: Problem, image: Tensor, star: Star) -> None:
    """Take the light of a core off the picture: what stays is what is around it."""
    top, left = problem.operator.crop_offset or (0, 0)
    assert star.pixels is not None
    rows, columns = (torch.from_numpy(place) + shift for place, shift in zip(star.pixels, (top, left), strict=True))
    plane = image[star.picture, star.channel]
    near = plane[
        max(0, int(rows.min()) - RIM) : int(rows.max()) + RIM + 1,
        max(0, int(columns.min()) - RIM) : int(columns.max()) + RIM + 1,
    ]
    plane[rows, columns] = near.median()
