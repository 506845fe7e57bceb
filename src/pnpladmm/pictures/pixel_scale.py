"""How large a pixel is: on the sky, or in the specimen. What headers say of it, under all the names they use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

ARCSECONDS = {"deg": 3600.0, "arcmin": 60.0, "arcsec": 1.0, "mas": 1e-3, "rad": math.degrees(1) * 3600}
DIRECT = (("PIXSCAL1", "PIXSCAL2"), ("SECPIX1", "SECPIX2"), ("PIXSCALE",), ("SECPIX",), ("PIXELSCL",))
"""Keys in seconds of arc, as observatories write them: one number, or x and y."""
CELESTIAL = ("RA", "DEC", "GLON", "GLAT", "ELON", "ELAT")
PER_PIXEL, PIXELS = ("OVERSAMP", "PSF_OVER"), ("PSF_SAMP",)
"""Keys of PSFs: samples per pixel of the detector, and pixels of the detector per sample."""


@dataclass(frozen=True)
class PixelScale:
    """Height and width of a pixel, in seconds of arc or metres."""

    y: float
    x: float
    unit: Literal["arcsec", "metre"]

    def per(self, other: PixelScale | None) -> tuple[float, float] | None:
        """This size in pixels of the other, (y, x); None where they cannot be compared."""
        if other is None or other.unit != self.unit:
            return None
        return self.y / other.y, self.x / other.x

    def turned(self) -> PixelScale:
        """Of the picture turned by 90 degrees."""
        return PixelScale(self.x, self.y, self.unit)

    def __str__(self) -> str:
        """One number where pixels are square."""
        factor, unit = (1.0, "arcsec") if self.unit == "arcsec" else (1e6, "µm")
        y, x = self.y * factor, self.x * factor
        return f"{y:.4g} {unit}" if math.isclose(y, x, rel_tol=1e-3) else f"{y:.4g} x {x:.4g} {unit}"


def on_the_sky(header: Mapping[str, Any]) -> PixelScale | None:
    """The size that a FITS header states: in seconds of arc, or by its world coordinates."""
    for keys in DIRECT:
        values = [_positive(header.get(key)) for key in keys]
        if all(values):
            return PixelScale(values[-1] or 0, values[0] or 0, "arcsec")
    if not any(str(header.get("CTYPE1", "")).startswith(name) for name in CELESTIAL):
        return None
    y, x = _step(header, 2), _step(header, 1)
    return PixelScale(y, x, "arcsec") if x and y else None


def per_detector_pixel(header: Mapping[str, Any]) -> float | None:
    """The size of a PSF's sample in pixels of the detector, where its header states only that."""
    for key in PIXELS:
        if value := _positive(header.get(key)):
            return value
    for key in PER_PIXEL:
        if value := _positive(header.get(key)):
            return 1 / value
    return None


def _step(header: Mapping[str, Any], axis: int) -> float:
    """Seconds of arc from one pixel to the next along an axis; 0 where the header does not say."""
    unit = ARCSECONDS.get(str(header.get(f"CUNIT{axis}", "deg")).strip().lower(), 0.0)
    steps = [_number(header.get(f"CD{i}_{axis}")) for i in (1, 2)]
    if any(steps):
        return math.hypot(*steps) * unit
    turns = [_number(header.get(f"PC{i}_{axis}", float(i == axis))) for i in (1, 2)]
    deltas = [_number(header.get(f"CDELT{i}")) for i in (1, 2)]
    return math.hypot(*(t * d for t, d in zip(turns, deltas, strict=True))) * unit


def _number(value: Any) -> float:
    """A finite number; 0 for anything else."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30 and value == value
    return float(value) if good else 0.0


def _positive(value: Any) -> float | None:
    number = abs(_number(value))
    return number if number > 1e-12 else None
