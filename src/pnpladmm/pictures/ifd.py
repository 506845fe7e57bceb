"""TIFF directories (IFDs) as raw entries: what EXIF blocks and TIFF files keep their metadata in.

Values stay bytes, in the byte order of the file, so that what is not understood still survives the trip.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import Literal, TypeAlias

Buffer: TypeAlias = bytes | mmap.mmap

SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
EXIF_IFD, GPS_IFD, INTEROP_IFD = 34665, 34853, 40965
SHORT, LONG, LONG8 = 3, 4, 16


@dataclass(frozen=True)
class Entry:
    """One field: the TIFF type, the number of values, and their bytes."""

    type: int
    count: int
    value: bytes

    def integer(self, order: str) -> int:
        """The first value of an integer field."""
        return int(
            struct.unpack_from(order + {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}[self.type], self.value)[0]
        )


class Directory(dict[int, "Entry | Directory"]):
    """Fields by tag; EXIF, GPS and interoperability directories are nested."""


def read_header(data: Buffer) -> tuple[Literal["<", ">"], bool, int]:
    """Byte order ("<" or ">"), whether it is BigTIFF, and the offset of the first directory."""
    orders: dict[bytes, Literal["<", ">"]] = {b"II": "<", b"MM": ">"}
    order = orders[bytes(data[:2])]
    big = struct.unpack_from(order + "H", data, 2)[0] == 43
    return order, big, int(struct.unpack_from(order + ("Q" if big else "I"), data, 8 if big else 4)[0])


def entry_places(data: Buffer, offset: int, order: str, big: bool = False) -> tuple[dict[int, int], int]:
    """Where each entry of the directory at `offset` lies, and where the offset of the next directory lies."""
    (count,) = struct.unpack_from(order + ("Q" if big else "H"), data, offset)
    start, size = offset + (8 if big else 2), 20 if big else 12
    if start + count * size > len(data):
        raise ValueError("a directory reaches beyond the end")
    places = (start + i * size for i in range(count))
    return {struct.unpack_from(order + "H", data, place)[0]: place for place in places}, start + count * size


def read_directory(data: Buffer, offset: int, order: str, big: bool = False, depth: int = 0) -> Directory:
    """The directory at `offset`. Fields of unknown type or that lie outside the data are left out."""
    found = Directory()
    for tag, place in entry_places(data, offset, order, big)[0].items():
        kind, count = struct.unpack_from(order + ("HQ" if big else "HI"), data, place + 2)
        size = SIZES.get(kind, 0) * count
        at = place + (12 if big else 8)
        if size > (8 if big else 4):
            at = struct.unpack_from(order + ("Q" if big else "I"), data, at)[0]
        if not size or at + size > len(data):
            continue
        entry = Entry(kind, count, bytes(data[at : at + size]))
        if tag in (EXIF_IFD, GPS_IFD, INTEROP_IFD):
            # Nested at most twice in any honest file: EXIF, then interoperability.
            if depth < 2:
                found[tag] = read_directory(data, entry.integer(order), order, big, depth + 1)
        else:
            found[tag] = entry
    return found


def pack_directory(directory: Directory, at: int, order: str, big: bool = False) -> bytes:
    """The bytes of a directory that will lie at offset `at`, values and nested directories behind it."""
    inline, number = (8, "Q") if big else (4, "I")
    head = struct.pack(order + ("Q" if big else "H"), len(directory))
    body_at = at + len(head) + len(directory) * (20 if big else 12) + inline
    body = b""
    for tag, entry in sorted(directory.items()):
        if isinstance(entry, Directory):
            nested = pack_directory(entry, body_at + len(body), order, big)
            value = struct.pack(order + number, body_at + len(body))
            body += nested
            kind, count = (LONG8 if big else LONG), 1
        else:
            kind, count, value = entry.type, entry.count, entry.value
            if len(value) > inline:
                body, value = body + value, struct.pack(order + number, body_at + len(body))
        body += b"\0" * (len(body) % 2)
        head += struct.pack(order + "HH" + number, tag, kind, count) + value.ljust(inline, b"\0")
    return head + b"\0" * inline + body
