"""Arrays from files (PNG, TIFF, NPY, NPZ, FITS, MAT) and from objects in memory, checked.

Nothing here is executed or unpickled. Headers with absurd sizes are refused before memory is allocated. Any exception
of a decoder becomes one line that names the file.
"""

from __future__ import annotations

import struct
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from pnpladmm.blur.sniffing import sniff
from pnpladmm.files import optional
from pnpladmm.pictures.selection import split_selection
from pnpladmm.tensors import InputError

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

MAX_VALUES = 1 << 30
"""More numbers than this in one array is a broken header or a mistake."""


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


def read_array(path: Path) -> Array:
    """The one array in a picture file, an NPY or the first image of a FITS file, in the file's own axes."""
    form = sniff(path)
    with reading(path):
        if form == "png":
            array = _png(path)
        elif form == "tiff":
            array = _tiff(path)
        elif form == "npy":
            array = np.array(_sane(path, np.load(path, mmap_mode="r", allow_pickle=False)))
        elif form == "fits":
            array, _ = fits_image(path)
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
    if sniff(path) == "png" and path.read_bytes()[25:26] == b"\x03":
        from PIL import Image

        with reading(path), Image.open(path) as picture:
            return check_numbers(str(path), np.array(picture))
    return read_array(path)


def read_archive(path: Path) -> dict[str, Array]:
    """The named arrays of an NPZ or MAT file. A cell array of kernels comes as one object array."""
    form = sniff(path)
    with reading(path):
        if form == "npz":
            with zipfile.ZipFile(path) as archive:
                promised = sum(info.file_size for info in archive.infolist())
            if promised > 8 * MAX_VALUES:
                raise InputError(f"{path}: would unpack to {promised / 2**30:.0f} GiB: refused")
            with np.load(path, allow_pickle=False) as archive:
                arrays = {key: archive[key] for key in archive.files}
            return {key: value for key, value in arrays.items() if isinstance(value, np.ndarray)}
        if form == "mat":
            from scipy.io import loadmat

            return {k: v for k, v in loadmat(path).items() if not k.startswith("__") and isinstance(v, np.ndarray)}
        if form == "hdf":
            return _hdf(path)
    raise InputError(f"{path}: unknown format: give NPZ or MAT")


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


def _sane(path: Path, array: Any) -> Any:
    if np.prod(array.shape, dtype=float) > MAX_VALUES:
        raise InputError(f"{path}: promises {'x'.join(map(str, array.shape))} values: refused")
    return array


def _png(path: Path) -> Array:
    import imagecodecs

    data = path.read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    if width * height > MAX_VALUES // 4:
        raise InputError(f"{path}: promises {height}x{width} pixels: refused")
    return np.asarray(imagecodecs.png_decode(data))


def _tiff(path: Path) -> Array:
    import tifffile

    with tifffile.TiffFile(path) as file:
        if not file.series:
            raise InputError(f"{path}: holds no picture")
        _sane(path, file.series[0])
        return np.asarray(file.series[0].asarray())


def fits_image(path: Path) -> tuple[Array, dict[str, Any]]:
    """The first image of a FITS file, or that of the extension behind its name, and its header."""
    file, extension = split_selection(path)
    with reading(path), optional("astropy.io.fits").open(file, memmap=False) as hdus:
        if extension is not None and extension not in hdus:
            raise InputError(
                f"{path}: has no such extension: {', '.join(hdu.name or str(i) for i, hdu in enumerate(hdus))}"
            )
        for hdu in hdus if extension is None else [hdus[extension]]:
            if hdu.is_image and hdu.header.get("NAXIS", 0) >= 2:
                shape = [hdu.header[f"NAXIS{i}"] for i in range(1, hdu.header["NAXIS"] + 1)]
                if np.prod(shape, dtype=float) > MAX_VALUES:
                    raise InputError(f"{path}: promises {'x'.join(map(str, shape))} values: refused")
                return np.asarray(hdu.data), dict(hdu.header)
    raise InputError(f"{path}: holds no image")


def _own_item(h5py: Any, file: Any, key: str, path: Path) -> Any:
    """A variable whose values lie in this file: HDF5 can also point to others, which were not given."""
    if isinstance(file.get(key, getlink=True), h5py.ExternalLink):
        raise InputError(f"{path}: {key} is a link to another file: save the values themselves")
    item = file[key]
    if isinstance(item, h5py.Dataset) and (item.external or item.is_virtual):
        raise InputError(f"{path}: the values of {key} lie in another file: save them in this one")
    return item


def _hdf(path: Path) -> dict[str, Array]:
    """MATLAB 7.3 is HDF5 with the axes reversed and cells as references."""
    try:
        h5py = optional("h5py")
    except InputError as error:
        raise InputError(f"{path}: is MATLAB 7.3: {error}; or save it with -v7") from None

    arrays: dict[str, Array] = {}
    with h5py.File(path, "r") as file:
        for key in file:
            item = _own_item(h5py, file, key, path)
            if key.startswith("#") or not isinstance(item, h5py.Dataset):
                continue
            if item.dtype == object:
                cells = np.empty(item.shape[::-1], dtype=object)
                for index in np.ndindex(item.shape):
                    cells[index[::-1]] = np.array(file[item[index]]).T
                arrays[key] = cells
            else:
                arrays[key] = np.array(_sane(path, item)).T
    return arrays
