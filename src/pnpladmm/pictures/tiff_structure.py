"""The directories of a TIFF file, looked at before tifffile sees them.

What is cut off is refused: decoders of JPEG and others fill the missing rows with grey without a word. What is odd, or
coded in a way that few programs use, is tried in a process of its own first.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pnpladmm.gate import max_bytes
from pnpladmm.locks import check_regular
from pnpladmm.sandbox import try_apart
from pnpladmm.tensors import InputError

if TYPE_CHECKING:
    from tifffile import TiffFile

SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
"""Bytes of a value of each type."""
UNSIGNED = {1: "B", 3: "H", 4: "I", 16: "Q"}
WIDTH, HEIGHT, COMPRESSION = 256, 257, 259
PLACES = ((273, 279), (324, 325))
"""Tags of offsets and lengths: of strips, of tiles."""
COMMON = {1, 5, 7, 8, 32773, 32946, 34925, 50000}
"""Compressions whose decoders are in everybody's hands: none, LZW, JPEG, Deflate, PackBits, LZMA, Zstandard."""
MOST_TAGS = 4096
LOOKED_AT = 2000
"""Directories; the pages of longer stacks are alike."""
LARGEST_TILE = 4096
"""Rows or columns of a tile that may be larger than its picture."""


class _Odd(Exception):
    """Something that may be harmless."""


@dataclass(frozen=True)
class _Kind:
    """Byte order, and how a directory is written: its count, an entry, an offset."""

    order: str
    count: str
    entry: int
    offset: str


def check_structure(path: Path, name: str, in_parts: bool = False) -> None:
    """Refuse a TIFF file that is cut off; try one with odd directories in a process of its own.

    A file that is read in parts may be larger than the limit; then it is not tried.
    """
    check_regular(path)
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            _look(file, size, name)
    except (_Odd, struct.error):
        if size > max_bytes() and in_parts:
            return
        if size > max_bytes():
            raise InputError(f"{name} is a damaged TIFF: its directories lead nowhere") from None
        try_apart("tiff", path, name)


def check_pages(tif: TiffFile, name: str) -> None:
    """Refuse what tifffile would take too long for, or too much memory: of an open file, before its pages are read."""
    # Directories that lead back to one another end here. Going from page to page they would not.
    len(tif.pages)
    for series in tif.series:
        page = series.keyframe
        if not page.is_tiled:
            continue
        for what, tile, side in (
            ("TileWidth", page.tilewidth, page.imagewidth),
            ("TileLength", page.tilelength, page.imagelength),
        ):
            if tile > max(LARGEST_TILE, 2 * side):
                raise InputError(f"{name} is a damaged TIFF: {what} is {tile} in a picture of {side}")


def _look(file: BinaryIO, size: int, name: str) -> None:
    head = file.read(16)
    order = "<" if head[:2] == b"II" else ">"
    if struct.unpack(f"{order}H", head[2:4])[0] == 43:
        kind = _Kind(order, "Q", 20, "Q")
        at = struct.unpack(f"{order}Q", head[8:16])[0]
    else:
        kind = _Kind(order, "H", 12, "I")
        at = struct.unpack(f"{order}I", head[4:8])[0]
    seen: set[int] = set()
    while at and len(seen) < LOOKED_AT:
        if at in seen or at >= size:
            raise _Odd
        seen.add(at)
        at = _directory(file, kind, at, size, name)


def _directory(file: BinaryIO, kind: _Kind, at: int, size: int, name: str) -> int:
    """Look at one directory; returns where the next one lies."""
    file.seek(at)
    width = struct.calcsize(kind.count)
    (count,) = struct.unpack(kind.order + kind.count, file.read(width))
    if not 0 < count <= MOST_TAGS:
        raise _Odd
    entries = file.read(count * kind.entry)
    following = file.read(struct.calcsize(kind.offset))
    inline = struct.calcsize(kind.offset)
    found: dict[int, tuple[int, ...]] = {}
    for i in range(count):
        entry = entries[i * kind.entry : (i + 1) * kind.entry]
        tag, code, number = struct.unpack(f"{kind.order}HH{kind.offset}", entry[: 4 + inline])
        length = SIZES.get(code, 0) * number
        value = entry[4 + inline :]
        if length > inline:
            (place,) = struct.unpack(kind.order + kind.offset, value)
            if place + length > size:
                raise _Odd
        if tag in (WIDTH, HEIGHT, COMPRESSION, *PLACES[0], *PLACES[1]):
            if code not in UNSIGNED or not number or tag in found:
                raise _Odd
            if length > inline:
                back = file.tell()
                file.seek(place)
                value = file.read(length)
                file.seek(back)
            found[tag] = struct.unpack(f"{kind.order}{number}{UNSIGNED[code]}", value[:length])
    _check_places(found, size, name)
    return int(struct.unpack(kind.order + kind.offset, following)[0]) if following else 0


def _check_places(found: dict[int, tuple[int, ...]], size: int, name: str) -> None:
    """The strips or tiles of a page must lie in the file."""
    compression = found.get(COMPRESSION, (1,))[0]
    tags = next((pair for pair in PLACES if pair[0] in found), None)
    if tags is None or WIDTH not in found or HEIGHT not in found:
        raise _Odd
    offsets, lengths = found[tags[0]], found.get(tags[1])
    if compression == 1:
        return  # its reader knows how many bytes there have to be
    if lengths is None or len(lengths) != len(offsets):
        raise _Odd
    end = max(offset + length for offset, length in zip(offsets, lengths, strict=True))
    if end > size:
        raise InputError(f"{name} is cut off: its pixels end at byte {end}, the file has {size}: get the file again")
    if compression not in COMMON:
        raise _Odd
