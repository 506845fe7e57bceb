"""What people give as a picture or a blur: files, arrays, tensors, pictures of other libraries."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur import Blur
from pnpladmm.operators import Boundary, LinearOperator
from pnpladmm.pictures import Metadata, Picture, read_picture
from pnpladmm.pictures.samples import fill_blank, natural_scale
from pnpladmm.restoration.layout import Array, arrange, axes_of
from pnpladmm.restoration.temporary import as_blur
from pnpladmm.tensors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

PictureLike: TypeAlias = "str | Path | Picture | Tensor | Array | Image"
"""What is taken for a picture."""
BlurLike: TypeAlias = "str | Path | Blur | LinearOperator | Tensor | Array | Sequence[Any] | dict[str, Any]"
"""What is taken for a blur; objects with `A` and `A_adjoint` as well."""

JPEG_SUFFIXES = (".jpg", ".jpeg")
BRIGHT = 1.5
"""Floats whose median is above this are in other units than [0, 1]."""


@dataclass(frozen=True)
class Given:
    """A picture, and how it was given."""

    picture: Picture
    axes: str
    """Of the array that `numpy.asarray` of the result makes."""
    together: bool = False
    """Arrays and tensors: their pictures are restored as one batch. Pages of files are restored one after the other."""
    jpeg: bool = False
    dead: Tensor | None = None
    """True on pixels that a masked array leaves out, (B, C, H, W)."""
    in_memory: bool = False
    """It has no depth of a file, so it may be written with any."""


def as_given(picture: PictureLike, axes: str | None = None) -> Given:
    """The picture in whatever was given; floats in memory as they are."""
    if isinstance(picture, str | Path):
        picture = read_picture(picture)
    if isinstance(picture, Picture):
        if axes is not None:
            raise InputError(f"axes = {axes!r}: a file or Picture knows its axes, leave it out")
        return _of_picture(picture)
    if _is_pil(picture):
        return _of_pil(picture, axes)
    if isinstance(picture, np.ma.MaskedArray):
        dead = torch.from_numpy(np.ma.getmaskarray(picture).copy())
        letters = axes_of("picture", tuple(picture.shape), axes)
        given = _of_array(np.asarray(picture.filled(picture.dtype.type(0))), letters)
        return replace(given, dead=arrange(dead, letters))
    if isinstance(picture, Tensor):
        return _of_tensor(picture.detach(), axes)
    if hasattr(picture, "__array__"):
        return _of_array(np.asarray(picture), axes)
    what = "missing" if picture is None else f"a {type(picture).__name__}"
    raise InputError(f"picture is {what}: give a file, an array, a tensor, a PIL picture or a Picture")


def in_own_units(given: Given, dead: Tensor | None, own_units: bool) -> Given:
    """Floats in memory brought to [0, 1] by a power of two, as those of files are; `dead` pixels do not count.

    Without `own_units` they stay as they are: the noise level was given for pictures in [0, 1].
    """
    picture = given.picture
    if not given.together or np.dtype(picture.dtype).kind != "f":
        return given
    known = picture.pixels if dead is None else picture.pixels[~dead.to(picture.pixels.device)]
    if known.numel() == 0:
        return given
    if own_units:
        scale = natural_scale(known.cpu().numpy())
        return (
            given
            if scale == 1
            else replace(given, picture=replace(picture, pixels=picture.pixels / scale, scale=scale))
        )
    if float(known.abs().median()) > BRIGHT:
        raise InputError(
            f"picture has values up to {float(known.max()):g} beside a noise level, which is for [0, 1]: divide both "
            "by the white of the picture, or leave noise out"
        )
    return given


def blur_for(
    blur: BlurLike | None, size: tuple[int, int], labels: Any = None, positions: Any = None
) -> Blur | LinearOperator:
    """The blur in whatever was given, for a picture of `size` (H, W); operators and physics are returned as they are."""
    if blur is None:
        raise InputError("blur is missing: give an array of the PSF, a Blur, an operator or a blur file")
    if isinstance(blur, LinearOperator) or hasattr(blur, "A_adjoint"):
        if labels is not None or positions is not None:
            raise InputError("labels and positions beside an operator: it knows where it acts, leave them out")
        return blur  # type: ignore[return-value]  # Problem wraps deepinv's physics
    return as_blur(blur, size, labels=labels, positions=positions)


def operator_of(blur: Blur | LinearOperator, boundary: Boundary) -> LinearOperator:
    """The operator of a blur; an operator stays what it is."""
    return blur.operator(boundary) if isinstance(blur, Blur) else blur


def _of_picture(picture: Picture) -> Given:
    pages, channels = picture.pixels.shape[:2]
    axes = ("B" if pages > 1 else "") + "HW" + ("C" if channels > 1 or picture.alpha is not None else "")
    return Given(picture, axes, jpeg=Path(picture.name).suffix.lower() in JPEG_SUFFIXES)


def _of_array(array: Array, axes: str | None) -> Given:
    letters = axes_of("picture", array.shape, axes)
    if array.dtype.kind not in "uif":
        raise InputError(f"picture is an array of {array.dtype}: convert it to uint8, uint16 or floats in [0, 1]")
    if array.dtype.kind in "ui" and array.dtype.itemsize == 8:
        raise InputError(
            f"picture is an array of {array.dtype}, which does not say what white is: convert it to uint8 (white is "
            "255) or uint16, or divide it by its white"
        )
    picture = Picture.from_array(np.ascontiguousarray(arrange(array, letters)), name="picture")
    return Given(picture, letters, together=True, in_memory=True)


def _of_tensor(tensor: Tensor, axes: str | None) -> Given:
    if not tensor.is_floating_point():
        if tensor.is_complex():
            raise InputError("picture is a tensor of complex numbers: give its real part or its magnitude")
        given = _of_array(tensor.cpu().numpy(), axes or axes_of("picture", tuple(tensor.shape)))
        return replace(given, picture=replace(given.picture, pixels=given.picture.pixels.to(tensor.device)))
    letters = axes_of("picture", tuple(tensor.shape), axes)
    wide = tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
    pixels = arrange(wide, letters)
    valid = None
    if not bool(torch.isfinite(pixels).all()):
        valid = torch.isfinite(pixels)
        if not bool(valid.any()):
            raise InputError("picture has no pixel with data, only NaN or infinity: there is nothing to restore")
        pixels = torch.from_numpy(fill_blank(pixels.cpu().numpy(), (~valid).cpu().numpy())).to(pixels)
    colour = {1: "grey", 3: "rgb"}.get(pixels.shape[1], "channels")
    picture = Picture(pixels, str(wide.dtype).removeprefix("torch."), 1.0, valid=valid, colour=colour)
    return Given(picture, letters, together=True, in_memory=True)


def _is_pil(thing: object) -> bool:
    """Is it a picture of Pillow? Where Pillow was not imported, it cannot be."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(thing, module.Image)


def _of_pil(image: Any, axes: str | None) -> Given:
    from PIL import ImageOps

    if axes is not None:
        raise InputError(f"axes = {axes!r}: a PIL picture knows its axes, leave it out")
    jpeg = image.format in ("JPEG", "MPO")
    image = ImageOps.exif_transpose(image)
    if image.mode in ("1", "P", "PA"):
        transparent = image.mode == "PA" or "transparency" in image.info
        image = image.convert("L" if image.mode == "1" else "RGBA" if transparent else "RGB")
    values, alpha = np.asarray(image), None
    if image.mode in ("LA", "RGBA"):
        values, alpha = values[..., :-1], values[..., -1:]
    elif image.mode not in ("L", "RGB", "CMYK", "I;16", "F"):
        raise InputError(f'picture is a PIL picture of mode {image.mode}: convert it, picture.convert("RGB")')
    letters = "HW" if values.ndim == 2 else "HWC"
    picture = Picture.from_array(np.ascontiguousarray(arrange(values, letters)), name="picture")
    colour = "cmyk" if image.mode == "CMYK" else picture.colour
    opacity = None if alpha is None else torch.from_numpy(arrange(alpha, "HWC") / np.float32(255))
    metadata = Metadata(icc=image.info.get("icc_profile"))
    picture = replace(picture, colour=colour, alpha=opacity, metadata=metadata)
    return Given(picture, letters, jpeg=jpeg, in_memory=True)
