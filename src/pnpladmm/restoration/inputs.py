"""Pictures and blurs as they are given: files, arrays, tensors, pictures of other libraries."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur import Blur, as_blur
from pnpladmm.blur.options import Settings
from pnpladmm.operators import Boundary, LinearOperator
from pnpladmm.pictures import Picture, read_picture
from pnpladmm.pictures.arrays import Array, to_stack
from pnpladmm.pictures.quality import Quality
from pnpladmm.pictures.samples import natural_scale
from pnpladmm.restoration.containers import Unpacked, unpacked
from pnpladmm.tensors import InputError, tell_of_lost_gradients, type_words

if TYPE_CHECKING:
    from PIL.Image import Image

PictureLike: TypeAlias = "str | os.PathLike[str] | Picture | Tensor | Array | Image | Sequence[Any]"
"""Everything that is accepted as a picture."""
BlurLike: TypeAlias = "str | os.PathLike[str] | Blur | LinearOperator | Tensor | Array | Sequence[Any] | dict[str, Any]"
"""Everything that is accepted as a blur, and objects with `A` and `A_adjoint`."""

MAX_UNIT_MEDIAN = 1.5
"""Floats whose median is above this are not in [0, 1]. Single bright pixels above 1 are allowed."""
WHAT = "give a file, an array, a tensor, a PIL image or a Picture"


@dataclass(frozen=True)
class Given:
    """A picture, and how it was given."""

    picture: Picture
    dead: Tensor | None = None
    """True on pixels that a masked array leaves out, (B, C, H, W)."""
    is_array: bool = False
    """It was given as an array, whose numbers may be in other units than [0, 1]."""
    rebuild: Callable[[Array], Any] | None = None
    """From the restored array to the kind of thing that was given; None for files and pictures."""

    @property
    def together(self) -> bool:
        """Arrays: their pictures are restored as one batch. The pages of a file are restored one after the other."""
        return bool(self.picture.axes)


def as_given(picture: PictureLike, axes: str | None = None) -> Given:
    """Read the picture from whatever was given; floats are not scaled."""
    if isinstance(picture, Tensor):
        tell_of_lost_gradients("restore", picture)
        return _of_tensor(picture.detach(), _letters(axes))
    if isinstance(picture, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(picture)
        values = np.asarray(picture.filled(picture.dtype.type(0)))
        return _of_container(Unpacked(values, lambda array: _masked(array, mask), mask=mask), axes)
    container = unpacked(picture)
    if container is not None:
        return _of_container(container, axes)
    is_file = isinstance(picture, str | os.PathLike)
    if is_file or isinstance(picture, Picture) or _is_pil(picture):
        if axes is not None:
            raise InputError(f"axes = {axes!r}: they are for arrays, leave them out")
        return Given(_opened(picture))
    if hasattr(picture, "__array__") or (isinstance(picture, list | tuple) and _depth(picture) >= 2):
        return _of_array(np.asarray(picture), _letters(axes))
    raise InputError(f"picture is {'missing' if picture is None else type_words(picture)}: {WHAT}")


def in_own_units(given: Given, dead: Tensor | None, own_units: bool) -> Given:
    """Floats of an array brought to [0, 1] by a power of two, as those of files are; `dead` pixels do not count.

    Without `own_units` they stay as they are: the noise level was given for pictures in [0, 1].
    """
    picture = given.picture
    if not given.is_array or np.dtype(picture.dtype).kind != "f":
        return given
    counts = torch.ones_like(picture.pixels, dtype=torch.bool) if picture.valid is None else picture.valid
    if dead is not None:
        counts = counts & ~dead.to(counts.device)
    known = picture.pixels[counts]
    if known.numel() == 0:
        return given
    if own_units:
        scale = natural_scale(known.cpu().numpy())
        if scale == 1:
            return given
        return replace(given, picture=replace(picture, pixels=picture.pixels / scale, scale=scale))
    if float(known.abs().median()) > MAX_UNIT_MEDIAN:
        raise InputError(
            f"picture has values up to {float(known.max()):g}, but a noise level is for pictures in [0, 1]: divide "
            "both by the white of the picture, or leave noise out"
        )
    return given


def blur_for(
    blur: BlurLike | None, picture: Picture, labels: Any = None, positions: Any = None, psf_scale: float | None = None
) -> Blur | LinearOperator:
    """The blur of a picture from whatever was given; operators and physics stay as they are."""
    if blur is None:
        raise InputError(
            "blur is missing: give an array of the PSF, a Blur, an operator or a blur file; "
            'pl.estimate_blur(picture, "blind") finds one'
        )
    if isinstance(blur, LinearOperator) or hasattr(blur, "A_adjoint"):
        if not (labels is None and positions is None and psf_scale is None):
            raise InputError(
                "labels, positions or psf_scale with an operator: an operator knows where it acts, leave them out"
            )
        return blur  # type: ignore[return-value]  # Problem wraps deepinv's physics
    size = picture.pixels.shape[-2], picture.pixels.shape[-1]
    shape = tuple(getattr(blur, "shape", ()))
    if len(shape) == 2 and shape[0] >= 2 * size[0] and shape[1] >= 2 * size[1]:
        raise InputError(
            f"the blur is {shape[0]}x{shape[1]}, the picture {size[0]}x{size[1]}: first the picture, then the blur"
        )
    if isinstance(blur, int | float):
        raise InputError(f"blur = {blur:g} is no PSF: pnpladmm.blur.gaussian({blur:g}) makes one of that width")
    if isinstance(blur, Blur):
        return as_blur(blur, size, labels=labels, positions=positions, psf_scale=psf_scale)
    scale = picture.metadata.pixel_scale
    settings: Settings = {
        "labels": labels,
        "positions": positions,
        "psf_scale": psf_scale,
        "picture_scale": scale,
        "pixels": picture.pixels,
    }
    return as_blur(blur, size, **settings)


def operator_of(blur: Blur | LinearOperator, boundary: Boundary) -> LinearOperator:
    """The operator of a blur; an operator is returned unchanged."""
    return blur.operator(boundary) if isinstance(blur, Blur) else blur


def _opened(picture: Any) -> Picture:
    if isinstance(picture, Picture):
        return picture
    return read_picture(Path(picture)) if isinstance(picture, str | os.PathLike) else Picture.from_pil(picture)


def _of_array(array: Array, axes: str | None) -> Given:
    if array.dtype.kind not in "uif":
        raise InputError(f"picture is an array of {array.dtype}: convert it to uint8, uint16 or floats in [0, 1]")
    if array.dtype.kind in "ui" and array.dtype.itemsize == 8:
        raise InputError(
            f"picture: {array.dtype} has no known white level: convert to uint8 or uint16, or scale to [0, 1]"
        )
    return Given(Picture.from_array(array, axes, name="picture"), is_array=True, rebuild=lambda restored: restored)


def _of_container(held: Unpacked, axes: str | None) -> Given:
    """Values with all that their container says of them."""
    given = _of_array(held.values, _letters(axes) or held.axes)

    def laid(values: Array) -> Tensor:
        return torch.from_numpy(np.array(to_stack(values, given.picture.axes)))

    variance = None if held.variance is None else laid(held.variance)
    unknown = None if variance is None else torch.isnan(variance)
    quality = None if variance is None else Quality(torch.where(torch.isnan(variance), 1.0, variance), unknown)
    metadata = replace(given.picture.metadata, pixel_scale=held.pixel_scale)
    picture = replace(given.picture, quality=quality, metadata=metadata, notes=(*given.picture.notes, *held.notes))
    dead = None if held.mask is None else laid(held.mask)
    return replace(given, picture=picture, dead=dead, rebuild=held.rebuild)


def _masked(array: Array, mask: Array) -> Any:
    """A masked array; without the mask where the size changed."""
    return np.ma.MaskedArray(array, mask if mask.shape == array.shape else np.ma.nomask)


def _of_tensor(tensor: Tensor, axes: str | None) -> Given:
    if tensor.is_complex() or tensor.dtype is torch.bool:
        raise InputError(f"picture is a tensor of {tensor.dtype}: convert it to uint8 or floats in [0, 1]")
    if tensor.dtype is torch.int64:
        return _of_array(tensor.cpu().numpy(), axes)
    wide = tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
    picture = Picture.from_array(wide, axes, name="picture")
    valid = None if picture.valid is None else picture.valid.to(tensor.device)
    picture = replace(picture, pixels=picture.pixels.to(tensor.device), valid=valid)
    return Given(picture, is_array=True, rebuild=lambda array: torch.from_numpy(array).to(tensor.device, tensor.dtype))


def _is_pil(thing: object) -> bool:
    """Is it an image of Pillow? Where Pillow was not imported, it cannot be."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(thing, module.Image)


def _letters(axes: str | None) -> str | None:
    return axes.upper() if isinstance(axes, str) else axes


def _depth(values: Any) -> int:
    """How deep lists are nested."""
    return 1 + _depth(values[0]) if isinstance(values, list | tuple) and len(values) else 0
