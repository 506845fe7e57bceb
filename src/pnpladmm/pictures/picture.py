"""What a picture is to this program: pixels in [0, 1], and all that its file says besides."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pnpladmm.pictures.arrays import Array, as_numpy, axes_of, from_stack, to_stack
from pnpladmm.pictures.metadata import NO_METADATA, Metadata
from pnpladmm.pictures.quality import Quality
from pnpladmm.pictures.raw import Raw, colour_of
from pnpladmm.pictures.samples import DTYPES, check_dtype, fill_blank, natural_scale, pixel_dtype, to_pixels, to_samples
from pnpladmm.pictures.tone import Tone, tone_of
from pnpladmm.tensors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture: its pixels, and what its file or array says besides.

    `read_picture`, `Picture.from_array` and `Picture.from_pil` make pictures; `write_picture`, `to_array` give them
    back. `value in the file = scale * pixel`.

    Parameters
    ----------
    pixels : Tensor
        (pages, C, H, W), float32 or float64, nominally in [0, 1].
    dtype : str
        Type of the samples in the file or array, such as "uint16".
    scale : float
        The file's value for pixels of 1: 255 for uint8, 65535 for uint16, 1 for most floats.
    alpha : Tensor, optional
        Opacity (pages, 1, H, W) in [0, 1]. It is kept, not restored.
    valid : Tensor of bool, optional
        (pages, C, H, W), False where the file has no data (NaN, infinity, FITS BLANK). There `pixels` hold the nearest
        good value, to be given precision 0, and writing puts the file's own value back. To write what was restored
        there instead, use `dataclasses.replace(picture, valid=None)`.
    colour : str
        "grey", "rgb", "cmyk" or "channels".
    linear : bool
        Whether the pixels are linear light now (`to_linear`).
    metadata : Metadata
        Colour profile, EXIF, XMP, resolution, and what only the old format can hold.
    notes : tuple of str
        What reading changed, one line each.
    name : str
        What errors call the picture: the name of its file.
    format : str
        The format it was read from ("PNG", "JPEG", "TIFF", "FITS", "NPY"), empty for arrays.
    axes : str
        The axes of the array it was made of, such as "HWC"; empty for files.
    blank_values : array, optional
        The file's own values where `valid` is False, in the order of `samples[~valid]`, in the units of the file.
    quality : Quality, optional
        The variance of each pixel and the pixels that do not count, where the file says so (FITS: ERR, DQ). `restore`
        uses them unless it is told something else. What is restored on such pixels is written.

    Examples
    --------
    >>> import numpy as np
    >>> picture = Picture.from_array(np.array([[0, 51, 255]], np.uint8))
    >>> picture.pixels
    tensor([[[[0.0000, 0.2000, 1.0000]]]])
    >>> brighter = picture.with_pixels(picture.pixels * 2)
    >>> brighter.clipped_samples
    1
    >>> brighter.to_array()
    array([[  0, 102, 255]], dtype=uint8)
    """

    pixels: Tensor
    dtype: str
    scale: float
    alpha: Tensor | None = None
    valid: Tensor | None = None
    colour: str = "grey"
    linear: bool = False
    metadata: Metadata = NO_METADATA
    notes: tuple[str, ...] = ()
    name: str = "picture"
    format: str = ""
    axes: str = ""
    blank_values: Array | None = field(default=None, repr=False)
    quality: Quality | None = field(default=None, repr=False)

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
    def from_array(cls, array: object, axes: str | None = None, name: str = "array") -> Picture:
        """The picture in an array.

        Parameters
        ----------
        array : array_like or Tensor
            Integers of 8, 16 or 32 bits, scaled by the largest value of their type, or floats, which are pixels as
            they are (in [0, 1]). NaN and infinities mark samples without data.
        axes : str, optional
            "HW", "HWC", "CHW", "BHW", "BHWC" or "BCHW" (B: pages, C: channels). Without it two axes are HW, four are
            BCHW, and of three the one with at most 4 entries is C (in an array the last, in a tensor the first, where
            both have).
        name : str
            What errors call the picture.

        Returns
        -------
        Picture
            It remembers axes, dtype and scale: `to_array` gives the same kind of array back. Four channels are four
            channels: hand alpha over with `dataclasses.replace(picture, alpha=...)`.

        Raises
        ------
        InputError
            Where the shape does not tell what the axes are, or the type cannot be held.

        Examples
        --------
        >>> import numpy as np
        >>> Picture.from_array(np.zeros((5, 8, 9)), axes="BHW").pixels.shape
        torch.Size([5, 1, 8, 9])
        """
        values = as_numpy(array, name)
        check_dtype(name, values.dtype)
        axes = axes_of(values.shape, name, isinstance(array, Tensor), axes)
        stack = to_stack(values, axes)
        scale = 1.0 if values.dtype.kind == "f" else None
        return cls.from_raw(Raw(stack, scale=scale, colour=colour_of(stack.shape[1]), axes=axes), name)

    @classmethod
    def from_pil(cls, image: Image, name: str = "picture") -> Picture:
        """The picture in a PIL image, turned the way up that its EXIF says, with profile, EXIF and resolution.

        Parameters
        ----------
        image : PIL.Image.Image
            Grey, RGB or CMYK, with or without alpha; palettes become RGB.
        name : str
            What errors call the picture.

        Returns
        -------
        Picture
            Its format is that of the file which PIL opened.

        Examples
        --------
        >>> from PIL import Image
        >>> Picture.from_pil(Image.new("RGB", (4, 3))).pixels.shape
        torch.Size([1, 3, 3, 4])
        """
        from pnpladmm.pictures.pil import raw_of  # PIL is imported when it is needed

        return cls.from_raw(raw_of(image, name), name, image.format or "")

    @classmethod
    def from_raw(cls, raw: Raw, name: str, format: str = "") -> Picture:
        """The picture of the samples that a reader found."""
        samples, blank = raw.samples, raw.blank
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
        scale = natural_scale(samples) if raw.scale is None else raw.scale
        alpha = None
        if raw.alpha is not None:
            alpha = to_pixels(raw.alpha, natural_scale(raw.alpha) if raw.alpha.dtype.kind in "ui" else 1.0)
        picture = cls(
            to_pixels(samples, scale), dtype, scale, alpha, valid, raw.colour, notes=raw.notes,
            name=name, format=format, axes=raw.axes, blank_values=values,
            quality=None if raw.variance is None and raw.dead is None else Quality(
                *(None if part is None else torch.from_numpy(part) for part in (raw.variance, raw.dead))
            ),
        )  # fmt: skip
        return replace(picture, metadata=replace(raw.metadata, native_for=picture.kind))

    def to_raw(self) -> tuple[Raw, int]:
        """The samples that a file is to hold, and how many of them were clipped."""
        picture = self.from_linear()
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
        raw = Raw(
            samples, alpha, blank, scale=picture.scale, colour=picture.colour, axes=picture.axes,
            metadata=picture.metadata,
        )  # fmt: skip
        return raw, clipped

    def to_array(self) -> Array:
        """The picture as an array of the kind it was made of.

        Returns
        -------
        numpy.ndarray
            The samples, with the axes, type and range of the array that `from_array` got; for pictures of files
            (H, W), (H, W, C) or (pages, C, H, W), with the type of the file. Integers are rounded and clipped to
            their type. Alpha is the last channel, as in an array of RGBA.

        Examples
        --------
        >>> import numpy as np
        >>> Picture.from_array(np.zeros((3, 8, 9), np.uint16)).to_array().shape
        (3, 8, 9)
        """
        raw, _ = self.to_raw()
        samples = raw.samples if raw.alpha is None else np.concatenate([raw.samples, raw.alpha], 1)
        return np.ascontiguousarray(from_stack(samples, raw.axes))

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
    def clipped_samples(self) -> int:
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
        the values stay; floats are pixels for integers. Metadata that only the format it came from can hold are left
        behind when it is written: they describe the old samples.
        """
        if dtype not in DTYPES:
            raise InputError(f"dtype = {dtype!r}: give one of {', '.join(DTYPES)}")
        if dtype == self.dtype:
            return self
        integers = np.dtype(dtype).kind in "ui"
        scale = float(np.iinfo(dtype).max) if integers else self.scale if np.dtype(self.dtype).kind == "f" else 1.0
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
