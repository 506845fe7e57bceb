"""A blur from a sharp picture of the same scene: of a burst, another focus, or a calibration chart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from pnpladmm.blur import Blur, Estimate
from pnpladmm.blur.arrays import Array
from pnpladmm.estimate.drawings import kernel_sheet, pair_sheet
from pnpladmm.estimate.kernel_fields import APART as NEIGHBOURS_APART
from pnpladmm.estimate.kernel_fields import (
    GRIDS,
    PER_NODE,
    Field,
    cut_off,
    finished,
    grid_of_kernels,
    left_over,
    one_kernel,
    typical_error,
    unexplained,
    wide_enough,
)
from pnpladmm.estimate.pair import Pair, brighter, match
from pnpladmm.estimate.psf_field import blur_of_grid, lattice, places_of, uniform_blur
from pnpladmm.estimate.regions import refined, regions_of_kernels
from pnpladmm.estimate.scene import Scene, check_side, chosen_page, read_pages
from pnpladmm.estimate.way import WAYS, Tell, Way
from pnpladmm.estimate.words import listed, where
from pnpladmm.tensors import InputError

FIELDS = ("auto", "one", "grid", "regions")
BETTER = 0.004
"""Relative gain in the residual of hidden pixels that a more complicated field must bring."""
EXPLAINED = 1.01
"""Squared residual over the noise below which nothing more complicated is tried."""
WEAK = 0.1
"""Relative error of a kernel above which a place is reported."""
LOOKED_AT = 5
"""Places along the longer side at which the confidence is given."""
PATIENCE = 2
"""More regions in a row without a gain after which the search ends."""
POINT = 0.3
"""Pixels: a kernel whose light lies closer to its centre (root mean square) is a point."""
MOST_LABELS = 2**22
"""Pixels times regions up to which outlines are fitted: a few minutes."""
IN_COMMON = 1.5
"""Errors of the kernels of regions, relative to those that two halves show: both have the outlines and the prior."""
UNLIKE = 1.3
"""Residual over the noise from which the pictures differ by more than a blur."""


@WAYS.register("sharp")
@dataclass(frozen=True)
class Sharp(Way):
    """Kernels that turn a sharp picture into the blurred one: one, a grid, or regions that are found.

    Parameters
    ----------
    sharp : path, array or Picture
        The same scene, sharp, with as many pixels.
    side : int, optional
        Side of the kernels, odd; found if not given.
    field : {"auto", "one", "grid", "regions"}
        How the blur changes over the picture; `auto` takes what predicts best the pixels it has not seen.

    Examples
    --------
    >>> import numpy as np, pnpladmm as pl
    >>> scene = np.random.default_rng(0).random((64, 64))
    >>> shaken = (scene + np.roll(scene, 1, 0) + np.roll(scene, -1, 0)) / 3
    >>> kernel = pl.estimate_blur(shaken, "sharp", sharp=scene, field="one").kernels[0, 0]
    >>> middle = kernel.shape[0] // 2
    >>> [round(float(v), 2) for v in kernel[middle - 2 : middle + 3, middle]]
    [0.0, 0.33, 0.33, 0.33, 0.0]
    """

    sharp: Any
    side: int | None = None
    field: str = "auto"

    switch: ClassVar[str | None] = "sharp"

    def __post_init__(self) -> None:
        check_side("side", self.side)
        if self.field not in FIELDS:
            raise InputError(f"field = {self.field!r}: choose one of {', '.join(FIELDS)}")

    def estimate(self, scene: Scene, tell: Tell) -> Blur:
        """The blur, with its error from two halves of the pixels."""
        tell("match", 0.0)
        pages = read_pages(self.sharp, None, scene.linear, None)
        given, other = (np.dtype(picture.dtype) for picture in (scene.picture, pages[0].picture))
        if scene.saturation is not None and (given == other or given.kind == other.kind == "f"):  # in the same numbers
            pages = read_pages(self.sharp, None, scene.linear, scene.saturation)
        reference = chosen_page(pages, 0 if len(pages) == 1 else scene.page, pages[0].name)
        assert reference is not None  # a page was named
        pair = match(scene, reference, self.side)
        seen = np.random.default_rng(0).random(scene.size) < 0.5
        tell("one kernel", 0.1)
        start = one_kernel(pair, seen)
        for _ in range(2):  # the brightness is known once the blur is, and the other way round
            pair = brighter(pair, start.shown(pair.sharp))
            start = one_kernel(pair, seen, start.priors[0])
        # What a kernel explains was no noise, however fine it looks.
        pair = replace(pair, noise=min(pair.noise, typical_error(pair, start, ~seen)))
        field, tried = self._chosen(pair, seen, start, tell)
        if self.side is None:  # it suits the kernel of the largest region
            pair, field = wide_enough(pair, field)
        pair = replace(pair, noise=min(pair.noise, typical_error(pair, field, ~seen)))
        misfit = unexplained(pair, field, ~seen)
        if _has_outlines(field) and field.weights.size <= MOST_LABELS:
            field = refined(pair, seen, field, tell)
            misfit = unexplained(pair, field, pair.valid)
        tell("all pixels", 0.9)
        field, errors = finished(pair, seen, field)
        if _has_outlines(field):
            errors = IN_COMMON * errors
        return _blur(scene, pair, field, errors, misfit, tried)

    def _chosen(self, pair: Pair, seen: Array, start: Field, tell: Tell) -> tuple[Field, list[tuple[str, float]]]:
        """The simplest field that predicts the hidden pixels as well as the best, and what was tried."""
        best, error = start, float(left_over(pair, start, ~seen).mean())
        tried = [("one kernel", error)]

        def better(field: Field) -> bool:
            nonlocal best, error
            new = float(left_over(pair, field, ~seen).mean())
            tried.append((field.kind, new))
            if gain := (new < error * (1 - BETTER)):
                best, error = field, new
            return gain

        wanted = self.field
        if wanted == "one" or (wanted == "auto" and error < EXPLAINED):
            return best, tried
        if wanted == "regions":
            error = np.inf
        if wanted in ("auto", "regions"):
            worse = 0
            for count, field in enumerate(regions_of_kernels(pair, seen, start)):
                tell(field.kind, 0.2 + 0.05 * min(count, 7))
                worse = 0 if better(field) else worse + 1
                if worse == PATIENCE:
                    break
        if wanted == "grid":
            error = np.inf
        if wanted == "grid" or (wanted == "auto" and best is start):
            for count, nodes in enumerate(g for g in GRIDS if pair.usable().sum() >= PER_NODE * g * g or g == 2):
                tell(f"grid of {nodes}", 0.6 + 0.1 * count)
                gains = [better(grid_of_kernels(pair, seen, start, nodes, apart)) for apart in NEIGHBOURS_APART]
                if not any(gains):
                    break
        return best, tried


def _blur(scene: Scene, pair: Pair, field: Field, errors: Array, misfit: float, tried: list[tuple[str, float]]) -> Blur:
    size, count = scene.size, len(field.kernels)
    words = f"a sharp reference, {field.kind}" if count > 1 else "a sharp reference, one kernel"
    if count == 1:
        blur = uniform_blur(field.kernels[0], size, words)
    elif field.apart:
        x, y = (np.unique(field.places[:, i]) for i in (0, 1))
        blur = blur_of_grid(field.kernels, x, y, size, words)
    else:
        blur = Blur(torch.from_numpy(field.kernels), torch.from_numpy(field.weights).float(), source=words)
    residual = typical_error(pair, field, np.ones(size, bool)) / pair.noise
    places = places_of(*lattice(size, LOOKED_AT))
    at = np.round(places).astype(int)
    error = (field.weights[:, at[:, 1], at[:, 0]] * errors[:, None]).sum(0)
    unseen = _unseen(pair, places)
    estimate = Estimate(
        "sharp",
        residual=residual,
        agreement=float(np.sqrt((errors**2).mean()) * 2),
        places=places,
        confidence=np.where(unseen, 0.2, 1.0) / (1 + (error / WEAK) ** 2),
        warnings=tuple(_warnings(scene, pair, field, residual, places, error, unseen)),
        figures={
            "Blurred, sharp, the sharp one blurred by what was found, and the difference (white: none)": pair_sheet(
                pair.blurred, pair.sharp, field.shown(pair.sharp), pair.noise
            ),
            "The kernels": kernel_sheet(field.kernels),
        },
    )
    share = field.weights.mean((1, 2))
    expected = float(np.sqrt((share * errors**2).sum() / share.sum() + misfit**2))
    return blur.noted(*_notes(pair, field, tried), uncertainty=expected, estimate=estimate)


def _has_outlines(field: Field) -> bool:
    return len(field.kernels) > 1 and not field.apart


def _unseen(pair: Pair, places: Array) -> Array:
    """Places around which the sharp picture shows nothing but noise."""
    from scipy.ndimage import gaussian_filter, uniform_filter

    detail = np.where(pair.usable(), (pair.sharp - gaussian_filter(pair.sharp, 2.0)) ** 2, 0)
    power = uniform_filter(detail, max(pair.side, min(pair.sharp.shape) // LOOKED_AT), mode="nearest")
    at = np.round(places).astype(int)
    result: Array = power[at[:, 1], at[:, 0]] < pair.noise**2
    return result


def _warnings(
    scene: Scene, pair: Pair, field: Field, residual: float, places: Array, error: Array, unseen: Array
) -> list[str]:
    found = []
    offset = np.arange(pair.side) - pair.side // 2
    distance = offset[:, None] ** 2 + offset[None, :] ** 2
    if float((field.kernels * distance).sum((1, 2)).max()) < POINT**2:
        found.append("the kernel is a point: the picture is as sharp as the reference")
    if residual > UNLIKE:
        found.append(
            f"a residual of {residual:.1f} times the noise: something else than blur differs between the pictures "
            "(motion, light, focus)"
        )
    if unseen.any():
        names = listed([where(x, y, scene.size) for x, y in places[unseen]])
        found.append(
            f"the sharp picture shows too little detail in the {names}: the blur there is taken from elsewhere"
        )
    weak = (error > WEAK) & ~unseen
    if weak.any():
        names = listed([where(x, y, scene.size) for x, y in places[weak]])
        found.append(f"the kernels are not well determined in the {names}: error {100 * error[weak].max():.0f} %")
    if _has_outlines(field) and field.weights.size > MOST_LABELS:
        height, width = scene.size
        found.append(
            f"outlines of regions are rough: {width}x{height} pixels are too many to fit them. Cut out what matters"
        )
    if cut_off(field):
        found.append(f"kernels of {pair.side} pixels may be cut off: give a larger side")
    return found


def _notes(pair: Pair, field: Field, tried: list[tuple[str, float]]) -> list[str]:
    pixels = int(pair.usable().sum())
    notes = [f"{field.kind if len(field.kernels) > 1 else 'one kernel'} of {pair.side} pixels from {pixels} pixels"]
    if any(pair.shift):
        notes.append(f"the sharp picture was moved by {pair.shift[1]} pixels to the right and {pair.shift[0]} down")
    notes.append(f"brightness: blurred = {pair.gain:.3f} * sharp + {pair.offset:.3f}")
    if len(tried) > 1:
        words = ", ".join(f"{kind} {error:.3f}" for kind, error in tried)
        notes.append(f"chosen by pixels left out (squared residual over the noise: {words})")
    return notes
