"""`Raw`, which readers return and writers get: the samples as a file holds them, and its metadata."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pnpladmm.pictures.arrays import Array
from pnpladmm.pictures.metadata import NO_METADATA, Metadata

DAMAGE = "may be damaged"
"""Notes with these words are warnings."""


@dataclass(frozen=True, eq=False)
class Raw:
    """Samples (pages, C, H, W) as a file holds them: what readers return and writers get.

    `scale` is the value of white, None for the natural one of the type. `blank` is True on samples without data.
    `variance` and `dead` are what the file says of the noise and of pixels that do not count.
    `axes` are those of the array that the samples were.
    """

    samples: Array
    alpha: Array | None = None
    blank: Array | None = None
    variance: Array | None = None
    dead: Array | None = None
    scale: float | None = None
    colour: str = "grey"
    axes: str = ""
    metadata: Metadata = NO_METADATA
    notes: tuple[str, ...] = ()


def colour_of(channels: int) -> str:
    """The colour model of a picture whose file names none, by its number of channels."""
    return {1: "grey", 3: "rgb"}.get(channels, "channels")


@dataclass(frozen=True)
class Format:
    """A format of picture files: how it is recognised, what it can hold, how it is read and written.

    `signatures` are the first bytes of a file. `native` is the type of `Metadata.native` that it writes. `is_flat`:
    it holds one page of grey, RGB or, where `holds_cmyk`, CMYK, as integers.

    `read(path, name, max_bytes)` returns the samples; `name` is what errors call the file. `write(path, raw, name)`
    writes to `path`, which gets the name `name` afterwards; it returns notes on what was left out, and how many
    samples the format clipped.
    """

    name: str
    signatures: tuple[bytes, ...]
    suffixes: tuple[str, ...]
    dtypes: tuple[str, ...]
    native: type
    read: Callable[[Path, str, int], Raw]
    write: Callable[[Path, Raw, str], tuple[list[str], int]]
    is_flat: bool = False
    holds_alpha: bool = False
    holds_cmyk: bool = True
