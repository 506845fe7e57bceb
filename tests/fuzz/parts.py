"""Good files of the formats that are read in parts, and the seeds of all formats."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import seeds as whole
from fuzz.seeds import COLOUR, DEEP, MAPS, PICTURES, SIZE, Write, packed, tiff


def zarr_array(path: Path) -> None:
    """An array of one chunk. The path is its description, or the chunk."""
    import zarr

    folder = path.parents[2 if path.name == "0" else 0]
    codec = zarr.codecs.BloscCodec(cname="zstd")
    zarr.create_array(folder, data=MAPS.astype(np.float32), chunks=SIZE, compressors=codec, overwrite=True)


def old_zarr(path: Path) -> None:
    """The same in the older format."""
    import zarr

    zarr.create_array(path.parent, data=DEEP[0], chunks=(16, 18), zarr_format=2, overwrite=True)


def ome_zarr(path: Path) -> None:
    """A group with a picture and the size of its pixels."""
    import zarr

    axes = [{"name": "c", "type": "channel"}]
    axes += [{"name": axis, "type": "space", "unit": "micrometer"} for axis in "yx"]
    level: dict[str, Any] = {"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1, 0.1, 0.1]}]}
    ome = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": [level]}]}
    group = zarr.create_group(path.parent, overwrite=True, attributes={"ome": ome})
    group.create_array("0", data=DEEP, chunks=(1, 9, 9))


PARTS: dict[str, tuple[str, list[Write]]] = {
    "parts of tiff": (
        ".tif",
        [
            tiff(np.tile(COLOUR, (2, 2, 1)), photometric="rgb", tile=(16, 16), compression="zlib"),
            tiff(DEEP, photometric="rgb", planarconfig="separate", compression="lzw", rowsperstrip=5),
            tiff(COLOUR, photometric="rgb", compression="jpeg"),
            tiff(DEEP[0].astype(np.float32), bigtiff=True, byteorder=">", resolution=(10, 10)),
            tiff(DEEP[:1], ome=True, metadata={"axes": "CYX", "PhysicalSizeX": 0.1, "PhysicalSizeY": 0.1}),
        ],
    ),
    "parts of fits": (".fits", [*PICTURES["fits"][1][:2], packed]),
    "parts of npy": PICTURES["npy"],
}
ZARR: dict[str, tuple[str, list[Write]]] = {
    "parts of zarr": ("/zarr.json", [zarr_array]),
    "parts of ome-zarr": ("/zarr.json", [ome_zarr]),
    "parts of zarr 2": ("/.zarray", [old_zarr]),
    "a chunk of zarr": ("/c/0/0", [zarr_array]),
    "a chunk of zarr 2": ("/0.0", [old_zarr]),
}
"""A format that begins with a slash is a file in a folder."""
if find_spec("zarr") is not None:
    PARTS |= ZARR
FORMATS = whole.FORMATS | PARTS


def opened_as(name: str, path: Path) -> Path:
    """What a reader is given: the file, or the folder that it lies in."""
    return path.parents[PARTS[name][0].count("/") - 1] if PARTS[name][0].startswith("/") else path


def seeds(name: str, folder: Path) -> tuple[str, list[bytes]]:
    """The suffix of a format, and the contents of its seeds; what lies beside them is left in the folder."""
    suffix, writers = FORMATS[name]
    found = []
    for write in writers:
        path = folder / f"case{suffix}"
        path.unlink(missing_ok=True)
        write(path)
        found.append(path.read_bytes())
    assert max(map(len, found)) < 200_000
    return suffix, found
