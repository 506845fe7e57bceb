"""What lies beyond the border of a picture: extension maps `E` and their exact adjoints.

A blur needs `k - 1` more rows and columns than it returns. The extension copies pixels of the picture there, or zeros,
so it is a selection: every row of `E` has at most one entry, which is 1. Therefore `E^T` adds each copied pixel to the
one that it was copied from, and `E (u x) = (E u)(E x)` pixel by pixel.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpladmm.tensors import InputError

Boundary: TypeAlias = Literal["circular", "replicate", "reflect", "zero", "unknown"]


def check_boundary(boundary: str) -> None:
    """Refuse the name of an unknown boundary."""
    if boundary not in get_args(Boundary):
        raise InputError(f"boundary {boundary!r}: choose one of {', '.join(get_args(Boundary))}")


class Extension:
    """`E`: pictures (..., H, W) -> (..., before + H + after, ...), for each of the two axes.

    `unknown` has no extension: the picture is then the extended domain itself. The extension must be smaller than the
    picture. It is made of slices, so that no index is copied to a GPU.
    """

    def __init__(
        self, boundary: Boundary, size: tuple[int, int], before: tuple[int, int], after: tuple[int, int]
    ) -> None:
        self.boundary = boundary
        self.size, self.before, self.after = size, before, after

    def forward(self, x: Tensor) -> Tensor:
        """`E x`."""
        if self.boundary == "zero":
            (top, left), (bottom, right) = self.before, self.after
            return F.pad(x, (left, right, top, bottom))
        for axis in (-2, -1):
            head, tail = self._sources(x, axis)
            shape = list(x.shape)
            shape[axis] = self.before[axis]
            head = head.expand(shape)
            shape[axis] = self.after[axis]
            x = torch.cat([head, x, tail.expand(shape)], axis)
        return x

    def adjoint(self, y: Tensor) -> Tensor:
        """`E^T y`: the middle, with each pixel beyond the border added to its source."""
        for axis in (-1, -2):
            before, n, after = self.before[axis], self.size[axis], self.after[axis]
            x = y.narrow(axis, before, n)
            if self.boundary != "zero" and before + after:
                x = x.clone()
                for target, beyond in zip(
                    self._targets(x, axis), (y.narrow(axis, 0, before), y.narrow(axis, before + n, after)), strict=True
                ):
                    if self.boundary == "reflect":
                        target += beyond.flip(axis)
                    else:
                        target += beyond.sum(axis, keepdim=True) if target.shape != beyond.shape else beyond
            y = x
        return y

    def _targets(self, x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        """Views of the pixels that are copied before and after the picture, in their own order."""
        n, before, after = self.size[axis], self.before[axis], self.after[axis]
        if self.boundary == "circular":
            return x.narrow(axis, n - before, before), x.narrow(axis, 0, after)
        if self.boundary == "reflect":  # without repeating the edge pixel
            return x.narrow(axis, 1, before), x.narrow(axis, n - 1 - after, after)
        return x.narrow(axis, 0, 1), x.narrow(axis, n - 1, 1)

    def _sources(self, x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        """The pixels to append before and after the picture, in the order of the extension."""
        head, tail = self._targets(x, axis)
        return (head.flip(axis), tail.flip(axis)) if self.boundary == "reflect" else (head, tail)
