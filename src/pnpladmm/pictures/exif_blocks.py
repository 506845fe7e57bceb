"""EXIF blocks: which way up the picture is, and the block that says so of the picture turned upright."""

from __future__ import annotations

import re
import struct
from typing import Literal

import numpy as np

from pnpladmm.pictures.arrays import Array
from pnpladmm.pictures.ifd import (
    EXIF_IFD,
    GPS_IFD,
    Directory,
    Entry,
    entry_places,
    pack_directory,
    read_directory,
    read_header,
)

ORIENTATION = 274
WIDTH, HEIGHT = 40962, 40963
# What IFD0 of an EXIF block and the main directory of a TIFF share: camera, times, people.
SHARED_TAGS = frozenset({271, 272, 305, 306, 315, 316, 33432, EXIF_IFD, GPS_IFD})
_XMP_ORIENTATION = re.compile(rb"(tiff:Orientation\s*(?:=\s*[\"']|>\s*))[1-8]")


def turn(samples: Array, orientation: int) -> Array:
    """Samples (..., H, W) as EXIF says that they are to be shown."""
    if orientation >= 5:
        samples = samples.swapaxes(-1, -2)
    # After the swap of 5 to 8: 6 still needs its columns reversed, 8 its rows, 7 both.
    if orientation in (2, 3, 6, 7):
        samples = samples[..., ::-1]
    if orientation in (3, 4, 7, 8):
        samples = samples[..., ::-1, :]
    return np.ascontiguousarray(samples)


def orientation_of(block: bytes | None) -> int:
    """1 to 8; 1 where nothing is said, or nothing legible."""
    if not block:
        return 1
    try:
        order, _, offset = read_header(block)
        entry = read_directory(block, offset, order).get(ORIENTATION)
        value = entry.integer(order) if isinstance(entry, Entry) else 1
    except (ValueError, KeyError, struct.error):
        return 1
    return value if 1 <= value <= 8 else 1


def upright(block: bytes, turned: bool) -> bytes:
    """The block with orientation 1, without its thumbnail, width and height exchanged where `turned`.

    Changed in place, not rebuilt: makers' notes hold offsets that a rebuilt block would break. The thumbnail
    shows the picture before restoration and before turning; programs make a new one.
    """
    out = bytearray(block)
    try:
        order, _, offset = read_header(block)
        places, next_at = entry_places(block, offset, order)
        if ORIENTATION in places:
            struct.pack_into(order + "HIHH", out, places[ORIENTATION] + 2, 3, 1, 1, 0)
        struct.pack_into(order + "I", out, next_at, 0)
        if turned and EXIF_IFD in places:
            nested, _ = entry_places(block, struct.unpack_from(order + "I", block, places[EXIF_IFD] + 8)[0], order)
            if WIDTH in nested and HEIGHT in nested:
                w, h = nested[WIDTH] + 2, nested[HEIGHT] + 2
                out[w : w + 10], out[h : h + 10] = block[h : h + 10], block[w : w + 10]
    except (ValueError, KeyError, struct.error):
        return block
    return bytes(out)


def upright_xmp(packet: bytes) -> bytes:
    """The XMP packet with orientation 1, of unchanged length."""
    return _XMP_ORIENTATION.sub(rb"\g<1>1", packet)


def from_tiff(directory: Directory, order: str) -> bytes | None:
    """An EXIF block of what a TIFF directory says of camera, times and people."""
    shared = Directory({tag: entry for tag, entry in directory.items() if tag in SHARED_TAGS})
    if not shared:
        return None
    mark = {"<": b"II", ">": b"MM"}[order]
    return mark + struct.pack(order + "HI", 42, 8) + pack_directory(shared, 8, order)


def to_tiff(block: bytes | None) -> tuple[Directory, Literal["<", ">"]]:
    """What of an EXIF block belongs into a TIFF's main directory, and the byte order of its values."""
    if block:
        try:
            order, _, offset = read_header(block)
            directory = read_directory(block, offset, order)
            return Directory({tag: entry for tag, entry in directory.items() if tag in SHARED_TAGS}), order
        except (ValueError, KeyError, struct.error):
            pass
    return Directory(), "<"
