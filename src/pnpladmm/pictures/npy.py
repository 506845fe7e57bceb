"""NPY: numpy arrays (H, W), (H, W, C), (C, H, W) or (pages, C, H, W); never pickles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pnpladmm.files import StrictFile
from pnpladmm.gate import check_size, npy_header
from pnpladmm.pictures.arrays import axes_of, from_stack, to_stack
from pnpladmm.pictures.metadata import NO_METADATA, Metadata
from pnpladmm.pictures.raw import Format, Raw, colour_of
from pnpladmm.pictures.samples import DTYPES, check_dtype
from pnpladmm.tensors import InputError


@dataclass(frozen=True)
class Layout:
    """The type of an array whose byte order is not that of the machine."""

    dtype: str


def read(path: Path, name: str, max_bytes: int) -> Raw:
    """The picture in an NPY file."""
    with path.open("rb") as file:
        shape, dtype = npy_header(name, file)
        found = path.stat().st_size - file.tell()
    check_dtype(name, dtype)
    check_size(name, shape, dtype.itemsize, max_bytes)
    needed = math.prod(shape) * dtype.itemsize
    if found < needed:
        raise InputError(f"{name} is cut off: shape {shape} needs {needed} bytes, it has {found}")
    axes = axes_of(shape, name)
    samples = to_stack(np.load(path, allow_pickle=False), axes)
    metadata = NO_METADATA if dtype.isnative else Metadata(native=Layout(dtype.str))
    return Raw(samples, colour=colour_of(samples.shape[1]), axes=axes, metadata=metadata)


def write(path: Path, raw: Raw, name: str) -> tuple[list[str], int]:
    """Write the samples with the axes they had; pictures of other files as HW, HWC or (pages, C, H, W)."""
    array = from_stack(raw.samples, raw.axes)
    native = raw.metadata.native
    if isinstance(native, Layout):
        array = array.astype(native.dtype)
    with StrictFile(path) as file:
        np.save(file, np.ascontiguousarray(array), allow_pickle=False)
    return [], 0


FORMAT = Format("NPY", (b"\x93NUMPY",), (".npy",), DTYPES, Layout, read, write)
