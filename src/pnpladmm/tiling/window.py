"""A blur on a part of the picture, with the kernels and weights of that part."""

from __future__ import annotations

import torch
from torch import Tensor

from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.operators.base import LinearOperator
from pnpladmm.operators.boundary import Boundary, Extension
from pnpladmm.operators.division import Division
from pnpladmm.tensors import InputError
from pnpladmm.tiling.geometry import Span, taken


class WindowBlur(SpatiallyVaryingBlur):
    """What a blur makes of the pixels that a window of the observation depends on.

    Where the window ends inside the picture its domain goes on by the reach of the kernels: there it is a crop of a
    larger scene. Where it ends with the picture, the boundary of the blur holds.

    Parameters
    ----------
    blur : SpatiallyVaryingBlur
        The blur of the whole picture. Its weights are not copied.
    rows, columns : (int, int)
        The window of the observation. With a circular boundary it may reach beyond both ends.
    division : tuple of Division, optional
        The regions of the whole picture, for the preconditioner.
    """

    def __init__(
        self, blur: SpatiallyVaryingBlur, rows: Span, columns: Span, division: tuple[Division, ...] | None = None
    ) -> None:
        kernel = blur.kernels.shape[-2:]
        spans = [_along(blur, axis, span) for axis, span in enumerate((rows, columns))]
        self.scene_span: tuple[Span, Span] = (spans[0][0], spans[1][0])
        self.observed_span = (rows, columns)
        weights_on_scene = blur.order == "weight-then-convolve"
        span = self.scene_span if weights_on_scene else self.observed_span
        weights = taken(blur.weights, *span)
        kept = _used(weights)
        self.kernels, self.weights = (
            whole if kept is None else whole[:, kept.to(whole.device)] for whole in (blur.kernels, weights)
        )
        if division is not None:
            size = (blur.weights.shape[-2], blur.weights.shape[-1])
            every = torch.arange(blur.kernels.shape[1]) if kept is None else kept
            self.division = tuple(one.part(*span, size, every, blur.boundary == "circular") for one in division)
        self.boundary: Boundary = "unknown"
        self.order = blur.order
        self.channels_alike, self.blurs = blur.channels_alike, blur.blurs
        self.steps_per_root_condition = blur.steps_per_root_condition
        self.scene = (spans[0][0][1] - spans[0][0][0], spans[1][0][1] - spans[1][0][0])
        self.observed = (rows[1] - rows[0], columns[1] - columns[0])
        if kernel[0] > self.observed[0] or kernel[1] > self.observed[1]:
            raise InputError(
                f"kernels are {kernel[0]}x{kernel[1]}, a tile {self.observed[0]}x{self.observed[1]}: allow larger tiles"
            )
        before, after = (spans[0][1], spans[1][1]), (spans[0][2], spans[1][2])
        outside = any(before) or any(after)
        self.extension = Extension(blur.boundary, self.scene, before, after) if outside else None
        # Where the observation begins in the scene: the kernel's reach, less what lies beyond the picture.
        self._offset = (kernel[0] - 1 - kernel[0] // 2 - before[0], kernel[1] - 1 - kernel[1] // 2 - before[1])
        self._banks = {}
        self._regions = {}

    @property
    def crop_offset(self) -> tuple[int, int]:
        """Where the window lies in the part of the scene that it depends on."""
        return self._offset


def window_for_scene(
    blur: SpatiallyVaryingBlur, rows: Span, columns: Span, division: tuple[Division, ...] | None = None
) -> WindowBlur:
    """The window of the observation that depends on these pixels of the scene alone."""
    spans = []
    for axis, (first, last) in enumerate((rows, columns)):
        k, length = blur.kernels.shape[-2:][axis], blur.scene[axis]
        if blur.boundary == "unknown":
            spans.append((first, last - k + 1))
            continue
        whole = (first, last) == (0, length)
        begins = first <= 0 and (whole or blur.boundary != "circular")
        ends = last >= length and (whole or blur.boundary != "circular")
        spans.append((first if begins else first + k - 1 - k // 2, last if ends else last - k // 2))
    return WindowBlur(blur, spans[0], spans[1], division)


def as_blur_operator(operator: LinearOperator) -> SpatiallyVaryingBlur:
    """The operator, if it has kernels and weights that can be taken tile by tile."""
    if type(operator) is SpatiallyVaryingBlur:
        return operator
    raise InputError(
        f"{operator!r} cannot be divided into tiles, which needs a blur of kernels and weights: "
        "allow more memory, or crop the picture"
    )


def _along(blur: SpatiallyVaryingBlur, axis: int, span: Span) -> tuple[Span, int, int]:
    """The pixels of the scene that a span of the observation depends on, and how many more lie beyond each end."""
    k, length = blur.kernels.shape[-2:][axis], blur.scene[axis]
    if blur.boundary == "unknown":
        return (span[0], span[1] + k - 1), 0, 0
    reach_before, reach_after = k - 1 - k // 2, k // 2
    if span == (0, length):
        return span, reach_before, reach_after
    first, last = span[0] - reach_before, span[1] + reach_after
    if blur.boundary == "circular":
        return (first, last), 0, 0
    return (max(0, first), min(length, last)), max(0, -first), max(0, last - length)


def _used(weights: Tensor) -> Tensor | None:
    """The numbers of the kernels that have a weight in the window, of one where none has; None for all."""
    used = (weights != 0).flatten(2).any(-1).any(0)
    if bool(used.all()):
        return None
    return torch.nonzero(used).flatten().cpu() if bool(used.any()) else torch.zeros(1, dtype=torch.long)
