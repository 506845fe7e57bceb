"""Pictures that are read in parts: zarr and OME-Zarr, tiled TIFF, FITS and NPY."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pnpladmm.files import optional
from pnpladmm.gate import npy_header
from pnpladmm.pictures.arrays import Array
from pnpladmm.pictures.fits_structure import check_file
from pnpladmm.pictures.tiff_structure import check_pages, check_structure
from pnpladmm.scale.zarr_chunks import CheckedZarr
from pnpladmm.tensors import InputError, one_line

Span = tuple[int, int]

TAGS = ("InterColorProfile", "XResolution", "YResolution", "ResolutionUnit")
LEAD = "TZSBQI"
"""Axes that a picture may have beside C, Y and X if they have one entry only."""


@dataclass(frozen=True)
class Beside:
    """What a file says besides its samples, for the file that is written."""

    pixel_size: tuple[float, float] | None = None
    """Height and width of a pixel in micrometres."""
    channels_last: bool = False
    """Are the channels after rows and columns?"""
    profile: bytes | None = None
    """ICC profile of a TIFF file."""
    resolution: tuple[Any, Any, int] | None = None
    """Pixels along x and y for each unit of a TIFF file, and the unit."""
    header: Any = None
    """Header of a FITS image."""


@dataclass(frozen=True)
class Source:
    """A picture of one page that lies in a file."""

    name: str
    shape: tuple[int, int, int]
    """(C, H, W)."""
    dtype: np.dtype[Any]
    read: Callable[[Span, Span], Array]
    """Samples (C, h, w) of these rows and columns, in the byte order of this machine."""
    beside: Beside = field(default_factory=lambda: Beside())

    @property
    def white(self) -> float | None:
        """The value of white of integers; None for floats."""
        return float(np.iinfo(self.dtype).max) if self.dtype.kind in "ui" else None


def is_zarr(path: Path) -> bool:
    """Is it a folder with a zarr array or group?"""
    return path.is_dir() and any((path / name).is_file() for name in ("zarr.json", ".zarray", ".zgroup"))


def has_parts(path: Path) -> bool:
    """Is it a picture that can be read in parts, by its name?"""
    return is_zarr(path) or path.suffix.lower() in (".tif", ".tiff", ".fits", ".fit", ".npy")


@contextlib.contextmanager
def open_source(path: str | Path) -> Iterator[Source]:
    """The picture in a file, to be read in parts; whatever is wrong with it is one line."""
    path = Path(path)
    name = one_line(str(path))
    with contextlib.ExitStack() as stack:
        try:
            if not path.exists():
                raise InputError(f"{name}: no such file: give a zarr folder, a TIFF, FITS or NPY file")
            source = _opened(path, name, stack)
        except InputError:
            raise
        except Exception as error:  # readers of damaged files raise anything
            what = one_line(f"{type(error).__name__}: {error}")
            raise InputError(f"{name} cannot be read in parts ({what}): get the file again") from error
        if 0 in source.shape:
            raise InputError(f"{name} has size {source.shape}: a picture needs at least one pixel")
        if source.dtype.kind not in "uif" or (source.dtype.kind in "ui" and source.dtype.itemsize == 8):
            raise InputError(f"{name} has samples of {source.dtype}: convert them to uint8, uint16 or float32")
        yield source


def _opened(path: Path, name: str, stack: contextlib.ExitStack) -> Source:
    if is_zarr(path):
        return _zarr(path, name)
    suffix = path.suffix.lower()
    if suffix in (".tif", ".tiff"):
        return _tiff(path, name, stack)
    if suffix == ".npy":
        with path.open("rb") as file:
            npy_header(name, file)
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        return _of_array(name, array, {2: "YX", 3: "YXS" if array.shape[-1] in (3, 4) else "CYX"}.get(array.ndim, "?"))
    if suffix in (".fits", ".fit"):
        return _fits(path, name, stack)
    raise InputError(f"{name}: {suffix or 'a file without suffix'} is not read in parts: give zarr, TIFF, FITS or NPY")


def _zarr(path: Path, name: str) -> Source:
    """An array, or the finest level of an OME-Zarr picture."""
    zarr = optional("zarr", "reading zarr")
    node = zarr.open(path, mode="r")
    axes, size = None, None
    if not hasattr(node, "shape"):
        attributes = dict(node.attrs)
        scales = (attributes.get("ome", attributes)).get("multiscales")
        if not scales:
            raise InputError(f"{name} is a zarr group without a picture: give the folder of one array")
        first = scales[0]["datasets"][0]
        axes = "".join(str(axis["name"] if isinstance(axis, dict) else axis).upper() for axis in scales[0]["axes"])
        units = [axis.get("unit") for axis in scales[0]["axes"] if isinstance(axis, dict)]
        scale = next((t["scale"] for t in first.get("coordinateTransformations", ()) if t["type"] == "scale"), None)
        if scale is not None and units[-2:] == ["micrometer", "micrometer"]:
            size = float(scale[-2]), float(scale[-1])
        node = node[first["path"]]
    axes = axes or {2: "YX", 3: "CYX"}.get(len(node.shape), "TCZYX"[-len(node.shape) :])
    return _of_array(name, CheckedZarr(node, path, name), axes, Beside(size))


def _tiff(path: Path, name: str, stack: contextlib.ExitStack) -> Source:
    """The finest level of the first picture of a TIFF file, by its tiles or strips."""
    from tifffile import TiffFile

    check_structure(path, name, in_parts=True)
    tif: Any = stack.enter_context(TiffFile(path))
    check_pages(tif, name)
    series: Any = tif.series[0]
    level = series.levels[0]
    size = None
    if tif.is_ome and tif.ome_metadata:
        found = [re.search(rf'PhysicalSize{axis}="([0-9.eE+-]+)"', tif.ome_metadata) for axis in "YX"]
        if all(found):
            size = tuple(float(one[1]) for one in found if one)
    zarr = optional("zarr", "reading TIFF in parts")
    array: Any = zarr.open(level.aszarr(), mode="r")
    array = array if hasattr(array, "shape") else array["0"]
    tags = {name: tag.value for name in TAGS if (tag := level.keyframe.tags.get(name)) is not None}
    resolution = tuple(tags.get(name) for name in TAGS[1:])
    known = Beside(size, False, tags.get(TAGS[0]), resolution if all(resolution) else None)  # type: ignore[arg-type]
    return _of_array(name, array, level.axes, known)


def _fits(path: Path, name: str, stack: contextlib.ExitStack) -> Source:
    """The first image of a FITS file; only the rows that are asked for are read."""
    fits = optional("astropy.io.fits", "FITS")
    check_file(path, name)
    hdus = stack.enter_context(fits.open(path, memmap=False))
    found: Any = next((hdu for hdu in hdus if hdu.is_image and len(hdu.shape) >= 2), None)
    if found is None:
        raise InputError(f"{name} has no image in it")
    section = found.section
    corner = np.asarray(section[(0,) * (len(found.shape) - 2) + (slice(0, 1), slice(0, 1))])

    class Lazy:
        shape, dtype = found.shape, corner.dtype

        def __getitem__(self, index: Any) -> Array:
            values: Array = np.asarray(section[index])
            return values

    beside = Beside(header=found.header.copy())
    return _of_array(name, Lazy(), {2: "YX", 3: "CYX"}.get(len(found.shape), "?"), beside)


def _of_array(name: str, array: Any, axes: str, beside: Beside | None = None) -> Source:
    """The source of an array-like with these axes."""
    axes, shape = axes.upper(), tuple(int(n) for n in array.shape)
    if len(axes) != len(shape) or "Y" not in axes or "X" not in axes:
        raise InputError(f"{name} has shape {shape}: give rows and columns, with channels before or after them")
    channel = next((i for i, a in enumerate(axes) if a in "CS"), None)
    others = [i for i, a in enumerate(axes) if a not in "YX" and i != channel]
    if any(shape[i] != 1 for i in others):
        raise InputError(f"{name} has axes {axes} of {shape}: give one plane of channels at a time")
    y, x = axes.index("Y"), axes.index("X")
    channels = 1 if channel is None else shape[channel]
    dtype = np.dtype(array.dtype).newbyteorder("=")

    def read(rows: Span, columns: Span) -> Array:
        index: list[Any] = [0] * len(shape)
        index[y], index[x] = slice(*rows), slice(*columns)
        if channel is not None:
            index[channel] = slice(None)
        try:
            values = np.asarray(array[tuple(index)])
        except Exception as error:  # a truncated store, a damaged chunk
            what = one_line(f"{type(error).__name__}: {error}")
            raise InputError(f"{name}: rows {rows[0]} to {rows[1]} cannot be read ({what}): get it again") from error
        kept = [i for i in range(len(shape)) if i in (y, x, channel)]
        order = [kept.index(i) for i in ([] if channel is None else [channel]) + [y, x]]
        values = values.transpose(order)
        return np.ascontiguousarray(values if channel is not None else values[None], dtype)

    beside = replace(beside or Beside(), channels_last=channel is not None and channel > x)
    return Source(name, (channels, shape[y], shape[x]), dtype, read, beside)
