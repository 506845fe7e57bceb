"""FITS (with astropy, extra `astro`): BITPIX 8, 16, 32, -32, -64, in the primary or an extension HDU.

The first HDU with an image of two axes or more is the picture; all others, and its own header, are written back byte
for byte. Rows keep the order of the file (the first row is FITS's y = 1, which displays show at the bottom), so
that coordinates of PSF models fit. A third axis of length 3 without a world coordinate, or with CTYPE3 = 'RGB', is
colour; all other leading axes are pages.

Values are what the header says: BSCALE * stored + BZERO. The offsets that stand for unsigned integers (and signed
bytes) give those; any other scaling gives float64, rounded back to stored integers on writing. BLANK and NaN have no
data: `Picture.valid`.
"""

from __future__ import annotations

import gzip
import io
import math
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from pnpladmm.pictures.arrays import Array
from pnpladmm.pictures.limits import check_size, read_bytes
from pnpladmm.pictures.metadata import Metadata
from pnpladmm.pictures.raw import Raw
from pnpladmm.tensors import InputError

SIGNATURE = b"SIMPLE  ="
GZIP = b"\x1f\x8b"
DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64")
BLOCK = 2880
STORED = {8: ">u1", 16: ">i2", 32: ">i4", -32: ">f4", -64: ">f8"}
# BITPIX and BZERO (with BSCALE 1) that stand for another integer type.
OFFSETS = {(8, -128): "int8", (16, 32768): "uint16", (32, 2147483648): "uint32"}


@dataclass(frozen=True)
class Frame:
    """The file around the pixels, and how numbers are stored in it."""

    before: bytes
    header: bytes
    after: bytes
    index: int
    shape: tuple[int, ...]
    bitpix: int
    bscale: float
    bzero: float
    blank: int | None
    checksum: bool

    @property
    def integer_type(self) -> str | None:
        """The integer type that the values have, None where they are floats."""
        if self.bscale == 1 and self.bzero == 0 and self.bitpix > 0:
            return np.dtype(STORED[self.bitpix]).name
        return OFFSETS.get((self.bitpix, int(self.bzero))) if self.bscale == 1 else None

    def values(self, stored: Array) -> Array:
        """What the header says that the stored numbers mean."""
        if self.integer_type is not None:
            return (stored.astype(np.int64) + int(self.bzero)).astype(self.integer_type)
        if self.bscale == 1 and self.bzero == 0:
            return stored.astype(stored.dtype.newbyteorder("="))
        return self.bzero + self.bscale * stored.astype(np.float64)

    def stored(self, values: Array, blank: Array | None) -> tuple[Array, int]:
        """The inverse, and how many values had to be clipped to the stored type."""
        kind = np.dtype(STORED[self.bitpix])
        clipped = 0
        if self.integer_type is not None:
            numbers: Array = values.astype(np.int64) - int(self.bzero)
        else:
            with np.errstate(invalid="ignore", over="ignore"):
                numbers = values if self.bscale == 1 and self.bzero == 0 else (values - self.bzero) / self.bscale
            if kind.kind != "f":
                low, high = np.iinfo(kind).min, np.iinfo(kind).max
                numbers = np.rint(np.nan_to_num(numbers))
                clipped = int(((numbers < low) | (numbers > high)).sum())
                numbers = np.clip(numbers, low, high)
        if blank is not None and self.blank is not None and kind.kind != "f":
            numbers[blank] = self.blank
        return numbers.astype(kind), clipped


def read(path: Path, name: str, max_bytes: int) -> Raw:
    """The picture in a FITS file, also one packed by gzip."""
    fits = _astropy(name)
    data = read_bytes(path, name, max_bytes)
    notes = []
    if data.startswith(GZIP):
        data = _gunzip(data, name, max_bytes)
    if not data.startswith(SIGNATURE):
        raise InputError(f"{name} is packed by gzip but holds no FITS file: unpack it first")
    with warnings.catch_warnings():
        # astropy warns of cards that bend the standard; they are written back as they were.
        warnings.simplefilter("ignore")
        with fits.open(io.BytesIO(data), do_not_scale_image_data=True, lazy_load_hdus=False) as hdus:
            index = next((i for i, hdu in enumerate(hdus) if _is_image(hdu)), None)
            if index is None:
                raise InputError(f"{name} holds no image of two axes or more in {len(hdus)} HDUs: is it a table?")
            hdu = hdus[index]
            frame = _frame(data, hdu, index, name, max_bytes)
            packed = isinstance(hdu, fits.CompImageHDU)
            header = hdu.header
            stored: Array = (
                np.asarray(hdu.data)
                if packed
                else np.frombuffer(data, STORED[frame.bitpix], math.prod(frame.shape), hdu.fileinfo()["datLoc"])
            ).reshape(frame.shape)
            colour_axis = len(frame.shape) == 3 and frame.shape[0] == 3 and header.get("CTYPE3", "RGB") == "RGB"
    if packed:
        notes.append("its tile compression is undone: it is written as a plain image HDU")
    missing = stored == frame.blank if frame.blank is not None and frame.bitpix > 0 else None
    stack = (1, 3) if colour_axis else (-1, 1)
    samples = frame.values(stored).reshape(*stack, *frame.shape[-2:])
    return Raw(
        samples,
        blank=None if missing is None else missing.reshape(samples.shape),
        colour="rgb" if colour_axis else "grey",
        metadata=Metadata(transfer="light", native=frame),
        notes=tuple(notes),
    )


def write(path: Path, raw: Raw, packed: bool = False) -> tuple[list[str], int]:
    """Write the samples into the frame they came from, or as a new primary HDU; returns notes and clipped samples."""
    fits = _astropy("FITS output")
    frame = raw.metadata.native
    clipped = 0
    buffer = io.BytesIO()
    if isinstance(frame, Frame):
        stored, clipped = frame.stored(raw.samples, raw.blank)
        body = stored.tobytes()
        content = frame.before + frame.header + body + b"\0" * (-len(body) % BLOCK) + frame.after
        buffer.write(_with_checksums(fits, content, frame.index) if frame.checksum else content)
    else:
        squeezed = raw.samples.reshape([n for n in raw.samples.shape[:2] if n > 1] + list(raw.samples.shape[2:]))
        hdu = fits.PrimaryHDU(squeezed)
        if raw.samples.shape[0] == 1 and raw.samples.shape[1] == 3:
            hdu.header["CTYPE3"] = "RGB"
        hdu.writeto(buffer)
    path.write_bytes(gzip.compress(buffer.getvalue(), mtime=0) if packed else buffer.getvalue())
    return [], clipped


def _astropy(name: str) -> ModuleType:
    try:
        from astropy.io import fits
    except ImportError:
        raise InputError(f"{name}: FITS needs astropy: pip install pnpladmm[astro]") from None
    module: ModuleType = fits
    return module


def _is_image(hdu: Any) -> bool:
    return hdu.is_image and len(hdu.shape or ()) >= 2


def _frame(data: bytes, hdu: Any, index: int, name: str, max_bytes: int) -> Frame:
    """The frame around the HDU's pixels; refuses sizes and types from the header alone."""
    header, place = hdu.header, hdu.fileinfo()
    start, at, span = place["hdrLoc"], place["datLoc"], place["datSpan"]
    bitpix = header["BITPIX"]
    if bitpix not in STORED:
        raise InputError(f"{name} has BITPIX {bitpix}: convert it to 32-bit integers or floats (-32, -64)")
    shape = tuple(hdu.shape)
    check_size(name, shape, abs(bitpix) / 8, max_bytes)
    if header.get("GROUPS", False):
        raise InputError(f"{name} holds random groups, not an image: convert it to an image HDU")
    from astropy.io import fits

    packed = isinstance(hdu, fits.CompImageHDU)
    needed = span if packed else math.prod(shape) * abs(bitpix) // 8
    if at + needed > len(data):
        raise InputError(f"{name} is cut off: its image needs {at + needed} bytes, the file has {len(data)}")
    text = header.tostring().encode("ascii") if packed else data[start:at]
    bscale, bzero = float(header.get("BSCALE", 1)), float(header.get("BZERO", 0))
    if not (math.isfinite(bscale) and math.isfinite(bzero)) or bscale == 0:
        raise InputError(f"{name} has BSCALE {bscale} and BZERO {bzero}: correct its header")
    blank = header.get("BLANK")
    if blank is not None and not isinstance(blank, int):
        raise InputError(f"{name} has BLANK {blank!r}, not an integer: correct its header")
    checksum = "CHECKSUM" in header or "DATASUM" in header
    return Frame(data[:start], text, data[at + span :], index, shape, bitpix, bscale, bzero, blank, checksum)


def _with_checksums(fits: ModuleType, content: bytes, index: int) -> bytes:
    """The file with CHECKSUM and DATASUM of the picture's HDU made true again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with fits.open(io.BytesIO(content), do_not_scale_image_data=True) as hdus:
            hdus[index].add_checksum()
            header = hdus[index].header.tostring().encode("ascii")
            place = hdus[index].fileinfo()
    return content[: place["hdrLoc"]] + header + content[place["datLoc"] :]


def _gunzip(data: bytes, name: str, max_bytes: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    try:
        content = unpacker.decompress(data, max_bytes)
    except zlib.error as error:
        raise InputError(f"{name} cannot be unpacked by gzip ({error}): get the file again") from None
    if unpacker.unconsumed_tail:
        raise InputError(f"{name} unpacks to more than the limit of {max_bytes} bytes: crop it, or raise max_bytes")
    if not unpacker.eof:
        raise InputError(f"{name} is cut off after {len(data)} bytes: get the whole gzip file again")
    return content
