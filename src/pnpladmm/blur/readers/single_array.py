"""Files that hold one array: PNG, TIFF, NPY, and the first image of a FITS file."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pnpladmm.blur.arrays import read_array
from pnpladmm.blur.conditioning import COPIES
from pnpladmm.blur.forms.array import from_array
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import Options
from pnpladmm.blur.readers.companions import with_companions
from pnpladmm.blur.readers.scales import with_scale
from pnpladmm.blur.registry import ANY_ARRAY, READERS
from pnpladmm.blur.sniffing import has_format


@READERS.register("array")
class ArrayReader:
    """One kernel, a bank, a stack of PSFs or a map: the axes and the options say which."""

    generality: ClassVar[int] = ANY_ARRAY

    def matches(self, path: Path) -> bool:
        """Is it a PNG, TIFF, NPY or FITS file?"""
        return has_format(path, "png", "tiff", "npy", "fits")

    def read(self, path: Path, options: Options) -> Blur:
        """The blur, with the label map or table beside the file."""
        array = read_array(path, 8 if options.kind else 8 * COPIES)
        options, notes = with_companions(path, array, options)
        options, scaled = with_scale(path, options)
        return from_array(str(path), array, options).noted(*notes, *scaled)
