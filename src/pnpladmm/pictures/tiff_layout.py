"""How a picture lies in a TIFF file: axes, planes, pages, tags. What reading and writing share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pnpladmm.pictures.arrays import Array
from pnpladmm.pictures.checks import errors_logged_by
from pnpladmm.pictures.ifd import Directory, Entry
from pnpladmm.pictures.metadata import Resolution
from pnpladmm.pictures.raw import Raw
from pnpladmm.tensors import InputError

WHITE_IS_0, BLACK_IS_0, RGB, PALETTE, CMYK, YCBCR = 0, 1, 2, 3, 5, 6
DESCRIPTION, XMP, ICC = 270, 700, 34675
UNITS = {1: "none", 2: "inch", 3: "cm"}


@dataclass(frozen=True, eq=False)
class Layout:
    """How the planes lie in the file, and the tags of each page.

    `axes` and `shape` are those of the whole stack, `page_shape` that of one page; `plane_order` is the place in the
    file of each plane of the stack. `alpha` is the index of the alpha channel among the samples; `inverted` means
    that 0 is white.
    """

    order: Literal["<", ">"]
    big: bool
    axes: str
    shape: tuple[int, ...]
    page_shape: tuple[int, ...]
    plane_order: tuple[int, ...]
    pages: tuple[Directory, ...]
    resolution: Resolution | None
    photometric: int
    planar: int
    extra_samples: tuple[int, ...]
    compression: int
    predictor: int
    tile: tuple[int, int] | None
    subfile: int
    alpha: int | None = None
    inverted: bool = False
    colour_map: Array | None = None

    def stack(self, values: Array) -> tuple[Array, Array | None]:
        """The file's values as (pages, C, H, W), alpha apart."""
        order, pages = self._transposition()
        stack = values.transpose(order)
        stack = stack.reshape(pages, -1, *stack.shape[-2:])
        if self.alpha is None:
            return stack, None
        return np.delete(stack, self.alpha, 1), stack[:, self.alpha : self.alpha + 1]

    def planes(self, raw: Raw) -> Array:
        """The inverse of `stack`: (planes, *page_shape) in the order of the file."""
        stack = raw.samples
        if self.inverted:
            stack = stack.dtype.type(min(raw.scale or math.inf, np.iinfo(stack.dtype).max)) - stack
        if self.alpha is not None:
            assert raw.alpha is not None  # the layout is for pictures with alpha
            stack = np.insert(stack, self.alpha, raw.alpha[:, 0], 1)
        order, _ = self._transposition()
        values = stack.reshape([self.shape[i] for i in order]).transpose(np.argsort(order))
        planes = values.reshape(-1, *self.page_shape)
        # Fewer pages than planes: the file describes them all with its first page.
        return planes if len(self.plane_order) != len(planes) else planes[np.argsort(self.plane_order)]

    def turned(self) -> Layout:
        """The layout of the picture turned by 90 degrees."""
        length = dict(zip(self.axes, self.shape, strict=True))
        length["Y"], length["X"] = length["X"], length["Y"]
        page = list(self.page_shape)
        y = len(page) - (3 if len(page) > 2 and self.planar == 1 else 2)
        page[y], page[y + 1] = page[y + 1], page[y]
        # tifffile's own description states the shape, and would be wrong now.
        pages = tuple(
            Directory({t: e for t, e in d.items() if t != DESCRIPTION or not content(e).startswith(b'{"shape"')})
            for d in self.pages
        )
        resolution = self.resolution.turned() if self.resolution else None
        shape = tuple(length[axis] for axis in self.axes)
        return replace(self, shape=shape, page_shape=tuple(page), tile=None, pages=pages, resolution=resolution)

    def _transposition(self) -> tuple[list[int], int]:
        """The axes in the order (pages..., C, S, Y, X), and how many pages there are."""
        pages = [i for i, axis in enumerate(self.axes) if axis not in "CSYX"]
        order = pages + [i for letter in "CSYX" for i, axis in enumerate(self.axes) if axis == letter]
        return order, math.prod(self.shape[i] for i in pages)


def content(entry: Entry | Directory | None) -> bytes:
    """The bytes of a field, none where it is missing."""
    return entry.value if isinstance(entry, Entry) else b""


@contextmanager
def raising(name: str) -> Iterator[None]:
    """Make errors of what tifffile only logs."""
    with errors_logged_by("tifffile") as errors:
        yield
    if errors:
        raise InputError(f"{name} is a damaged TIFF ({errors[0]}): get the file again")
