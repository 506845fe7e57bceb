"""Pictures that Pillow opened: samples, colour profile, EXIF, resolution."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from PIL import Image

from pnpladmm.pictures import exif
from pnpladmm.pictures.metadata import Metadata, Resolution
from pnpladmm.pictures.raw import Raw
from pnpladmm.tensors import InputError, one_line, type_words

MODES = {
    "L": "grey", "LA": "grey", "F": "grey", "I": "grey", "I;16": "grey", "I;16B": "grey", "I;16L": "grey",
    "RGB": "rgb", "RGBA": "rgb", "CMYK": "cmyk",
}  # fmt: skip
JFIF_UNITS = {0: "none", 1: "inch", 2: "cm"}


def raw_of(image: Image.Image, name: str) -> Raw:
    """The samples and metadata of a Pillow image, turned upright."""
    if not isinstance(image, Image.Image):
        raise InputError(f"{name} is {type_words(image)}, not a PIL image: use Picture.from_array")
    try:
        image.load()
    except (OSError, SyntaxError) as error:
        raise InputError(f"{name} is a PIL image of a damaged file ({one_line(str(error))})") from None
    table = _jpeg_table(image)
    block, orientation, notes = exif.upright(exif.block_of(image))
    image = _plain(image, notes, name)
    values = exif.turn(np.moveaxis(np.atleast_3d(np.asarray(image)), -1, 0)[None], orientation)
    has_alpha = image.mode in ("LA", "RGBA")
    resolution = _resolution(image)
    xmp = image.info.get("xmp")
    metadata = Metadata(
        icc=image.info.get("icc_profile") or None,
        exif=block,
        xmp=exif.upright_xmp(xmp) if isinstance(xmp, bytes) else None,
        resolution=resolution.turned() if resolution and orientation >= 5 else resolution,
        jpeg_table=tuple(zip(*table, strict=True)) if orientation >= 5 else table,
    )
    return Raw(
        values[:, :-1] if has_alpha else values,
        values[:, -1:] if has_alpha else None,
        colour=MODES[image.mode],
        metadata=metadata,
        notes=tuple(notes),
    )


def _jpeg_table(image: Image.Image) -> tuple[tuple[int, ...], ...]:
    """The first quantisation table, which is that of brightness, in rows; empty where there is none."""
    tables: dict[int, list[int]] = getattr(image, "quantization", None) or {}
    return tuple(tuple(tables[min(tables)][8 * i : 8 * i + 8]) for i in range(8)) if tables else ()


def _plain(image: Image.Image, notes: list[str], name: str) -> Image.Image:
    """The image in a mode with one sample per channel; transparent colours as alpha."""
    info = image.info
    if image.mode in ("P", "PA"):
        notes.append("its palette is written as RGB: restored colours are not in it")
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    elif image.mode == "1":
        notes.append("its 1-bit samples are written as 8-bit")
        image = image.convert("L")
    elif image.mode in ("L", "RGB") and image.has_transparency_data:
        image = image.convert({"L": "LA", "RGB": "RGBA"}[image.mode])
    elif image.mode == "YCbCr":
        image = image.convert("RGB")
    if image.mode not in MODES:
        raise InputError(f"{name} is a PIL image of mode {image.mode}: convert it to L, RGB, RGBA or F")
    image.info = info
    return image


def _resolution(image: Image.Image) -> Resolution | None:
    """The resolution as the JFIF header has it, or in pixels per inch."""
    if all(density := image.info.get("jfif_density", (0, 0))):
        unit = JFIF_UNITS.get(image.info.get("jfif_unit", 0), "none")
        return Resolution(Fraction(density[0]), Fraction(density[1]), unit)
    dpi = image.info.get("dpi")
    if not dpi or not all(np.isfinite(float(value)) and value > 0 for value in dpi):
        return None
    x, y = (Fraction(float(value)).limit_denominator(10_000) for value in dpi)
    return Resolution(x, y, "inch")
