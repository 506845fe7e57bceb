"""The structure of a FITS file, checked before astropy sees it: where headers end, and what they announce.

astropy believes headers: it makes as many axes as NAXIS says, and looks for END through a whole file.
"""

from __future__ import annotations

import gzip
import io
import math
import mmap
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pnpladmm.files import optional
from pnpladmm.gate import Field, max_bytes, shown, take
from pnpladmm.locks import check_regular
from pnpladmm.pictures.checks import read_bytes
from pnpladmm.pictures.raw import DAMAGE
from pnpladmm.sandbox import try_apart
from pnpladmm.tensors import InputError

GZIP, SIGNATURE = b"\x1f\x8b", b"SIMPLE  ="
BLOCK, CARD = 2880, 80
MOST_CARDS = 20_000
MOST_HDUS = 5_000
FIELDS = {
    "BITPIX": Field(int, -64, 64),
    "NAXIS": Field(int, 0, 32),
    "PCOUNT": Field(int, 0, 10**12, default=0),
    "GCOUNT": Field(int, 1, 10**9, default=1),
    "TFIELDS": Field(int, 0, 999, default=0),
}
"""What says how long the data are, and how many columns a table has."""
AXIS = Field(int, 0, 10**12)


@dataclass(frozen=True)
class Hdu:
    """Where an HDU and its data lie, in bytes, whether it is a picture packed in tiles, and its own sums."""

    at: int
    data_at: int
    size: int
    is_packed: bool
    checksum: str
    datasum: str

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.data_at + -(-self.size // BLOCK) * BLOCK


def checked_content(path: Path, name: str, limit: int | None = None) -> bytes:
    """The content of a FITS file, unpacked and with a sound structure."""
    limit = max_bytes() if limit is None else limit
    content = read_bytes(path, name, limit)
    if content.startswith(GZIP):
        content = _unpacked(content, name, limit)
    if not content.startswith(SIGNATURE):
        raise InputError(f"{name} is packed by gzip but holds no FITS file: unpack it first")
    if any(hdu.is_packed for hdu in structure(content, name)):
        try_apart("fits", path, name)  # tiles are unpacked by C code
    return content


@contextmanager
def opened(content: bytes, name: str, **options: Any) -> Iterator[Any]:
    """The HDUs of a checked content."""
    fits = optional("astropy.io.fits", name)
    with warnings.catch_warnings():
        # astropy warns of cards that bend the standard; they are written back as they were.
        warnings.simplefilter("ignore")
        with fits.open(io.BytesIO(content), **options) as hdus:
            yield hdus


def check_file(path: Path, name: str) -> None:
    """Refuse a file without a sound structure, and read no more of it than its headers."""
    check_regular(path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content[: len(SIGNATURE)] != SIGNATURE:
            raise InputError(f"{name} is no FITS file that is read in parts: unpack it first if it is packed")
        if any(hdu.is_packed for hdu in structure(content, name)):
            try_apart("fits", path, name)


def structure(content: bytes | mmap.mmap, name: str) -> list[Hdu]:
    """The HDUs of a file, all of them whole. What follows the last one does not count."""
    found: list[Hdu] = []
    at = 0
    while at + CARD <= len(content) and content[at : at + 9] in (SIGNATURE, b"XTENSION="):
        if len(found) >= MOST_HDUS:
            raise InputError(f"{name}: more than {MOST_HDUS} HDUs: it is damaged")
        cards, data_at = _cards(content, at, name)
        header = {key: _number(text) for key, text in cards.items()}
        values = {key: take(name, header, key, field) for key, field in FIELDS.items()}
        axes = [take(name, header, f"NAXIS{i}", AXIS) for i in range(1, values["NAXIS"] + 1)]
        groups = cards.get("GROUPS", "F").startswith("T") and axes[:1] == [0]
        count = math.prod(axes[1:] if groups else axes) if axes else 0
        size = abs(values["BITPIX"]) // 8 * values["GCOUNT"] * (values["PCOUNT"] + count)
        sums = (cards.get(key, "").strip("' ") for key in ("CHECKSUM", "DATASUM"))
        if data_at + size > len(content):
            raise InputError(
                f"{name} is cut off: HDU {len(found)} needs {data_at + size} bytes, the file has {len(content)}: "
                "get the file again"
            )
        found.append(Hdu(at, data_at, size, cards.get("ZIMAGE", "F").startswith("T"), *sums))
        at = found[-1].end
    return found


def damaged(content: bytes, name: str) -> tuple[str, ...]:
    """A note where the sums that the file states of itself are not those of its bytes."""
    wrong = []
    for number, hdu in enumerate(structure(content, name)):
        data = _sum(content, hdu.data_at, hdu.end)
        if hdu.datasum.isdigit() and len(hdu.datasum) <= 10 and int(hdu.datasum) != data:
            wrong.append(f"the data of HDU {number}")
        # The text of CHECKSUM is chosen so that the whole sums to all ones, which is 0.
        elif hdu.checksum.strip("0") and _sum(content, hdu.at, hdu.end) not in (0, 0xFFFFFFFF):
            wrong.append(f"HDU {number}")
    if not wrong:
        return ()
    return (f"it {DAMAGE}: the checksum of {', '.join(wrong[:4])} is not the one that the file states",)


def _sum(content: bytes, start: int, stop: int) -> int:
    """The sum of big-endian words of 32 bits with the carry added again, as FITS has it."""
    part = content[start:stop]
    total = int(np.frombuffer(part[: len(part) // 4 * 4], ">u4").sum(dtype=np.uint64))
    while total >> 32:
        total = (total & 0xFFFFFFFF) + (total >> 32)
    return total


def _cards(content: bytes | mmap.mmap, at: int, name: str) -> tuple[dict[str, str], int]:
    """The texts of the first cards of each name, and where the header ends."""
    cards: dict[str, str] = {}
    for number in range(MOST_CARDS):
        card = content[at + CARD * number : at + CARD * (number + 1)]
        if not card:
            break
        key = card[:8].rstrip().decode("latin1")
        if key == "END":
            if card.rstrip(b" \0") != b"END":
                raise InputError(f"{name} is a damaged FITS file: the card END holds more: get the file again")
            return cards, at + -(-CARD * (number + 1) // BLOCK) * BLOCK
        if card[8:9] == b"=":
            cards.setdefault(key, card[9:].partition(b"/")[0].strip().decode("latin1"))
    raise InputError(f"{name} is a damaged FITS file: a header of {len(cards)} names has no end: get the file again")


def _number(text: str) -> Any:
    """A whole number; the text itself for anything else."""
    try:
        return int(text) if len(text) <= 20 else text
    except ValueError:
        return text


def _unpacked(content: bytes, name: str, limit: int) -> bytes:
    """The content of a gzip file, up to the limit."""
    try:
        unpacked = gzip.GzipFile(fileobj=io.BytesIO(content)).read(limit + 1)
    except EOFError:
        raise InputError(f"{name} is cut off after {len(content)} bytes: get the whole gzip file again") from None
    except (OSError, zlib.error) as error:
        raise InputError(f"{name} cannot be unpacked by gzip ({shown(str(error))}): get the file again") from None
    if len(unpacked) > limit:
        raise InputError(f"{name} unpacks to more than the limit of {limit} bytes: crop it, or raise max_bytes")
    return unpacked
