"""PNG: 8 and 16 bits; grey, RGB, each with or without alpha; palettes are read as RGB.

Pillow silently makes 8 bits of 16-bit RGB, and libpng (imagecodecs) keeps no metadata. So the pixels go through
libpng, and the chunks around them are copied: profile, gamma, resolution, EXIF and texts survive to the byte.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pnpladmm.gate import check_size
from pnpladmm.pictures import exif
from pnpladmm.pictures.checks import read_bytes
from pnpladmm.pictures.metadata import NO_METADATA, Metadata, Resolution
from pnpladmm.pictures.raw import Format, Raw
from pnpladmm.tensors import InputError, one_line

SIGNATURE = b"\x89PNG\r\n\x1a\n"
PALETTE = 3
CHANNELS = {0: 1, 2: 3, PALETTE: 3, 4: 2, 6: 4}
# Kept besides the chunks that PNG itself marks as safe to copy (a lower-case fourth letter).
COLOUR_CHUNKS = frozenset({b"gAMA", b"cHRM", b"sRGB", b"cICP"})
# Written anew from the metadata.
METADATA_CHUNKS = frozenset({b"iCCP", b"pHYs", b"eXIf"})
# The pixels themselves, hints at how the old ones were stored, and when the file was changed last.
REPLACED_CHUNKS = frozenset({b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"sBIT", b"hIST", b"bKGD", b"tIME"})
XMP_KEY = b"XML:com.adobe.xmp\0\0"
LARGEST_PROFILE = 2**24
CICP_TRANSFERS: dict[int, str | float] = {13: "srgb", 8: "light"}

Chunk = tuple[bytes, bytes]


@dataclass(frozen=True)
class Chunks:
    """The chunks that `Metadata` do not hold, in their order: texts, gamma, and what other programs add."""

    kept: tuple[Chunk, ...]


def read(path: Path, name: str, max_bytes: int) -> Raw:
    """The picture in a PNG file."""
    import imagecodecs

    data = read_bytes(path, name, max_bytes)
    width, height, bits, colour_type, chunks = check_png(data, name, max_bytes)
    pixels = imagecodecs.png_decode(data)
    if pixels.shape[:2] != (height, width):
        raise InputError(f"{name} decodes to {pixels.shape[:2]}, its header says {(height, width)}: it is damaged")
    metadata, orientation, notes = _metadata(chunks)
    if colour_type == PALETTE:
        notes.append("its palette is written as RGB: restored colours are not in it")
    elif bits < 8:
        notes.append(f"its {bits}-bit samples are written as 8-bit")
    stack = exif.turn(pixels.reshape(height, width, -1).transpose(2, 0, 1)[None], orientation)
    colours = 3 if stack.shape[1] >= 3 else 1
    return Raw(
        np.ascontiguousarray(stack[:, :colours]),
        np.ascontiguousarray(stack[:, colours:]) if stack.shape[1] > colours else None,
        colour="rgb" if colours == 3 else "grey",
        metadata=metadata,
        notes=tuple(notes),
    )


class Checked(NamedTuple):
    """The header of a PNG file, and its chunks, each with the right checksum."""

    width: int
    height: int
    bits: int
    colour_type: int
    chunks: list[Chunk]


def check_png(data: bytes, name: str, max_bytes: int, value_bytes: int | None = None) -> Checked:
    """Refuse a PNG file that is damaged, or needs more than `max_bytes` (`value_bytes` for a sample if given)."""
    chunks = _split(data, name)
    kinds = {kind for kind, _ in chunks}
    if chunks[0][0] != b"IHDR" or len(chunks[0][1]) != 13:
        raise InputError(f"{name} does not begin with a PNG header: the file is damaged")
    width, height, bits, colour_type = struct.unpack_from(">IIBB", chunks[0][1])
    if colour_type not in CHANNELS or bits not in (1, 2, 4, 8, 16):
        raise InputError(f"{name} has PNG colour type {colour_type} of {bits} bits: the header is damaged")
    # A transparent colour becomes an alpha channel.
    channels = CHANNELS[colour_type] + (b"tRNS" in kinds)
    check_size(name, (height, width, channels), value_bytes or (2 if bits == 16 else 1), max_bytes)
    if b"acTL" in kinds:
        raise InputError(f"{name} is an animated PNG: extract its frames first, or write a multi-page TIFF")
    return Checked(width, height, bits, colour_type, chunks)


def write(path: Path, raw: Raw, name: str) -> tuple[list[str], int]:
    """Write samples with 1 or 3 channels."""
    import imagecodecs
    from PIL.PngImagePlugin import putchunk

    parts = raw.samples if raw.alpha is None else np.concatenate([raw.samples, raw.alpha], 1)
    pixels = np.ascontiguousarray(parts[0].transpose(1, 2, 0))
    encoded = imagecodecs.png_encode(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    own = [chunk for chunk in _split(bytes(encoded), name) if chunk[0] in (b"IHDR", b"IDAT", b"IEND")]
    native = raw.metadata.native
    kept = native.kept if isinstance(native, Chunks) else ()
    with path.open("wb") as file:
        file.write(SIGNATURE)
        for kind, body in (own[0], *_chunks_of(raw.metadata, kept), *kept, *own[1:]):
            putchunk(file, kind, body)
    return [], 0


def _split(data: bytes, name: str) -> list[Chunk]:
    """The chunks of a file, checked: each whole, with the right checksum, up to IEND."""
    chunks: list[Chunk] = []
    at = len(SIGNATURE)
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        body, crc = data[at + 8 : at + 8 + length], data[at + 8 + length : at + 12 + length]
        if len(crc) < 4:
            break
        if zlib.crc32(body, zlib.crc32(kind)) != struct.unpack(">I", crc)[0]:
            raise InputError(f"{name} has a damaged PNG chunk at byte {at} (wrong checksum): get the file again")
        chunks.append((kind, body))
        if kind == b"IEND":
            return chunks
        at += 12 + length
    raise InputError(f"{name} is cut off after {len(data)} bytes: get the whole PNG file again")


def _metadata(chunks: list[Chunk]) -> tuple[Metadata, int, list[str]]:
    """Metadata of the picture turned upright, how it has to be turned, and what is left out."""
    found = dict(reversed(chunks))
    block, orientation, notes = exif.upright(found.get(b"eXIf"))
    metadata = replace(NO_METADATA, exif=block, transfer=_transfer(found))
    if len(found.get(b"pHYs", b"")) == 9:
        x, y, unit = struct.unpack(">IIB", found[b"pHYs"])
        resolution = Resolution(Fraction(x), Fraction(y), "metre" if unit == 1 else "none") if x and y else None
        turned = resolution.turned() if resolution and orientation >= 5 else resolution
        metadata = replace(metadata, resolution=turned)
    if b"iCCP" in found:
        metadata = replace(metadata, icc=_inflate(found[b"iCCP"].partition(b"\0")[2][1:]))
        if metadata.icc is None:
            notes.append("its ICC profile is damaged and left out")
    kept: list[Chunk] = []
    for kind, body in chunks:
        if kind == b"iTXt" and body.startswith(XMP_KEY):
            packet = exif.upright_xmp(body[len(XMP_KEY) + 1 :].split(b"\0", 2)[-1])
            metadata = replace(metadata, xmp=packet)
        elif kind in COLOUR_CHUNKS or (kind[3:].islower() and kind not in REPLACED_CHUNKS | METADATA_CHUNKS):
            kept.append((kind, body))
    left = {kind for kind, _ in chunks} - {kind for kind, _ in kept} - REPLACED_CHUNKS - METADATA_CHUNKS - {b"iTXt"}
    if left:
        names = sorted(one_line(kind.decode("latin1")) for kind in left)
        notes.append(f"its PNG chunks {', '.join(names)} are left out")
    return replace(metadata, native=Chunks(tuple(kept)) if kept else None), orientation, notes


def _transfer(found: dict[bytes, bytes]) -> str | float:
    """What the samples mean: cICP before sRGB before gAMA, as decoders are told to believe them."""
    if len(found.get(b"cICP", b"")) == 4:
        code = found[b"cICP"][1]
        return CICP_TRANSFERS.get(code, f"cICP transfer {code}")
    gamma = int.from_bytes(found.get(b"gAMA", b""))
    # 45455 is what files write that mean sRGB.
    if b"sRGB" in found or gamma in (0, 45455):
        return "srgb"
    return "light" if gamma == 100_000 else 100_000 / gamma


def _inflate(packed: bytes) -> bytes | None:
    """A compressed profile; None where it is damaged or absurdly long."""
    unpacker = zlib.decompressobj()
    try:
        profile = unpacker.decompress(packed, LARGEST_PROFILE)
    except zlib.error:
        return None
    return profile if unpacker.eof else None


def _chunks_of(metadata: Metadata, kept: tuple[Chunk, ...]) -> list[Chunk]:
    """The chunks for the metadata that every format has; a gamma among those `kept` stays."""
    chunks: list[Chunk] = []
    if metadata.icc:
        chunks.append((b"iCCP", b"icc\0\0" + zlib.compress(metadata.icc)))
    elif isinstance(metadata.transfer, float) and not any(kind == b"gAMA" for kind, _ in kept):
        chunks.append((b"gAMA", struct.pack(">I", round(100_000 / metadata.transfer))))
    if metadata.resolution:
        metres = metadata.resolution.to("metre")
        x, y = round(metres.x), round(metres.y)
        if 0 < x < 2**31 and 0 < y < 2**31:
            chunks.append((b"pHYs", struct.pack(">IIB", x, y, metres.unit == "metre")))
    if metadata.exif:
        chunks.append((b"eXIf", metadata.exif))
    if metadata.xmp:
        chunks.append((b"iTXt", XMP_KEY + b"\0\0\0" + metadata.xmp))
    return chunks


FORMAT = Format(
    "PNG", (SIGNATURE,), (".png",), ("uint8", "uint16"), Chunks, read, write,
    is_flat=True, holds_alpha=True, holds_cmyk=False,
)  # fmt: skip
