"""A blur from points: stars or beads in the picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pnpladmm.blur import Blur, Estimate, Table
from pnpladmm.blur.arrays import Array
from pnpladmm.blur.forms.places import read_positions
from pnpladmm.estimate.detection import Sky, Sources, find_sources, first_width, reasons, remove_background
from pnpladmm.estimate.drawings import star_sheet
from pnpladmm.estimate.psf_field import blur_of_grid, lattice, places_of, relative_l2, uniform_blur
from pnpladmm.estimate.scene import Scene, check_side
from pnpladmm.estimate.star_fit import Fitted, fit_stars
from pnpladmm.estimate.star_model import PsfField, fit_field
from pnpladmm.estimate.terms import FIELDS
from pnpladmm.estimate.way import WAYS, Tell, Way
from pnpladmm.estimate.words import listed, where
from pnpladmm.tensors import InputError

REACH = 3.6
"""FWHM: half the side of the kernels. Of a Moffat profile with exponent 3 all but 0.5 % of the light lies within."""
NODES = 11
"""Places along the longer side at which the PSF is computed; between them it is linear."""
LOOKED_AT = 5
"""Places along the longer side at which its error is estimated."""
FAR = 1 / 3
"""Of the longer side: without a star within this distance the PSF is extrapolated."""
WEAK = 0.05
"""Relative error of a PSF above which a place is reported."""
COARSE = 2.0
"""FWHM in pixels below which the picture samples the PSF too coarsely."""
FEW = 4
"""Fewer stars than this cannot be held against each other."""


@WAYS.register("points")
@dataclass(frozen=True)
class Points(Way):
    """Stars or beads: found, fitted together, and made into one PSF or a field of PSFs.

    Parameters
    ----------
    stars : "auto", path or array (N, 2)
        Find them, or take those near these places: a CSV with columns x, y, or an array, in pixels from 0.
    side : int, optional
        Side of the kernels, odd; 7 times the width of the stars if not given.
    field : {"auto", "one", "polynomial", "grid"}
        How the PSF changes over the picture; `auto` takes what predicts best the stars it has not seen.

    Examples
    --------
    >>> Points().field
    'auto'
    """

    stars: Any = "auto"
    side: int | None = None
    field: str = "auto"

    switch: ClassVar[str | None] = "stars"

    def __post_init__(self) -> None:
        check_side("side", self.side, least=7)
        if self.field not in FIELDS:
            raise InputError(f"field = {self.field!r}: choose one of {', '.join(FIELDS)}")

    def page(self, scenes: list[Scene]) -> Scene:
        """The sharpest page: the one whose brightest pixels stand out most."""
        tops = [
            float(np.sort(s.grey.ravel())[-max(5, s.grey.size // 2000) :].mean() - np.median(s.grey)) for s in scenes
        ]
        return scenes[int(np.argmax(tops))]

    def estimate(self, scene: Scene, tell: Tell) -> Blur:
        """The blur, as a table of stars with the reasons, and the errors over the field."""
        tell("background", 0.0)
        sky = remove_background(scene)
        sources, listed_here = self._sources(scene, sky)
        half = self._half(scene, sources.fwhm)
        why = [
            reason or ("" if known else "not in the list")
            for reason, known in zip(reasons(scene, sky, sources, half), listed_here, strict=True)
        ]
        if not any(not reason for reason in why):
            raise InputError(f"{scene.name}: none of {len(why)} points can be used: {_counted(why)}")
        fitted = fit_stars(sky, sources, why, half, self.field, tell)
        tell("errors", 0.9)
        return _blur(scene, fitted, half)

    def _sources(self, scene: Scene, sky: Sky) -> tuple[Sources, Array]:
        """All sources, and which of them are to be used."""
        if isinstance(self.stars, str) and self.stars.lower() == "auto":
            found = find_sources(scene, sky)
            return found, np.ones(len(found.places), bool)
        given = Path(self.stars) if isinstance(self.stars, str) else self.stars
        places, _ = read_positions(given)
        height, width = scene.size
        outside = (places < -0.5).any(1) | (places[:, 0] > width - 0.5) | (places[:, 1] > height - 0.5)
        if outside.all():
            raise InputError(f"{scene.name}: all {len(places)} places lie outside the {height}x{width} picture")
        return _matched(scene, sky, places[~outside])

    def _half(self, scene: Scene, fwhm: float) -> int:
        half = self.side // 2 if self.side is not None else max(5, int(np.ceil(REACH * fwhm)))
        most = (min(scene.size) - 1) // 4
        if half > most:
            if self.side is not None:
                raise InputError(f"side = {self.side}: at most {2 * most + 1} in a picture of {min(scene.size)} pixels")
            half = most
        return half


def _matched(scene: Scene, sky: Sky, places: Array) -> tuple[Sources, Array]:
    """The sources that were found, those near the given places marked; places without a source are added."""
    from scipy.spatial import cKDTree

    try:
        found = find_sources(scene, sky)
    except InputError:
        found = Sources(np.zeros((0, 2)), np.zeros(0), first_width(scene, sky))
    if not len(found.places):
        return Sources(places, np.ones(len(places)), found.fwhm), np.ones(len(places), bool)
    distance, index = cKDTree(found.places).query(places)
    near = distance < max(2.0, found.fwhm)
    marked = np.zeros(len(found.places), bool)
    marked[index[near]] = True
    alone = places[~near]
    return (
        Sources(
            np.concatenate([found.places, alone]),
            np.concatenate([found.flux, np.full(len(alone), np.median(found.flux))]),
            found.fwhm,
        ),
        np.concatenate([marked, np.ones(len(alone), bool)]),
    )


def _blur(scene: Scene, fitted: Fitted, half: int) -> Blur:
    size, count = scene.size, len(fitted.stars.flux)
    words = f"{count} point{'s' * (count != 1)}"
    if fitted.choice.terms.count == 1:
        blur = uniform_blur(
            kernels_at(fitted.field, np.array([[(size[1] - 1) / 2, (size[0] - 1) / 2]]))[0], size, words
        )
    else:
        x, y = lattice(size, NODES)
        blur = blur_of_grid(kernels_at(fitted.field, places_of(x, y)), x, y, size, f"{words}, {fitted.choice.terms}")
    places = places_of(*lattice(size, LOOKED_AT))
    errors = _errors(fitted, places)
    estimate = Estimate(
        "points",
        residual=float(np.sqrt(np.median(fitted.chi2))),
        agreement=None if errors is None else float(np.sqrt((errors**2).mean()) * 2),
        places=places,
        confidence=_confidence(fitted, errors, places, size),
        warnings=tuple(_warnings(scene, fitted, errors, places, half)),
        tables={"points": _table(fitted)},
        figures={"The brightest points: as seen, as fitted, and what is left": star_sheet(fitted)},
    )
    return blur.noted(*_notes(scene, fitted), uncertainty=_uncertainty(fitted, errors), estimate=estimate)


def kernels_at(field: PsfField, places: Array) -> Array:
    """Kernels (N, k, k) at places (N, 2): sum 1, none negative, the windowed centroid in the centre `k // 2`."""
    width = np.exp(field.terms.at(places) @ field.shape)[:, 0]
    shifts = np.zeros((len(places), 2))
    for _ in range(6):
        kernels = field.at(places, shifts)
        shifts -= 2 * _windowed_centroids(kernels, width)
    kernels = field.at(places, shifts).clip(0)
    result: Array = kernels / kernels.sum((1, 2), keepdims=True)
    return result


def _windowed_centroids(kernels: Array, fwhm: Array) -> Array:
    """Centroids (N, 2) under a Gaussian window of the width of the PSF: the noise of the wings does not move them."""
    offset = np.arange(kernels.shape[-1]) - kernels.shape[-1] // 2
    window = np.exp(-(offset[None, :] ** 2) * 4 * np.log(2) / fwhm[:, None] ** 2)
    weighted = kernels * window[:, :, None] * window[:, None, :]
    x, y = (weighted.sum(1) * offset).sum(1), (weighted.sum(2) * offset).sum(1)
    result: Array = np.stack([x, y], 1) / weighted.sum((1, 2))[:, None]
    return result


def _errors(fitted: Fitted, places: Array) -> Array | None:
    """The relative error of the PSF at places: half the difference of the PSFs of two halves of the stars."""
    count, terms = len(fitted.stars.flux), fitted.choice.terms
    if count < max(FEW, 2 * terms.count):
        return None
    order = np.argsort(fitted.stars.flux)[::-1]
    halves = [
        kernels_at(
            fit_field(fitted.stars.take(np.sort(order[i::2])), terms, fitted.field.beta, fitted.choice.tau), places
        )
        for i in (0, 1)
    ]
    return relative_l2(*halves) / 2


def _uncertainty(fitted: Fitted, errors: Array | None) -> float:
    """The expected relative l2 error of the PSF; of few stars what their noise makes of about 20 numbers."""
    if errors is not None:
        return float(np.sqrt((errors**2).mean()))
    stars = fitted.stars
    psf = fitted.field.at(stars.places, stars.shift)
    power = float((stars.weights * (stars.flux[:, None, None] * psf) ** 2).sum())
    return float(np.sqrt(20 / max(power, 1e-300) + 0.01**2))


def _confidence(fitted: Fitted, errors: Array | None, places: Array, size: tuple[int, int]) -> Array:
    """1 where the PSF is exact, 1/2 where its error is `WEAK`; half as much where no star is near."""
    values = 1 / (1 + ((errors if errors is not None else np.full(len(places), WEAK)) / WEAK) ** 2)
    values[_far(fitted, places, size)] *= 0.5
    return values


def _far(fitted: Fitted, places: Array, size: tuple[int, int]) -> Array:
    """Places far from all stars, where the PSF is not the same everywhere."""
    distance = np.linalg.norm(places[:, None] - fitted.stars.places[None], axis=-1).min(1)
    result: Array = (distance > FAR * max(size)) & (fitted.choice.terms.count > 1)
    return result


def _warnings(scene: Scene, fitted: Fitted, errors: Array | None, places: Array, half: int) -> list[str]:
    found = []
    count = len(fitted.stars.flux)
    if count < FEW:
        found.append(
            f"only {count} point{'s' * (count != 1)} could be used: whether the PSF changes over the picture is unknown"
        )
    far = [where(x, y, scene.size) for x, y in places[_far(fitted, places, scene.size)]]
    if far:
        found.append(f"no usable point near the {listed(far)}: the PSF there is extrapolated")
    if errors is not None and (errors > WEAK).any():
        weak = [where(x, y, scene.size) for x, y in places[errors > WEAK]]
        found.append(
            f"the points do not determine the PSF well in the {listed(weak)}: error {100 * errors.max():.0f} %"
        )
    width = float(np.exp(np.median(fitted.stars.shape[:, 0])))
    if width < COARSE:
        found.append(f"FWHM of {width:.2f} pixels: the picture samples the PSF too coarsely to know it between pixels")
    if np.median(fitted.chi2) > 2:
        found.append(
            f"the points differ from the PSF by {np.sqrt(np.median(fitted.chi2)):.1f} times the noise: they differ"
        )
    if half < np.ceil(REACH * width) - 1:
        found.append(f"kernels of {2 * half + 1} pixels cut off the wings of points of FWHM {width:.1f}")
    return found


def _notes(scene: Scene, fitted: Fitted) -> list[str]:
    width = float(np.exp(np.median(fitted.stars.shape[:, 0])))
    notes = [f"{len(fitted.stars.flux)} of {len(fitted.reasons)} points used, FWHM {width:.2f} pixels"]
    if scene.picture.pixels.shape[0] > 1:
        notes.append(f"page {scene.page} of {scene.picture.pixels.shape[0]}, counted from 0, was used")
    left_out = [reason for reason in fitted.reasons if reason]
    if left_out:
        notes.append(f"left out: {_counted(left_out)}")
    tried = ", ".join(f"{terms} {error:.3f}" for terms, _, error in fitted.choice.errors)
    if len(fitted.choice.errors) > 1:
        notes.append(f"{fitted.choice.terms} chosen by cross-validation (chi^2 of points left out: {tried})")
    return notes


def _counted(reasons_: list[str]) -> str:
    """Reasons with their numbers, the most frequent first."""
    short = [reason.partition(":")[0].partition(" (")[0] for reason in reasons_ if reason]
    counts = {reason: short.count(reason) for reason in dict.fromkeys(short)}
    return ", ".join(f"{n} {reason}" for reason, n in sorted(counts.items(), key=lambda item: -item[1]))


def _table(fitted: Fitted) -> Table:
    stars = fitted.sources
    rows = [
        (
            round(float(x), 3),
            round(float(y), 3),
            float(f"{flux:.5g}"),
            round(float(np.exp(shape[0])), 3),
            "no" if reason else "yes",
            reason,
        )
        for (x, y), flux, shape, reason in zip(stars.places, stars.flux, stars.shape, fitted.reasons, strict=True)
    ]
    return Table(("x", "y", "flux", "fwhm", "used", "reason"), tuple(rows))
