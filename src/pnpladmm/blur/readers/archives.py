"""NPZ and MAT files: named arrays, told apart by their names.

A reader of such files may derive from `ArchiveReader`. It then also reads a dictionary of arrays in memory
(`as_blur`), in this package and in others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any, ClassVar

from pnpladmm.blur.arrays import Array, check_numbers, read_archive, to_array
from pnpladmm.blur.containers import names_in
from pnpladmm.blur.forms.array import from_array, stacked
from pnpladmm.blur.forms.maps import from_named_maps
from pnpladmm.blur.forms.places import from_named_psfs
from pnpladmm.blur.forms.weighted import NAMES, weighted_kernels
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import Options
from pnpladmm.blur.readers.companions import with_companions
from pnpladmm.blur.registry import ANY_ARRAY, MAP_ARRAYS, PSF_ARRAYS, READERS, WEIGHTED_ARRAYS, readers
from pnpladmm.blur.sniffing import has_format
from pnpladmm.tensors import InputError

BANK_NAMES = ("kernels", "kernel", "psf", "PSF", "k", "h")


class ArchiveReader(ABC):
    """Reads named arrays, in a file or in memory."""

    generality: ClassVar[int] = 0

    @abstractmethod
    def has_names(self, names: Set[str]) -> bool:
        """Are arrays of these names a blur for it?"""

    @abstractmethod
    def from_arrays(self, name: str, arrays: Mapping[str, Any], options: Options) -> Blur:
        """The blur; `name` stands at the beginning of errors."""

    def matches(self, path: Path) -> bool:
        """Is it an NPZ or MAT file with such arrays?"""
        return self.has_names(names_in(path))

    def read(self, path: Path, options: Options) -> Blur:
        """The blur in an NPZ or MAT file."""
        return self.from_arrays(str(path), read_archive(path), options)


def from_named(name: str, arrays: Mapping[str, Any], options: Options) -> Blur:
    """The blur of named arrays in memory, by the most specific reader of archives that takes their names."""
    for reader in readers():
        if isinstance(reader, ArchiveReader) and reader.has_names(arrays.keys()):
            return reader.from_arrays(name, arrays, options)
    raise InputError(_unknown(name, arrays))


@READERS.register("weighted")
class WeightedReader(ArchiveReader):
    """Kernels and their weights: what `write_blur` writes, the paper's arrays, deepinv's."""

    generality: ClassVar[int] = WEIGHTED_ARRAYS

    def has_names(self, names: Set[str]) -> bool:
        """Is one of the pairs of `NAMES` there?"""
        return any({*pair} <= names for pair in NAMES)

    def from_arrays(self, name: str, arrays: Mapping[str, Any], options: Options) -> Blur:
        """The blur."""
        return weighted_kernels(name, arrays, options)


@READERS.register("psfs")
class PsfReader(ArchiveReader):
    """PSFs with the places where they were seen."""

    generality: ClassVar[int] = PSF_ARRAYS

    def has_names(self, names: Set[str]) -> bool:
        """Is there an array `psfs`?"""
        return "psfs" in names

    def from_arrays(self, name: str, arrays: Mapping[str, Any], options: Options) -> Blur:
        """The blur."""
        return from_named_psfs(name, arrays, options)


@READERS.register("maps")
class MapReader(ArchiveReader):
    """A map of widths or of motion."""

    generality: ClassVar[int] = MAP_ARRAYS

    def has_names(self, names: Set[str]) -> bool:
        """Is there `sigma`, `radius`, `motion`, or `dx` and `dy`?"""
        return bool({"sigma", "radius", "motion"} & names) or {"dx", "dy"} <= names

    def from_arrays(self, name: str, arrays: Mapping[str, Any], options: Options) -> Blur:
        """The blur."""
        return from_named_maps(name, arrays, options)


@READERS.register("named-array")
class NamedArrayReader(ArchiveReader):
    """One array of kernels, with a label map or without; any other archive is refused by name."""

    generality: ClassVar[int] = ANY_ARRAY

    def has_names(self, names: Set[str]) -> bool:
        """All archives that no other reader takes."""
        return True

    def matches(self, path: Path) -> bool:
        """Is it an NPZ or MAT file?"""
        return has_format(path, "npz", "mat", "hdf")

    def read(self, path: Path, options: Options) -> Blur:
        """The blur, with the label map or table beside the file."""
        array, options = _kernels(str(path), read_archive(path), options)
        options, notes = with_companions(path, array, options)
        return from_array(str(path), array, options).noted(*notes)

    def from_arrays(self, name: str, arrays: Mapping[str, Any], options: Options) -> Blur:
        """The blur."""
        return from_array(name, *_kernels(name, arrays, options))


def _kernels(name: str, arrays: Mapping[str, Any], options: Options) -> tuple[Array, Options]:
    """The array that holds the kernels, and the options with the label map beside it."""
    arrays = {key: to_array(f"{name}: {key}", value) for key, value in arrays.items()}
    named = [key for key in BANK_NAMES if key in arrays]
    numeric = [key for key, value in arrays.items() if _may_be_kernels(value)]
    if not named and len(numeric) != 1:
        raise InputError(_unknown(name, arrays))
    key = (named or numeric)[0]
    if "labels" in arrays and options.labels is None:
        options = options.but(labels=check_numbers(f"{name}: labels", arrays["labels"]))
    if arrays[key].dtype == object:
        return stacked(f"{name}: {key}", arrays[key].ravel(), options)
    return check_numbers(f"{name}: {key}", arrays[key]), options


def _may_be_kernels(value: Array) -> bool:
    return value.dtype == object or (value.dtype.kind in "biuf" and value.ndim >= 2 and value.size > 1)


def _unknown(name: str, arrays: Mapping[str, Any]) -> str:
    return (
        f"{name}: holds {', '.join(map(str, arrays)) or 'nothing'}: give kernels and weights, psfs and positions, "
        "sigma, radius, dx and dy, or one kernel"
    )
