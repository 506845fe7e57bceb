"""JPEG (with Pillow): 8 bits; grey, RGB, CMYK. Written at quality 95 without subsampling of colour."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pnpladmm.gate import check_size
from pnpladmm.pictures import exif
from pnpladmm.pictures.checks import read_bytes
from pnpladmm.pictures.jpeg_damage import check_jpeg
from pnpladmm.pictures.jpeg_jumps import jump
from pnpladmm.pictures.metadata import Resolution
from pnpladmm.pictures.raw import DAMAGE, Format, Raw
from pnpladmm.tensors import InputError, one_line

if TYPE_CHECKING:
    from PIL.Image import Image

QUALITY = 95
LONGEST_SEGMENT = 65533
EXIF, XMP, MORE_XMP = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0", b"http://ns.adobe.com/xmp/extension/\0"
MODES = {1: "L", 3: "RGB", 4: "CMYK"}


@dataclass(frozen=True)
class Segments:
    """Segments that Pillow does not write by itself, as bytes of the file: IPTC, comments, long XMP."""

    content: bytes


def read(path: Path, name: str, max_bytes: int) -> Raw:
    """The picture in a JPEG file."""
    from PIL.JpegImagePlugin import JpegImageFile

    from pnpladmm.pictures.pil import raw_of

    data = read_bytes(path, name, max_bytes)
    try:
        # Not Image.open, which has a limit of its own and hides why a file is refused.
        image = JpegImageFile(io.BytesIO(data))
        check_size(name, (image.height, image.width, len(image.getbands())), 1, max_bytes)
        image.load()
    except (OSError, SyntaxError) as error:
        # Pillow reports a header that ends too early by the error of whatever it was reading.
        if "truncated" in str(error).lower() or isinstance(error.__cause__, IndexError | EOFError | struct.error):
            raise InputError(f"{name} is cut off: get the whole JPEG file again") from None
        raise InputError(
            f"{name} is a JPEG that Pillow does not read ({one_line(str(error))}): "
            "get the file again, or convert it to TIFF"
        ) from None
    remarks = (*check_jpeg(data, name), *_shift(image))
    raw = raw_of(image, name)
    kept, dropped = _segments(image.applist)
    notes = (f"its JPEG segments {', '.join(sorted(dropped))} are left out",) if dropped else ()
    native = Segments(kept) if kept else None
    return replace(raw, metadata=replace(raw.metadata, native=native), notes=(*raw.notes, *remarks, *notes))


def _shift(image: Image) -> tuple[str, ...]:
    """A note where brightness or colour jumps as damage makes them jump."""
    if image.mode not in ("L", "RGB"):
        return ()
    found = jump(np.atleast_3d(np.asarray(image)))
    if found is None:
        return ()
    where = f"brightness or colour is shifted from row {found[0]}, column {found[1]} on"
    return (f"its JPEG data {DAMAGE} ({where}): look at the picture, or get the file again",)


def write(path: Path, raw: Raw, name: str) -> tuple[list[str], int]:
    """Write samples with 1, 3 or 4 (CMYK) channels."""
    from PIL import Image

    channels, height, width = raw.samples.shape[1:]
    pixels = np.ascontiguousarray(raw.samples[0].transpose(1, 2, 0))
    metadata, notes = raw.metadata, []
    options = {}
    for what, key, mark, block in (("EXIF", "exif", EXIF, metadata.exif), ("XMP", "xmp", XMP, metadata.xmp)):
        if block and len(mark + block) > LONGEST_SEGMENT:
            notes.append(f"{what} of {len(block)} bytes is too long for JPEG and left out")
        elif block:
            options[key] = EXIF + block if key == "exif" else block
    image = Image.frombytes(MODES[channels], (width, height), pixels.tobytes())
    image.save(
        path, "JPEG", quality=QUALITY, subsampling=0, optimize=True, dpi=_dots_per_inch(metadata.resolution),
        icc_profile=metadata.icc, extra=metadata.native.content if isinstance(metadata.native, Segments) else b"",
        **options,
    )  # fmt: skip
    return notes, 0


def _segments(found: list[tuple[str, bytes]]) -> tuple[bytes, set[str]]:
    """The segments to write again, and the names of those left out."""
    kept, dropped = b"", set()
    for marker, body in found:
        if marker in ("APP13", "COM") or (marker == "APP1" and body.startswith(MORE_XMP)):
            code = 0xFE if marker == "COM" else 0xE0 + int(marker[3:])
            kept += struct.pack(">BBH", 0xFF, code, len(body) + 2) + exif.upright_xmp(body)
        elif not body.startswith((EXIF, XMP, b"ICC_PROFILE\0", b"JFIF\0", b"Adobe")) and marker != "APP0":
            # Offsets to further pictures in the old file, signatures of the old pixels, makers' own.
            dropped.add(f"{marker} {one_line(body[:12].partition(bytes(1))[0].decode('latin1'))}".strip())
    return kept, dropped


def _dots_per_inch(resolution: Resolution | None) -> tuple[int, int]:
    """What the JFIF header holds: whole dots per inch, (0, 0) for nothing."""
    if resolution is None or resolution.unit == "none":
        return 0, 0
    inches = resolution.to("inch")
    dots = round(inches.x), round(inches.y)
    return dots if all(0 < n < 65536 for n in dots) else (0, 0)


FORMAT = Format("JPEG", (b"\xff\xd8\xff",), (".jpg", ".jpeg"), ("uint8",), Segments, read, write, is_flat=True)
