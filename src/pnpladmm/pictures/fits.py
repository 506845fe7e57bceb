"""FITS (with astropy, extra `astro`): BITPIX 8, 16, 32, -32, -64, in the primary or an extension HDU.

The first HDU with an image of two axes or more is the picture, or the one in brackets behind the file's name. All
others, and its own header, are written back as they were; errors and flags beside it are used (`fits_quality`).
Rows keep the order of the file (the first row is FITS's y = 1, which displays show at the bottom), so that coordinates
of PSF models fit. A third axis of length 3 without a world coordinate, or with CTYPE3 = 'RGB', is colour; all other
leading axes are pages.

Values are what the header says: BSCALE * stored + BZERO. The offsets that stand for unsigned integers (and signed
bytes) give those; any other scaling gives float64 (astropy's own scaling would go through float32). Numbers that the
stored integers cannot hold, such as restored stars, are written as floats. BLANK and NaN have no data: `Picture.valid`.
"""

from __future__ import annotations

import gzip
import io
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pnpladmm.files import optional
from pnpladmm.gate import Field, check_size, take
from pnpladmm.pictures.arrays import Array
from pnpladmm.pictures.fits_quality import planes_beside, variance_and_dead
from pnpladmm.pictures.fits_structure import GZIP, SIGNATURE, checked_content, damaged, opened, structure
from pnpladmm.pictures.metadata import Metadata
from pnpladmm.pictures.pixel_scale import on_the_sky
from pnpladmm.pictures.raw import Format, Raw
from pnpladmm.pictures.selection import Extension
from pnpladmm.tensors import InputError

DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64")
STORED = {8: ">u1", 16: ">i2", 32: ">i4", -32: ">f4", -64: ">f8"}
# Restored numbers lie between those that integers can hold; rounding of floats stays below this share of a step.
ON_GRID = 1e-3
# BITPIX and BZERO (with BSCALE 1) that stand for another integer type.
SCALING = {
    "BSCALE": Field(float, -1e30, 1e30, default=1.0),
    "BZERO": Field(float, -1e30, 1e30, default=0.0),
    "BLANK": Field(int, -(2**63), 2**63 - 1, default=None),
}
FINEST_STEPS = 2.0**50
"""A float64 holds a number with steps of this share of it."""
OFFSETS: dict[tuple[int, float], str] = {(8, -128): "int8", (16, 32768): "uint16", (32, 2147483648): "uint32"}


@dataclass(frozen=True)
class Frame:
    """The file that the pixels came from, the number of their HDU, and how numbers are stored in it."""

    content: bytes
    index: int
    bitpix: int
    bscale: float
    bzero: float
    blank: int | None

    @property
    def is_plain(self) -> bool:
        """Whether the stored numbers are the values."""
        return self.bscale == 1 and self.bzero == 0

    def values(self, stored: Array) -> Array:
        """What the header says that the stored numbers mean."""
        if self.is_plain:
            return stored.astype(stored.dtype.newbyteorder("="))
        if self.bscale == 1 and (self.bitpix, self.bzero) in OFFSETS:
            return (stored.astype(np.int64) + int(self.bzero)).astype(OFFSETS[self.bitpix, self.bzero])
        return self.bzero + self.bscale * stored.astype(np.float64)

    def stored(self, values: Array, blank: Array | None) -> Array | None:
        """The inverse; None where the stored type cannot hold the values."""
        kind = np.dtype(STORED[self.bitpix])
        numbers = values if self.is_plain else (values.astype(np.float64) - self.bzero) / self.bscale
        if kind.kind == "f":
            return numbers.astype(kind)
        limits = np.iinfo(kind)
        numbers = numbers.astype(np.float64)
        if blank is not None:
            numbers[blank] = 0 if self.blank is None else self.blank
        whole = np.rint(numbers)
        if (np.abs(numbers - whole) > ON_GRID).any() or whole.min() < limits.min or whole.max() > limits.max:
            return None
        return whole.astype(kind)


def read(path: Path, name: str, max_bytes: int, extension: Extension | None = None) -> Raw:
    """The picture in a FITS file, also one packed by gzip: the first image, or that of an extension."""
    content = checked_content(path, name, max_bytes)
    with _opened(content, name) as hdus:
        index = _index(hdus, extension, name)
        hdu = hdus[index]
        _check(hdu, len(content), name, max_bytes)
        shape, header = hdu.shape, hdu.header
        is_colour = len(shape) == 3 and shape[0] == 3 and header.get("CTYPE3", "RGB") == "RGB"
        frame = _frame(content, index, header, name)
        stored = np.asarray(hdu.data)
        notes = ["its tile compression is undone: it is written as a plain image HDU"] if _is_compressed(hdu) else []
        notes += _others(hdus, index)
        planes = {}
        for plane, beside in planes_beside(hdus, index, tuple(shape)).items():
            _check(beside, len(content), f"{name}[{plane}]", max_bytes)
            stored_plane = _frame(b"", 0, beside.header, f"{name}[{plane}]").values(np.asarray(beside.data))
            planes[plane] = stored_plane, beside.header
        variance, dead, said = variance_and_dead(planes, hdus[0].header)
    blank = stored == frame.blank if frame.blank is not None and frame.bitpix > 0 else None
    stack = (*((1, 3) if is_colour else (-1, 1)), *shape[-2:])
    return Raw(
        frame.values(stored).reshape(stack),
        blank=None if blank is None else blank.reshape(stack),
        variance=None if variance is None else variance.reshape(stack),
        dead=None if dead is None else dead.reshape(stack),
        colour="rgb" if is_colour else "grey",
        metadata=Metadata(
            transfer="light", pixel_scale=on_the_sky(header), electrons_per_count=_gain(header), native=frame
        ),
        notes=(*damaged(content, name), *notes, *said),
    )


def write(path: Path, raw: Raw, name: str) -> tuple[list[str], int]:
    """Write the samples into the file they came from, or as a new primary HDU."""
    fits = optional("astropy.io.fits", name)
    frame, notes = raw.metadata.native, []
    buffer = io.BytesIO()
    if isinstance(frame, Frame):
        stored = frame.stored(raw.samples, raw.blank)
        if stored is None:
            stored = raw.samples.astype(">f4" if frame.bitpix in (8, 16) else ">f8")
            notes.append(f"its {frame.bitpix}-bit integers cannot hold the restored numbers: written as floats")
        with _opened(frame.content, name) as hdus:
            _put(hdus, frame, stored, fits)
            _tell(hdus, frame.index, raw.metadata.history)
            hdus.writeto(buffer, output_verify="ignore")
    else:
        pages, channels = raw.samples.shape[:2]
        hdu = fits.PrimaryHDU(raw.samples.reshape([n for n in (pages, channels) if n > 1] + [*raw.samples.shape[2:]]))
        if (pages, channels) == (1, 3):
            hdu.header["CTYPE3"] = "RGB"
        _tell([hdu], 0, raw.metadata.history)
        hdu.writeto(buffer)
    content = buffer.getvalue()
    structure(content, name)  # a header that bends the standard may have misled astropy
    path.write_bytes(gzip.compress(content, mtime=0) if name.lower().endswith(".gz") else content)
    return notes, 0


def _opened(content: bytes, name: str) -> AbstractContextManager[Any]:
    """The HDUs of a file, with the numbers as they are stored."""
    return opened(content, name, do_not_scale_image_data=True, lazy_load_hdus=False)


def _check(hdu: Any, size: int, name: str, max_bytes: int) -> None:
    """Refuse, from the header alone, sizes and types that cannot be read."""
    bitpix = hdu.header["BITPIX"]
    if bitpix not in STORED:
        raise InputError(f"{name} has BITPIX {bitpix}: convert it to 32-bit integers or floats (-32, -64)")
    check_size(name, hdu.shape, abs(bitpix) / 8, max_bytes)
    if hdu.header.get("GROUPS", False):
        raise InputError(f"{name} holds random groups, not an image: convert it to an image HDU")
    place = hdu.fileinfo()
    needed = place["datLoc"] + (place["datSpan"] if _is_compressed(hdu) else hdu.size)
    if needed > size:
        raise InputError(f"{name} is cut off: its image needs {needed} bytes, the file has {size}")


def _gain(header: Any) -> float | None:
    """Electrons per count that the header states, where the picture is in counts."""
    if str(header.get("BUNIT", "")).strip().lower() not in ("", "adu", "dn", "count", "counts", "ct"):
        return None
    found = (header.get(key) for key in ("EGAIN", "GAIN", "CCDGAIN"))
    return next((float(g) for g in found if isinstance(g, int | float) and 0 < g < 1e4 and g is not True), None)


def _is_compressed(hdu: Any) -> bool:
    """Whether an image HDU is compressed in tiles."""
    return type(hdu).__name__ == "CompImageHDU"


def _frame(content: bytes, index: int, header: Any, name: str) -> Frame:
    """What the header says of how numbers are stored."""
    said = {key: take(name, header, key, field) for key, field in SCALING.items()}
    if said["BSCALE"] == 0:
        raise InputError(f"{name}: BSCALE is 0: correct its header")
    if abs(said["BZERO"]) > FINEST_STEPS * abs(said["BSCALE"]):
        raise InputError(f"{name}: BZERO is {said['BZERO']:g} for steps of {said['BSCALE']:g}: no number holds both")
    return Frame(content, index, header["BITPIX"], said["BSCALE"], said["BZERO"], said["BLANK"])


def _index(hdus: Any, extension: Extension | None, name: str) -> int:
    """The number of the HDU with the picture."""
    images = [i for i, hdu in enumerate(hdus) if hdu.is_image and len(hdu.shape or ()) >= 2]
    if extension is None:
        if not images:
            raise InputError(f"{name} holds no image of two axes or more in {len(hdus)} HDUs: is it a table?")
        return images[0]
    try:
        index = int(hdus.index_of(extension))
    except (KeyError, IndexError):
        index = -1
    if index not in images:
        able = ", ".join(_called(hdus[i], i) for i in images[:12])
        raise InputError(f"{name}: the file has no such image: choose one of {able or 'none'}")
    return index


def _called(hdu: Any, number: int) -> str:
    """What an extension is called in brackets."""
    return f"{hdu.name},{hdu.ver}" if hdu.name and number else str(number)


def _others(hdus: Any, index: int) -> list[str]:
    """A note where the file has more pictures of the same name."""
    more = [f"[{_called(h, i)}]" for i, h in enumerate(hdus) if i != index and h.is_image and h.shape]
    mine = hdus[index].name
    same = [text for text in more if mine and text.startswith(f"[{mine},")]
    if not same:
        return []
    return [f"{_called(hdus[index], index)} is restored; give {', '.join(same[:4])} behind the file's name for others"]


def _tell(hdus: Any, index: int, history: tuple[str, ...]) -> None:
    """HISTORY cards in the header of the picture."""
    for line in history:
        hdus[index].header.add_history("".join(c if " " <= c <= "~" else "?" for c in line))


def _put(hdus: Any, frame: Frame, stored: Array, fits: Any) -> None:
    """Put the stored numbers into their HDU; its header stays, except for checksums and what floats do not need."""
    index = frame.index
    hdu = hdus[index]
    if frame.bitpix > 0 and stored.dtype.kind == "f":
        header = hdu.header.copy()
        for card in ("BSCALE", "BZERO", "BLANK"):
            header.remove(card, ignore_missing=True)
        kind = fits.ImageHDU if index else fits.PrimaryHDU
        hdu = hdus[index] = kind(stored.reshape(hdu.shape), header)
    elif _is_compressed(hdu):
        scaling = {card: hdu.header[card] for card in ("BSCALE", "BZERO") if card in hdu.header}
        hdu = hdus[index] = fits.ImageHDU(stored.reshape(hdu.shape), hdu.header, do_not_scale_image_data=True)
        hdu.header.update(scaling)  # astropy takes the numbers for values and drops it
    else:
        hdu.data[...] = stored.reshape(hdu.shape)  # in place, so that the header stays
    if "CHECKSUM" in hdu.header or "DATASUM" in hdu.header:
        hdu.add_checksum()


FORMAT = Format(
    "FITS",
    (SIGNATURE, GZIP),
    (".fits", ".fit", ".fts", ".fits.gz", ".fit.gz", ".fts.gz"),
    DTYPES,
    Frame,
    read,
    write,
)
