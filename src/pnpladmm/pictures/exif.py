"""EXIF blocks (with Pillow): which way up the picture is, and the block of the picture turned upright."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from pnpladmm.pictures.arrays import Array

if TYPE_CHECKING:
    from PIL.Image import Image

ORIENTATION, CAMERA, WIDTH, HEIGHT = 274, 34665, 40962, 40963
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

    Width and height are exchanged where the picture is turned by 90 degrees. The thumbnail shows the old picture, and
    Pillow leaves it out. A block without either stays as it is, to the byte: makers' notes hold offsets into it.
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
        return exif.tobytes().removeprefix(b"Exif\0\0"), orientation, []
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
    if image.format == "TIFF":
        # Its other tags describe how the file is laid out.
        for tag in set(exif) - SHARED_TAGS - {ORIENTATION}:
            del exif[tag]
    return exif.tobytes().removeprefix(b"Exif\0\0") if exif else None
