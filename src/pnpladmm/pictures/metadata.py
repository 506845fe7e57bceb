"""Metadata of a picture file: all that it contains besides the pixels."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from pnpladmm.pictures.pixel_scale import PixelScale

METRES = {"metre": Fraction(1), "cm": Fraction(1, 100), "inch": Fraction(254, 10000)}


@dataclass(frozen=True)
class Resolution:
    """Pixels per `unit` along x and y, as exact fractions. Unit "none" states only the shape of a pixel."""

    x: Fraction
    y: Fraction
    unit: str

    def to(self, unit: str) -> Resolution:
        """The resolution in another unit: metre, cm or inch; with the unit "none" it stays as it is."""
        if "none" in (self.unit, unit):
            return self
        factor = METRES[unit] / METRES[self.unit]
        return Resolution(self.x * factor, self.y * factor, unit)

    def turned(self) -> Resolution:
        """x and y exchanged, for a picture turned by 90 degrees."""
        return Resolution(self.y, self.x, self.unit)


@dataclass(frozen=True)
class Metadata:
    """What the file says besides the pixels.

    `icc`, `exif` (orientation already 1), `xmp` and `resolution` go into any format that can hold them. `native` is
    the rest, in the form of the format it came from. It goes back into that format only, and only into pictures of
    the kind it describes (`native_for`: shape, dtype, whether there is alpha). `transfer` says what the samples mean
    where no ICC profile does: "srgb", "light" (linear already), an exponent (light = sample ** exponent), or the name
    of a curve that we do not undo.
    `jpeg_table` says how coarsely a JPEG file is quantised: the steps for brightness, eight rows for the vertical
    frequencies of the picture as it is shown, in grey levels of 255. It is empty for other files.
    `history` are lines on what was done to the picture, for formats that keep such a record (FITS).
    `electrons_per_count` is what a header calls gain: a hint, because programs that scale pictures leave it as it was.
    `pixel_scale` is the size of a pixel on the sky or in the specimen, where the file states it.
    """

    icc: bytes | None = field(default=None, repr=False)
    exif: bytes | None = field(default=None, repr=False)
    xmp: bytes | None = field(default=None, repr=False)
    resolution: Resolution | None = None
    transfer: str | float = "srgb"
    jpeg_table: tuple[tuple[int, ...], ...] = ()
    pixel_scale: PixelScale | None = None
    history: tuple[str, ...] = ()
    electrons_per_count: float | None = None
    native: object | None = field(default=None, repr=False)
    native_for: tuple[object, ...] = field(default=(), repr=False)


NO_METADATA = Metadata()
