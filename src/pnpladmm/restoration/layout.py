"""The axes of an array: which of them are pages, channels, rows and columns."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from pnpladmm.tensors import InputError

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

ALL = "BCHW"
MOST_CHANNELS = 4
"""An axis of at most so many entries is taken for the channels."""


def axes_of(name: str, shape: tuple[int, ...], axes: str | None = None) -> str:
    """The axes of an array as letters: B (pictures), C (channels), H (rows), W (columns).

    Parameters
    ----------
    name : str
        What the array is, for errors.
    shape : tuple of int
        Its shape.
    axes : str, optional
        What the caller says: checked, not guessed.

    Returns
    -------
    str
        Such as `HWC`.

    Examples
    --------
    >>> axes_of("picture", (480, 640, 3))
    'HWC'
    >>> axes_of("picture", (2, 480, 640, 3), "BHWC")
    'BHWC'
    """
    if axes is not None:
        return _checked(name, shape, axes)
    if 0 in shape or not 2 <= len(shape) <= 4:
        raise InputError(f"{name} has shape {shape}: give a non-empty (H, W), (H, W, C), (C, H, W) or (B, C, H, W)")
    if len(shape) == 2:
        return "HW"
    first, last = shape[-3] <= MOST_CHANNELS, shape[-1] <= MOST_CHANNELS
    if len(shape) == 4:
        if last and not first:
            raise InputError(f'{name} has shape {shape}: say which axis is which, axes="BHWC" or axes="BCHW"')
        return "BCHW"
    if first == last:
        raise InputError(f'{name} has shape {shape}: say which axis is which, axes="BHW", axes="HWC" or axes="CHW"')
    return "CHW" if first else "HWC"


def arrange(values: Any, axes: str) -> Any:
    """An array or tensor with these axes as (B, C, H, W)."""
    order = [axes.index(letter) for letter in ALL if letter in axes]
    moved = values.permute(order) if isinstance(values, Tensor) else np.transpose(values, order)
    return moved[tuple(slice(None) if letter in axes else None for letter in ALL)]


def arrange_back(samples: Array, axes: str) -> Array:
    """The inverse of `arrange`: (B, C, H, W) with these axes."""
    left = samples[tuple(slice(None) if letter in axes else 0 for letter in ALL)]
    held = [letter for letter in ALL if letter in axes]
    return np.transpose(left, [held.index(letter) for letter in axes])


def _checked(name: str, shape: tuple[int, ...], axes: str) -> str:
    letters = axes.upper() if isinstance(axes, str) else ""
    if not {"H", "W"} <= set(letters) <= set(ALL) or len(set(letters)) < len(letters):
        raise InputError(f"axes = {axes!r}: give each of H, W and, where the array has them, B and C once, as in BHWC")
    if len(letters) != len(shape) or 0 in shape:
        raise InputError(f"{name} has shape {shape}, axes = {axes!r}: give one letter for each axis")
    return letters
