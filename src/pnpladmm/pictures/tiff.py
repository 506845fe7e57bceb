"""TIFF and BigTIFF: integers of 1 to 32 bits, floats; grey, RGB, CMYK, any channels; multi-page; OME, ImageJ.

A picture from a TIFF goes back page by page into the layout it came from: same byte order, same planes in the same
order, same lossless compression, with the tags that describe them copied byte for byte. So the XML of OME, the texts
and tables of ImageJ, pixel sizes, colour profile, EXIF and geographic tags stay true without being understood.
"""

from __future__ import annotations

import mmap
import re
import struct
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pnpladmm.pictures import exif_blocks as exif
from pnpladmm.pictures import tiff_write
from pnpladmm.pictures.arrays import Array
from pnpladmm.pictures.checks import check_size
from pnpladmm.pictures.ifd import EXIF_IFD, GPS_IFD, Directory, Entry, read_directory
from pnpladmm.pictures.metadata import Metadata, Resolution
from pnpladmm.pictures.raw import Format, Raw
from pnpladmm.pictures.samples import DTYPES
from pnpladmm.pictures.tiff_layout import (
    BLACK_IS_0,
    CMYK,
    DESCRIPTION,
    ICC,
    PALETTE,
    RGB,
    UNITS,
    WHITE_IS_0,
    XMP,
    YCBCR,
    Layout,
    content,
    raising,
)
from pnpladmm.tensors import InputError

if TYPE_CHECKING:
    from tifffile import TiffPage, TiffPageSeries

SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
JPEG_CODINGS = (6, 7, 34892)
ORIENTATION, X_RESOLUTION, Y_RESOLUTION, RESOLUTION_UNIT = 274, 282, 283, 296
# Tags that may be copied: texts, times, positions, colour, IPTC, geography, ImageJ, Micro-Manager, EXIF, GPS.
# Others may hold offsets into the old file, or describe the old compression.
KEPT = frozenset(
    {269, DESCRIPTION, 271, 272, 281, 285, 286, 287, 297, 301, 305, 306, 315, 316, 318, 319, XMP, 33432, 33550, 33723}
    | {33922, 34264, 34377, ICC, 34735, 34736, 34737, 40091, 40092, 40093, 40094, 40095, 42112, 42113, 50838, 50839}
    | {51123, EXIF_IFD, GPS_IFD}
)
# Part of the pixels' own layout: written anew, not lost.
STRUCTURE = frozenset(
    {254, 255, 256, 257, 258, 259, 262, 263, 266, 273, ORIENTATION, 277, 278, 279, 280, X_RESOLUTION, Y_RESOLUTION, 284}
    | {292, 293, RESOLUTION_UNIT, 317, 320, 321, 322, 323, 324, 325, 330, 338, 339, 340, 341, 347, 512, 513, 514, 529}
    | {530, 531, 532}
)
NANOMETRES = {
    "nm": 1,
    "micron": 1000,
    "microns": 1000,
    "um": 1000,
    "µm": 1000,
    "μm": 1000,
    "\\u00B5m": 1000,
    "mm": 10**6,
    "cm": 10**7,
    "m": 10**9,
    "inch": 25_400_000,
}


def read(path: Path, name: str, max_bytes: int) -> Raw:
    """The picture in a TIFF file."""
    from tifffile import TiffFile

    with raising(name), TiffFile(path) as tif:
        series = _one_series(tif.series, name)
        page = series.keyframe
        check_size(name, series.shape, series.dtype.itemsize, max_bytes)
        _check_page(page, series, path.stat().st_size, name)
        notes = []
        if len(tif.series) > 1 or series.is_pyramidal or page.subifds:
            notes.append("its smaller copies (pyramid, thumbnails) are left out")
        is_stack = tif.is_imagej or tif.is_ome
        order, big = tif.byteorder, tif.is_bigtiff
        values = series.asarray()
        colour_map = page.colormap if page.photometric == PALETTE else None
        offsets, indices = zip(*((p.offset, p.index) for p in series._pages if p is not None), strict=True)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        directories = [read_directory(data, offset, order, big) for offset in offsets]
    if dropped := sorted({tag for directory in directories for tag in directory} - KEPT - STRUCTURE):
        notes.append(f"its private tags {', '.join(map(str, dropped))} are left out")
    layout = Layout(
        order,
        big,
        axes=series.axes,
        shape=tuple(series.shape),
        page_shape=tuple(page.shape),
        plane_order=tuple(int(rank) for rank in np.argsort(np.argsort(indices))),
        pages=tuple(Directory({t: e for t, e in d.items() if t in KEPT}) for d in directories),
        resolution=_resolution(directories[0], order),
        photometric=int(page.photometric),
        planar=int(page.planarconfig or 1),
        extra_samples=tuple(int(kind) for kind in page.extrasamples),
        compression=int(page.compression),
        predictor=int(page.predictor),
        tile=(page.tilelength, page.tilewidth) if page.is_tiled else None,
        subfile=int(page.subfiletype or 0),
        colour_map=colour_map,
    )
    values, layout, scale = _plain(values, layout, page, is_stack, notes, name)
    samples, alpha = layout.stack(values)
    orientation = _orientation(directories[0], order)
    samples = exif.turn(samples, orientation)
    alpha = None if alpha is None else exif.turn(alpha, orientation)
    layout = layout.turned() if orientation >= 5 else layout
    first = layout.pages[0]
    metadata = Metadata(
        icc=content(first.get(ICC)) or None,
        exif=None if big else exif.from_tiff(first, order),
        xmp=content(first.get(XMP)) or None,
        resolution=_physical(first, layout.resolution),
        native=layout,
    )
    kinds = {(RGB, 3): "rgb", (CMYK, 4): "cmyk"}
    channels = samples.shape[1]
    colour = kinds.get((layout.photometric, channels), "grey" if channels == 1 else "channels")
    return Raw(samples, alpha, None, scale, colour, "", metadata, tuple(notes))


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
        if layout.colour_map is None:
            raise InputError(f"{name} has a palette without colours: export it again")
        # In ImageJ and OME files it is a display colour, as microscopes use it: the samples are intensities.
        if not is_stack:
            values, layout = _coloured(values, layout.colour_map, layout)
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
    if layout.photometric == YCBCR:
        layout = replace(layout, photometric=RGB)  # the JPEG decoder has converted it
    alphas = [i for i, kind in enumerate(layout.extra_samples) if kind in (1, 2)]
    if alphas and "S" in layout.axes and "C" not in layout.axes:
        first_extra = layout.shape[layout.axes.index("S")] - len(layout.extra_samples)
        layout = replace(layout, alpha=first_extra + alphas[0])
    return values, layout, scale


def _coloured(indices: Array, table: Array, layout: Layout) -> tuple[Array, Layout]:
    """The colours of a palette, 8-bit where its entries are."""
    if (table == 257 * (table >> 8)).all() or not (table & 255).any():
        table = (table >> 8).astype(np.uint8)
    shape, page_shape = (*layout.shape, 3), (*layout.page_shape, 3)
    layout = replace(layout, axes=layout.axes + "S", shape=shape, page_shape=page_shape, photometric=RGB)
    layout = replace(layout, planar=1, colour_map=None)
    return np.moveaxis(table[:, indices], 0, -1), layout


def _orientation(directory: Directory, order: str) -> int:
    entry = directory.get(ORIENTATION)
    value = entry.integer(order) if isinstance(entry, Entry) and entry.type in (1, 3, 4) else 1
    return value if 1 <= value <= 8 else 1


def _resolution(directory: Directory, order: str) -> Resolution | None:
    """The resolution tags as they are."""
    values = []
    for tag in (X_RESOLUTION, Y_RESOLUTION):
        entry = directory.get(tag)
        if not isinstance(entry, Entry) or entry.type != 5:
            return None
        above, below = struct.unpack_from(order + "II", entry.value)
        if not above or not below:
            return None
        values.append(Fraction(above, below))
    unit = directory.get(RESOLUTION_UNIT)
    return Resolution(values[0], values[1], UNITS.get(unit.integer(order) if isinstance(unit, Entry) else 2, "none"))


def _physical(directory: Directory, resolution: Resolution | None) -> Resolution | None:
    """The resolution in metres where OME or ImageJ state the size of a pixel, else as the tags have it."""
    text = content(directory.get(DESCRIPTION)).rstrip(b"\0").decode("utf-8", "replace")
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


FORMAT = Format("TIFF", SIGNATURES, (".tif", ".tiff"), DTYPES, Layout, read, tiff_write.write, holds_alpha=True)
