"""The size of a PSF file's pixels against that of the picture's, as their headers state them."""

from __future__ import annotations

from pathlib import Path

from pnpladmm.blur.arrays import fits_image
from pnpladmm.blur.options import Options
from pnpladmm.blur.resampling import SAME, check_scale
from pnpladmm.blur.sniffing import sniff
from pnpladmm.pictures.pixel_scale import PixelScale, on_the_sky, per_detector_pixel
from pnpladmm.pictures.tiff import pixel_size_of


def with_scale(path: Path, options: Options) -> tuple[Options, list[str]]:
    """Options with the scale that the headers give, unless they say it already; and a note."""
    if options.psf_scale is not None or options.oversampling is not None or options.kind is not None:
        return options, []
    size, relative = _said(path)
    scale = size.per(options.picture_scale) if size else None
    if size and scale:
        why = f"its pixels are {size}, the picture's {options.picture_scale}"
    elif relative:
        scale, why = (relative, relative), f"its header says {1 / relative:.4g} samples per pixel of the detector"
    elif size:
        return options, [f"its pixels are {size}, and the picture does not say how large its own are: taken as equal"]
    else:
        return options, []
    if all(abs(s - 1) <= SAME for s in scale):
        return options, []
    check_scale(f"{path}: {why}", scale)
    return options.but(psf_scale=scale), [why]


def _said(path: Path) -> tuple[PixelScale | None, float | None]:
    """What the file states: the size of its pixels, and that in pixels of the detector."""
    form = sniff(path)
    if form == "fits":
        _, header = fits_image(path)
        return on_the_sky(header), per_detector_pixel(header)
    return pixel_size_of(path) if form == "tiff" else None, None
