"""A large picture from file to file: decided once, restored tile by tile, put together strip by strip."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pnpladmm.files import check_writable
from pnpladmm.locks import only_writer_of
from pnpladmm.pictures.arrays import Array
from pnpladmm.scale.decisions import Decisions
from pnpladmm.scale.engine import Task, run_tasks
from pnpladmm.scale.output import as_given, assemble, blended, check_format, disagreements, write_output
from pnpladmm.scale.source import open_source
from pnpladmm.scale.store import TileStore, digest_of, is_whole, load
from pnpladmm.scale.task import Settings, check_folder, decisions_for, fingerprint, grid_of, restore_part, restore_tile
from pnpladmm.scale.verdict import Verdict, chosen, look, look_size, settle
from pnpladmm.tiling.geometry import Grid, Span, Tile
from pnpladmm.tiling.seams import Seams, measure_seams

SIDE = 1024
"""The longest side of a tile, unless told otherwise."""

Tell = Callable[[int, int, float], None]
"""Told after each tile: how many are done, how many there are, pixels a second."""


@dataclass(frozen=True)
class Large:
    """What became of a large picture."""

    picture: str
    output: str
    noise: float
    """In [0, 1]."""
    tiles: int
    kept: int
    """Tiles that an earlier run had finished."""
    seconds: float
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    withdrawn: bool = False
    """Is it the picture as it was given, because the restoration looks worse?"""


def restore_large(
    settings: Settings,
    output: str | Path,
    side: int = SIDE,
    workers: int = 1,
    scheduler: str | None = None,
    tell: Tell | None = None,
) -> Large:
    """Restore a picture that need not fit into memory, with the fast method.

    Finished tiles are kept in `OUTPUT.tiles` until the output is complete. The same command after a kill goes on from
    them, and writes the same bytes.

    Parameters
    ----------
    settings : Settings
        Picture, blur and settings.
    output : path
        `.zarr` (OME-Zarr) or `.tif` (tiled, with a pyramid), `.npy`; PNG, JPEG and FITS where they fit into memory.
    side : int
        The longest side of a tile.
    workers : int
        Processes of this machine.
    scheduler : str, optional
        Address of a Dask scheduler, whose workers see the same files under the same names.
    tell : callable, optional
        Told after each tile how many are done, how many there are, and the pixels a second.
    """
    began = time.perf_counter()
    check_format(output)
    check_writable(Path(f"{output}.tiles") / "job.json")
    with only_writer_of(output):
        with open_source(settings.picture) as source:
            dtype, shape, pixel_size = source.dtype, source.shape, source.pixel_size
        decisions = decisions_for(settings)
        grid = grid_of(settings, decisions, side)
        digest = digest_of(
            dataclasses.asdict(settings) | {"picture": "", "blur": ""}, dataclasses.asdict(decisions), side,
            fingerprint(settings.picture), fingerprint(settings.blur), torch.__version__,
        )  # fmt: skip
        store = TileStore.open(output, digest)
        work = Work(store, settings, grid, workers, scheduler, tell)
        verdict, kept = work.restore(decisions)
        decisions = verdict.decisions
        if verdict.withdrawn:
            picture, seams = as_given(store, settings.picture), None
        else:
            picture = assemble(store, grid, _offset(decisions), decisions.size, np.dtype(dtype), decisions.scale)
            seams = work.seams(decisions)
        write_output(output, store, picture, decisions.scale, pixel_size)
        store.remove()
    notes = [
        f"{shape[2]}x{shape[1]} pixels in {len(grid)} tiles of up to {grid.side[1]}x{grid.side[0]}",
        f"noise {255 * decisions.noise:.2f} of 255 ({'given' if settings.noise is not None else 'estimated'})",
    ]
    if decisions.hot_count:
        notes.append(
            f"{decisions.hot_count} single pixels stand out further than the PSF lets light stand out (hot or dead): "
            "they do not count"
        )
    notes += [f"{kept} tiles of an earlier run were kept"] if kept else []
    notes += [str(seams)] if seams is not None else []
    seconds = time.perf_counter() - began
    return Large(
        settings.picture, str(output), decisions.noise, len(grid), kept, seconds, tuple(notes), verdict.warnings,
        verdict.withdrawn,
    )  # fmt: skip


@dataclass(frozen=True)
class Work:
    """The tiles of one job, and where they are restored."""

    store: TileStore
    settings: Settings
    grid: Grid
    workers: int
    scheduler: str | None
    tell: Tell | None

    def restore(self, decisions: Decisions) -> tuple[Verdict, int]:
        """Look at a few tiles, then restore those that are not there yet; the verdict, and how many were there."""
        began = time.perf_counter()
        kept = self._there(decisions)
        verdict = settle(self.store, self.settings, decisions, self.grid, lambda *at: self._see(began, *at))
        if not verdict.withdrawn:
            there = self._there(decisions)
            missing = [n for n in range(len(self.grid)) if n not in there]
            self._run(_one, verdict.decisions, missing, began, len(there))
        return verdict, len(kept)

    def _there(self, decisions: Decisions) -> set[int]:
        return self.store.finished(self.grid, decisions.channels)

    def _see(self, began: float, decisions: Decisions, attempt: int) -> list[Array]:
        """The chosen tiles at an attempt, restored unless they were before, and what is seen of each."""
        looked, there = chosen(self.grid), self._there(decisions)
        seen = [self.store.look_path(attempt, n) for n in looked]
        missing = [n for n, path in zip(looked, seen, strict=True) if not (n in there and is_whole(path))]
        self._run(look, decisions, missing, began, len(looked) - len(missing), look_size(self.grid), attempt)
        return [load(path) for path in seen]

    def _run(
        self, task: Task, decisions: Decisions, numbers: list[int], began: float, there: int, *others: int
    ) -> None:
        """A task for each of these tiles."""
        tiles, pixels = list(self.grid), 0
        given = [(self.store, n, self.settings, decisions, tiles[n], *others) for n in numbers]
        for done, (index, _) in enumerate(run_tasks(task, given, self.workers, self.scheduler), 1):
            rows, columns = tiles[numbers[index]].written
            pixels += (rows.stop - rows.start) * (columns.stop - columns.start)
            if self.tell is not None:
                self.tell(there + done, len(tiles), pixels / max(time.perf_counter() - began, 1e-9))

    def seams(self, decisions: Decisions) -> Seams | None:
        """The errors where tiles meet, against parts that are restored again."""
        if len(self.grid) == 1:
            return None

        def tiled(rows: Span, columns: Span) -> Tensor:
            return torch.from_numpy(blended(self.store, self.grid, rows, columns))

        def untiled(rows: Span, columns: Span) -> Tensor:
            return restore_part(self.settings, decisions, rows, columns)[1]

        return measure_seams(tiled, untiled, self.grid, disagreements(self.store, self.grid))


def _one(store: TileStore, number: int, settings: Settings, decisions: Decisions, tile: Tile) -> int:
    """One task: restore a tile and keep it."""
    check_folder(store)
    store.write(number, restore_tile(settings, decisions, tile))
    return number


def _offset(decisions: Decisions) -> tuple[int, int]:
    """Where the picture begins in the scene: the kernels' reach."""
    kh, kw = decisions.kernel
    return kh - 1 - kh // 2, kw - 1 - kw // 2
