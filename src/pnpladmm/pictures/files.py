"""Picture files in and out: the format by content when reading, by suffix when writing.

Every failure is an `InputError` of one line that names the file. A file is written beside its place and renamed,
so that a crash leaves the old file or the new one, never half of one.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor

from pnpladmm.pictures import fits, jpeg, npy, png, tiff, tiff_layout, tiff_write
from pnpladmm.pictures.limits import MAX_BYTES, one_line, quiet
from pnpladmm.pictures.picture import Picture
from pnpladmm.pictures.raw import Raw
from pnpladmm.pictures.samples import BRIGHTEST_NOMINAL
from pnpladmm.tensors import InputError

READERS = {"PNG": png.read, "JPEG": jpeg.read, "TIFF": tiff.read, "FITS": fits.read, "NPY": npy.read}
SIGNATURES = [
    (png.SIGNATURE, "PNG"),
    (jpeg.SIGNATURE, "JPEG"),
    *((signature, "TIFF") for signature in tiff.SIGNATURES),
    (fits.SIGNATURE, "FITS"),
    (fits.GZIP, "FITS"),
    (npy.SIGNATURE, "NPY"),
]
# Named so that the message helps; not read.
STRANGERS = [
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
    (b"RIFF", "WebP"),
    (b"\0\0\0\x0cjP  ", "JPEG 2000"),
    (b"\x89HDF", "HDF5"),
    (b"PK\x03\x04", "ZIP or NPZ"),
    (b"%PDF", "PDF"),
    (b"8BPS", "Photoshop"),
    (b"\x76\x2f\x31\x01", "OpenEXR"),
]
SUFFIXES = {
    ".png": "PNG",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".fits": "FITS",
    ".fit": "FITS",
    ".fts": "FITS",
    ".npy": "NPY",
}
DTYPES = {"PNG": png.DTYPES, "JPEG": jpeg.DTYPES, "TIFF": tiff_write.DTYPES, "FITS": fits.DTYPES, "NPY": npy.DTYPES}
NATIVE = {"PNG": png.Chunks, "JPEG": jpeg.Segments, "TIFF": tiff_layout.Layout, "FITS": fits.Frame, "NPY": npy.Layout}
ICC_SPACES = {"grey": b"GRAY", "rgb": b"RGB ", "cmyk": b"CMYK"}
KNOWN = "PNG, JPEG, TIFF, FITS or NPY"


@dataclass(frozen=True)
class Written:
    """What was written: the samples' type, how many of them had to be clipped to its range, what was left out."""

    path: Path
    format: str
    dtype: str
    clipped: int
    notes: tuple[str, ...]


def read_picture(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> Picture:
    """The picture in a file, whatever its suffix; `max_bytes` limits the size of its decoded samples."""
    path = Path(path)
    name = one_line(str(path))
    try:
        if path.is_dir():
            raise InputError(f"{name} is a folder: give a picture file, {KNOWN}")
        if not path.is_file():
            raise InputError(f"{name} is no file, or not there: give a picture file, {KNOWN}")
        with path.open("rb") as file:
            kind = _kind(file.read(32), name)
        with quiet("imagecodecs"):
            return Picture.from_raw(READERS[kind](path, name, max_bytes), name, kind)
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(f"{name} does not fit into memory: crop or split it") from error
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            raise InputError(f"{name} cannot be read ({one_line(error.strerror)})") from error
        # Decoders of damaged files raise anything, also OSError without a reason of the system's.
        what = one_line(f"{type(error).__name__}: {error}")
        raise InputError(f"{name} is a damaged {kind} ({what}): get the file again") from error


def write_picture(path: str | os.PathLike[str], picture: Picture | object, allow_loss: bool = False) -> Written:
    """Write a picture in the format that the suffix names, with the depth and the metadata that it has.

    Parameters
    ----------
    path : str or path
        Its suffix names the format: .png, .jpg, .tif, .ome.tif, .fits, .fits.gz, .npy and their variants.
    picture : Picture, array_like or Tensor
        Arrays are taken by `Picture.from_array`: (H, W), (H, W, 3), (C, H, W), (pages, C, H, W). Floats are pixels in
        [0, 1]; PNG gets them as 16-bit integers, JPEG as 8-bit ones, other formats as floats.
    allow_loss : bool
        A `Picture` whose depth or alpha channel the format cannot hold is refused, unless this is true: then the
        deepest integers it has are written, and alpha is left out. Pages and channels are never left out.

    Returns
    -------
    Written
        The format, the type of the samples, how many were clipped, what was left out.

    Raises
    ------
    InputError
        Where the format cannot hold the picture, or the file cannot be written. The old file is then untouched.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_picture(f"{folder}/a.png", np.zeros((8, 9))).dtype
    'uint16'
    """
    path = Path(path)
    name = one_line(str(path))
    if not isinstance(picture, Picture):
        kind, _ = _format(path, name)
        picture, allow_loss = _of_array(picture, kind), True
    kind, packed = _format(path, name)
    picture, notes = _made_to_fit(picture, kind, name, allow_loss)
    raw, clipped = picture.to_raw()
    if raw.blank is not None and raw.samples.dtype.kind != "f" and not _has_blank(raw):
        notes.append(f"{int(raw.blank.sum())} samples without data are written with the values filled in")
    with beside(path, name) as place:
        if kind == "FITS":
            more, more_clipped = fits.write(place, raw, packed)
            clipped += more_clipped
        elif kind == "TIFF":
            more = tiff_write.write(place, raw, ome=path.name.lower().endswith((".ome.tif", ".ome.tiff")))
        else:
            more = {"PNG": png.write, "JPEG": jpeg.write, "NPY": npy.write}[kind](place, raw)
    return Written(path, kind, picture.dtype, clipped, (*notes, *more))


def _of_array(array: object, kind: str) -> Picture:
    """The picture in an array; refuses floats beyond [0, 1] where integers are written."""
    from PIL.Image import Image

    picture = Picture.from_pil(array) if isinstance(array, Image) else Picture.from_array(array)
    if np.dtype(picture.dtype).kind == "f" and kind in ("PNG", "JPEG"):
        largest = float(picture.pixels.abs().max())
        if largest > BRIGHTEST_NOMINAL:
            raise InputError(
                f"the array has floats up to {largest:.6g}, {kind} takes those in [0, 1]: "
                "divide by the value of white, or give uint8 or uint16"
            )
    return picture


def check_output(path: str | os.PathLike[str], picture: Picture) -> None:
    """Refuse, before the long work, an output that `write_picture` would refuse after it."""
    name = one_line(str(path))
    kind, _ = _format(Path(path), name)
    _made_to_fit(picture, kind, name, allow_loss=False)
    if Path(path).is_dir():
        raise InputError(f"{name} is a folder: give the name of a file")


def write_png(path: Path, picture: Tensor) -> None:
    """The first picture of (B, C, H, W), C = 1 or 3, values in [0, 1], as 8-bit PNG; beside and renamed."""
    if picture.ndim != 4 or picture.shape[1] not in (1, 3):
        raise InputError(f"picture has shape {tuple(picture.shape)}: give (B, C, H, W) with 1 or 3 channels")
    raw, _ = Picture.from_array(picture[:1]).with_depth("uint8").to_raw()
    with beside(Path(path), str(path)) as place:
        png.write(place, raw)


@contextmanager
def beside(path: Path, name: str) -> Iterator[Path]:
    """A place to write to, in the folder of `path`; it takes the place of `path` when all went well."""
    place = None
    try:
        # A link stays a link: what it points to is replaced.
        target = Path(os.path.realpath(path))
        if target.is_dir():
            raise InputError(f"{name} is a folder: give the name of a file")
        target.parent.mkdir(parents=True, exist_ok=True)
        place = target.with_name(f".{os.getpid()}-{os.urandom(4).hex()}.part")
        yield place
        if target.exists():
            shutil.copymode(target, place)
        os.replace(place, target)
    except InputError:
        raise
    except (OSError, ValueError, OverflowError, struct.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{name} cannot be written ({one_line(reason)})") from error
    finally:
        if place is not None:
            place.unlink(missing_ok=True)


def _format(path: Path, name: str) -> tuple[str, bool]:
    """The format that a suffix names, and whether it is packed."""
    packed = path.suffix.lower() == ".gz"
    kind = SUFFIXES.get((path.with_suffix("") if packed else path).suffix.lower(), "")
    if not kind or (packed and kind != "FITS"):
        raise InputError(f"{name} has no suffix that names a format: use one of {', '.join(SUFFIXES)}, .fits.gz")
    return kind, packed


def _kind(head: bytes, name: str) -> str:
    if not head:
        raise InputError(f"{name} is empty: give a picture file, {KNOWN}")
    for signature, kind in SIGNATURES:
        if head.startswith(signature):
            return kind
    stranger = next((kind for signature, kind in STRANGERS if head.startswith(signature)), None)
    if head[4:8] == b"ftyp":
        stranger = "HEIC, AVIF or video"
    if stranger:
        raise InputError(f"{name} is a {stranger} file, which is not read here: convert it to {KNOWN}")
    raise InputError(f"{name} is no picture that we know (it begins with {head[:8]!r}): give {KNOWN}")


def _made_to_fit(picture: Picture, kind: str, name: str, allow_loss: bool) -> tuple[Picture, list[str]]:
    """The picture as the format can hold it, and what that leaves out; refuses where that is too much."""
    pages, channels = picture.pixels.shape[:2]
    notes: list[str] = []
    if kind in ("PNG", "JPEG"):
        if pages > 1:
            raise InputError(f"{name}: {kind} holds one page, the picture has {pages}: write TIFF, FITS or NPY")
        if channels not in (1, 3) and not (kind == "JPEG" and picture.colour == "cmyk"):
            what = "CMYK" if picture.colour == "cmyk" else f"{channels} channels"
            raise InputError(f"{name}: {kind} cannot hold {what}: write TIFF, FITS or NPY")
    if picture.dtype not in DTYPES[kind]:
        possible = [d for d in DTYPES[kind] if np.dtype(d).kind == ("u" if kind in ("PNG", "JPEG") else "f")]
        if not allow_loss:
            instead = "TIFF or NPY" if kind == "FITS" else "TIFF, FITS or NPY" if kind == "PNG" else "PNG or TIFF"
            raise InputError(
                f"{name}: {kind} cannot hold {picture.dtype} samples: write {instead}, or allow the loss of depth"
            )
        if picture.scale != 1 and np.dtype(picture.dtype).kind == "f":
            notes.append(f"values are divided by {picture.scale:g} to fit into {possible[-1]}")
        notes.append(f"{picture.dtype} samples are written as {possible[-1]}")
        picture = picture.from_linear().with_depth(possible[-1])
    if picture.alpha is not None and kind in ("JPEG", "FITS", "NPY"):
        if not allow_loss:
            raise InputError(f"{name}: {kind} cannot hold alpha: write PNG or TIFF, or allow the loss of alpha")
        picture = replace(picture, alpha=None)
        notes.append("alpha is left out")
    metadata = picture.metadata
    if not isinstance(metadata.native, NATIVE[kind]) or metadata.native_for != picture.kind:
        if metadata.native is not None:
            metadata = replace(metadata, native=None)
            notes.append(f"metadata that only the old file could hold are left out of the {kind}")
        if metadata.icc and metadata.icc[16:20] != ICC_SPACES.get(picture.colour):
            metadata = replace(metadata, icc=None)
            notes.append("the ICC profile is for other channels and left out")
        picture = replace(picture, metadata=metadata)
    return picture, notes


def _has_blank(raw: Raw) -> bool:
    frame = raw.metadata.native
    return isinstance(frame, fits.Frame) and frame.blank is not None
