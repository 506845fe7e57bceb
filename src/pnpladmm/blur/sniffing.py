"""The format of a blur file, by its first bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from pnpladmm.locks import check_regular
from pnpladmm.pictures.selection import without_selection
from pnpladmm.tensors import InputError

Format: TypeAlias = Literal["png", "tiff", "npy", "npz", "fits", "mat", "hdf", "text"]

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


def sniff(path: Path) -> Format:
    """The format of a file by its first bytes; `text` if it is none of those known here.

    Raises
    ------
    InputError
        If there is no file, or an empty one.
    """
    path = without_selection(path)
    try:
        if path.is_dir():
            raise InputError(f"{path}: is a folder: give a file")
        check_regular(path)
        with path.open("rb") as file:
            head = file.read(16)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise InputError(f"{path}: cannot be opened ({getattr(error, 'strerror', None) or error})") from error
    if not head:
        raise InputError(f"{path}: is empty")
    for magic, name in MAGIC:
        if head.startswith(magic):
            return name
    if head.startswith(GZIP) and path.name.lower().endswith((".fits.gz", ".fit.gz", ".fts.gz")):
        return "fits"
    return "text"


def has_format(path: Path, *formats: Format) -> bool:
    """Does the file have one of these formats? False also for files that cannot be opened, as readers expect."""
    try:
        return sniff(path) in formats
    except InputError:
        return False
