"""Options of a blur that its file or its arrays do not contain."""

from __future__ import annotations

import dataclasses
import math
import os
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, get_args

import numpy as np
import numpy.typing as npt
from torch import Tensor

from pnpladmm.operators.blur import Order
from pnpladmm.pictures.pixel_scale import PixelScale
from pnpladmm.tensors import InputError

Kind: TypeAlias = Literal["gaussian", "defocus", "motion"]
Size: TypeAlias = tuple[int, int]
Window: TypeAlias = tuple[tuple[int, int], tuple[int, int]]
"""Rows and columns of a part of the picture, each as (first, one after the last)."""
FileOrArray: TypeAlias = str | Path | npt.ArrayLike | Tensor


class Settings(TypedDict, total=False):
    """The keyword arguments of `read_blur` and `as_blur`; `Options` says what each means."""

    labels: FileOrArray | None
    positions: FileOrArray | None
    kind: Kind | None
    index: int | None
    feather: float | None
    order: Order | None
    normalise: bool
    recentre: bool
    background: float | str | None
    oversampling: float | tuple[float, float] | None
    psf_scale: float | tuple[float, float] | None
    picture_scale: PixelScale | None
    window: Window | None
    pixels: Tensor | None
    tolerance: float
    most: int | None


@dataclass(frozen=True, eq=False)
class Options:
    """How to read a blur. Everything has a default; the notes of the blur say what was done.

    Parameters
    ----------
    size : (int, int), optional
        (H, W) of the picture. Models that are defined on any field need it; maps and weights must match it.
    labels : path or array (H, W), optional
        Label map of whole numbers (a file: PNG, TIFF or NPY) that says which kernel of a bank acts where.
    positions : path or array (N, 2), optional
        Where each PSF of a stack was seen, as x, y: pixels from 0, x along columns. A file is a CSV with columns x, y.
    kind : {"gaussian", "defocus", "motion"}, optional
        The array is a map with one value per pixel: standard deviation, radius, or vector (x, y), all in pixels.
    index : int, optional
        Which kernel of a bank, or which chip or detector of a file, counted from 0.
    feather : float, optional
        Width of the seams between regions in pixels (2 if not given).
    order : {"convolve-then-weight", "weight-then-convolve"}, optional
        Where the weights act; each form has its own default.
    normalise : bool
        Divide each kernel by its sum, so that brightness is kept.
    recentre : bool
        Shift each kernel so that its centroid lies on the centre. If false, offsets are kept and reported.
    background : float or "border", optional
        A level to subtract from the kernels first (a camera's offset), or `border`: that of each kernel's outer part.
        If not given, an offset is subtracted where a constant rim shows one.
    oversampling : float or (float, float), optional
        Samples per detector pixel of the PSFs, or (y, x), where the pixel's own response is in the PSF already
        (effective PSFs, as photutils has them): it is taken at the centres of the detector's pixels.
    psf_scale : float or (float, float), optional
        Size of a pixel of the PSF in pixels of the picture, or (y, x): 0.25 where the PSF is sampled four times as
        finely. The light in each pixel of the picture is summed. If not given, the sizes in the headers are compared.
    picture_scale : PixelScale, optional
        Size of the picture's pixels, as its header states it.
    window : ((int, int), (int, int)), optional
        Rows and columns of the part of the picture that the blur is for. Models of the place (one kernel, PSFEx, grids
        and scattered PSFs) are evaluated there alone, and never on the whole picture.
    pixels : Tensor (.., H, W), optional
        The blurred picture; regions whose blur is `auto` need it.
    tolerance : float
        Relative error that a low rank or a quantisation may cost.
    most : int, optional
        The largest number of kernels for a low rank or a quantisation (32 if not given; 64 for motion).
    """

    size: Size | None = None
    labels: FileOrArray | None = None
    positions: FileOrArray | None = None
    kind: Kind | None = None
    index: int | None = None
    feather: float | None = None
    order: Order | None = None
    normalise: bool = True
    recentre: bool = False
    background: float | str | None = None
    oversampling: float | tuple[float, float] | None = None
    psf_scale: float | tuple[float, float] | None = None
    picture_scale: PixelScale | None = None
    window: Window | None = None
    pixels: Tensor | None = None
    tolerance: float = 0.01
    most: int | None = None

    def __post_init__(self) -> None:
        for name, choices in (("kind", get_args(Kind)), ("order", get_args(Order))):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value in choices):
                raise InputError(f"{name} {short(value)}: choose one of {', '.join(choices)}")
        for name, least in (("index", 0), ("most", 1)):
            object.__setattr__(self, name, _checked_count(name, getattr(self, name), least))
        for name in ("normalise", "recentre"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} {short(getattr(self, name))}: give true or false")
        for name in ("feather", "tolerance"):
            value = getattr(self, name)
            if not (is_number(value) and 0 <= value < 1e6) and not (value is None and name == "feather"):
                raise InputError(f"{name} {short(value)}: give a number of 0 or more")
        if self.size is not None:
            object.__setattr__(self, "size", _checked_size(self.size))
        for name in ("labels", "positions"):
            if isinstance(getattr(self, name), str | os.PathLike):
                object.__setattr__(self, name, Path(getattr(self, name)))

    def factors(self) -> tuple[float, float] | None:
        """Oversampling as (y, x); None if the PSFs have one sample per pixel."""
        if self.oversampling is None:
            return None
        pair = self.oversampling if isinstance(self.oversampling, tuple | list) else (self.oversampling,) * 2
        if len(pair) != 2 or not all(is_number(f) and f >= 1 for f in pair):
            raise InputError(f"oversampling {short(self.oversampling)}: give a number of 1 or more, or two (y, x)")
        return float(pair[0]), float(pair[1])

    def scales(self) -> tuple[float, float] | None:
        """Pixels of the picture per pixel of the PSF as (y, x); None if they are equally large."""
        if self.psf_scale is None:
            return None
        pair = self.psf_scale if isinstance(self.psf_scale, tuple | list) else (self.psf_scale,) * 2
        if len(pair) != 2 or not all(is_number(f) and f > 0 for f in pair):
            raise InputError(f"psf_scale {short(self.psf_scale)}: give a number above 0, or two (y, x)")
        if self.oversampling is not None:
            raise InputError("psf_scale beside oversampling: both say how finely the PSF is sampled, give one of them")
        return float(pair[0]), float(pair[1])

    def refuse_scale(self, name: str, what: str) -> None:
        """Refuse `psf_scale` for what lies on the picture's own pixels."""
        if self.psf_scale is not None:
            raise InputError(f"{name}: psf_scale: {what} states sizes in pixels of the picture: leave psf_scale out")

    def places(self, size: Size) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Rows and columns of the pixels that weights are needed on: all, or those of the window."""
        rows, columns = self.window or ((0, size[0]), (0, size[1]))
        return np.arange(*rows, dtype=np.float64), np.arange(*columns, dtype=np.float64)

    def needed_size(self, name: str, what: str) -> Size:
        """The picture's size, for a model that is defined on any field."""
        if self.size is None:
            raise InputError(
                f"{name}: {what} fits any picture: give the picture's size (height, width); "
                "on the command line --size HxW or --picture FILE"
            )
        return self.size

    def matching_size(self, name: str, what: str, size: Size) -> None:
        """Refuse values that were made for a picture of another size."""
        if self.size is not None and self.size != size:
            raise InputError(
                f"{name}: {what} are {size[0]}x{size[1]}, the picture is {self.size[0]}x{self.size[1]}: they must match"
            )

    def but(self, **changes: Any) -> Options:
        """A copy with other values."""
        return dataclasses.replace(self, **changes)


def short(value: Any) -> str:
    """A value as errors show it: in one line, shortened if it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _checked_size(value: Any) -> Size:
    try:
        height, width = (int(n) for n in value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last is a tensor's
        height = width = 0
    if min(height, width) < 1:
        raise InputError(f"size {short(value)}: give the picture's (height, width)")
    return height, width


def _checked_count(name: str, value: Any, least: int) -> int | None:
    """A whole number (also NumPy's), or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise InputError(f"{name} {short(value)}: give a whole number of {least} or more")
    return int(value)


def is_number(value: Any) -> bool:
    """A finite number, also NumPy's; true and false are refused."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
