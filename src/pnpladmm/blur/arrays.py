"""Numbers out of files: PNG, TIFF, NPY, NPZ, FITS, MAT, told apart by their first bytes.

Nothing here is executed or unpickled, and headers that promise absurd sizes are refused before memory is
asked for. Whatever a decoder raises becomes one line that names the file.
"""

from __future__ import annotations

import struct
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from pnpladmm.tensors import InputError

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Format: TypeAlias = Literal["png", "tiff", "npy", "npz", "fits", "mat", "hdf", "text"]

MOST_VALUES = 1 << 30
"""More numbers than this in one array is a broken header or a mistake."""

MAGIC: tuple[tuple[bytes, Format], ...] = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"II*\x00", "tiff"),
    (b"MM\x00*", "tiff"),
    (b"II+\x00", "tiff"),
    (b"MM\x00+", "tiff"),
    (b"\x93NUMPY", "npy"),
    (b"PK\x03\x04", "npz"),
    (b"SIMPLE  =", "fits"),
    (b"MATLAB 5.0", "mat"),
    (b"MATLAB 7.3", "hdf"),
    (b"\x89HDF\r\n\x1a\n", "hdf"),
)
GZIP = b"\x1f\x8b"


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what a decoder raises (they raise anything) into one line that names the file; keep its warnings quiet."""
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


def sniff(path: Path) -> Format:
    """The format of a file by its first bytes; `text` if it is none of those known here."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder: give a file")
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be opened ({error.strerror})") from error
    if not head:
        raise InputError(f"{path}: is empty")
    for magic, name in MAGIC:
        if head.startswith(magic):
            return name
    if head.startswith(GZIP) and path.name.lower().endswith((".fits.gz", ".fit.gz", ".fts.gz")):
        return "fits"
    return "text"


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
            array = _fits(path)
        elif form in ("npz", "mat", "hdf"):
            arrays = read_archive(path)
            if len(arrays) != 1:
                raise InputError(f"{path}: holds {', '.join(arrays) or 'no array'}: give a file with one array")
            array = next(iter(arrays.values()))
        else:
            raise InputError(f"{path}: unknown format: give PNG, TIFF, NPY, NPZ, FITS or MAT")
    return check_numbers(str(path), array)


def read_labels(path: Path) -> Array:
    """As `read_array`, but of a PNG with a palette the numbers, not the colours they are shown in."""
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
            if promised > 8 * MOST_VALUES:
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


def check_numbers(name: str, array: Any, single: bool = False) -> Array:
    """Real, finite numbers as float64, or a sentence on what is wrong; `single`: float32 stays float32."""
    array = np.asarray(array)
    if array.dtype == object or array.dtype.kind not in "biuf":
        raise InputError(f"{name}: holds {array.dtype} values: give real numbers")
    if array.size == 0:
        raise InputError(f"{name}: holds no numbers (shape {array.shape})")
    array = array.astype(np.float32 if single and array.dtype == np.float32 else np.float64, copy=False)
    bad = int((~np.isfinite(array)).sum())
    if bad:
        raise InputError(f"{name}: {bad} values are NaN or infinite: mend them first")
    return array


def fits_module() -> Any:
    """astropy.io.fits, or a line that says how to get it."""
    try:
        from astropy.io import fits
    except ImportError:
        raise InputError("FITS files need astropy: pip install 'pnpladmm[astro]'") from None
    return fits


def _sane(path: Path, array: Any) -> Any:
    if np.prod(array.shape, dtype=float) > MOST_VALUES:
        raise InputError(f"{path}: promises {'x'.join(map(str, array.shape))} values: refused")
    return array


def _png(path: Path) -> Array:
    import imagecodecs

    data = path.read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    if width * height > MOST_VALUES // 4:
        raise InputError(f"{path}: promises {height}x{width} pixels: refused")
    return np.asarray(imagecodecs.png_decode(data))


def _tiff(path: Path) -> Array:
    import tifffile

    with tifffile.TiffFile(path) as file:
        if not file.series:
            raise InputError(f"{path}: holds no picture")
        _sane(path, file.series[0])
        return np.asarray(file.series[0].asarray())


def _fits(path: Path) -> Array:
    fits = fits_module()
    with fits.open(path, memmap=False) as hdus:
        for hdu in hdus:
            if hdu.is_image and hdu.header.get("NAXIS", 0) >= 2:
                shape = [hdu.header[f"NAXIS{i}"] for i in range(1, hdu.header["NAXIS"] + 1)]
                if np.prod(shape, dtype=float) > MOST_VALUES:
                    raise InputError(f"{path}: promises {'x'.join(map(str, shape))} values: refused")
                return np.asarray(hdu.data)
    raise InputError(f"{path}: holds no image")


def _hdf(path: Path) -> dict[str, Array]:
    """MATLAB 7.3 is HDF5 with the axes reversed and cells as references."""
    try:
        import h5py
    except ImportError:
        raise InputError(f"{path}: is MATLAB 7.3: pip install h5py, or save it with -v7") from None

    arrays: dict[str, Array] = {}
    with h5py.File(path, "r") as file:
        for key, item in file.items():
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
