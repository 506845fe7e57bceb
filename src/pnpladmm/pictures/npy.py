"""NPY: numpy arrays (H, W), (H, W, C), (C, H, W) or (pages, C, H, W); never pickles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pnpladmm.pictures.limits import check_size
from pnpladmm.pictures.picture import Metadata, Raw, arrange, disarrange
from pnpladmm.pictures.samples import DTYPES as DTYPES
from pnpladmm.pictures.samples import check_dtype
from pnpladmm.tensors import InputError

SIGNATURE = b"\x93NUMPY"


@dataclass(frozen=True)
class Layout:
    """The axes of the array, and its type with the byte order."""

    axes: str
    dtype: str


def read(path: Path, name: str, max_bytes: int) -> Raw:
    """The picture in an NPY file."""
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = reader(file)
        here = file.tell()
    check_dtype(name, dtype)
    check_size(name, shape, dtype.itemsize, max_bytes)
    expected = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if path.stat().st_size - here < expected:
        raise InputError(
            f"{name} is cut off: shape {shape} needs {expected} bytes, it has {path.stat().st_size - here}"
        )
    samples, axes = arrange(np.load(path, allow_pickle=False), name)
    colour = {1: "grey", 3: "rgb"}.get(samples.shape[1], "channels")
    return Raw(samples, colour=colour, metadata=Metadata(native=Layout(axes, dtype.str)))


def write(path: Path, raw: Raw) -> list[str]:
    """Write the samples with the axes they had; pictures from elsewhere as HW, HWC or (pages, C, H, W)."""
    native = raw.metadata.native
    if isinstance(native, Layout):
        array = disarrange(raw.samples, native.axes).astype(native.dtype)
    else:
        pages, channels = raw.samples.shape[:2]
        array = disarrange(raw.samples, "BCHW" if pages > 1 or channels > 4 else "HW" if channels == 1 else "HWC")
    with path.open("wb") as file:
        np.save(file, np.ascontiguousarray(array), allow_pickle=False)
    return []
