"""JPEG: 8 bits; grey, RGB, CMYK. Written at quality 95 without subsampling of colour.

The segments with EXIF, XMP, ICC profile, IPTC and comments are copied byte for byte. CMYK samples are kept as the
file has them (Adobe stores them inverted), so they go back the same way.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from pnpladmm.pictures.exif_blocks import orientation_of, turn, upright, upright_xmp
from pnpladmm.pictures.limits import check_size, one_line, read_bytes
from pnpladmm.pictures.metadata import Metadata, Resolution
from pnpladmm.pictures.raw import Raw
from pnpladmm.tensors import InputError

SIGNATURE = b"\xff\xd8\xff"
DTYPES = ("uint8",)
QUALITY = 95
APP0, APP1, APP2, APP13, APP14, COM, SOS = 0xE0, 0xE1, 0xE2, 0xED, 0xEE, 0xFE, 0xDA
FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
EXIF, XMP, MORE_XMP = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0", b"http://ns.adobe.com/xmp/extension/\0"
ICC, JFIF, ADOBE = b"ICC_PROFILE\0", b"JFIF\0", b"Adobe"
LONGEST = 65533
UNITS = {0: "none", 1: "inch", 2: "cm"}

Segment = tuple[int, bytes]


@dataclass(frozen=True)
class Segments:
    """The segments to write again; `adobe` tells whether CMYK is marked as Adobe's (inverted)."""

    kept: tuple[Segment, ...]
    adobe: bool


def read(path: Path, name: str, max_bytes: int) -> Raw:
    """The picture in a JPEG file."""
    import imagecodecs

    data = read_bytes(path, name, max_bytes)
    segments, scan = _split(data, name)
    frames = [(marker, body) for marker, body in segments if marker in FRAMES]
    if len(frames) != 1 or len(frames[0][1]) < 6:
        raise InputError(f"{name} has {len(frames)} JPEG frame headers instead of one: the file is damaged")
    marker, body = frames[0]
    bits, height, width, channels = struct.unpack_from(">BHHB", body)
    check_size(name, (height, width, channels), 1, max_bytes)
    if bits != 8 or marker in (0xC3, 0xC7, 0xCB, 0xCF) or channels not in (1, 3, 4):
        raise InputError(
            f"{name} is a JPEG of {bits} bits and {channels} channels, coding {marker:#x}: convert it to TIFF first"
        )
    # libjpeg only warns of a scan that breaks off, and paints the rest grey.
    if data.rfind(b"\xff\xd9") < scan:
        raise InputError(f"{name} is cut off after {len(data)} bytes: get the whole JPEG file again")
    pixels = imagecodecs.jpeg8_decode(data)
    if pixels.shape[:2] != (height, width):
        raise InputError(f"{name} decodes to {pixels.shape[:2]}, its header says {(height, width)}: it is damaged")
    metadata, orientation, notes = _metadata(segments)
    stack = pixels.reshape(height, width, -1).transpose(2, 0, 1)[None]
    colour = {1: "grey", 3: "rgb", 4: "cmyk"}[stack.shape[1]]
    return Raw(turn(stack, orientation), colour=colour, metadata=metadata, notes=notes)


def write(path: Path, raw: Raw) -> list[str]:
    """Write samples with 1, 3 or 4 (CMYK) channels; returns what could not be written."""
    import imagecodecs

    pixels = np.ascontiguousarray(raw.samples[0].transpose(1, 2, 0))
    cmyk = pixels.shape[-1] == 4
    space = "CMYK" if cmyk else None
    image = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    encoded = bytes(
        imagecodecs.jpeg8_encode(
            image, QUALITY, colorspace=space, outcolorspace=space, subsampling="444", optimize=True
        )
    )
    segments, scan = _split(encoded, "picture")
    native = raw.metadata.native
    notes: list[str] = []
    if isinstance(native, Segments):
        kept, adobe = native.kept, native.adobe
    else:
        kept, adobe = _segments_of(raw.metadata, notes), True
    own = [s for s in segments if s[0] != APP0 and (s[0] != APP14 or adobe)]
    # JFIF is for grey and YCbCr only.
    first = [] if cmyk else [(APP0, _jfif(raw.metadata.resolution))]
    with path.open("wb") as file:
        file.write(b"\xff\xd8")
        for marker, body in (*first, *kept, *own):
            file.write(struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body)
        file.write(encoded[scan:])
    return notes


def _split(data: bytes, name: str) -> tuple[list[Segment], int]:
    """The segments before the first scan, and where that begins (at its marker)."""
    segments: list[Segment] = []
    at = 2
    while at + 4 <= len(data):
        if data[at] != 0xFF:
            raise InputError(f"{name} has no JPEG marker at byte {at}: the file is damaged")
        marker = data[at + 1]
        if marker == 0xFF:  # fill bytes are allowed before a marker
            at += 1
            continue
        if marker == SOS:
            return segments, at
        (length,) = struct.unpack_from(">H", data, at + 2)
        if length < 2 or at + 2 + length > len(data):
            break
        segments.append((marker, data[at + 4 : at + 2 + length]))
        at += 2 + length
    raise InputError(f"{name} is cut off after {len(data)} bytes: get the whole JPEG file again")


def _metadata(segments: list[Segment]) -> tuple[Metadata, int, tuple[str, ...]]:
    """Metadata of the picture turned upright, how it has to be turned, and what is left out."""
    exif = next((b[len(EXIF) :] for m, b in segments if m == APP1 and b.startswith(EXIF)), None)
    orientation = orientation_of(exif)
    metadata = Metadata()
    kept: list[Segment] = []
    icc: dict[int, bytes] = {}
    adobe = False
    dropped: set[str] = set()
    for marker, body in segments:
        if marker == APP0 and body.startswith(JFIF) and len(body) >= 12:
            unit, x, y = struct.unpack_from(">BHH", body, 7)
            if x and y and unit in UNITS:
                resolution = Resolution(Fraction(x), Fraction(y), UNITS[unit])
                metadata = replace(metadata, resolution=resolution.turned() if orientation >= 5 else resolution)
        elif marker == APP1 and body.startswith(EXIF):
            block = upright(body[len(EXIF) :], orientation >= 5)
            metadata = replace(metadata, exif=block)
            kept.append((marker, EXIF + block))
        elif marker == APP1 and body.startswith((XMP, MORE_XMP)):
            body = upright_xmp(body)
            if body.startswith(XMP):
                metadata = replace(metadata, xmp=body[len(XMP) :])
            kept.append((marker, body))
        elif marker == APP2 and body.startswith(ICC) and len(body) > len(ICC) + 2:
            icc[body[len(ICC)]] = body[len(ICC) + 2 :]
            kept.append((marker, body))
        elif marker in (APP13, COM):
            kept.append((marker, body))
        elif marker == APP14 and body.startswith(ADOBE):
            adobe = True
        elif APP0 < marker <= 0xEF:
            # Offsets to further pictures in the old file, signatures of the old pixels, makers' own.
            dropped.add(f"APP{marker - APP0} {one_line(body[:12].partition(bytes(1))[0].decode('latin1'))}".strip())
    if icc:
        metadata = replace(metadata, icc=b"".join(icc[i] for i in sorted(icc)))
    notes = (f"its JPEG segments {', '.join(sorted(dropped))} are left out",) if dropped else ()
    return replace(metadata, native=Segments(tuple(kept), adobe)), orientation, notes


def _segments_of(metadata: Metadata, notes: list[str]) -> tuple[Segment, ...]:
    """Segments for a picture that comes from another format; notes what is too long for one."""
    kept: list[Segment] = []
    for what, mark, block in (("EXIF", EXIF, metadata.exif), ("XMP", XMP, metadata.xmp)):
        if block and len(mark + block) <= LONGEST:
            kept.append((APP1, mark + block))
        elif block:
            notes.append(f"{what} of {len(block)} bytes is too long for JPEG and left out")
    if metadata.icc:
        step = LONGEST - len(ICC) - 2
        parts = [metadata.icc[i : i + step] for i in range(0, len(metadata.icc), step)]
        kept += [(APP2, ICC + bytes([i + 1, len(parts)]) + part) for i, part in enumerate(parts)]
    return tuple(kept)


def _jfif(resolution: Resolution | None) -> bytes:
    """The JFIF header with the resolution in whole pixels per inch, or per cm where the file had that."""
    unit, x, y = 0, 1, 1
    if resolution is not None:
        wanted = resolution if resolution.unit in ("none", "cm") else resolution.to("inch")
        rounded = round(wanted.x), round(wanted.y)
        if all(0 < n < 65536 for n in rounded):
            unit, (x, y) = {"none": 0, "inch": 1, "cm": 2}[wanted.unit], rounded
    return JFIF + struct.pack(">HBHHBB", 0x0101, unit, x, y, 0, 0)
