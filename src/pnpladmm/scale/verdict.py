"""A look at the first tiles before the others are restored: never worse, for pictures that do not fit into memory.

The rule is that of pictures in memory (`restoration/never_worse.py`). There a large picture is looked at in bands; here
these are the middles of a few tiles, spread over the picture, which are looked at as one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from pnpladmm.files import write_text
from pnpladmm.pictures.arrays import Array
from pnpladmm.restoration.never_worse import REPEATS, judge, words_on
from pnpladmm.restoration.noise import check_white
from pnpladmm.restoration.psf_error import evidence
from pnpladmm.restoration.psf_score import PsfScore, psf_score
from pnpladmm.restoration.signs import signs_in
from pnpladmm.scale.decisions import Decisions
from pnpladmm.scale.store import TileStore, save
from pnpladmm.scale.task import Settings, check_folder, restore_part, written_part
from pnpladmm.solvers.annealed import DEFAULT_CALLS
from pnpladmm.tiling.geometry import Grid, Tile

TILES = 4
"""So many tiles are looked at; none is restored only for that, unless the verdict is to restore again."""
LONGEST = 512
"""The longest side of what is looked at of a tile."""
FILE = "verdict.json"

See = Callable[[Decisions, int], list[tuple[Array, Array]]]
"""Restores the chosen tiles, at the attempt of this number, and returns what is seen of each: observation, restored
picture, `Hx` and what counts, (4, C, h, w); and the numbers of its `PsfScore`."""


@dataclass(frozen=True)
class Verdict:
    """How the picture is to be restored, after the look."""

    decisions: Decisions
    withdrawn: bool
    """Is the restoration likely worse than the picture itself?"""
    residual: tuple[float, float]
    """Size and correlation of the residual in what was looked at."""
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()


def chosen(grid: Grid) -> list[int]:
    """The numbers of the tiles that are looked at."""
    return sorted({int(number) for number in np.linspace(0, len(grid) - 1, TILES).round()})


def look(
    store: TileStore, number: int, settings: Settings, decisions: Decisions, tile: Tile, size: int, attempt: int
) -> int:
    """One task: restore a tile, keep it, and keep what is seen in its middle."""
    check_folder(store)
    prepared, image = restore_part(settings, decisions, *tile.extent)
    store.write(number, written_part(tile, image))
    problem = prepared.problem
    whole = image[None].to(problem.observed)
    expected = problem.data_term.mean_and_precision(problem.operator.forward(whole), problem.observed)
    assert expected is not None  # a quadratic term
    counts = (expected[1] > 0).expand_as(problem.observed).to(problem.observed)
    planes = torch.stack([problem.observed, problem.crop_to_observed(whole), expected[0], counts])[:, 0]
    top, left = (max(0, (n - size) // 2) for n in planes.shape[-2:])
    score = psf_score(problem, whole, prepared.noise)
    save(store.score_path(attempt, number), np.array([float(value) for value in vars(score).values()]))
    save(store.look_path(attempt, number), planes[..., top : top + size, left : left + size].float().cpu().numpy())
    return number


def look_size(grid: Grid) -> int:
    """The side of what is looked at of each tile: all of one size, and away from the halos where there are some."""
    shortest = min(part.extent[1] - part.extent[0] for parts in (grid.rows, grid.columns) for part in parts)
    return min(LONGEST, max(3, shortest // 2))


def settle(store: TileStore, settings: Settings, decisions: Decisions, grid: Grid, see: See) -> Verdict:
    """The verdict, from an earlier run or by a look."""
    path = store.folder / FILE
    if path.is_file():
        known = json.loads(path.read_text(encoding="utf-8"))
        decisions = dataclasses.replace(decisions, noise=known["noise"])
        return Verdict(
            decisions, known["withdrawn"], tuple(known["residual"]), tuple(known["warnings"]), tuple(known["notes"])
        )
    found = _settled(settings, decisions, see)
    known = {
        "noise": found.decisions.noise, "withdrawn": found.withdrawn, "residual": found.residual,
        "warnings": found.warnings, "notes": found.notes,
    }  # fmt: skip
    write_text(path, json.dumps(known) + "\n")
    return found


def _settled(settings: Settings, decisions: Decisions, see: See) -> Verdict:
    before, calls = torch.tensor([decisions.noise], dtype=torch.float64), settings.iterations or DEFAULT_CALLS
    doubted = withdrawn = wrong = poor = torch.zeros(1, dtype=torch.bool)
    for attempt in range(REPEATS + 1):
        seen, scores = zip(*see(decisions, attempt), strict=True)
        level = torch.tensor([decisions.noise], dtype=torch.float64)
        y, x, mean, counts = torch.from_numpy(np.concatenate(seen, 1)).double().unsqueeze(1)
        signs = signs_in(y, x, mean, counts > 0, level, decisions.extremes)
        verdict = judge(evidence(signs, _joined(scores), before, calls), level, before, settings.strength)
        if not attempt:
            poor = verdict.worse  # whether the PSF is wrong needs a restoration on trial
        doubted = doubted | verdict.again | wrong
        withdrawn = doubted & verdict.worse
        if attempt == REPEATS or not bool(verdict.again):
            break
        decisions = dataclasses.replace(decisions, noise=float(verdict.level))
    after = torch.tensor([decisions.noise], dtype=torch.float64)
    words = words_on(before, after, wrong, poor & ~doubted, withdrawn)
    check = check_white(((y - mean) / after)[0], (counts > 0)[0].double())
    problems = () if bool(withdrawn) else check.problems
    return Verdict(
        decisions, bool(withdrawn), (check.size, check.correlation), (*words.warnings, *problems), words.notes
    )


def _joined(scores: tuple[Array, ...]) -> PsfScore:
    """One score of those of some tiles: what is usual."""
    return PsfScore(*(value.median().view(1) for value in torch.from_numpy(np.stack(scores)).double().T))
