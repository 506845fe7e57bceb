"""What lies beyond the border of a picture: extension maps `E` and their exact adjoints.

A blur needs `k - 1` rows and columns more than it gives. The extension copies pixels of the picture there
(or zeros), so it is a selection: every row of `E` has at most one entry, which is 1. Two things follow:
`E^T` adds each copied pixel back to where it came from, and `E (u x) = (E u)(E x)` pixel by pixel.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from pnpladmm.tensors import InputError

Boundary: TypeAlias = Literal["circular", "replicate", "reflect", "zero", "unknown"]


def check_boundary(boundary: str) -> None:
    """Refuse a boundary that does not exist."""
    if boundary not in get_args(Boundary):
        raise InputError(f"boundary {boundary!r}: choose one of {', '.join(get_args(Boundary))}")


class Extension:
    """`E`: pictures (..., H, W) -> (..., before + H + after, ...), for each of the two axes.

    `unknown` has no extension: the picture is then the extended domain itself.
    """

    def __init__(
        self, boundary: Boundary, size: tuple[int, int], before: tuple[int, int], after: tuple[int, int]
    ) -> None:
        self.size = size
        self.before = before
        self.zero = boundary == "zero"
        # For each axis: where each extended index comes from.
        self.sources = [_sources(boundary, n, b, a) for n, b, a in zip(size, before, after, strict=True)]

    def forward(self, x: Tensor) -> Tensor:
        """`E x`."""
        for axis, source in zip((-2, -1), self.sources, strict=True):
            x = x.index_select(axis, source.to(x.device))
        return x * self._inside(x) if self.zero else x

    def adjoint(self, y: Tensor) -> Tensor:
        """`E^T y`: the middle, plus what lies beyond the border added to its source."""
        for axis, (n, b, source) in zip((-2, -1), zip(self.size, self.before, self.sources, strict=True), strict=True):
            x = y.narrow(axis, b, n)
            if not self.zero:
                x = x.clone()
                for start, length in ((0, b), (b + n, y.shape[axis] - b - n)):
                    border = source[start : start + length].to(y.device)
                    x.index_add_(axis, border, y.narrow(axis, start, length))
            y = x
        return y

    def _inside(self, x: Tensor) -> Tensor:
        inside = torch.zeros(x.shape[-2:], dtype=x.dtype, device=x.device)
        (h, w), (top, left) = self.size, self.before
        inside[top : top + h, left : left + w] = 1
        return inside


def _sources(boundary: Boundary, n: int, before: int, after: int) -> Tensor:
    index = torch.arange(-before, n + after)
    if boundary == "circular":
        return index % n
    if boundary == "reflect":  # without repeating the edge pixel
        return (n - 1) - (index.abs() - (n - 1)).abs()
    return index.clamp(0, n - 1)
