"""Picture files in and out: the format by content when reading, by suffix when writing.

Every failure is an `InputError` of one line that names the file.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor

from pnpladmm import gate
from pnpladmm.files import check_writable, replacing
from pnpladmm.locks import check_regular
from pnpladmm.pictures import fits, jpeg, npy, png, tiff, web_formats
from pnpladmm.pictures.checks import errors_logged_by
from pnpladmm.pictures.picture import Picture
from pnpladmm.pictures.raw import Format, Raw
from pnpladmm.pictures.samples import BRIGHTEST_NOMINAL
from pnpladmm.pictures.selection import split_selection
from pnpladmm.tensors import InputError, one_line

FORMATS = {
    form.name: form for form in (png.FORMAT, jpeg.FORMAT, tiff.FORMAT, fits.FORMAT, npy.FORMAT, *web_formats.FORMATS)
}
# Named so that the message helps; not read.
OTHER_FORMATS = {
    b"GIF8": "GIF", b"\0\0\0\x0cjP  ": "JPEG 2000", b"\x89HDF": "HDF5",
    b"PK\x03\x04": "ZIP or NPZ", b"%PDF": "PDF", b"8BPS": "Photoshop", b"\x76\x2f\x31\x01": "OpenEXR",
}  # fmt: skip
ICC_SPACES = {"grey": b"GRAY", "rgb": b"RGB ", "cmyk": b"CMYK"}
KNOWN = "PNG, JPEG, TIFF, FITS, NPY, WebP, AVIF, HEIC or BMP"


@dataclass(frozen=True)
class Written:
    """What was written: `dtype` of the samples, how many were clipped to its range, and notes on what was left out."""

    path: Path
    format: str
    dtype: str
    clipped_samples: int
    notes: tuple[str, ...]


def read_picture(path: str | os.PathLike[str], max_bytes: int | None = None) -> Picture:
    """The picture in a file, whatever its suffix.

    Parameters
    ----------
    path : str or path
        A PNG, JPEG, TIFF (also BigTIFF, OME, ImageJ), FITS (also packed by gzip), NPY, WebP, AVIF, BMP or HEIC
        file; HEIC needs the extra `heic`. `frame.fits[SCI,2]` or
        `frame.fits[3]` is an extension of a FITS file.
    max_bytes : int, optional
        Largest size of the file and of its decoded samples, in bytes; if not given, that of the environment variable
        `PNPLADMM_MAX_BYTES`, or 2 GiB.

    Returns
    -------
    Picture
        Turned the way up that the file says; `notes` say what reading changed.

    Raises
    ------
    InputError
        Where the file is no picture, damaged, too large, or of a kind that is not read.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_picture(f"{folder}/a.png", np.full((8, 9), 51, np.uint8))
    ...     picture = read_picture(f"{folder}/a.png")
    >>> picture.dtype, picture.pixels.shape, picture.pixels.max()
    ('uint8', torch.Size([1, 1, 8, 9]), tensor(0.2000))
    """
    name = one_line(str(path))
    path, extension = split_selection(path)
    limit = gate.max_bytes() if max_bytes is None else max_bytes
    kind = "file"
    try:
        if path.is_dir():
            raise InputError(f"{name} is a folder: give a picture file, {KNOWN}")
        check_regular(path)
        if not path.is_file():
            raise InputError(f"{name}: no such file: give a picture file, {KNOWN}")
        with path.open("rb") as file:
            found = _format_of_content(file.read(32), name)
        kind = found.name
        with errors_logged_by("imagecodecs"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow and astropy warn of what bends a standard
            if extension is None:
                return Picture.from_raw(found.read(path, name, limit), name, kind)
            if found is not fits.FORMAT:
                raise InputError(f"{name}: {kind} files have no extensions: leave the brackets out")
            return Picture.from_raw(fits.read(path, name, limit, extension), name, kind)
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
        Its suffix names the format: .png, .jpg, .tif, .ome.tif, .fits, .fits.gz, .npy, .webp, .avif, .heic, .bmp
        and their variants.
    picture : Picture, array_like or Tensor
        Arrays are taken by `Picture.from_array`: (H, W), (H, W, 3), (C, H, W), (pages, C, H, W). Floats are pixels in
        [0, 1]; PNG gets them as 16-bit integers; TIFF, FITS and NPY as floats; the others as 8-bit integers.
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
    form = _format_of_suffix(path, name)
    if not isinstance(picture, Picture):
        picture, allow_loss = _of_array(picture, form), True
    picture, notes = _made_to_fit(picture, form, name, allow_loss)
    if form is fits.FORMAT and (clipped := picture.clipped_samples):
        picture = _widened(picture)
        notes.append(f"{clipped} samples lie beyond the range of its integers: written as {picture.dtype}")
    raw, clipped = picture.to_raw()
    if raw.blank is not None and raw.samples.dtype.kind != "f" and not _has_blank(raw):
        notes.append(f"{int(raw.blank.sum())} samples without data are written with the values filled in")
    return _write(path, name, form, raw, clipped, notes)


def check_output(path: str | os.PathLike[str], picture: Picture) -> None:
    """Refuse, before the long work, an output that `write_picture` or the system would refuse after it."""
    name = one_line(str(path))
    _made_to_fit(picture, _format_of_suffix(Path(path), name), name, allow_loss=False)
    check_writable(Path(path))


def write_png(path: Path, picture: Tensor) -> None:
    """The first picture of (B, C, H, W), C = 1 or 3, values in [0, 1], as 8-bit PNG."""
    if picture.ndim != 4 or picture.shape[1] not in (1, 3):
        raise InputError(f"picture has shape {tuple(picture.shape)}: give (B, C, H, W) with 1 or 3 channels")
    raw, _ = Picture.from_array(picture[:1]).with_depth("uint8").to_raw()
    _write(Path(path), one_line(str(path)), png.FORMAT, raw, 0, [])


def _write(path: Path, name: str, form: Format, raw: Raw, clipped: int, notes: list[str]) -> Written:
    """Write what fits the format."""
    with replacing(path) as place:
        try:
            more, more_clipped = form.write(place, raw, path.name)
        except (InputError, OSError):
            raise
        except Exception as error:  # whatever an encoder raises for metadata of a damaged file
            what = one_line(f"{type(error).__name__}: {error}")[:120]
            raise InputError(f"{name} cannot be written ({what}): write another format") from error
    return Written(path, form.name, raw.samples.dtype.name, clipped + more_clipped, (*notes, *more))


def _of_array(array: object, form: Format) -> Picture:
    """The picture in an array; refuses floats beyond [0, 1] where integers are written."""
    from PIL.Image import Image

    picture = Picture.from_pil(array) if isinstance(array, Image) else Picture.from_array(array)
    if np.dtype(picture.dtype).kind == "f" and form.is_flat:
        largest = float(picture.pixels.abs().max())
        if largest > BRIGHTEST_NOMINAL:
            raise InputError(
                f"the array has floats up to {largest:.6g}, {form.name} takes those in [0, 1]: "
                "divide by the value of white, or give uint8 or uint16"
            )
    return picture


def _format_of_suffix(path: Path, name: str) -> Format:
    """The format that a suffix names."""
    for form in FORMATS.values():
        if path.name.lower().endswith(form.suffixes):
            return form
    known = ", ".join(suffix for form in FORMATS.values() for suffix in form.suffixes)
    raise InputError(f"{name} has no suffix that names a format: use one of {known}")


def _format_of_content(head: bytes, name: str) -> Format:
    """The format that the first bytes show."""
    if not head:
        raise InputError(f"{name} is empty: give a picture file, {KNOWN}")
    for form in FORMATS.values():
        if head.startswith(form.signatures):
            return form
    other = next((kind for signature, kind in OTHER_FORMATS.items() if head.startswith(signature)), None)
    if head[4:8] == b"ftyp":
        other = "video"
    if other:
        raise InputError(f"{name} is a {other} file, which is not read here: convert it to {KNOWN}")
    raise InputError(f"{name} is not a picture in a known format by its first bytes: give {KNOWN}")


def _made_to_fit(picture: Picture, form: Format, name: str, allow_loss: bool) -> tuple[Picture, list[str]]:
    """The picture as the format can hold it, and what that leaves out; refuses where that is too much."""
    kind = form.name
    pages, channels = picture.pixels.shape[:2]
    notes: list[str] = []
    if form.is_flat:
        if pages > 1:
            raise InputError(f"{name}: {kind} holds one page, the picture has {pages}: write TIFF, FITS or NPY")
        if channels not in (1, 3) and not (form.holds_cmyk and picture.colour == "cmyk"):
            what = "CMYK" if picture.colour == "cmyk" else f"{channels} channels"
            raise InputError(f"{name}: {kind} cannot hold {what}: write TIFF, FITS or NPY")
    if picture.dtype not in form.dtypes:
        deepest = form.dtypes[-1]
        if not allow_loss:
            others = [other.name for other in FORMATS.values() if picture.dtype in other.dtypes]
            raise InputError(
                f"{name}: {kind} cannot hold {picture.dtype} samples: write {' or '.join(others)}; "
                f"in Python: allow_loss=True writes {deepest}"
            )
        if picture.scale != 1 and np.dtype(picture.dtype).kind == "f":
            notes.append(f"values are divided by {picture.scale:g} to fit into {deepest}")
        notes.append(f"{picture.dtype} samples are written as {deepest}")
        picture = picture.from_linear().with_depth(deepest)
    if picture.alpha is not None and not form.holds_alpha:
        if not allow_loss:
            raise InputError(
                f"{name}: {kind} cannot hold alpha: write PNG or TIFF; in Python: allow_loss=True leaves it out"
            )
        picture = replace(picture, alpha=None)
        notes.append("alpha is left out")
    return _with_fitting_metadata(picture, form, notes), notes


def _widened(picture: Picture) -> Picture:
    """A picture of integers as one of floats with the same numbers."""
    wide = replace(picture, dtype="float64" if "32" in picture.dtype else "float32", blank_values=None)
    if picture.metadata.native_for != picture.kind:
        return wide
    return replace(wide, metadata=replace(wide.metadata, native_for=wide.kind))


def _with_fitting_metadata(picture: Picture, form: Format, notes: list[str]) -> Picture:
    """The picture without metadata that describe another format or other samples."""
    metadata = picture.metadata
    if isinstance(metadata.native, form.native) and metadata.native_for == picture.kind:
        return picture
    if metadata.native is not None:
        metadata = replace(metadata, native=None)
        notes.append(f"metadata that only the old file could hold are left out of the {form.name}")
    if metadata.icc and metadata.icc[16:20] != ICC_SPACES.get(picture.colour):
        metadata = replace(metadata, icc=None)
        notes.append("the ICC profile is for other channels and left out")
    return replace(picture, metadata=metadata)


def _has_blank(raw: Raw) -> bool:
    frame = raw.metadata.native
    return isinstance(frame, fits.Frame) and frame.blank is not None
