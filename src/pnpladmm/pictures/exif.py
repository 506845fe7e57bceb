"""EXIF blocks (with Pillow): which way up the picture is, and the block of the picture turned upright; also in TIFF."""

from __future__ import annotations

import re
import struct
from collections.abc import Set
from typing import IO, TYPE_CHECKING

import numpy as np

from pnpladmm.pictures.arrays import Array

if TYPE_CHECKING:
    from PIL.Image import Exif, Image
    from tifffile import TiffPage

ORIENTATION, CAMERA, POSITION, INTEROPERABILITY, WIDTH, HEIGHT = 274, 34665, 34853, 40965, 40962, 40963
# What IFD0 of an EXIF block and the main directory of a TIFF share: camera, times, people.
SHARED_TAGS = frozenset({271, 272, 305, 306, 315, 316, 33432, CAMERA})
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


def upright(block: bytes | None) -> tuple[bytes | None, int, list[str]]:
    """The block of the picture turned upright, the orientation (1 to 8) that it had, and notes.

    Width and height are exchanged where the picture is turned by 90 degrees. The thumbnail shows the old picture:
    Pillow leaves it out. A block that needs no change stays as it is, to the byte, because makers' notes may hold
    offsets into it.
    """
    from PIL import ExifTags, Image

    if not block:
        return None, 1, []
    exif = Image.Exif()
    orientation = 1
    try:
        exif.load(block)
        said = exif.get(ORIENTATION)
        orientation = said if isinstance(said, int) and 1 <= said <= 8 else 1
        if orientation == 1 and not exif.get_ifd(ExifTags.IFD.IFD1):
            return block, 1, []
        if ORIENTATION in exif:
            exif[ORIENTATION] = 1
        camera = exif.get_ifd(CAMERA)
        if orientation >= 5 and WIDTH in camera and HEIGHT in camera:
            camera[WIDTH], camera[HEIGHT] = camera[HEIGHT], camera[WIDTH]
        return exif.tobytes()[6:], orientation, []
    except Exception:  # Pillow raises anything for damaged blocks
        return None, orientation, ["its EXIF block is damaged and left out"]


def upright_xmp(packet: bytes) -> bytes:
    """The XMP packet with orientation 1, of unchanged length."""
    return _XMP_ORIENTATION.sub(rb"\g<1>1", packet)


def block_of(image: Image) -> bytes | None:
    """The EXIF block of an image that Pillow opened."""
    block = image.info.get("exif")
    if block and image.format != "TIFF":
        return bytes(block).removeprefix(b"Exif\0\0")
    exif = image.getexif()
    return _only(exif, SHARED_TAGS | {ORIENTATION}) if image.format == "TIFF" else exif.tobytes()[6:] if exif else None


def from_tiff(file: IO[bytes], page: TiffPage) -> tuple[bytes | None, list[str]]:
    """The EXIF block of what a TIFF page says of camera, times and people, and notes."""
    from PIL.Image import Exif

    order, big = page.parent.byteorder, page.parent.is_bigtiff
    notes = ["its GPS position is left out"] if POSITION in page.tags else []
    exif = Exif()
    exif.endian, exif.bigtiff = order, big
    if not any(tag in page.tags for tag in SHARED_TAGS):
        return None, notes
    try:
        if not (big and order == ">"):  # which Pillow does not read
            exif.load_from_fp(file, page.offset)
            return _only(exif, SHARED_TAGS), notes
    except Exception:  # Pillow raises anything for damaged directories
        pass
    return None, [*notes, "its EXIF data cannot be read and are left out"] if CAMERA in page.tags else notes


def texts(block: bytes) -> dict[int, bytes]:
    """What a block says of camera, times and people, by TIFF tag, as TIFF holds texts."""
    exif = _loaded(block)
    found = {tag: exif.get(tag) for tag in SHARED_TAGS - {CAMERA}}
    return {tag: text.encode("utf-8") + b"\0" for tag, text in found.items() if isinstance(text, str)}


def lost_in_tiff(block: bytes | None) -> list[str]:
    """Notes on what of a block does not go into a TIFF file."""
    exif = _loaded(block or b"")
    notes = ["its GPS position is left out of the TIFF"] if POSITION in exif else []
    if CAMERA in exif and camera_directory(block or b"", 0, "<", False) is None:
        notes.append("its exposure data cannot be written and are left out of the TIFF")
    return notes


def camera_directory(block: bytes, offset: int, order: str, big: bool) -> bytes | None:
    """The directory of a block's exposure data as it is to lie at `offset` of a TIFF file; None where it has none."""
    from PIL.TiffImagePlugin import ImageFileDirectory_v2

    mark = b"II" if order == "<" else b"MM"
    header = mark + (b"\x2b\0" + bytes(12) if big else struct.pack(order + "HI", 42, 8))
    directory = ImageFileDirectory_v2(header, group=CAMERA)
    try:
        for tag, value in _loaded(block).get_ifd(CAMERA).items():
            if tag != INTEROPERABILITY:
                directory[tag] = value
        return directory.tobytes(offset) if len(directory) else None
    except Exception:  # Pillow raises anything for values that it cannot write
        return None


def _loaded(block: bytes) -> Exif:
    """A block that `upright` let pass; empty where Pillow cannot read it."""
    from PIL.Image import Exif

    exif = Exif()
    try:
        exif.load(block)
    except Exception:
        return Exif()
    return exif


def _only(exif: Exif, tags: Set[int]) -> bytes | None:
    """The block with these tags only: the others of a TIFF page describe how the file is laid out."""
    for tag in set(exif) - tags:
        del exif[tag]
    if CAMERA in exif:
        exif.get_ifd(CAMERA)
    exif.bigtiff = False
    return exif.tobytes()[6:] if exif else None
