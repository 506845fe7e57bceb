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
from pnpladmm.scale.engine import run_tasks
from pnpladmm.scale.output import assemble, blended, check_format, write_output
from pnpladmm.scale.source import open_source
from pnpladmm.scale.store import TileStore, digest_of
from pnpladmm.scale.task import Decisions, Settings, decide, fingerprint, grid_of, restore_part, restore_tile
from pnpladmm.tensors import InputError, one_line
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
        decisions = decide(settings)
        grid = grid_of(settings, decisions, side)
        digest = digest_of(
            dataclasses.asdict(settings) | {"picture": "", "blur": ""}, dataclasses.asdict(decisions), side,
            fingerprint(settings.picture), fingerprint(settings.blur), torch.__version__,
        )  # fmt: skip
        store = TileStore.open(output, digest)
        kept = _restore_tiles(store, settings, decisions, grid, workers, scheduler, tell)
        picture = assemble(store, grid, _offset(decisions), decisions.size, np.dtype(dtype), decisions.scale)
        seams = _seams(store, settings, decisions, grid)
        write_output(output, store, picture, decisions.scale, pixel_size)
        store.remove()
    notes = [
        f"{shape[2]}x{shape[1]} pixels in {len(grid)} tiles of up to {grid.side[1]}x{grid.side[0]}",
        f"noise {255 * decisions.noise:.2f} of 255 ({'given' if settings.noise is not None else 'estimated'})",
    ]
    notes += [f"{kept} tiles of an earlier run were kept"] if kept else []
    notes += [str(seams)] if seams is not None else []
    seconds = time.perf_counter() - began
    return Large(settings.picture, str(output), decisions.noise, len(grid), kept, seconds, tuple(notes))


def _restore_tiles(
    store: TileStore,
    settings: Settings,
    decisions: Decisions,
    grid: Grid,
    workers: int,
    scheduler: str | None,
    tell: Tell | None,
) -> int:
    """Restore the tiles that are not there yet; how many were there."""
    tiles = list(grid)
    there = store.finished(grid, decisions.channels)
    missing = [number for number in range(len(tiles)) if number not in there]
    arguments = [(store, number, settings, decisions, tiles[number]) for number in missing]
    began, pixels = time.perf_counter(), 0
    for done, (index, _) in enumerate(run_tasks(_one, arguments, workers, scheduler), 1):
        rows, columns = tiles[missing[index]].written
        pixels += (rows.stop - rows.start) * (columns.stop - columns.start)
        if tell is not None:
            tell(len(there) + done, len(tiles), pixels / max(time.perf_counter() - began, 1e-9))
    return len(there)


def _one(store: TileStore, number: int, settings: Settings, decisions: Decisions, tile: Tile) -> int:
    """One task: restore a tile and keep it."""
    if not store.folder.is_dir():
        raise InputError(f"{one_line(str(store.folder))}: no such folder on this worker: it must see the same files")
    store.write(number, restore_tile(settings, decisions, tile))
    return number


def _offset(decisions: Decisions) -> tuple[int, int]:
    """Where the picture begins in the scene: the kernels' reach."""
    kh, kw = decisions.kernel
    return kh - 1 - kh // 2, kw - 1 - kw // 2


def _seams(store: TileStore, settings: Settings, decisions: Decisions, grid: Grid) -> Seams | None:
    """The errors where tiles meet, against parts that are restored again."""
    if len(grid) == 1:
        return None

    def tiled(rows: Span, columns: Span) -> Tensor:
        return torch.from_numpy(blended(store, grid, rows, columns))

    def untiled(rows: Span, columns: Span) -> Tensor:
        return restore_part(settings, decisions, rows, columns)

    return measure_seams(tiled, untiled, grid)
