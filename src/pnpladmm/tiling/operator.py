"""A blur of a whole picture that works tile by tile: the same map, with the memory of one tile."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor

from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.operators.absolute_blur import FromBlur
from pnpladmm.operators.base import LinearOperator, shape_of
from pnpladmm.tiling.geometry import Span, add_into, taken
from pnpladmm.tiling.window import WindowBlur


class TiledBlur(FromBlur):
    """`H x` and `H^T y`, computed in tiles of the observation. Equal to the blur but for rounding.

    A tile of `H x` is computed from the pixels of `x` that it depends on: its own and those of its neighbours within
    the reach of the kernels. A tile of `y` adds its part of `H^T y` to the same pixels.

    Parameters
    ----------
    blur : SpatiallyVaryingBlur
        The blur of the whole picture.
    side : int
        The longest side of a tile.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> blur = pl.SpatiallyVaryingBlur(torch.rand(1, 3, 3), torch.ones(1, 40, 50), boundary="unknown")
    >>> tiled, x = TiledBlur(blur, side=16), torch.rand(1, 1, 42, 52, dtype=torch.float64)
    >>> len(tiled.windows), bool(torch.allclose(tiled.forward(x), blur.forward(x)))
    (12, True)
    """

    def __init__(self, blur: SpatiallyVaryingBlur, side: int) -> None:
        super().__init__(blur)
        self.side = side
        self.channels_alike, self.blurs = blur.channels_alike, blur.blurs
        self.steps_per_root_condition = blur.steps_per_root_condition
        kernel = blur.kernels.shape[-2:]
        rows, columns = (_cut(n, max(side, 2 * k)) for n, k in zip(blur.observed, kernel, strict=True))
        self.windows = [(row, column) for row in rows for column in columns]
        self._kept: dict[int, WindowBlur] = {}
        self.keep = False
        """Keep the transforms of the kernels of every tile: faster from the second application on, needs memory."""

    def __repr__(self) -> str:
        """The blur, and how many tiles there are."""
        return f"{self.blur!r} in {len(self.windows)} tiles"

    @property
    def crop_offset(self) -> tuple[int, int] | None:
        """That of the blur."""
        return self.blur.crop_offset

    def start(self, y: Tensor) -> Tensor:
        """That of the blur."""
        return self.blur.start(y)

    def absolute(self) -> LinearOperator:
        """The operator itself where no kernel and no weight is negative, else that of the blur."""
        absolute = self.blur.absolute()
        return self if absolute is self.blur else absolute

    def forward(self, x: Tensor) -> Tensor:
        """`H x`, tile by tile."""
        y = x.new_empty(self.output_shape(shape_of("the picture", x)))
        for number, (rows, columns) in enumerate(self.windows):
            local = self._window(number)
            y[..., slice(*rows), slice(*columns)] = local.forward(taken(x, *local.scene_span))
        return y

    def adjoint(self, y: Tensor) -> Tensor:
        """`H^T y`: the sum of what the tiles of `y` give."""
        x = y.new_zeros(self.input_shape(shape_of("the measurement", y)))
        for number, (rows, columns) in enumerate(self.windows):
            local = self._window(number)
            add_into(x, local.adjoint(taken(y, rows, columns)), *local.scene_span)
        return x

    def _window(self, number: int) -> WindowBlur:
        if number in self._kept:
            return self._kept[number]
        local = WindowBlur(self.blur, *self.windows[number])
        if self.keep:
            self._kept[number] = local
        return local


def _cut(length: int, side: int) -> list[Span]:
    """Spans of about equal length, at most `side`."""
    count = -(-length // side)
    cuts = [i * length // count for i in range(count + 1)]
    return list(pairwise(cuts))
