"""Finished tiles, kept beside the output until it is complete: a run that was killed goes on from them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pnpladmm.files import StrictFile, replacing, write_text
from pnpladmm.pictures.arrays import Array
from pnpladmm.tensors import InputError
from pnpladmm.tiling.geometry import Grid

ROOT = "job.json"


def digest_of(*things: Any) -> str:
    """A digest of all that decides the pixels of a job."""
    return hashlib.sha256(json.dumps(things, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(frozen=True)
class TileStore:
    """A folder with one file for each finished tile, and the digest of the job that they belong to."""

    folder: Path

    @classmethod
    def open(cls, output: str | Path, digest: str) -> TileStore:
        """The store of an output; one of another job is refused."""
        folder = Path(f"{output}.tiles")
        root = folder / ROOT
        try:
            if folder.exists() and not folder.is_dir():
                raise InputError(f"{folder} is a file: remove it, finished tiles are kept there")
            if root.is_file():
                try:
                    known = json.loads(root.read_text(encoding="utf-8"))["digest"]
                except (ValueError, KeyError, TypeError):
                    known = None
                if known != digest:
                    raise InputError(f"{folder} holds tiles of another job: remove it, or give another output")
            elif folder.is_dir() and any(not one.name.endswith(".part") for one in folder.iterdir()):
                raise InputError(f"{folder} is no folder of tiles: give another output")
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder} cannot be written ({error.strerror or error})") from error
        if not root.is_file():
            write_text(root, json.dumps({"digest": digest}) + "\n")
        return cls(folder)

    def path(self, number: int) -> Path:
        """The file of a tile."""
        return self.folder / f"tile-{number}.npy"

    def finished(self, grid: Grid, channels: int) -> set[int]:
        """The tiles that are there and whole."""
        return {number for number, tile in enumerate(grid) if is_whole(self.path(number), (channels, *_shape(tile)))}

    def look_path(self, attempt: int, number: int) -> Path:
        """The file of what was seen of a tile at an attempt."""
        return self.folder / f"look-{attempt}-{number}.npy"

    def score_path(self, attempt: int, number: int) -> Path:
        """The file of what was found there about the PSF."""
        return self.folder / f"score-{attempt}-{number}.npy"

    def write(self, number: int, values: Array) -> None:
        """Keep a tile; the file is there completely or not at all."""
        save(self.path(number), values)

    def read(self, number: int) -> Array:
        """A finished tile, not loaded before it is used."""
        return load(self.path(number))

    def remove(self) -> None:
        """Remove the folder: the output is complete."""
        # What says whose tiles they are goes last: a folder without it is nobody's, and would be refused after a kill.
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != ROOT:
                path.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def save(path: Path, values: Array, durable: bool = True) -> None:
    """Write an array; the file is there completely or not at all."""
    with replacing(path, durable) as beside, StrictFile(beside) as file:
        np.save(file, values, allow_pickle=False)


def mapped(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """A new array in a file. Its room on the disk is taken now: without any a write into it would kill the process."""
    try:
        found = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
        if hasattr(os, "posix_fallocate"):  # not on Windows and macOS
            with path.open("rb+") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror or error}): make room, and run the command again"
        ) from error
    return found


def load(path: Path) -> Array:
    """An array of the store, not loaded before it is used."""
    try:
        found: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}): run the command again") from error
    return found


def is_whole(path: Path, shape: tuple[int, ...] | None = None) -> bool:
    """Is there a whole array in this file, of this shape?"""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False).shape
    except (OSError, ValueError):
        return False
    return shape is None or found == shape


def _shape(tile: Any) -> tuple[int, int]:
    rows, columns = tile.rows.written, tile.columns.written
    return rows[1] - rows[0], columns[1] - columns[0]
