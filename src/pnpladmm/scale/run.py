"""A large picture from file to file: decided once, restored tile by tile, put together strip by strip."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pnpladmm.denoisers import load_denoiser
from pnpladmm.denoisers.base import bytes_per_pixel_of
from pnpladmm.files import check_writable
from pnpladmm.locks import only_writer_of
from pnpladmm.scale.decisions import Decisions
from pnpladmm.scale.done import Done, Tell
from pnpladmm.scale.engine import open_engine
from pnpladmm.scale.exact import ExactWork, exact_grid
from pnpladmm.scale.fast import FastWork
from pnpladmm.scale.output import as_given, assemble, check_format, write_output
from pnpladmm.scale.source import open_source
from pnpladmm.scale.store import TileStore, digest_of
from pnpladmm.scale.task import Settings, decisions_for, fingerprint, grid_of, offset_of
from pnpladmm.solvers import Status
from pnpladmm.tensors import InputError
from pnpladmm.tiling.geometry import Grid
from pnpladmm.tiling.memory import VARIABLES, gigabytes, tile_side
from pnpladmm.tiling.plan import halo_for, least_side

FAST = "fast"
METHODS = (FAST, "ladmm", "certified")
"""Methods for pictures in parts."""
PROCESS = 350 * 10**6
"""Bytes that a process needs before it restores anything."""
SIDE = 1024
"""The longest side of a tile, unless told otherwise."""


@dataclass(frozen=True)
class Large:
    """What became of a large picture."""

    picture: str
    output: str
    tiles: int
    seconds: float
    done: Done

    @property
    def noise(self) -> float:
        """In [0, 1]."""
        return self.done.decisions.noise


def restore_large(
    settings: Settings,
    output: str | Path,
    side: int | None = SIDE,
    workers: int = 1,
    scheduler: str | None = None,
    tell: Tell | None = None,
    memory: int | None = None,
) -> Large:
    """Restore a picture that need not fit into memory.

    Finished tiles are kept in `OUTPUT.tiles` until the output is complete. The same command after a kill goes on from
    them, and writes the same bytes.

    Parameters
    ----------
    settings : Settings
        Picture, blur and settings. The method is `fast`, `ladmm` or `certified`.
    output : path
        `.zarr` (OME-Zarr), `.tif` (tiled, with a pyramid), `.fits`, `.npy`; PNG and JPEG where they fit into memory.
    side : int, optional
        The longest side of a tile; None where the memory decides.
    workers : int
        Processes of this machine.
    scheduler : str, optional
        Address of a Dask scheduler, whose workers see the same files under the same names.
    tell : callable, optional
        Told after each tile how many are done, how many there are, and the pixels a second.
    memory : int, optional
        Bytes that each worker may use.
    """
    began = time.perf_counter()
    check_format(output)
    check_writable(Path(f"{output}.tiles") / "job.json")
    with only_writer_of(output):
        with open_source(settings.picture) as source:
            dtype, shape, beside = source.dtype, source.shape, source.beside
        with open_engine(workers, scheduler) as engine:
            decisions = decisions_for(settings, engine)
            grid = _grid(settings, decisions, side, memory)
            store = _store(settings, output, decisions, grid)
            if settings.method == FAST:
                done = FastWork(store, settings, grid, engine, tell).run(decisions)
            else:
                done = ExactWork(store, settings, decisions, grid, engine, tell).run()
        if done.status is Status.WITHDRAWN:
            picture = as_given(store, settings.picture)
        else:
            picture = assemble(store, grid, offset_of(decisions), decisions.size, np.dtype(dtype), decisions.scale)
        write_output(output, store, picture, decisions.scale, beside)
        store.remove()
    notes = _notes(settings, decisions, grid, shape)
    done = dataclasses.replace(done, notes=(*notes, *done.notes))
    return Large(settings.picture, str(output), len(grid), time.perf_counter() - began, done)


def _grid(settings: Settings, decisions: Decisions, side: int | None, memory: int | None) -> Grid:
    """The tiles, of at most `side` pixels, or as large as the memory allows."""
    if side is None:
        side = SIDE if memory is None else side_for(settings, decisions, memory)
    return (grid_of if settings.method == FAST else exact_grid)(settings, decisions, side)


def _store(settings: Settings, output: str | Path, decisions: Decisions, grid: Grid) -> TileStore:
    """The store of the tiles of this job."""
    digest = digest_of(
        dataclasses.asdict(settings) | {"picture": "", "blur": ""}, dataclasses.asdict(decisions), str(grid),
        fingerprint(settings.picture), fingerprint(settings.blur), torch.__version__,
    )  # fmt: skip
    return TileStore.open(output, digest)


def _notes(settings: Settings, decisions: Decisions, grid: Grid, shape: tuple[int, int, int]) -> list[str]:
    """What was decided on the picture, for people."""
    tiles = "one tile" if len(grid) == 1 else f"{len(grid)} tiles of up to {grid.side[1]}x{grid.side[0]}"
    notes = [f"{shape[2]}x{shape[1]} pixels in {tiles}"]
    if settings.noise is None:
        notes.append(f"noise {255 * decisions.noise:.2f} of 255 (estimated)")
    if decisions.hot_count:
        notes.append(
            f"{decisions.hot_count} single pixels stand out further than the PSF lets light stand out (hot or dead): "
            "they do not count"
        )
    return notes


def side_for(settings: Settings, decisions: Decisions, memory: int) -> int:
    """The side of tiles for which a worker needs about so many bytes."""
    denoiser = load_denoiser(settings.denoiser, settings.device)
    device = torch.device(settings.device or "cpu")
    side = tile_side(memory - PROCESS, 1, decisions.channels, 0, 4, denoiser, 1, device)
    least = least_side(halo_for(decisions.kernel, denoiser)[0])
    if side < least:
        needed = PROCESS + least**2 * (12 * VARIABLES + bytes_per_pixel_of(denoiser))
        raise InputError(
            f"memory = {gigabytes(memory)}: a worker with this blur and denoiser needs about {gigabytes(needed)}"
        )
    return side
