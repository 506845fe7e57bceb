"""Files of named arrays: NPZ, MATLAB 5 and MATLAB 7.3. What they hold is checked before it is unpacked."""

from __future__ import annotations

import math
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pnpladmm.blur.sniffing import Format, sniff
from pnpladmm.files import optional
from pnpladmm.gate import check_size, max_bytes, npy_header
from pnpladmm.sandbox import Values, read_apart
from pnpladmm.tensors import InputError

MOST_ARRAYS = 1000


def archive(path: Path) -> Values:
    """The named arrays of an NPZ or MAT file. A cell array of kernels comes as one object array."""
    form = sniff(path)
    if form not in ("npz", "mat", "hdf"):
        raise InputError(f"{path}: unknown format: give NPZ or MAT")
    if form == "npz":
        with zipfile.ZipFile(path) as packed:
            return {key: _npy(packed, info, path) for key, info in _entries(packed, path).items()}
    if form == "hdf":
        try:
            optional("h5py")
        except InputError as error:
            raise InputError(f"{path}: is MATLAB 7.3: {error}; or save it with -v7") from None
    return _matlab(path, form)


def names_in(path: Path) -> frozenset[str]:
    """The names of the arrays in an NPZ or MAT file; none for other files, and for those that cannot be read."""
    try:
        form = sniff(path)
        if form == "npz":
            with zipfile.ZipFile(path) as packed:
                return frozenset(name.removesuffix(".npy") for name in packed.namelist())
        if form in ("mat", "hdf"):
            return frozenset(_matlab(path, form))
    except Exception:  # a broken archive: whoever reads it says what is wrong
        pass
    return frozenset()


def _matlab(path: Path, form: Format) -> Values:
    """The arrays of a MAT file, read in a process of its own; kept, because several readers ask in turn."""
    state = path.stat()
    found = _read_matlab(path, form, state.st_mtime_ns, state.st_size)
    if isinstance(found, InputError):
        raise found
    return dict(found)


@lru_cache(maxsize=1)
def _read_matlab(path: Path, form: Format, changed: int, size: int) -> Values | InputError:
    try:
        return read_apart("mat" if form == "mat" else "hdf", path)
    except InputError as error:
        return error


def _entries(packed: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    """The arrays of an NPZ file that numpy would show, if all of them together are within the limit."""
    found = {i.filename.removesuffix(".npy"): i for i in packed.infolist() if i.filename.endswith(".npy")}
    if len(packed.infolist()) > MOST_ARRAYS:
        raise InputError(f"{path}: holds {len(packed.infolist())} files: at most {MOST_ARRAYS}")
    left = max_bytes()
    for key, info in found.items():
        with packed.open(info) as file:
            shape, dtype = npy_header(f"{path}: {key}", file)
            start = file.tell()
        needed = math.prod(shape) * dtype.itemsize
        if needed > info.file_size - start:
            raise InputError(f"{path}: {key} is cut off: shape {shape} needs {needed} bytes")
        if not needed:
            continue
        # Everything but float32 becomes float64.
        check_size(f"{path}: {key}", shape or (1,), _working_bytes(dtype), left)
        left -= math.prod(shape) * _working_bytes(dtype)
    return found


def _working_bytes(dtype: np.dtype[np.generic]) -> int:
    return 4 if dtype == np.float32 else max(8, dtype.itemsize)


def _npy(packed: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> np.ndarray[Any, np.dtype[Any]]:
    with packed.open(info) as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
