"""Methods with a schedule, tile by tile: each tile with a halo, blended with its neighbours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from pnpladmm.allocator import give_back
from pnpladmm.data_terms import DataTerm, WeightedGaussian
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.operators.division import Division, mean_precision
from pnpladmm.operators.misfit import Point, misfit, worst_places
from pnpladmm.solvers import Annealed, Method, Problem, Result, Status, solve
from pnpladmm.solvers.loop import Callback, Progress
from pnpladmm.solvers.side_by_side import Part, find_step_lengths
from pnpladmm.tiling.geometry import Grid, Span, Tile, taken
from pnpladmm.tiling.history import joined_history
from pnpladmm.tiling.samples import coarse, sample_places, unseen
from pnpladmm.tiling.seams import OtherSteps, Overlaps, Seams, measure_seams
from pnpladmm.tiling.window import WindowBlur, window_for_scene

POINTS = 24
"""Along each axis of the picture, where the fit of the preconditioner is looked at."""


@dataclass(frozen=True)
class TiledResult:
    """A result in tiles."""

    result: Result
    seams: Seams | None
    """None where there are none, and where the run was stopped."""


@dataclass(frozen=True)
class Whole:
    """A picture that is restored in parts, with all that is decided once for all of them."""

    problem: Problem
    """Its operator is not applied to the whole picture."""
    blur: SpatiallyVaryingBlur
    method: Method[Any]
    iterations: int
    tolerance: float
    division: tuple[Division, ...] | None = None
    """The regions of the whole picture, for the preconditioners of the tiles."""
    other: tuple[Method[Any], float, tuple[int, int] | None] | None = None
    """The method with the steps of fewer samples, and what `OtherSteps` needs beside it."""

    @property
    def seen(self) -> tuple[Span, Span]:
        """The rows and columns of the scene that are the picture."""
        (top, left), (height, width) = self.blur.crop_offset or (0, 0), self.blur.observed
        return (top, top + height), (left, left + width)

    def paced(self, grid: Grid) -> Whole:
        """The same, with step lengths of conjugate gradient for all tiles, found on samples of the picture."""
        if not isinstance(self.method, Annealed):
            return self
        whole = replace(self, division=self._divided())
        worst = whole._worst_places()
        places = sample_places(grid, self.blur.boundary == "circular", worst)
        parts = [Part(whole.problem_of(place.rows, place.columns), place.share, place.stays) for place in places]
        method, fewer = (replace(self.method, step_lengths=one) for one in find_step_lengths(self.method, parts))
        pixel = worst[0].pixel(grid.size) if worst else None
        return replace(whole, method=method, other=(fewer, unseen(places, grid.size), pixel))

    def _divided(self) -> tuple[Division, ...]:
        """The regions of the pictures and the mean precision in each."""
        weights = [coarse(one) for one in self.blur.weights.squeeze(2)]
        divisions = [Division.of(one) for one in weights]
        if not isinstance(self.problem.data_term, WeightedGaussian):
            return tuple(divisions)
        observed = self.problem.observed
        p = self.problem.data_term.precision_of(observed).expand_as(observed)
        p = adaptive_avg_pool2d(p, (weights[0].shape[-2], weights[0].shape[-1]))
        own = [p] if len(weights) == 1 else [one[None] for one in p]
        return tuple(
            replace(found, precision=mean_precision([found.regions(one)], [q], [torch.ones(())]))
            for found, one, q in zip(divisions, weights, own, strict=True)
        )

    def _worst_places(self) -> list[Point]:
        """Where the filters of the preconditioner fit worst, in any of the pictures."""
        found, every = [], self.blur.weights.squeeze(2)
        for kernels, weights, division in zip(self.blur.kernels, every, self.division or (), strict=True):
            fields = torch.cat([division.regions(coarse(weights)), coarse(weights).double()])
            down, across = (torch.linspace(0, n - 1, POINTS).round().long() for n in fields.shape[-2:])
            there = fields.cpu()[:, down][:, :, across].flatten(1).T
            count = len(fields) - len(weights)
            fit = misfit(kernels.cpu(), division.gram.cpu(), there[:, count:], there[:, :count])
            found.append(fit.view(POINTS, POINTS))
        return worst_places(torch.stack(found).amax(0))

    def problem_of(self, rows: Span, columns: Span) -> Problem:
        """A part of the scene as a problem of its own, with what was decided for the whole."""
        local = window_for_scene(self.blur, rows, columns, self.division)
        observed = taken(self.problem.observed, *local.observed_span)
        term = term_of_part(self.problem.data_term, self.problem.observed, local)
        problem = Problem(observed.contiguous(), local, term)
        # The mixtures of the colours, and the steps that each gets, are those of the whole picture.
        vars(problem)["colour_planes"] = self.problem.colour_planes
        return problem

    def solve(self, rows: Span, columns: Span, callback: Callback | None = None) -> Result:
        """Restore a part of the scene by itself, with the settings of the whole."""
        problem = self.problem_of(rows, columns)
        return solve(problem, self.method, self.iterations, self.tolerance, callback=callback)


def solve_in_tiles(whole: Whole, grid: Grid, callback: Callback | None = None) -> TiledResult:
    """Restore a picture tile by tile, and measure the seams against parts that no tile divides.

    Ctrl-C, or a callback that returns True, leaves the tiles as they were that are not finished.
    """
    problem, whole = whole.problem, whole.paced(grid)
    image = torch.zeros(problem.shape, dtype=problem.observed.dtype, device=problem.observed.device)
    results: list[Result] = []
    overlaps = Overlaps(whole.seen)
    for number, tile in enumerate(grid):
        if results and results[-1].status is Status.STOPPED:
            # Not restored: as it was given.
            _put(image, tile, taken(problem.default_start(), *tile.extent))
            continue
        give_back()  # tiles differ in size: what the last one left is in the way
        done = whole.solve(*tile.extent, _counted(callback, number, len(grid)))
        _put(image, tile, done.image)
        overlaps.add(tile, done.image[(..., *tile.inside)])
        results.append(replace(done, image=done.image[..., :0, :0], state=replace(done.state, **_no_tensors(done))))
    stopped = results[-1].status is Status.STOPPED
    give_back()
    seams = None if stopped or len(grid) == 1 else _seams(image, grid, whole, overlaps)
    return TiledResult(_joined(results, image), seams)


def _seams(image: Tensor, grid: Grid, whole: Whole, overlaps: Overlaps) -> Seams:
    def tiled(rows: Span, columns: Span) -> Tensor:
        return taken(image, rows, columns)

    def untiled(rows: Span, columns: Span) -> Tensor:
        return whole.solve(rows, columns).image

    if whole.other is None:
        return measure_seams(tiled, untiled, grid, overlaps)
    method, weight, place = whole.other
    fewer = replace(whole, method=method)
    other = OtherSteps(lambda *part: fewer.solve(*part).image, weight, place)
    return measure_seams(tiled, untiled, grid, overlaps, other)


def term_of_part(term: DataTerm, observed: Tensor, window: WindowBlur) -> DataTerm:
    """The data term of a part of the observation."""
    if not isinstance(term, WeightedGaussian):
        return term
    precision = term.precision_of(observed).expand_as(observed)
    local = taken(precision, *window.observed_span)
    # A tile without any pixel that counts: the start is as good as anything, and the noise there is infinite.
    return WeightedGaussian(local if bool(local.any()) else local + torch.finfo(local.dtype).tiny)


def _put(image: Tensor, tile: Tile, part: Tensor) -> None:
    """Add a tile's share of the picture."""
    image[(..., *tile.written)] += tile.share(part) * part[(..., *tile.inside)]


def _counted(callback: Callback | None, number: int, count: int) -> Callback | None:
    """The callback, told which tile it is."""
    if callback is None:
        return None

    def call(step: Progress) -> bool | None:
        return callback(replace(step, tile=number, tiles=count))

    return call


def _no_tensors(done: Result) -> dict[str, Any]:
    """The state of a tile without its pictures, which would fill the memory."""
    empty = done.state.x[..., :0, :0]
    return {name: empty for name, value in vars(done.state).items() if isinstance(value, Tensor)}


def _joined(results: list[Result], image: Tensor) -> Result:
    """One result of all tiles: the worst status of each picture, the sums and maxima of the histories."""
    order = list(Status)
    statuses = tuple(max(column, key=order.index) for column in zip(*(r.statuses for r in results), strict=True))
    return replace(
        results[0],
        image=image,
        statuses=statuses,
        history=joined_history([r.history for r in results]),
        state=replace(results[0].state, x=image),
    )
