"""The registry of blur readers, and the one place that chooses a reader for a file.

A reader is an object (or a class that makes one without arguments) with

- `matches(path)`: does it read this file? Cheap: it looks at the first bytes or at the names inside. It never raises.
- `read(path, options)`: the `Blur` in the file. It raises `InputError` for a file that is broken.
- `generality` (optional, 0 if not declared): where several readers match, the one with the smallest number reads the
  file; readers with the same number are asked in the order of their names. 0 is for readers of other packages,
  which therefore come first; those of this package have `SIGNATURE` (one format, told by its own keys or suffix),
  then the kinds of named arrays (weights before PSFs before maps), and `ANY_ARRAY` last.

Another package adds a reader by an entry point of the group `pnpladmm.blur_readers`. It then works wherever a blur
file is read: at top level and for the files that a YAML blur file names.

>>> from pnpladmm.blur.registry import READERS
>>> "psfex" in READERS
True
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Protocol, TypeAlias

from pnpladmm.blur.arrays import reading
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import Options
from pnpladmm.blur.sniffing import sniff
from pnpladmm.registry import Registry
from pnpladmm.tensors import InputError

SIGNATURE = 1
WEIGHTED_ARRAYS = 2
PSF_ARRAYS = 3
MAP_ARRAYS = 4
ANY_ARRAY = 9


class Reader(Protocol):
    """Reads one kind of blur file."""

    def matches(self, path: Path) -> bool:
        """Does it read this file?"""

    def read(self, path: Path, options: Options) -> Blur:
        """The blur in the file."""


Entry: TypeAlias = Reader | type[Reader]
READERS: Registry[Entry] = Registry("blur reader", "pnpladmm.blur_readers")


def read_file(path: Path, options: Options) -> Blur:
    """The blur in a file of any kind, read by the most specific reader that matches."""
    sniff(path)  # a file that is missing or empty is refused in the same words for all readers
    for reader in readers():
        if _matches(reader, path):
            with reading(path):  # whatever a reader raises becomes one line that names the file
                return reader.read(path, options)
    raise InputError(f"{path}: unknown format: give PNG, TIFF, NPY, NPZ, FITS, MAT, .psf or a blur file (YAML)")


def readers() -> list[Reader]:
    """All readers, the most specific first."""
    found: list[tuple[int, str, Reader]] = []
    for name in READERS:
        try:
            entry = READERS[name]
        except InputError as error:  # one broken package must not stop all others
            warnings.warn(f"{error}: it is left out", stacklevel=2)
            continue
        reader = entry() if isinstance(entry, type) else entry
        found.append((getattr(reader, "generality", 0), name, reader))
    return [reader for _, _, reader in sorted(found, key=lambda item: item[:2])]


def _matches(reader: Reader, path: Path) -> bool:
    try:
        return bool(reader.matches(path))
    except Exception as error:  # against the rule, but files of other kinds can still be read
        warnings.warn(f"blur reader {type(reader).__name__} failed to look at {path} ({error})", stacklevel=2)
        return False
