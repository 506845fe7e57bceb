"""How a picture lies in a TIFF file: axes, planes, pages, tags. What reading and writing share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from pnpladmm.pictures.arrays import Array
from pnpladmm.pictures.checks import errors_logged_by
from pnpladmm.pictures.metadata import Resolution
from pnpladmm.pictures.raw import Raw
from pnpladmm.tensors import InputError

WHITE_IS_0, BLACK_IS_0, RGB, PALETTE, CMYK, YCBCR = 0, 1, 2, 3, 5, 6
DESCRIPTION, XMP, ICC = 270, 700, 34675
UNITS = {1: "none", 2: "inch", 3: "cm"}
DEFLATE = 8
# Written again as they were; other codings lose something or are rare, and become Deflate.
LOSSLESS = {1, 5, 8, 32773, 32946, 34925, 50000}

Tags: TypeAlias = dict[int, tuple[int, int, int, Any]]
"""Tags of a page by code: code, type, count and bytes in the byte order of the file."""


@dataclass(frozen=True, eq=False)
class Layout:
    """How the planes lie in the file, and the tags of each page.

    `axes` and `shape` are those of the whole stack, `page_axes` and `page_shape` those of one page; `plane_order` is
    the place in the file of each plane of the stack. `file_options` and `options` are those of tifffile's TiffWriter
    and its `write`. `alpha` is the index of the alpha channel among the samples; `inverted` means that 0 is white.
    """

    axes: str
    shape: tuple[int, ...]
    page_axes: str
    page_shape: tuple[int, ...]
    plane_order: tuple[int, ...]
    pages: tuple[Tags, ...]
    file_options: dict[str, Any]
    options: dict[str, Any]
    compression: int
    resolution: Resolution | None
    alpha: int | None = None
    inverted: bool = False

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
        return replace(
            self.reshaped(),
            shape=_exchanged(self.shape, self.axes),
            page_shape=_exchanged(self.page_shape, self.page_axes),
            options=self.options | {"tile": None},
            resolution=self.resolution.turned() if self.resolution else None,
        )

    def reshaped(self) -> Layout:
        """The layout without tifffile's own description, which states a shape that is no longer that of the pages."""
        pages = tuple(
            {tag: entry for tag, entry in page.items() if tag != DESCRIPTION or not entry[3].startswith(b'{"shape"')}
            for page in self.pages
        )
        return replace(self, pages=pages)

    def _transposition(self) -> tuple[list[int], int]:
        """The axes in the order (pages..., C, S, Y, X), and how many pages there are."""
        pages = [i for i, axis in enumerate(self.axes) if axis not in "CSYX"]
        order = pages + [i for letter in "CSYX" for i, axis in enumerate(self.axes) if axis == letter]
        return order, math.prod(self.shape[i] for i in pages)


def _exchanged(shape: tuple[int, ...], axes: str) -> tuple[int, ...]:
    """The shape with the lengths of Y and X exchanged."""
    length = dict(zip(axes, shape, strict=True))
    length["Y"], length["X"] = length["X"], length["Y"]
    return tuple(length[axis] for axis in axes)


def content(tags: Tags, tag: int) -> bytes:
    """The bytes of a tag, none where it is missing."""
    return tags[tag][3] if tag in tags else b""


WORKERS = 1
"""Threads of tifffile. Of several one may not begin where memory is short, and Python waits for it for ever (its issue
140746)."""


@contextmanager
def raising(name: str) -> Iterator[None]:
    """Make errors of what tifffile only logs."""
    with errors_logged_by("tifffile") as errors:
        yield
    if errors:
        raise InputError(f"{name} is a damaged TIFF ({errors[0]}): get the file again")
