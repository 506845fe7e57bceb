"""What a picture is to this program: pixels in [0, 1], and all that its file says besides."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from pnpladmm.pictures.exif import Array
from pnpladmm.pictures.samples import DTYPES, check_dtype, fill_blank, natural_scale, pixel_dtype, to_pixels, to_samples
from pnpladmm.pictures.tone import Tone, tone_of
from pnpladmm.tensors import InputError

METRES = {"metre": Fraction(1), "cm": Fraction(1, 100), "inch": Fraction(254, 10000)}


@dataclass(frozen=True)
class Resolution:
    """Pixels per `unit` along x and y, as exact fractions. Unit "none" states only the shape of a pixel."""

    x: Fraction
    y: Fraction
    unit: str

    def to(self, unit: str) -> Resolution:
        """The same in another of metre, cm, inch; "none" stays what it is."""
        if "none" in (self.unit, unit):
            return self
        factor = METRES[unit] / METRES[self.unit]
        return Resolution(self.x * factor, self.y * factor, unit)

    def turned(self) -> Resolution:
        """x and y exchanged, for a picture turned by 90 degrees."""
        return Resolution(self.y, self.x, self.unit)


@dataclass(frozen=True)
class Metadata:
    """What the file says besides the pixels, carried through unread.

    `icc`, `exif` (orientation already 1), `xmp` and `resolution` go into any format that can hold them. `native` is
    the rest, in the form of the format it came from; it goes back into that format only, and only into pictures of
    the kind it describes (`native_for`: shape, dtype, whether there is alpha). `transfer` says what the
    samples mean where no ICC profile does: "srgb", "light" (linear already), an exponent (light = sample ** exponent),
    or the name of a curve that we do not undo.
    """

    icc: bytes | None = field(default=None, repr=False)
    exif: bytes | None = field(default=None, repr=False)
    xmp: bytes | None = field(default=None, repr=False)
    resolution: Resolution | None = None
    transfer: str | float = "srgb"
    native: object | None = field(default=None, repr=False)
    native_for: tuple[object, ...] = field(default=(), repr=False)


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture: `pixels` (pages, C, H, W), nominally in [0, 1]; `file value = scale * pixel`.

    `dtype` is the type of the file's samples ("uint16"); see `samples` for the scales. `alpha` (pages, 1, H, W) is
    kept, not restored. `valid` (pages, C, H, W) is False where the file has no data (NaN, infinity, FITS BLANK): there
    `pixels` hold the nearest good value, to be given precision 0, and writing puts the file's own value back; to
    write what was restored there instead, use `dataclasses.replace(picture, valid=None)`. `colour` is "grey", "rgb",
    "cmyk" or "channels". `linear`: the pixels are linear light now. `notes` say in a line each what reading changed.
    """

    pixels: Tensor
    dtype: str
    scale: float
    alpha: Tensor | None = None
    valid: Tensor | None = None
    colour: str = "grey"
    linear: bool = False
    metadata: Metadata = Metadata()
    notes: tuple[str, ...] = ()
    name: str = "picture"
    blank_values: Array | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Check that the parts fit together."""
        shape = tuple(self.pixels.shape)
        if len(shape) != 4 or 0 in shape:
            raise InputError(f"{self.name} has pixels of shape {shape}: give a non-empty (pages, C, H, W)")
        if self.pixels.dtype not in (torch.float32, torch.float64):
            raise InputError(f"{self.name} has pixels of dtype {self.pixels.dtype}: give float32 or float64")
        if self.dtype not in DTYPES:
            raise InputError(f"{self.name} has dtype {self.dtype!r}: give one of {', '.join(DTYPES)}")
        if self.alpha is not None and tuple(self.alpha.shape) != (shape[0], 1, *shape[2:]):
            raise InputError(f"{self.name} has alpha of shape {tuple(self.alpha.shape)}: give (pages, 1, H, W)")
        if self.valid is not None and tuple(self.valid.shape) != shape:
            raise InputError(f"{self.name} has a valid mask of shape {tuple(self.valid.shape)}: give {shape}")

    @classmethod
    def from_array(cls, array: Array | Tensor, dtype: str | None = None, name: str = "array") -> Picture:
        """A picture of a numpy array (H, W), (H, W, C), (C, H, W) or (pages, C, H, W), or of a tensor of these.

        Integers are scaled by the maximum of their type. Floats are pixels as they are, in [0, 1], and are written as
        `dtype` (by default their own). Of three axes the one with at most 4 entries is the channels. Four channels
        are four channels: hand an alpha channel over with `dataclasses.replace(picture, alpha=...)`.
        """
        is_tensor = isinstance(array, Tensor)
        values = array.detach().cpu().numpy() if isinstance(array, Tensor) else np.asarray(array)
        check_dtype(name, values.dtype)
        samples, _ = arrange(values, name, channels_first=is_tensor)
        if samples.dtype.kind == "f":
            kind = dtype or samples.dtype.name
            scale = float(np.iinfo(kind).max) if kind in DTYPES and np.dtype(kind).kind in "ui" else 1.0
            return _assemble(samples, None, None, 1.0, name)._as(kind, scale)
        picture = _assemble(samples, None, None, None, name)
        return picture if dtype is None else picture.with_depth(dtype)

    @property
    def kind(self) -> tuple[object, ...]:
        """What native metadata depend on: shape, type of the samples, whether there is alpha."""
        return (tuple(self.pixels.shape), self.dtype, self.alpha is not None)

    @property
    def pixel_size(self) -> tuple[float, float] | None:
        """Width and height of a pixel in metres, where the file says."""
        resolution = self.metadata.resolution
        if resolution is None or resolution.unit == "none" or not (resolution.x and resolution.y):
            return None
        metres = resolution.to("metre")
        return float(1 / metres.x), float(1 / metres.y)

    @property
    def clipped(self) -> int:
        """How many samples lie outside the range of `dtype` and would be clipped on writing."""
        picture = self.from_linear()
        return to_samples(picture.pixels, picture.dtype, picture.scale)[1]

    def with_pixels(self, pixels: Tensor) -> Picture:
        """This picture with other pixels of the same shape; everything else is kept."""
        if pixels.shape != self.pixels.shape:
            raise InputError(
                f"{self.name}: pixels of shape {tuple(pixels.shape)} do not fit its {tuple(self.pixels.shape)}: "
                "crop or enlarge them, or make a new picture with Picture.from_array"
            )
        if bad := int((~torch.isfinite(pixels)).sum()):
            raise InputError(f"{self.name}: {bad} new pixels are NaN or infinite: a picture needs finite pixels")
        return replace(self, pixels=pixels)

    def with_depth(self, dtype: str) -> Picture:
        """This picture to be written with samples of another type: "uint8", "uint16", "float32", ...

        Between integers white stays white; from integers to floats the pixels themselves are written; between floats
        the values stay. Metadata that only the format it came from can hold are left behind: they describe the old
        samples.
        """
        if dtype not in DTYPES:
            raise InputError(f"dtype = {dtype!r}: give one of {', '.join(DTYPES)}")
        if dtype == self.dtype:
            return self
        if np.dtype(dtype).kind in "ui":
            return self._as(dtype, float(np.iinfo(dtype).max))
        return self._as(dtype, self.scale if np.dtype(self.dtype).kind == "f" else 1.0)

    def _as(self, dtype: str, scale: float) -> Picture:
        if dtype not in DTYPES:
            raise InputError(f"dtype = {dtype!r}: give one of {', '.join(DTYPES)}")
        wide = torch.promote_types(self.pixels.dtype, pixel_dtype(dtype))
        return replace(self, pixels=self.pixels.to(wide), dtype=dtype, scale=scale, blank_values=None)

    @property
    def tone(self) -> Tone:
        """The curve from samples to light: of the ICC profile, of the PNG's gamma, or sRGB's."""
        if self.colour == "cmyk":
            raise InputError(f"{self.name} is CMYK, amounts of ink: convert it to RGB to work in linear light")
        if self.metadata.transfer == "light":
            raise InputError(f"{self.name} is linear light already: restore it as it is")
        if np.dtype(self.dtype).kind == "f" and self.scale != 1:
            raise InputError(f"{self.name} has float values up to {self.scale:g}, so no sRGB: restore it as it is")
        return tone_of(self.metadata.icc, self.metadata.transfer, self.pixels.shape[1], self.name)

    def to_linear(self) -> Picture:
        """This picture in linear light, where blur acts. Alpha and metadata are untouched."""
        if self.linear:
            return self
        return replace(self, pixels=self.tone.to_light(self.pixels), linear=True)

    def from_linear(self) -> Picture:
        """The inverse of `to_linear`; `write_picture` calls it where needed."""
        if not self.linear:
            return self
        return replace(self, pixels=self.tone.from_light(self.pixels), linear=False)


@dataclass(frozen=True, eq=False)
class Raw:
    """Samples (pages, C, H, W) as a file holds them: what the formats hand to `assemble` and get to write.

    `scale` is None for the natural one; `blank` marks samples without data.
    """

    samples: Array
    alpha: Array | None = None
    blank: Array | None = None
    scale: float | None = None
    colour: str = "grey"
    metadata: Metadata = Metadata()
    notes: tuple[str, ...] = ()


def assemble(raw: Raw, name: str) -> Picture:
    """The picture of what a format read."""
    picture = _assemble(raw.samples, raw.alpha, raw.blank, raw.scale, name)
    metadata = replace(raw.metadata, native_for=picture.kind)
    return replace(picture, colour=raw.colour, metadata=metadata, notes=raw.notes)


def _assemble(samples: Array, alpha: Array | None, blank: Array | None, scale: float | None, name: str) -> Picture:
    dtype = check_dtype(name, samples.dtype)
    if samples.dtype.kind == "f":
        bad = ~np.isfinite(samples)
        blank = bad if blank is None else bad | blank
    valid = values = None
    if blank is not None and blank.any():
        if blank.all():
            raise InputError(f"{name} has no pixel with data, only NaN or blank: there is nothing to restore")
        values = samples[blank]
        valid = torch.from_numpy(~blank)
        samples = fill_blank(samples, blank)
    scale = natural_scale(samples) if scale is None else scale
    opacity = None
    if alpha is not None:
        opacity = to_pixels(alpha, natural_scale(alpha) if alpha.dtype.kind in "ui" else 1.0)
    colour = {1: "grey", 3: "rgb"}.get(samples.shape[1], "channels")
    return Picture(to_pixels(samples, scale), dtype, scale, opacity, valid, colour, name=name, blank_values=values)


def disassemble(picture: Picture) -> tuple[Raw, int]:
    """The samples that a file is to hold, and how many of them were clipped."""
    picture = picture.from_linear()
    samples, clipped = to_samples(picture.pixels, picture.dtype, picture.scale)
    blank = None
    if picture.valid is not None:
        blank = (~picture.valid).cpu().numpy()
        if samples.dtype.kind == "f":
            samples = samples.copy()
            values = picture.blank_values
            samples[blank] = np.nan if values is None or values.size != int(blank.sum()) else values
    alpha = None
    if picture.alpha is not None:
        whole = float(np.iinfo(picture.dtype).max) if samples.dtype.kind in "ui" else 1.0
        alpha, _ = to_samples(picture.alpha, picture.dtype, whole)
    return Raw(samples, alpha, blank, picture.scale, picture.colour, picture.metadata), clipped


def arrange(values: Array, name: str, channels_first: bool = False) -> tuple[Array, str]:
    """An array of 2 to 4 axes as (pages, C, H, W), and the layout it had: HW, HWC, CHW or BCHW."""
    shape = values.shape
    if 0 in shape or values.ndim not in (2, 3, 4):
        raise InputError(f"{name} has shape {shape}: give a non-empty (H, W), (H, W, C) or (pages, C, H, W)")
    if values.ndim == 2:
        return values[None, None], "HW"
    if values.ndim == 4:
        return values, "BCHW"
    if shape[0] <= 4 and (channels_first or shape[-1] > 4):
        return values[None], "CHW"
    if shape[-1] <= 4:
        return values.transpose(2, 0, 1)[None], "HWC"
    raise InputError(f"{name} has shape {shape}, pages or channels: give (pages, C, H, W) to say which")


def disarrange(samples: Array, layout: str) -> Array:
    """The inverse of `arrange`."""
    if layout == "BCHW":
        return samples
    first: Array = samples[0]
    return {"HW": first[0], "CHW": first, "HWC": first.transpose(1, 2, 0)}[layout]
