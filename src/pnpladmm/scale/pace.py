"""The steps of conjugate gradient that all tiles of a picture take, found on parts that are spread over it."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpladmm.files import write_text
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.operators.division import Division, mean_precision
from pnpladmm.operators.misfit import Point, misfit, worst_places
from pnpladmm.scale.decisions import Decisions
from pnpladmm.scale.source import Span, open_source
from pnpladmm.scale.task import Settings, annealed_for, operator_part, prepared_part
from pnpladmm.solvers.side_by_side import Part, find_step_lengths
from pnpladmm.solvers.step_lengths import StepLengths
from pnpladmm.tiling.geometry import Grid
from pnpladmm.tiling.samples import Place, sample_places, unseen

EACH = 32
"""Rows and columns of the weights that are kept of a sample."""
POINTS = 12
"""Along each axis of the picture, where the fit of the preconditioner is looked at."""
FILE = "pace.json"


@dataclass(frozen=True)
class Pace:
    """What tiles of the fast method have in common beside the decisions on the picture."""

    division: Division
    lengths: StepLengths = ()
    fewer: StepLengths = ()
    """Of fewer samples, to see how much the picture depends on them (`tiling/seams.py`)."""
    weight: float = 1.0
    place: tuple[int, int] | None = None

    def prepare(self, operator: SpatiallyVaryingBlur, rows: Span, columns: Span, size: tuple[int, int]) -> None:
        """Tell the blur of a part of the observation (H, W) of which whole it is a part."""
        every = torch.arange(operator.kernels.shape[1])
        operator.division = (self.division.part(rows, columns, size, every),)


def find_pace(settings: Settings, decisions: Decisions, grid: Grid) -> Pace | None:
    """One task: restore some parts of the picture side by side. None where no pixel of theirs counts."""
    places = sample_places(grid)
    operators = [operator_part(settings, decisions, place.rows, place.columns)[0] for place in places]
    pace = Pace(Division.of(_coarse(places, [operator.weights[0, :, 0] for operator in operators])))
    paced, parts, methods = replace(decisions, pace=pace), [], []
    worst = _worst_places(settings, paced) if operators[0].kernels.shape[1] > 1 else []
    places = sample_places(grid, needed=worst) if worst else places
    with open_source(settings.picture) as source:
        for place in places:
            prepared, blank = prepared_part(settings, paced, source, place.rows, place.columns)
            if not blank:
                problem, method = annealed_for(settings, paced, prepared.problem)
                parts.append(Part(problem, place.share, place.stays))
                methods.append(method)
    if not parts:
        return None
    pace = replace(pace, division=replace(pace.division, precision=_precision(parts)))
    for part in parts:
        operator = _blur(part)
        assert operator.division is not None
        operator.division = (replace(operator.division[0], precision=pace.division.precision),)
    lengths, fewer = find_step_lengths(methods[0], parts)
    pixel = worst[0].pixel(grid.size) if worst else None
    return replace(pace, lengths=lengths, fewer=fewer, weight=unseen(places, grid.size), place=pixel)


def _worst_places(settings: Settings, decisions: Decisions) -> list[Point]:
    """Where the filters of the preconditioner fit worst: the blur is looked at in points of the picture."""
    lines = [np.linspace(0, n - 1, POINTS).round().astype(int).tolist() for n in decisions.size]
    seen = []
    for point in itertools.product(*lines):
        # The scene of a window as large as a kernel, around the point or at the border.
        given = zip(point, decisions.kernel, decisions.size, strict=True)
        firsts = [max(0, min(at - k // 2, n - k)) for at, k, n in given]
        rows, columns = ((first, first + 2 * k - 1) for first, k in zip(firsts, decisions.kernel, strict=True))
        operator, _ = operator_part(settings, decisions, rows, columns)
        weights, [division] = operator.weights[0, :, 0], operator.division or ()
        fields = operator.on_observed(torch.cat([weights.double(), division.regions(weights).double()]))
        seen.append(fields[:, point[0] - firsts[0], point[1] - firsts[1]])
    own, regions = torch.stack(seen).tensor_split([len(weights)], 1)
    return worst_places(misfit(operator.kernels[0], division.gram, own, regions).view(POINTS, POINTS))


def _precision(parts: list[Part]) -> Tensor:
    """The mean precision in each region, of all samples."""
    regions, precisions, shares = [], [], []
    for part in parts:
        operator, observed = _blur(part), part.problem.observed
        assert operator.division is not None
        regions.append(operator.on_observed(operator.division[0].regions(operator.weights[0, :, 0])))
        precisions.append(part.problem.precision_for("fast").expand_as(observed))
        shares.append(operator.on_observed(part.share))
    return mean_precision(regions, precisions, shares)


def _blur(part: Part) -> SpatiallyVaryingBlur:
    operator = part.problem.operator
    assert isinstance(operator, SpatiallyVaryingBlur)
    return operator


def kept(folder: Path, decisions: Decisions) -> Pace | None:
    """The pace of an earlier run with this noise; None where there is none."""
    try:
        known = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if known["noise"] != decisions.noise:
            return None
        division = Division(int(known["tiles"]), _tensor(known["gram"]), precision=_tensor(known["precision"]))
        lengths, fewer = (
            tuple(_tensor(one).reshape(-1, 2, 1, known["planes"]) for one in known[name])
            for name in ("lengths", "fewer")
        )
        place = None if known["place"] is None else (int(known["place"][0]), int(known["place"][1]))
        return Pace(division, lengths, fewer, float(known["weight"]), place)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(folder: Path, decisions: Decisions, pace: Pace) -> None:
    """Keep the pace, so that a run that was killed goes on with the same."""
    precision = pace.division.precision
    assert precision is not None
    known = {
        "noise": decisions.noise, "tiles": pace.division.tiles, "gram": pace.division.gram.tolist(),
        "precision": precision.tolist(),
        "planes": max(one.shape[-1] for one in pace.lengths), "lengths": [one.tolist() for one in pace.lengths],
        "fewer": [one.tolist() for one in pace.fewer], "weight": pace.weight, "place": pace.place,
    }  # fmt: skip
    write_text(folder / FILE, json.dumps(known) + "\n")


def _tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _coarse(places: list[Place], weights: list[Tensor]) -> Tensor:
    """The weights (P, h, w) of the samples side by side, every so many pixels."""
    lines: dict[Span, list[Tensor]] = {}
    for place, one in zip(places, weights, strict=True):
        steps = (max(1, n // EACH) for n in one.shape[-2:])
        down, across = (slice(None, None, step) for step in steps)
        lines.setdefault(place.rows, []).append(one[:, down, across])
    return torch.cat([torch.cat(line, -1) for line in lines.values()], -2)
