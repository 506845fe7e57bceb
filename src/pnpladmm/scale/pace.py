"""The steps of conjugate gradient that all tiles of a picture take, found on parts that are spread over it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pnpladmm.files import write_text
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.operators.division import Division
from pnpladmm.scale.decisions import Decisions
from pnpladmm.scale.source import Span, open_source
from pnpladmm.scale.task import Settings, annealed_for, operator_part, prepared_part
from pnpladmm.solvers.side_by_side import Part, find_step_lengths
from pnpladmm.solvers.step_lengths import StepLengths
from pnpladmm.tiling.geometry import Grid
from pnpladmm.tiling.samples import Place, sample_places

EACH = 32
"""Rows and columns of the weights that are kept of a sample."""
FILE = "pace.json"


@dataclass(frozen=True)
class Pace:
    """What tiles of the fast method have in common beside the decisions on the picture."""

    division: Division
    lengths: StepLengths = ()

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
    with open_source(settings.picture) as source:
        for place in places:
            prepared, blank = prepared_part(settings, paced, source, place.rows, place.columns)
            if not blank:
                problem, method = annealed_for(settings, paced, prepared.problem)
                parts.append(Part(problem, place.share))
                methods.append(method)
    return replace(pace, lengths=find_step_lengths(methods[0], parts)) if parts else None


def kept(folder: Path, decisions: Decisions) -> Pace | None:
    """The pace of an earlier run with this noise; None where there is none."""
    try:
        known = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if known["noise"] != decisions.noise:
            return None
        division = Division(int(known["tiles"]), _tensor(known["gram"]))
        return Pace(division, tuple(_tensor(one).reshape(-1, 2, 1, known["planes"]) for one in known["lengths"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(folder: Path, decisions: Decisions, pace: Pace) -> None:
    """Keep the pace, so that a run that was killed goes on with the same."""
    known = {
        "noise": decisions.noise, "tiles": pace.division.tiles, "gram": pace.division.gram.tolist(),
        "planes": max(one.shape[-1] for one in pace.lengths), "lengths": [one.tolist() for one in pace.lengths],
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
