"""How many pixels a picture file has, by its header alone: a small file can unpack to more than any memory holds."""

from __future__ import annotations

import math
import struct
import warnings
from pathlib import Path

from pnpladmm.pictures.tiff_structure import check_pages
from pnpladmm.tensors import InputError


def check_pixels(path: Path, most: int) -> None:
    """Refuse a picture with too many pixels before anything of it is decoded."""
    found = pixels_by_header(path)
    if found is not None and found > most:
        raise too_many(found, most)


def too_many(found: int, most: int) -> InputError:
    """The error for a picture with too many pixels."""
    return InputError(
        f"the picture has {found / 1e6:.0f} megapixels, over the limit of {most / 1e6:.0f}: crop or split it"
    )


def pixels_by_header(path: Path) -> int | None:
    """Pixels of all pages; None where the format cannot promise more than its file holds, or the header is damaged."""
    suffix = path.suffix
    try:
        if suffix == ".png":
            with path.open("rb") as file:
                width, height = struct.unpack(">II", file.read(24)[16:])
            return int(width * height)
        if suffix == ".tif":
            import tifffile

            with tifffile.TiffFile(path) as file:
                check_pages(file, "the picture")
                return sum(math.prod(page.shape[:2]) for page in file.pages)
        if suffix not in (".npy", ".fits", ".gz"):  # JPEG, WebP and their like
            return _by_pillow(path)
    except InputError:
        raise
    except Exception:  # whoever reads it says what is wrong with it
        pass
    return None


def _by_pillow(path: Path) -> int:
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            with Image.open(path) as image:
                return math.prod(image.size)
        except Image.DecompressionBombError:
            raise InputError("the picture has far too many pixels: crop or split it") from None
