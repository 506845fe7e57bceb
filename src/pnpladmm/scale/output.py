"""The tiles put together, strip by strip, into a file that need not fit into memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pnpladmm.files import optional, replacing
from pnpladmm.pictures import Picture, write_picture
from pnpladmm.pictures.arrays import Array
from pnpladmm.pictures.raw import Raw, colour_of
from pnpladmm.pictures.samples import to_samples
from pnpladmm.scale.fits_file import write_fits
from pnpladmm.scale.source import Beside, open_source
from pnpladmm.scale.store import TileStore, mapped, save
from pnpladmm.tensors import InputError, one_line
from pnpladmm.tiling.geometry import Grid, Span
from pnpladmm.tiling.seams import Overlaps

CHUNK = 512
"""Side of the tiles of the files that are written."""
SMALLEST = 512
"""A pyramid ends with the first level whose sides are both at most this."""
PARTS = (".zarr", ".tif", ".tiff", ".fits", ".fit", ".npy")
WHOLE = (".png", ".jpg", ".jpeg")


def check_format(output: str | Path) -> None:
    """Refuse, before the work, an output that is not written from tiles."""
    if Path(output).suffix.lower() not in (*PARTS, *WHOLE):
        raise InputError(f"{one_line(str(output))}: give .zarr, .tif, .fits or .npy, or .png for what fits into memory")


def assemble(
    store: TileStore, grid: Grid, offset: tuple[int, int], size: tuple[int, int], dtype: np.dtype[Any], scale: float
) -> Array:
    """The picture as samples (C, H, W) in a memory map in the folder of the store: tiles blended strip by strip."""
    channels = store.read(0).shape[0]
    picture = mapped(store.folder / "level-0.part", dtype, (channels, *size))
    for first in range(0, size[0], CHUNK):
        for left in range(0, size[1], 4 * CHUNK):
            last, right = min(first + CHUNK, size[0]), min(left + 4 * CHUNK, size[1])
            rows, columns = (first + offset[0], last + offset[0]), (left + offset[1], right + offset[1])
            part = torch.from_numpy(blended(store, grid, rows, columns))
            picture[:, first:last, left:right] = to_samples(part, dtype.name, scale)[0]
    picture.flush()
    return picture


def blended(store: TileStore, grid: Grid, rows: Span, columns: Span) -> Array:
    """The pixels (C, h, w) of a part of the scene, float64: the tiles with their shares."""
    part = np.zeros((store.read(0).shape[0], rows[1] - rows[0], columns[1] - columns[0]))
    for number, tile in enumerate(grid):
        (top, bottom), (left, right) = tile.rows.written, tile.columns.written
        y, x = (max(top, rows[0]), min(bottom, rows[1])), (max(left, columns[0]), min(right, columns[1]))
        if y[0] >= y[1] or x[0] >= x[1]:
            continue
        own = slice(y[0] - top, y[1] - top), slice(x[0] - left, x[1] - left)
        share = tile.share(torch.empty(0, dtype=torch.float64)).numpy()[own]
        place = slice(y[0] - rows[0], y[1] - rows[0]), slice(x[0] - columns[0], x[1] - columns[0])
        part[:, place[0], place[1]] += share * store.read(number)[:, own[0], own[1]]
    return part


def as_given(store: TileStore, picture: str) -> Array:
    """The samples of the picture itself, in a memory map in the folder of the store."""
    with open_source(picture) as source:
        copy = np.lib.format.open_memmap(
            store.folder / "level-0.part", mode="w+", dtype=source.dtype, shape=source.shape
        )
        for first in range(0, source.shape[1], CHUNK):
            last = min(first + CHUNK, source.shape[1])
            copy[:, first:last] = source.read((first, last), (0, source.shape[2]))
    copy.flush()
    return copy


def overlaps_of(store: TileStore, grid: Grid, picture: tuple[Span, Span]) -> Overlaps:
    """Where neighbouring tiles differ most in what both have restored of the `picture`, its place in the scene."""
    found = Overlaps(picture)
    for number, tile in enumerate(grid):
        found.add(tile, torch.from_numpy(np.array(store.read(number))))
    return found


def pyramid(store: TileStore, picture: Array) -> list[Array]:
    """The picture and its copies of half the size, each the mean of 2x2 pixels, in memory maps."""
    levels = [picture]
    while max(levels[-1].shape[1:]) > SMALLEST:
        fine = levels[-1]
        channels, height, width = fine.shape
        half = (channels, max(1, height // 2), max(1, width // 2))
        if 0 in (height // 2, width // 2):
            break
        coarse = mapped(store.folder / f"level-{len(levels)}.part", fine.dtype, half)
        for top, left in product(range(0, half[1], CHUNK), range(0, half[2], 4 * CHUNK)):
            rows, columns = min(CHUNK, half[1] - top), min(4 * CHUNK, half[2] - left)
            part = fine[:, 2 * top : 2 * (top + rows), 2 * left : 2 * (left + columns)].astype(np.float64)
            mean = part.reshape(channels, rows, 2, columns, 2).mean((2, 4))
            mean = np.rint(mean) if fine.dtype.kind in "ui" else mean
            coarse[:, top : top + rows, left : left + columns] = mean
        levels.append(coarse)
    return levels


def write_output(
    path: str | Path,
    store: TileStore,
    picture: Array,
    scale: float,
    beside: Beside,
) -> None:
    """Write the samples (C, H, W) in the format that the suffix names; the file appears when it is complete."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".zarr":
        _write_zarr(path, store, picture, beside.pixel_size)
    elif suffix in (".tif", ".tiff"):
        _write_tiff(path, pyramid(store, picture), beside)
    elif suffix == ".npy":
        save(path, np.moveaxis(picture, 0, -1) if beside.channels_last else picture if len(picture) > 1 else picture[0])
    elif suffix in (".fits", ".fit"):
        write_fits(path, picture, beside.header)
    else:
        raw = Raw(np.asarray(picture)[None], scale=scale, colour=colour_of(len(picture)))
        write_picture(path, Picture.from_raw(raw, path.name), allow_loss=True)


def _write_tiff(path: Path, levels: list[Array], beside: Beside) -> None:
    """A tiled BigTIFF with the smaller levels as sub-images, the layout of OME-TIFF."""
    from tifffile import TiffWriter

    colour = len(levels[0]) in (3, 4) and levels[0].dtype.kind == "u"
    pixel_size, extra = beside.pixel_size, dict[str, Any]()
    if pixel_size is not None:
        extra = {"resolution": (1e4 / pixel_size[1], 1e4 / pixel_size[0]), "resolutionunit": "CENTIMETER"}
    elif beside.resolution is not None:
        extra = {"resolution": beside.resolution[:2], "resolutionunit": beside.resolution[2]}
    if beside.profile is not None:
        extra["iccprofile"] = beside.profile
    options: dict[str, Any] = {
        "tile": (CHUNK, CHUNK),
        "compression": "zlib",
        "photometric": "rgb" if colour else "minisblack",
        "planarconfig": "contig" if colour else None,
    }
    ome = path.name.lower().endswith((".ome.tif", ".ome.tiff"))
    described: dict[str, Any] = {"axes": "YXS" if colour else "CYX"}
    if ome and pixel_size is not None:
        described |= {"PhysicalSizeY": pixel_size[0], "PhysicalSizeX": pixel_size[1]}
    with replacing(path) as new, TiffWriter(new, bigtiff=True, ome=ome) as file:
        for number, level in enumerate(levels):
            shape = (*level.shape[1:], len(level)) if colour else level.shape
            file.write(
                _blocks(level, colour), shape=shape, dtype=level.dtype, metadata=described if number == 0 else None,
                subifds=len(levels) - 1 if number == 0 else None, subfiletype=1 if number else 0, **options, **extra,
            )  # fmt: skip


def _blocks(level: Array, colour: bool) -> Iterator[Array]:
    """The tiles of a level in the order of TIFF."""
    planes = [level] if colour else [level[i : i + 1] for i in range(len(level))]
    for plane in planes:
        for top in range(0, plane.shape[1], CHUNK):
            for left in range(0, plane.shape[2], CHUNK):
                block = np.asarray(plane[:, top : top + CHUNK, left : left + CHUNK])
                yield np.ascontiguousarray(np.moveaxis(block, 0, -1)) if colour else np.ascontiguousarray(block[0])


def _write_zarr(path: Path, store: TileStore, picture: Array, pixel_size: tuple[float, float] | None) -> None:
    """OME-Zarr 0.5: a group of levels, made beside and renamed."""
    zarr = optional("zarr", "writing zarr")
    beside = store.folder / "output.zarr"
    shutil.rmtree(beside, ignore_errors=True)
    try:
        group = zarr.open_group(beside, mode="w", zarr_format=3)
        levels = pyramid(store, picture)
        height, width = pixel_size or (1.0, 1.0)
        datasets = []
        for number, level in enumerate(levels):
            chunks = tuple(min(n, c) for n, c in zip(level.shape, (len(level), CHUNK, CHUNK), strict=True))
            array = group.create_array(str(number), shape=level.shape, chunks=chunks, dtype=level.dtype)
            for top in range(0, level.shape[1], CHUNK):
                array[:, top : top + CHUNK] = level[:, top : top + CHUNK]
            factor = [1.0, height * picture.shape[1] / level.shape[1], width * picture.shape[2] / level.shape[2]]
            datasets.append({"path": str(number), "coordinateTransformations": [{"type": "scale", "scale": factor}]})
        unit = {} if pixel_size is None else {"unit": "micrometer"}
        axes = [{"name": "c", "type": "channel"}, *({"name": n, "type": "space", **unit} for n in "yx")]
        group.attrs["ome"] = {
            "version": "0.5", "multiscales": [{"name": path.stem, "axes": axes, "datasets": datasets}]
        }  # fmt: skip
        if path.exists():
            if not (path / "zarr.json").is_file():
                raise InputError(f"{path} is there and is no zarr: give another name")
            shutil.rmtree(path)
        beside.rename(path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror or error}): make room, and run the command again"
        ) from error
