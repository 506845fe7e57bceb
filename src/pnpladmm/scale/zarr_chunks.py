"""The chunks of a zarr array, looked at before they are unpacked.

Blosc believes the length that a chunk states of itself, and reads beyond the end of a shorter one. A chunk of the right
length it checks for itself.
"""

from __future__ import annotations

import itertools
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np

from pnpladmm.gate import check_size, max_bytes
from pnpladmm.tensors import InputError

HEADER = 16
"""Bytes of a Blosc header: two versions, flags, size of a value, then the lengths unpacked, of a block, and packed."""


class CheckedZarr:
    """An array whose chunks are looked at before they are read. Its name and folder are for the errors."""

    def __init__(self, array: Any, folder: Path, name: str) -> None:
        self.array, self.name = array, name
        self.shape, self.dtype = array.shape, array.dtype
        self._folder = folder / array.path
        self._is_packed = any("Blosc" in type(codec).__name__ for codec in _codecs(array))
        check_size(f"a chunk of {name}", array.shards or array.chunks, array.dtype.itemsize)
        if self._is_packed and array.shards is not None:
            raise InputError(f"{name} has chunks of Blosc in shards: save it without shards, or with Zstandard")

    def __getitem__(self, index: tuple[Any, ...]) -> np.ndarray[Any, Any]:
        if self._is_packed:
            axes = zip(index, self.shape, self.array.chunks, strict=True)
            for place in itertools.product(*(_numbers(*axis) for axis in axes)):
                self._check(self._folder / self.array.metadata.encode_chunk_key(place))
        return np.asarray(self.array[index])

    def _check(self, path: Path) -> None:
        """One chunk; one that is missing is empty."""
        try:
            with path.open("rb") as file:
                head = file.read(HEADER)
        except FileNotFoundError:
            return
        size = path.stat().st_size
        unpacked, block, packed = struct.unpack("<III", head[4:]) if len(head) == HEADER else (0, 0, -1)
        most = max(max_bytes(), 2 * math.prod(self.array.chunks) * self.dtype.itemsize)
        if packed != size or not head[3] or unpacked > most or (unpacked and not block):
            raise InputError(f"{self.name}: chunk {path.name} is damaged: it is no Blosc buffer of {size} bytes")


def _codecs(array: Any) -> list[Any]:
    """The codecs of an array, those inside shards as well."""
    if array.metadata.zarr_format == 2:
        return [array.metadata.compressor, *(array.metadata.filters or ())]
    found = list(array.metadata.codecs)
    return found + [inner for codec in found for inner in getattr(codec, "codecs", ())]


def _numbers(index: int | slice, length: int, chunk: int) -> range:
    """The chunks that an index along one axis meets."""
    first, last, _ = index.indices(length) if isinstance(index, slice) else (index, index + 1, 1)
    return range(first // chunk, -(-last // chunk))
