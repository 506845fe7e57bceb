"""TIFF and BigTIFF: integers of 1 to 32 bits, floats; grey, RGB, CMYK, any channels; multi-page; OME, ImageJ.

A picture from a TIFF goes back page by page into the layout it came from: same byte order, same planes in the same
order, same lossless compression, with the tags that describe them copied byte for byte. So the XML of OME, the texts
and tables of ImageJ, pixel sizes, colour profile and geographic tags stay true without being understood.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pnpladmm.gate import check_size
from pnpladmm.pictures import exif, tiff_write
from pnpladmm.pictures.arrays import Array
from pnpladmm.pictures.jpeg_damage import check_jpeg, whole_jpeg
from pnpladmm.pictures.metadata import Metadata, Resolution
from pnpladmm.pictures.pixel_scale import PixelScale
from pnpladmm.pictures.raw import Format, Raw
from pnpladmm.pictures.samples import DTYPES
from pnpladmm.pictures.tiff_layout import (
    BLACK_IS_0,
    CMYK,
    DEFLATE,
    DESCRIPTION,
    ICC,
    LOSSLESS,
    PALETTE,
    RGB,
    UNITS,
    WHITE_IS_0,
    WORKERS,
    XMP,
    YCBCR,
    Layout,
    Tags,
    content,
    raising,
)
from pnpladmm.pictures.tiff_structure import check_pages, check_structure
from pnpladmm.tensors import InputError

if TYPE_CHECKING:
    from tifffile import TiffFile, TiffPage, TiffPageSeries

JPEG_CODINGS = (6, 7, 34892)
X_RESOLUTION, Y_RESOLUTION, RESOLUTION_UNIT = 282, 283, 296
# Tags that may be copied: texts, times, positions, colour, IPTC, geography, ImageJ, Micro-Manager.
# Others may hold offsets into the old file, or describe the old compression.
KEPT = frozenset(
    {269, DESCRIPTION, 271, 272, 281, 285, 286, 287, 297, 301, 305, 306, 315, 316, 318, 319, XMP, 33432, 33550, 33723}
    | {33922, 34264, 34377, ICC, 34735, 34736, 34737, 40091, 40092, 40093, 40094, 40095, 42112, 42113, 50838, 50839}
    | {51123}
)
# Part of the pixels' own layout: written anew, not lost. EXIF and GPS are dealt with apart.
STRUCTURE = frozenset(
    {254, 255, 256, 257, 258, 259, 262, 263, 266, 273, exif.ORIENTATION, 277, 278, 279, 280, X_RESOLUTION}
    | {Y_RESOLUTION, 284, 292, 293, RESOLUTION_UNIT, 317, 320, 321, 322, 323, 324, 325, 330, 338, 339, 340, 341, 347}
    | {512, 513, 514, 529, 530, 531, 532, exif.CAMERA, exif.POSITION}
)
NANOMETRES = {
    "nm": 1, "micron": 1000, "microns": 1000, "um": 1000, "µm": 1000, "\u03bcm": 1000, "\\u00B5m": 1000,
    "mm": 10**6, "cm": 10**7, "m": 10**9, "inch": 25_400_000,
}  # fmt: skip


def read(path: Path, name: str, max_bytes: int) -> Raw:
    """The picture in a TIFF file."""
    from tifffile import TiffFile

    check_structure(path, name)
    with raising(name), TiffFile(path) as tif:
        check_pages(tif, name)
        series = _one_series(tif.series, name)
        page = series.keyframe
        check_size(name, series.shape, series.dtype.itemsize, max_bytes)
        _check_page(page, series, path.stat().st_size, name)
        notes = []
        if len(tif.series) > 1 or series.is_pyramidal or page.subifds:
            notes.append("its smaller copies (pyramid, thumbnails) are left out")
        if page.compression in JPEG_CODINGS:
            notes += _jpeg_remarks(tif, series, name)
        values = series.asarray(maxworkers=WORKERS)
        pages = [frame.aspage() for frame in series._pages if frame is not None]
        layout = _layout(tif, series, pages, notes)
        values, layout, scale = _plain(values, layout, page, tif.is_imagej or tif.is_ome, notes, name)
        with path.open("rb") as file:
            block, more = exif.from_tiff(file, pages[0])
        said = pages[0].tags.valueof(exif.ORIENTATION, default=1)
    orientation = said if isinstance(said, int) and 1 <= said <= 8 else 1
    samples, alpha = layout.stack(values)
    samples = exif.turn(samples, orientation)
    alpha = None if alpha is None else exif.turn(alpha, orientation)
    layout = layout.turned() if orientation >= 5 else layout
    first = layout.pages[0]
    metadata = Metadata(
        icc=content(first, ICC) or None,
        exif=block,
        xmp=content(first, XMP) or None,
        resolution=_physical(first, layout.resolution),
        pixel_scale=_pixel_scale(first, layout.resolution),
        native=layout,
    )
    kinds = {(RGB, 3): "rgb", (CMYK, 4): "cmyk"}
    channels = samples.shape[1]
    colour = kinds.get((layout.options["photometric"], channels), "grey" if channels == 1 else "channels")
    return Raw(samples, alpha, scale=scale, colour=colour, metadata=metadata, notes=(*notes, *more))


def _jpeg_remarks(tif: TiffFile, series: TiffPageSeries, name: str) -> list[str]:
    """Refuse damaged JPEG strips and tiles; what the decoder remarks of the others."""
    found: dict[str, None] = {}
    for frame in series._pages:
        if frame is None:
            continue
        tables = frame.aspage().jpegtables
        for offset, length in zip(frame.dataoffsets, frame.databytecounts, strict=True):
            if length:
                tif.filehandle.seek(offset)
                segment = whole_jpeg(tif.filehandle.read(length), tables)
                found |= dict.fromkeys(check_jpeg(segment, name))
    return list(found)


def _layout(tif: TiffFile, series: TiffPageSeries, pages: list[TiffPage], notes: list[str]) -> Layout:
    """How the planes lie in the file; notes what is not kept of its tags."""
    page = series.keyframe
    if dropped := sorted({tag.code for one in pages for tag in one.tags} - KEPT - STRUCTURE):
        notes.append(f"its private tags {', '.join(map(str, dropped))} are left out")
    options: dict[str, Any] = {
        "photometric": int(page.photometric),
        "subfiletype": int(page.subfiletype or 0),
        "tile": (page.tilelength, page.tilewidth) if page.is_tiled else None,
    }
    if len(page.shape) > 2:
        extra = tuple(int(kind) for kind in page.extrasamples)
        # A damaged file may name too few; the writer would take channels for pages.
        unnamed = int(page.samplesperpixel) - {RGB: 3, YCBCR: 3, CMYK: 4}.get(int(page.photometric), 1) - len(extra)
        extra = (0,) * unnamed + extra
        options |= {"planarconfig": int(page.planarconfig or 1), "extrasamples": extra}
    compression = int(page.compression)
    if compression not in LOSSLESS:
        options |= {"compression": DEFLATE}
    elif compression != 1:
        options |= {"compression": compression, "predictor": int(page.predictor)}
    return Layout(
        axes=series.axes,
        shape=tuple(series.shape),
        page_axes=page.axes,
        page_shape=tuple(page.shape),
        plane_order=tuple(int(rank) for rank in np.argsort(np.argsort([one.index for one in pages]))),
        pages=tuple(
            {tag.code: (tag.code, int(tag.dtype), tag.count, tag.astuple()[3]) for tag in one.tags if tag.code in KEPT}
            for one in pages
        ),
        file_options={"byteorder": tif.byteorder, "bigtiff": tif.is_bigtiff},
        options=options,
        compression=compression,
        resolution=_resolution(page),
    )


def _one_series(found: list[TiffPageSeries], name: str) -> TiffPageSeries:
    """The one picture or stack of the file; thumbnails do not count."""
    full = [series for series in found if not series.keyframe.is_reduced] or found
    if not full:
        raise InputError(f"{name} is a TIFF without a picture in it: export it again")
    if len(full) > 1:
        shapes = ", ".join(" x ".join(map(str, series.shape)) for series in full[:4])
        raise InputError(f"{name} holds {len(full)} pictures of different kinds ({shapes}): split it first")
    if full[0].is_multifile:
        raise InputError(f"{name} is one file of an OME set of several: join them into one file first")
    if any(page is None for page in full[0]._pages):
        raise InputError(f"{name} lacks planes that its OME metadata announce: export it again")
    if full[0].kind == "ome" and sorted(int(page.index) for page in full[0]._pages if page) != list(
        range(len(full[0]._pages))
    ):
        raise InputError(f"{name} has pages besides those that its OME metadata describe: export it without them")
    return full[0]


def _check_page(page: TiffPage, series: TiffPageSeries, size: int, name: str) -> None:
    """Refuse, from the tags alone, what is no picture of rows and columns in grey, RGB or CMYK."""
    axes = series.axes
    if axes.count("Y") != 1 or axes.count("X") != 1 or page.imagedepth > 1:
        raise InputError(f"{name} has axes {axes}: export it as planes of rows (Y) and columns (X)")
    plain = page.photometric in (WHITE_IS_0, BLACK_IS_0, RGB, PALETTE, CMYK)
    if not plain and not (page.photometric == YCBCR and page.compression in JPEG_CODINGS):
        kind = getattr(page.photometric, "name", page.photometric)
        raise InputError(f"{name} has colours of kind {kind}: convert it to grey or RGB first")
    # Of compressed pages the decoder sees whether they are whole.
    needed = series.size * _bits(page) // 8
    if page.compression == 1 and needed > size:
        raise InputError(f"{name} is cut off: its pixels need {needed} bytes, the file has {size}")


def _bits(page: TiffPage) -> int:
    bits = page.bitspersample
    return int(bits) if isinstance(bits, int) else int(max(bits))


def _plain(
    values: Array, layout: Layout, page: TiffPage, is_stack: bool, notes: list[str], name: str
) -> tuple[Array, Layout, float | None]:
    """Values where more is brighter, of 8 bits or more, colours instead of indices; and their scale."""
    bits, scale = _bits(page), None
    if page.photometric == PALETTE:
        if page.colormap is None:
            raise InputError(f"{name} has a palette without colours: export it again")
        if is_stack:
            # In ImageJ and OME files it is a display colour, as microscopes use it: the samples are intensities.
            layout = replace(layout, options=layout.options | {"colormap": page.colormap})
        else:
            values, layout = _coloured(values, page.colormap, layout)
            notes.append("its palette is written as RGB: restored colours are not in it")
    elif bits in (1, 2, 4):
        values = values.astype(np.uint8) * np.uint8(255 // (2**bits - 1))
        notes.append(f"its {bits}-bit samples are written as 8-bit")
    elif 8 < bits < 16:
        # The counts of a 10 to 14-bit camera mean something: they stay, and white is their largest.
        scale = float(2**bits - 1)
        notes.append(f"its {bits}-bit samples are written as 16-bit, with the same values")
    elif bits not in (8, 16, 32, 64):
        raise InputError(f"{name} has samples of {bits} bits: convert it to 8, 16 or 32 bits")
    if page.photometric == WHITE_IS_0 and values.dtype.kind == "u":
        values = values.dtype.type(scale or np.iinfo(values.dtype).max) - values
        layout = replace(layout, inverted=True)
    if page.photometric == YCBCR:
        layout = replace(layout, options=layout.options | {"photometric": RGB})  # the JPEG decoder has converted it
    extra = page.extrasamples
    alphas = [i for i, kind in enumerate(extra) if kind in (1, 2)]
    if alphas and "S" in layout.axes and "C" not in layout.axes:
        first_extra = layout.shape[layout.axes.index("S")] - len(extra)
        layout = replace(layout, alpha=first_extra + alphas[0])
    return values, layout, scale


def _coloured(indices: Array, table: Array, layout: Layout) -> tuple[Array, Layout]:
    """The colours of a palette, 8-bit where its entries are."""
    if (table == 257 * (table >> 8)).all() or not (table & 255).any():
        table = (table >> 8).astype(np.uint8)
    layout = replace(
        layout.reshaped(),
        axes=layout.axes + "S",
        shape=(*layout.shape, 3),
        page_axes=layout.page_axes + "S",
        page_shape=(*layout.page_shape, 3),
        options=layout.options | {"photometric": RGB, "planarconfig": 1, "extrasamples": ()},
    )
    return np.moveaxis(table[:, indices], 0, -1), layout


def _resolution(page: TiffPage) -> Resolution | None:
    """The resolution tags as they are."""
    values = [page.tags.valueof(tag) for tag in (X_RESOLUTION, Y_RESOLUTION)]
    if not all(isinstance(value, tuple) and len(value) == 2 and all(value) for value in values):
        return None
    unit = page.tags.valueof(RESOLUTION_UNIT, default=2)
    return Resolution(Fraction(*values[0]), Fraction(*values[1]), UNITS.get(int(unit), "none"))


def _physical(tags: Tags, resolution: Resolution | None) -> Resolution | None:
    """The resolution in metres where OME or ImageJ state the size of a pixel, else as the tags have it."""
    text = content(tags, DESCRIPTION).rstrip(b"\0").decode("utf-8", "replace")
    # Searched, not parsed: the XML of a stranger may expand to anything.
    sizes = []
    for axis in "XY":
        size = re.search(rf'PhysicalSize{axis}="([0-9.eE+-]+)"', text)
        named = re.search(rf'PhysicalSize{axis}Unit="([^"]+)"', text)
        nanometres = NANOMETRES.get(named.group(1) if named else "µm")
        if size and nanometres and float(size.group(1)) > 0:
            sizes.append(10**9 / (Fraction(size.group(1)) * nanometres))
    if len(sizes) == 2:
        return Resolution(sizes[0], sizes[1], "metre")
    unit = re.search(r"^unit=(.+)$", text, re.MULTILINE)
    if text.startswith("ImageJ=") and unit and resolution and unit.group(1) in NANOMETRES:
        factor = Fraction(10**9, NANOMETRES[unit.group(1)])
        return Resolution(resolution.x * factor, resolution.y * factor, "metre")
    return resolution


def _pixel_scale(tags: Tags, resolution: Resolution | None) -> PixelScale | None:
    """The size of a pixel in the specimen: what OME or ImageJ state. Dots per inch are for printing."""
    found = _physical(tags, resolution)
    if found is None or found is resolution or found.unit != "metre":
        return None
    return PixelScale(float(1 / found.y), float(1 / found.x), "metre")


def pixel_size_of(path: Path) -> PixelScale | None:
    """The size of a pixel in the specimen that a TIFF file states; None for other files and where it says nothing."""
    from tifffile import TiffFile

    try:
        with TiffFile(path) as tif:
            page = tif.pages.first
            tag = page.tags.get(DESCRIPTION)
            tags = {} if tag is None else {DESCRIPTION: (DESCRIPTION, int(tag.dtype), tag.count, tag.astuple()[3])}
            return _pixel_scale(tags, _resolution(page))
    except Exception:  # whoever reads the file says what is wrong with it
        return None


FORMAT = Format(
    "TIFF", (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), (".tif", ".tiff"), DTYPES, Layout, read, tiff_write.write,
    holds_alpha=True,
)  # fmt: skip
