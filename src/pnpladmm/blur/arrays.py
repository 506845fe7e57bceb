"""Arrays from files (PNG, TIFF, NPY, NPZ, FITS, MAT) and from objects in memory, checked.

Nothing here is executed or unpickled. Headers with absurd sizes are refused before memory is allocated. Any exception
of a decoder becomes one line that names the file.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from pnpladmm.blur.containers import archive
from pnpladmm.blur.sniffing import sniff
from pnpladmm.gate import check_size, max_bytes, npy_header
from pnpladmm.pictures.checks import read_bytes
from pnpladmm.pictures.fits_structure import checked_content, opened
from pnpladmm.pictures.png import PALETTE, check_png
from pnpladmm.pictures.selection import split_selection
from pnpladmm.pictures.tiff_layout import WORKERS
from pnpladmm.pictures.tiff_structure import check_pages, check_structure
from pnpladmm.tensors import InputError

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any exception of a decoder into one line that names the file, and ignore its warnings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(f"{path}: too large for this machine's memory") from error
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise InputError(
            f"{path}: cannot be read ({type(error).__name__}: {lines[0] if lines else 'no detail'})"
        ) from (error)


def read_array(path: Path, value_bytes: int = 8) -> Array:
    """The one array in a picture file, an NPY or the first image of a FITS file, in the file's own axes.

    `value_bytes` is the memory that each value needs in what is to be done with it.
    """
    form = sniff(path)
    with reading(path):
        if form == "png":
            array = _png(path, value_bytes)
        elif form == "tiff":
            array = _tiff(path, value_bytes)
        elif form == "npy":
            array = _npy(path, value_bytes)
        elif form == "fits":
            array, _ = fits_image(path, value_bytes)
        elif form in ("npz", "mat", "hdf"):
            arrays = read_archive(path)
            if len(arrays) != 1:
                raise InputError(f"{path}: holds {', '.join(arrays) or 'no array'}: give a file with one array")
            array = next(iter(arrays.values()))
        else:
            raise InputError(f"{path}: unknown format: give PNG, TIFF, NPY, NPZ, FITS or MAT")
    return check_numbers(str(path), array)


def read_labels(path: Path) -> Array:
    """Read an array as `read_array` does; of a PNG with a palette the indices, not the colours."""
    if sniff(path) == "png":
        with reading(path):
            data = read_bytes(path, str(path), max_bytes())
            from PIL.PngImagePlugin import PngImageFile

            if check_png(data, str(path), max_bytes(), 8).colour_type == PALETTE:
                # Not Image.open, which has a limit of its own.
                return check_numbers(str(path), np.array(PngImageFile(io.BytesIO(data))))
    return read_array(path)


def read_archive(path: Path) -> dict[str, Array]:
    """The named arrays of an NPZ or MAT file. A cell array of kernels comes as one object array."""
    with reading(path):
        return archive(path)


def to_array(name: str, thing: Any) -> Array:
    """Make an array of an array, a tensor, a picture, or nested lists of them.

    A list of arrays of different shapes becomes an array of objects, as a cell array of a MAT file does.
    """
    thing = _without_tensors(thing)
    try:
        return np.asarray(thing)
    except Exception as error:  # lists of different lengths, and whatever a foreign __array__ raises
        if not isinstance(thing, list):
            lines = str(error).splitlines() or [type(error).__name__]
            raise InputError(f"{name}: cannot be made an array ({lines[0]})") from None
    cells = np.empty(len(thing), dtype=object)
    for i, item in enumerate(thing):
        cells[i] = item
    return cells


def check_numbers(name: str, array: Any, single: bool = False) -> Array:
    """Return real, finite numbers as float64; raise `InputError` for others. With `single` float32 stays float32."""
    array = to_array(name, array)
    if array.dtype == object or array.dtype.kind not in "biuf":
        raise InputError(f"{name}: holds {array.dtype} values: give real numbers")
    if array.size == 0:
        raise InputError(f"{name}: holds no numbers (shape {array.shape})")
    array = array.astype(np.float32 if single and array.dtype == np.float32 else np.float64, copy=False)
    bad = int((~np.isfinite(array)).sum())
    if bad:
        raise InputError(f"{name}: {bad} values are NaN or infinite: replace them first")
    return array


def _without_tensors(thing: Any) -> Any:
    """Turn tensors, also inside lists, into arrays on the CPU. Masked values become NaN, which is refused later."""
    if isinstance(thing, np.ma.MaskedArray):
        return np.ma.filled(thing.astype(np.float64), np.nan)
    if isinstance(thing, Tensor):
        tensor = thing.detach().to_dense().cpu().resolve_conj().resolve_neg()
        return (tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor).numpy()
    if isinstance(thing, list | tuple):
        return [_without_tensors(item) for item in thing]
    return thing


def _npy(path: Path, value_bytes: int) -> Array:
    with path.open("rb") as file:
        shape, _ = npy_header(str(path), file)
    check_size(str(path), shape, value_bytes)
    return np.array(np.load(path, mmap_mode="r", allow_pickle=False))


def _png(path: Path, value_bytes: int) -> Array:
    import imagecodecs

    data = read_bytes(path, str(path), max_bytes())
    check_png(data, str(path), max_bytes(), value_bytes)
    return np.asarray(imagecodecs.png_decode(data))


def _tiff(path: Path, value_bytes: int) -> Array:
    import tifffile

    check_structure(path, str(path))
    with tifffile.TiffFile(path) as file:
        check_pages(file, str(path))
        if not file.series:
            raise InputError(f"{path}: holds no picture")
        check_size(str(path), file.series[0].shape, value_bytes)
        return np.asarray(file.series[0].asarray(maxworkers=WORKERS))


def fits_image(path: Path, value_bytes: int = 8) -> tuple[Array, dict[str, Any]]:
    """The first image of a FITS file, or that of the extension behind its name, and its header."""
    file, extension = split_selection(path)
    with reading(path), opened(checked_content(file, str(path)), str(path)) as hdus:
        if extension is not None and extension not in hdus:
            raise InputError(
                f"{path}: has no such extension: {', '.join(hdu.name or str(i) for i, hdu in enumerate(hdus))}"
            )
        for hdu in hdus if extension is None else [hdus[extension]]:
            if hdu.is_image and len(hdu.shape or ()) >= 2:
                check_size(str(path), hdu.shape, value_bytes)
                return np.asarray(hdu.data), dict(hdu.header)
    raise InputError(f"{path}: holds no image")
