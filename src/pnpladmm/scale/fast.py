"""The fast method on a picture in parts: a look at some tiles, then all of them, each by itself."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pnpladmm.pictures.arrays import Array
from pnpladmm.scale.decisions import Decisions
from pnpladmm.scale.done import Done, Tell
from pnpladmm.scale.engine import Engine, Task
from pnpladmm.scale.output import blended, overlaps_of
from pnpladmm.scale.pace import find_pace, keep, kept
from pnpladmm.scale.store import TileStore, is_whole, load
from pnpladmm.scale.task import Settings, check_folder, restore_part, restore_tile, seen_of
from pnpladmm.scale.verdict import Verdict, chosen, look, look_size, settle
from pnpladmm.solvers import Certificate, Level, Status
from pnpladmm.solvers.annealed import DEFAULT_CALLS
from pnpladmm.tiling.geometry import Grid, Span, Tile
from pnpladmm.tiling.seams import OtherSteps, Seams, measure_seams


@dataclass(frozen=True)
class FastWork:
    """The tiles of one job, and where they are restored."""

    store: TileStore
    settings: Settings
    grid: Grid
    engine: Engine
    tell: Tell | None

    def run(self, decisions: Decisions) -> Done:
        """Restore the tiles, and measure their seams."""
        verdict, before = self._restore(decisions)
        seams = None if verdict.withdrawn else self._seams(self._paced(verdict.decisions))
        notes = [f"{before} tiles of an earlier run were kept"] if before else []
        return Done(
            decisions=verdict.decisions,
            status=Status.WITHDRAWN if verdict.withdrawn else Status.FINISHED,
            certificate=Certificate(Level.OUTSIDE, "no theorem covers this method", ()),
            iterations=self.settings.iterations or DEFAULT_CALLS,
            notes=(*notes, *verdict.notes, *([str(seams)] if seams is not None else [])),
            warnings=verdict.warnings,
            residual=verdict.residual,
        )

    def _restore(self, decisions: Decisions) -> tuple[Verdict, int]:
        """Look at a few tiles, then restore those that are not there yet; the verdict, and how many were there."""
        began = time.perf_counter()
        before = self._there(decisions)
        verdict = settle(self.store, self.settings, decisions, self.grid, lambda *at: self._see(began, *at))
        if not verdict.withdrawn:
            there = self._there(decisions)
            missing = [n for n in range(len(self.grid)) if n not in there]
            self._run(_one, self._paced(verdict.decisions), missing, began, len(there))
        return verdict, len(before)

    def _paced(self, decisions: Decisions) -> Decisions:
        """The decisions with the steps that all tiles take; found once for each noise level."""
        if len(self.grid) == 1:
            return decisions
        pace = kept(self.store.folder, decisions)
        if pace is None:
            [(_, pace)] = self.engine.run(find_pace, [(self.settings, decisions, self.grid)])
            if pace is not None:
                keep(self.store.folder, decisions, pace)
        return replace(decisions, pace=pace)

    def _there(self, decisions: Decisions) -> set[int]:
        return self.store.finished(self.grid, decisions.channels)

    def _see(self, began: float, decisions: Decisions, attempt: int) -> list[tuple[Array, Array]]:
        """The chosen tiles at an attempt, restored unless they were before, what is seen of each, and its score."""
        looked, there = chosen(self.grid), self._there(decisions)
        seen = [self.store.look_path(attempt, n) for n in looked]
        missing = [n for n, path in zip(looked, seen, strict=True) if not (n in there and is_whole(path))]
        self._run(
            look, self._paced(decisions), missing, began, len(looked) - len(missing), look_size(self.grid), attempt
        )
        return [(load(path), load(self.store.score_path(attempt, n))) for n, path in zip(looked, seen, strict=True)]

    def _run(
        self, task: Task, decisions: Decisions, numbers: list[int], began: float, there: int, *others: int
    ) -> None:
        """A task for each of these tiles."""
        tiles, pixels = list(self.grid), 0
        given = [(self.store, n, self.settings, decisions, tiles[n], *others) for n in numbers]
        for done, (index, _) in enumerate(self.engine.run(task, given), 1):
            rows, columns = tiles[numbers[index]].written
            pixels += (rows.stop - rows.start) * (columns.stop - columns.start)
            if self.tell is not None:
                self.tell(there + done, len(tiles), pixels / max(time.perf_counter() - began, 1e-9))

    def _seams(self, decisions: Decisions) -> Seams | None:
        """The errors where tiles meet, against parts that are restored again."""
        if len(self.grid) == 1:
            return None

        def tiled(rows: Span, columns: Span) -> Tensor:
            return torch.from_numpy(blended(self.store, self.grid, rows, columns))

        def untiled(rows: Span, columns: Span) -> Tensor:
            return restore_part(self.settings, decisions, rows, columns)[1]

        overlaps, pace = overlaps_of(self.store, self.grid, seen_of(decisions)), decisions.pace
        if pace is None:
            return measure_seams(tiled, untiled, self.grid, overlaps)
        fewer = replace(decisions, pace=replace(pace, lengths=pace.fewer))
        other = OtherSteps(lambda *part: restore_part(self.settings, fewer, *part)[1], pace.weight, pace.place)
        return measure_seams(tiled, untiled, self.grid, overlaps, other)


def _one(store: TileStore, number: int, settings: Settings, decisions: Decisions, tile: Tile) -> int:
    """One task: restore a tile and keep it."""
    check_folder(store)
    store.write(number, restore_tile(settings, decisions, tile))
    return number
