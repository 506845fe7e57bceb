"""PNG: 8 and 16 bits; grey, RGB, each with or without alpha; palettes are read as RGB.

The pixels go through libpng (imagecodecs): Pillow silently makes 8 bits of 16-bit RGB. The chunks around them are
copied byte for byte, so that profile, gamma, resolution, EXIF and texts survive.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from pnpladmm.pictures.exif_blocks import orientation_of, turn, upright, upright_xmp
from pnpladmm.pictures.limits import check_size, one_line, read_bytes
from pnpladmm.pictures.metadata import Metadata, Resolution
from pnpladmm.pictures.raw import Raw
from pnpladmm.tensors import InputError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
DTYPES = ("uint8", "uint16")
CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
# Kept besides the chunks that PNG itself marks as safe to copy (a lower-case fourth letter).
COLOUR_CHUNKS = frozenset({b"gAMA", b"cHRM", b"sRGB", b"iCCP", b"cICP"})
# Safe to copy, but they tell of the file as it was: when it was changed last.
STALE_CHUNKS = frozenset({b"tIME"})
# The pixels themselves, and hints at how the old ones were stored.
REPLACED_CHUNKS = frozenset({b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"sBIT", b"hIST", b"bKGD"})
XMP_KEY = b"XML:com.adobe.xmp\0"
LARGEST_PROFILE = 2**24
CICP_TRANSFERS: dict[int, str | float] = {13: "srgb", 8: "light"}

Chunk = tuple[bytes, bytes]


@dataclass(frozen=True)
class Chunks:
    """The chunks to write again, in their order."""

    kept: tuple[Chunk, ...]


def read(path: Path, name: str, max_bytes: int) -> Raw:
    """The picture in a PNG file."""
    import imagecodecs

    data = read_bytes(path, name, max_bytes)
    chunks = _split(data, name)
    kinds = {kind for kind, _ in chunks}
    if chunks[0][0] != b"IHDR" or len(chunks[0][1]) != 13:
        raise InputError(f"{name} does not begin with a PNG header: the file is damaged")
    width, height, bits, colour_type = struct.unpack_from(">IIBB", chunks[0][1])
    if colour_type not in CHANNELS or bits not in (1, 2, 4, 8, 16):
        raise InputError(f"{name} has PNG colour type {colour_type} of {bits} bits: the header is damaged")
    # A transparent colour becomes an alpha channel.
    channels = CHANNELS[colour_type] + (b"tRNS" in kinds)
    check_size(name, (height, width, channels), 2 if bits == 16 else 1, max_bytes)
    if b"acTL" in kinds:
        raise InputError(f"{name} is an animated PNG: extract its frames first, or write a multi-page TIFF")
    pixels = imagecodecs.png_decode(data)
    if pixels.shape[:2] != (height, width):
        raise InputError(f"{name} decodes to {pixels.shape[:2]}, its header says {(height, width)}: it is damaged")
    stack = pixels.reshape(height, width, -1).transpose(2, 0, 1)[None]
    metadata, orientation, dropped = _metadata(chunks)
    stack = turn(stack, orientation)
    colours = 3 if stack.shape[1] >= 3 else 1
    notes = []
    if colour_type == 3:
        notes.append("its palette is written as RGB: restored colours are not in it")
    elif bits < 8:
        notes.append(f"its {bits}-bit samples are written as 8-bit")
    if dropped:
        notes.append(f"its PNG chunks {', '.join(dropped)} are left out")
    return Raw(
        np.ascontiguousarray(stack[:, :colours]),
        np.ascontiguousarray(stack[:, colours:]) if stack.shape[1] > colours else None,
        colour="rgb" if colours == 3 else "grey",
        metadata=metadata,
        notes=tuple(notes),
    )


def write(path: Path, raw: Raw) -> list[str]:
    """Write samples with 1 or 3 channels; returns what could not be written."""
    import imagecodecs

    parts = raw.samples if raw.alpha is None else np.concatenate([raw.samples, raw.alpha], 1)
    pixels = np.ascontiguousarray(parts[0].transpose(1, 2, 0))
    encoded = imagecodecs.png_encode(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    own = [chunk for chunk in _split(bytes(encoded), "picture") if chunk[0] in (b"IHDR", b"IDAT", b"IEND")]
    native = raw.metadata.native
    kept = native.kept if isinstance(native, Chunks) else _chunks_of(raw.metadata)
    with path.open("wb") as file:
        file.write(SIGNATURE)
        for kind, body in (own[0], *kept, *own[1:]):
            file.write(struct.pack(">I", len(body)) + kind + body)
            file.write(struct.pack(">I", zlib.crc32(body, zlib.crc32(kind))))
    return []


def _split(data: bytes, name: str) -> list[Chunk]:
    """The chunks of a file, checked: each whole, with the right checksum, up to IEND."""
    chunks: list[Chunk] = []
    at = len(SIGNATURE)
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + length]
        crc = data[at + 8 + length : at + 12 + length]
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
    by_kind = dict(reversed(chunks))
    exif = by_kind.get(b"eXIf")
    orientation = orientation_of(exif)
    kept: list[Chunk] = []
    metadata = Metadata()
    for kind, body in chunks:
        copy = body
        if kind == b"eXIf":
            copy = upright(body, orientation >= 5)
            metadata = replace(metadata, exif=copy)
        elif kind == b"pHYs" and len(body) == 9:
            x, y, unit = struct.unpack(">IIB", body)
            if x and y:
                resolution = Resolution(Fraction(x), Fraction(y), "metre" if unit == 1 else "none")
                metadata = replace(metadata, resolution=resolution.turned() if orientation >= 5 else resolution)
            copy = struct.pack(">IIB", y, x, unit) if orientation >= 5 else body
        elif kind == b"iCCP":
            metadata = replace(metadata, icc=_inflate_profile(body))
        elif kind == b"iTXt" and body.startswith(XMP_KEY) and body[len(XMP_KEY) : len(XMP_KEY) + 1] == b"\0":
            copy = upright_xmp(body)
            metadata = replace(metadata, xmp=copy[len(XMP_KEY) + 2 :].split(b"\0", 2)[-1])
        if kind in COLOUR_CHUNKS or (not kind[3:].isupper() and kind not in STALE_CHUNKS):
            kept.append((kind, copy))
    # The order in which decoders are told to believe them: cICP, iCCP (which tone_of prefers), sRGB, gAMA.
    if len(by_kind.get(b"cICP", b"")) == 4:
        code = by_kind[b"cICP"][1]
        metadata = replace(metadata, transfer=CICP_TRANSFERS.get(code, f"cICP transfer {code}"))
    elif b"sRGB" not in by_kind and len(by_kind.get(b"gAMA", b"")) == 4:
        (gamma,) = struct.unpack(">I", by_kind[b"gAMA"])
        # 45455 is what files write that mean sRGB.
        if gamma and gamma != 45455:
            metadata = replace(metadata, transfer="light" if gamma == 100000 else 100000 / gamma)
    left = {kind for kind, _ in chunks} - {kind for kind, _ in kept} - REPLACED_CHUNKS - STALE_CHUNKS
    names = sorted(one_line(kind.decode("latin1")) for kind in left)
    return replace(metadata, native=Chunks(tuple(kept))), orientation, names


def _inflate_profile(body: bytes) -> bytes | None:
    packed = body.partition(b"\0")[2][1:]
    unpacker = zlib.decompressobj()
    try:
        profile = unpacker.decompress(packed, LARGEST_PROFILE)
    except zlib.error:
        return None
    return profile if unpacker.eof else None


def _chunks_of(metadata: Metadata) -> tuple[Chunk, ...]:
    """Chunks for a picture that comes from another format."""
    chunks: list[Chunk] = []
    if metadata.icc:
        chunks.append((b"iCCP", b"icc\0\0" + zlib.compress(metadata.icc)))
    elif isinstance(metadata.transfer, float):
        chunks.append((b"gAMA", struct.pack(">I", round(100000 / metadata.transfer))))
    if metadata.resolution:
        metres = metadata.resolution.to("metre")
        x, y = round(metres.x), round(metres.y)
        if 0 < x < 2**31 and 0 < y < 2**31:
            chunks.append((b"pHYs", struct.pack(">IIB", x, y, metres.unit == "metre")))
    if metadata.exif:
        chunks.append((b"eXIf", metadata.exif))
    if metadata.xmp:
        chunks.append((b"iTXt", XMP_KEY + b"\0\0\0\0" + metadata.xmp))
    return tuple(chunks)
