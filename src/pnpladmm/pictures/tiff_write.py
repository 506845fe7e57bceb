"""Writing TIFF: into the layout that a picture came from, or a plain one."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pnpladmm.pictures import exif_blocks as exif
from pnpladmm.pictures.arrays import Array
from pnpladmm.pictures.ifd import (
    EXIF_IFD,
    GPS_IFD,
    LONG,
    LONG8,
    Directory,
    Entry,
    entry_places,
    pack_directory,
    read_header,
)
from pnpladmm.pictures.metadata import Resolution
from pnpladmm.pictures.raw import Raw
from pnpladmm.pictures.samples import DTYPES as DTYPES
from pnpladmm.pictures.tiff_layout import BLACK_IS_0, CMYK, ICC, RGB, UNITS, XMP, Layout, raising

if TYPE_CHECKING:
    from tifffile import TiffWriter

# Written again as they were; other codings lose something or are rare, and become Deflate.
LOSSLESS = {1, 5, 8, 32773, 32946, 34925, 50000}
DEFLATE = 8
# tifffile copies no directory as a tag: unused tags one below stand in for EXIF and GPS until those are in place.
STAND_INS = {EXIF_IFD - 1: EXIF_IFD, GPS_IFD - 1: GPS_IFD}


def write(path: Path, raw: Raw, name: str) -> tuple[list[str], int]:
    """Write the samples in the layout they came from; others in a plain one (`.ome.tif`: with OME-XML)."""
    from tifffile import TiffWriter

    ome = name.lower().endswith((".ome.tif", ".ome.tiff"))
    layout = raw.metadata.native
    if not isinstance(layout, Layout):
        _write_new(path, raw, ome)
        return [], 0
    planes = layout.planes(raw)
    first, *others = (layout.pages[i] for i in np.argsort(layout.plane_order))
    later = others[0] if others else Directory()
    with raising(str(path)), TiffWriter(path, bigtiff=layout.big, byteorder=layout.order) as file:
        if all(page == later for page in others) and all(first.get(tag) == entry for tag, entry in later.items()):
            # One call for all planes: uncompressed planes lie side by side, which ImageJ counts on in large files.
            _write_planes(file, planes, layout, first, {tag for tag in first if tag not in later})
        else:
            for plane, directory in zip(planes, (first, *others), strict=True):
                _write_planes(file, plane[None], layout, directory, set())
    _insert_directories(path, [first, *others], layout.order, layout.big)
    lossy = layout.compression not in LOSSLESS
    return ([f"its TIFF compression {layout.compression} is written as Deflate, without loss"] if lossy else []), 0


def _write_planes(file: TiffWriter, planes: Array, layout: Layout, tags: Directory, once: set[int]) -> None:
    """One page a plane; the tags in `once` go to the first of them only."""
    options = _resolution_options(layout.resolution)
    if len(layout.page_shape) > 2:
        options |= {"planarconfig": layout.planar, "extrasamples": layout.extra_samples}
    if layout.compression in LOSSLESS - {1}:
        options |= {"compression": layout.compression, "predictor": layout.predictor}
    elif layout.compression != 1:
        options |= {"compression": DEFLATE}
    if layout.colour_map is not None:
        options["colormap"] = layout.colour_map
    file.write(
        planes if len(planes) > 1 else planes[0],
        photometric=layout.photometric,
        tile=layout.tile,
        subfiletype=layout.subfile,
        extratags=_extra_tags(tags, once),
        metadata=None,
        software=False,
        **options,
    )


def _write_new(path: Path, raw: Raw, ome: bool) -> None:
    """A picture that does not come from TIFF: colour interleaved, with the metadata that TIFF has tags for."""
    from tifffile import TiffWriter

    pages, channels = raw.samples.shape[:2]
    values = raw.samples if raw.alpha is None else np.concatenate([raw.samples, raw.alpha], 1)
    options = _resolution_options(raw.metadata.resolution)
    options["photometric"] = {"rgb": RGB, "cmyk": CMYK}.get(raw.colour, BLACK_IS_0)
    if raw.colour in ("rgb", "cmyk") or raw.alpha is not None:
        values, axes = values.transpose(0, 2, 3, 1), "ZYXS"
        base = channels if raw.colour in ("rgb", "cmyk") else 1
        unnamed = (0,) * (channels - base)
        options |= {"planarconfig": 1, "extrasamples": unnamed + ((2,) if raw.alpha is not None else ())}
    elif channels == 1:
        values, axes = values[:, 0], "ZYX"
    else:
        axes = "ZCYX"
    if pages == 1:
        values, axes = values[0], axes[1:]
    if values.dtype.kind in "ui":
        options |= {"compression": DEFLATE, "predictor": 2}
    directory, order = exif.to_tiff(raw.metadata.exif)
    if raw.metadata.icc:
        directory[ICC] = Entry(7, len(raw.metadata.icc), raw.metadata.icc)
    if raw.metadata.xmp:
        directory[XMP] = Entry(1, len(raw.metadata.xmp), raw.metadata.xmp)
    # Readers take pages of grey or RGB for what they are; channels have to be named.
    described = {"axes": axes, **_ome_sizes(raw.metadata.resolution if ome else None)}
    big = values.nbytes > 2**32 - 2**25  # where offsets of 32 bits end, less room for the tags
    with raising(str(path)), TiffWriter(path, bigtiff=big, byteorder=order, ome=ome) as file:
        file.write(
            np.ascontiguousarray(values),
            extratags=_extra_tags(directory, set(directory)),
            software=False,
            metadata=described if ome or "C" in axes else None,
            **options,
        )
    _insert_directories(path, [directory], order, big)


def _extra_tags(tags: Directory, once: set[int]) -> list[Any]:
    return [
        (tag - 1, LONG, 1, 0, True)
        if isinstance(entry, Directory)
        else (tag, entry.type, entry.count, entry.value, tag in once)
        for tag, entry in tags.items()
    ]


def _resolution_options(resolution: Resolution | None) -> dict[str, Any]:
    if resolution is None:
        return {}
    if resolution.unit == "metre":
        resolution = resolution.to("cm")
    parts = [value.limit_denominator(10**6 if value < 4000 else 10**3) for value in (resolution.x, resolution.y)]
    # A fraction that was in a TIFF fits as it is: numerator and denominator of 32 bits.
    exact = all(max(v.numerator, v.denominator) < 2**32 for v in (resolution.x, resolution.y))
    x, y = (resolution.x, resolution.y) if exact else parts
    if not (0 < x.numerator < 2**32 and 0 < y.numerator < 2**32):
        return {}
    unit = next(code for code, name in UNITS.items() if name == resolution.unit)
    return {"resolution": ((x.numerator, x.denominator), (y.numerator, y.denominator)), "resolutionunit": unit}


def _ome_sizes(resolution: Resolution | None) -> dict[str, Any]:
    if resolution is None or resolution.unit == "none":
        return {}
    metres = resolution.to("metre")
    sizes = {"PhysicalSizeX": float(10**6 / metres.x), "PhysicalSizeY": float(10**6 / metres.y)}
    return sizes | {"PhysicalSizeXUnit": "µm", "PhysicalSizeYUnit": "µm"}


def _insert_directories(path: Path, pages: list[Directory], order: str, big: bool) -> None:
    """Put EXIF and GPS directories at the end of the file, and point to them where stand-ins hold their places."""
    if not any(isinstance(entry, Directory) for page in pages for entry in page.values()):
        return
    number = "Q" if big else "I"
    with path.open("r+b") as file:
        offset = 0
        for page in pages:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                places, next_at = entry_places(data, offset or read_header(data)[2], order, big)
                (offset,) = struct.unpack_from(order + number, data, next_at)
            for stand_in, tag in STAND_INS.items():
                nested = page.get(tag)
                if isinstance(nested, Directory) and stand_in in places:
                    end = file.seek(0, 2)
                    end += file.write(b"\0" * (end % 2))
                    file.write(pack_directory(nested, end, order, big))
                    file.seek(places[stand_in])
                    file.write(struct.pack(order + "HH" + number + number, tag, LONG8 if big else LONG, 1, end))
                    file.flush()
            if not offset:
                return
