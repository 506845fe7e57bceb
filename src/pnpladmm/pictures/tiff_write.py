"""Writing TIFF: into the layout that a picture came from, or a plain one."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pnpladmm.files import StrictFile
from pnpladmm.pictures import exif
from pnpladmm.pictures.arrays import Array
from pnpladmm.pictures.metadata import Resolution
from pnpladmm.pictures.raw import Raw
from pnpladmm.pictures.tiff_layout import (
    BLACK_IS_0,
    CMYK,
    DEFLATE,
    ICC,
    LOSSLESS,
    RGB,
    UNITS,
    WORKERS,
    XMP,
    Layout,
    Tags,
    raising,
)

if TYPE_CHECKING:
    from tifffile import TiffWriter

BYTE, ASCII, LONG, UNDEFINED, LONG8 = 1, 2, 4, 7, 16
# tifffile does not write the tag of the EXIF directory: the one below holds its place until it is appended.
PLACEHOLDER = exif.CAMERA - 1


def write(path: Path, raw: Raw, name: str) -> tuple[list[str], int]:
    """Write the samples in the layout they came from; others in a plain one (`.ome.tif`: with OME-XML)."""
    layout, block = raw.metadata.native, raw.metadata.exif
    ome = name.lower().endswith((".ome.tif", ".ome.tiff"))
    if not isinstance(layout, Layout):
        _write_plain(path, raw, name, ome)
        return exif.lost_in_tiff(block), 0
    planes = layout.planes(raw)
    notes = exif.lost_in_tiff(block)
    if not _written_as_it_was(path, planes, layout, block):
        _write_plain(path, replace(raw, metadata=replace(raw.metadata, native=None)), name, ome)
        return [*notes, "its layout is odd: it is written in a plain one, without the tags of its own"], 0
    _append_camera(path, block)
    if layout.compression not in LOSSLESS:
        notes.append(f"its TIFF compression {layout.compression} is written as Deflate, without loss")
    return notes, 0


def _written_as_it_was(path: Path, planes: Array, layout: Layout, block: bytes | None) -> bool:
    """Write planes in their own layout; False where a reader would see others."""
    from tifffile import TiffFile, TiffWriter

    first, *others = (layout.pages[i] for i in np.argsort(layout.plane_order))
    first = first | _exif_tags(block, layout.file_options["bigtiff"], texts=False)
    later = others[0] if others else {}
    try:
        with raising(path.name), StrictFile(path) as plain, TiffWriter(plain, **layout.file_options) as file:
            if all(page == later for page in others) and all(first.get(tag) == entry for tag, entry in later.items()):
                # One call for all planes: uncompressed planes lie side by side, which ImageJ counts on in large files.
                _write_planes(file, planes, layout, [(*entry, tag not in later) for tag, entry in first.items()])
            else:
                for plane, tags in zip(planes, (first, *others), strict=True):
                    _write_planes(file, plane[None], layout, [(*entry, False) for entry in tags.values()])
        with raising(path.name), TiffFile(path) as tif:
            series = tif.series
            return (
                len(series) == 1
                and tuple(series[0].keyframe.shape) == layout.page_shape
                and series[0].dtype == planes.dtype
                and series[0].size == planes.size
            )
    except Exception:  # the tags of a damaged file
        return False


def _write_planes(file: TiffWriter, planes: Array, layout: Layout, tags: list[Any]) -> None:
    """Write one page per plane."""
    file.write(
        planes if len(planes) > 1 else planes[0],
        extratags=tags,
        metadata=None,
        software=False,
        maxworkers=WORKERS,
        **layout.options,
        **_resolution_options(layout.resolution),
    )


def _write_plain(path: Path, raw: Raw, name: str, ome: bool) -> None:
    """A picture that does not come from TIFF: colour interleaved, with the metadata that TIFF has tags for."""
    from tifffile import TiffWriter

    metadata = raw.metadata
    values, axes, options = _plain_values(raw)
    options |= _resolution_options(metadata.resolution)
    if values.dtype.kind in "ui":
        options |= {"compression": DEFLATE, "predictor": 2}
    big = values.nbytes > 2**32 - 2**25  # where offsets of 32 bits end, less room for the tags
    tags = _exif_tags(metadata.exif, big, texts=True)
    for tag, kind, value in ((ICC, UNDEFINED, metadata.icc), (XMP, BYTE, metadata.xmp)):
        if value:
            tags[tag] = (tag, kind, len(value), value)
    # Readers take pages of grey or RGB for what they are; channels have to be named.
    described = {"axes": axes, **(_ome_sizes(metadata.resolution) if ome else {})}
    with raising(name), StrictFile(path) as plain, TiffWriter(plain, bigtiff=big, byteorder="<", ome=ome) as file:
        file.write(
            np.ascontiguousarray(values),
            extratags=[(*entry, True) for entry in tags.values()],
            software=False,
            maxworkers=WORKERS,
            metadata=described if ome or "C" in axes else None,
            **options,
        )
    _append_camera(path, metadata.exif)


def _plain_values(raw: Raw) -> tuple[Array, str, dict[str, Any]]:
    """The samples as TIFF readers expect them, their axes, and the options that say what they are."""
    pages, channels = raw.samples.shape[:2]
    values = raw.samples if raw.alpha is None else np.concatenate([raw.samples, raw.alpha], 1)
    options: dict[str, Any] = {"photometric": {"rgb": RGB, "cmyk": CMYK}.get(raw.colour, BLACK_IS_0)}
    if raw.colour in ("rgb", "cmyk") or raw.alpha is not None:
        values, axes = values.transpose(0, 2, 3, 1), "ZYXS"
        unnamed = (0,) * (channels - (channels if raw.colour in ("rgb", "cmyk") else 1))
        options |= {"planarconfig": 1, "extrasamples": unnamed + ((2,) if raw.alpha is not None else ())}
    elif channels == 1:
        values, axes = values[:, 0], "ZYX"
    else:
        axes = "ZCYX"
    return (values[0], axes[1:], options) if pages == 1 else (values, axes, options)


def _resolution_options(resolution: Resolution | None) -> dict[str, Any]:
    """The resolution as TIFF has it: two fractions of 32-bit numbers, per inch or cm."""
    if resolution is None:
        return {}
    if resolution.unit == "metre":
        resolution = resolution.to("cm")
    x, y = (
        # A fraction that was in a TIFF fits as it is.
        v if max(v.numerator, v.denominator) < 2**32 else v.limit_denominator(10**6 if v < 4000 else 10**3)
        for v in (resolution.x, resolution.y)
    )
    if not (0 < x.numerator < 2**32 and 0 < y.numerator < 2**32):
        return {}
    unit = next(code for code, name in UNITS.items() if name == resolution.unit)
    return {"resolution": ((x.numerator, x.denominator), (y.numerator, y.denominator)), "resolutionunit": unit}


def _ome_sizes(resolution: Resolution | None) -> dict[str, Any]:
    """The size of a pixel as OME states it."""
    if resolution is None or resolution.unit == "none":
        return {}
    metres = resolution.to("metre")
    sizes = {"PhysicalSizeX": float(10**6 / metres.x), "PhysicalSizeY": float(10**6 / metres.y)}
    return sizes | {"PhysicalSizeXUnit": "µm", "PhysicalSizeYUnit": "µm"}


def _exif_tags(block: bytes | None, big: bool, texts: bool) -> Tags:
    """The tags for an EXIF block: a placeholder for its exposure data, and where wanted its texts."""
    if not block:
        return {}
    tags: Tags = {tag: (tag, ASCII, len(text), text) for tag, text in exif.texts(block).items() if texts}
    if exif.camera_directory(block, 0, "<", big):
        tags[PLACEHOLDER] = (PLACEHOLDER, LONG8 if big else LONG, 1, 0)
    return tags


def _append_camera(path: Path, block: bytes | None) -> None:
    """Put the exposure data at the end of the file, and point to them where the placeholder is."""
    from tifffile import TiffFile

    if not block:
        return
    with TiffFile(path, mode="r+") as tif:
        tag = tif.pages.first.tags.get(PLACEHOLDER)
        if tag is None:
            return
        file = tif.filehandle
        file.seek(0, 2)
        file.write(b"\0" * (file.tell() % 2))
        offset = file.tell()
        file.write(exif.camera_directory(block, offset, tif.byteorder, tif.is_bigtiff) or b"")
        tag.overwrite(offset)
        file.seek(tag.offset)
        file.write(struct.pack(tif.byteorder + "H", exif.CAMERA))
