"""Arrays with any usual axes, (H, W), (H, W, 3), (C, H, W) and so on, as stacks (pages, C, H, W), and back.

The letters of `axes` are B (pages, or batch), C (channels), H (rows), W (columns), in the order of the array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from pnpladmm.tensors import InputError

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

AXES = ("HW", "HWC", "CHW", "BHW", "BHWC", "BCHW")
MOST_CHANNELS = 4
"""An axis of at most this length is taken for channels, where `axes` does not say."""


def as_numpy(array: object, name: str) -> Array:
    """The numpy array of a tensor on any device, a list, or whatever numpy takes."""
    try:
        return array.detach().cpu().numpy() if isinstance(array, Tensor) else np.asarray(array)
    except (TypeError, ValueError, RuntimeError) as error:
        kind = array.dtype if isinstance(array, Tensor) else type(array).__name__
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{name} ({kind}) is no array of numbers: {reason}") from None


def axes_of(shape: Sequence[int], name: str, channels_first: bool = False, axes: str | None = None) -> str:
    """The axes of an array of this shape: those given, checked, or those that the shape shows."""
    shape = tuple(shape)
    if axes is not None:
        if axes not in AXES:
            raise InputError(f"axes {axes!r}: give one of {', '.join(AXES)}")
        if len(axes) != len(shape):
            raise InputError(f"{name} has shape {shape}, axes {axes!r} are {len(axes)}: they must match")
    if 0 in shape or len(shape) not in (2, 3, 4):
        raise InputError(f"{name} has shape {shape}: give a non-empty (H, W), (H, W, C) or (pages, C, H, W)")
    if axes is not None:
        return axes
    if len(shape) == 2:
        return "HW"
    if len(shape) == 4:
        if shape[-1] <= MOST_CHANNELS < shape[1]:
            raise InputError(f"{name} has shape {shape}: say axes='BHWC', or axes='BCHW' if it has {shape[1]} channels")
        return "BCHW"
    if shape[0] <= MOST_CHANNELS and (channels_first or shape[-1] > MOST_CHANNELS):
        return "CHW"
    if shape[-1] <= MOST_CHANNELS:
        return "HWC"
    raise InputError(f"{name} has shape {shape}, pages or channels: say axes='BHW' or axes='CHW'")


def to_stack(values: Array, axes: str) -> Array:
    """An array with these axes as (pages, C, H, W)."""
    order = [axes.index(axis) for axis in "BCHW" if axis in axes]
    return np.expand_dims(values.transpose(order), [i for i, axis in enumerate("BCHW") if axis not in axes])


def from_stack(stack: Array, axes: str) -> Array:
    """The inverse of `to_stack`; where the stack has more pages or channels than `axes` name, with plain axes."""
    if not axes or any(axis not in axes and n > 1 for axis, n in zip("BC", stack.shape, strict=False)):
        axes = plain_axes(*stack.shape[:2])
    kept = [axis for axis in "BCHW" if axis in axes]
    values = stack.squeeze(tuple(i for i, axis in enumerate("BCHW") if axis not in axes))
    return values.transpose([kept.index(axis) for axis in axes])


def plain_axes(pages: int, channels: int) -> str:
    """The axes of an array that `axes_of` understands without being told."""
    if pages > 1 or channels > MOST_CHANNELS:
        return "BCHW"
    return "HW" if channels == 1 else "HWC"
