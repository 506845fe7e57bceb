"""Masks and maps of the noise: files, arrays or tensors, laid onto the picture's pixels."""

from __future__ import annotations

import os
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpladmm.pictures import Picture, read_picture
from pnpladmm.pictures.arrays import as_numpy, to_stack
from pnpladmm.restoration.inputs import Given
from pnpladmm.tensors import InputError, type_words


def dead_pixels(mask: Any, given: Given) -> Tensor | None:
    """True on pixels that do not count, where the mask is not 0; (B or 1, C or 1, H or 1, W or 1)."""
    quality = given.picture.quality
    parts = [part for part in (given.dead, None if quality is None else quality.dead) if part is not None]
    if mask is not None:
        parts.append(_map("mask", mask, given)[0] != 0)
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else reduce(torch.logical_or, (p.cpu() for p in parts))


def variance_map(variance: Any, given: Given, of_file: bool) -> tuple[Tensor, Tensor] | None:
    """The variance of the noise in the picture's own units, float64, and False where the map has no data.

    `of_file`: where none is given, that which the picture's own file holds.
    """
    if variance is None:
        quality = given.picture.quality
        if not of_file or quality is None or quality.variance is None:
            return None
        return quality.variance, torch.ones_like(quality.variance, dtype=torch.bool)
    values, scale = _map("variance map", variance, given)
    known = ~torch.isnan(values)
    return torch.where(known, values.double() * scale, 1.0), known


def page_of(values: Tensor, page: slice) -> Tensor:
    """The part of a map that belongs to some pages; a map of one page serves them all."""
    return values[page] if len(values) > 1 else values


def _map(name: str, values: Any, given: Given) -> tuple[Tensor, float]:
    """The values, and the factor that brings them to the numbers of the file or array."""
    if isinstance(values, str | os.PathLike | Picture):
        return _of_file(name, values, given.picture)
    array = as_numpy(values, f"the {name}")
    if array.dtype.kind not in "biuf":
        raise InputError(f"the {name} is {type_words(values)}: give a file, an array or a tensor")
    want = tuple(given.picture.pixels.shape)
    axes = given.picture.axes
    # An array of as many axes as the picture's has the same ones; else rows and columns come last, as in torch.
    laid = to_stack(array, axes) if array.ndim == len(axes) else array.reshape((1,) * (4 - array.ndim) + array.shape)
    if laid.ndim != 4 or any(n not in (1, m) for n, m in zip(laid.shape, want, strict=True)):
        raise InputError(f"the {name} has shape {array.shape}, the picture {want}: they must match")
    return torch.from_numpy(np.ascontiguousarray(laid.astype(bool if array.dtype.kind == "b" else np.float64))), 1.0


def _of_file(name: str, file: str | os.PathLike[str] | Picture, picture: Picture) -> tuple[Tensor, float]:
    """The first channel of a picture file, and its scale."""
    found = file if isinstance(file, Picture) else read_picture(file)
    (have, high), (want, pages) = ((tuple(p.pixels.shape[-2:]), len(p.pixels)) for p in (found, picture))
    if have != want:
        raise InputError(f"{found.name} is {have[0]}x{have[1]}, the picture {want[0]}x{want[1]}: they must match")
    if high not in (1, pages):
        raise InputError(f"{found.name} has {high} pages, the picture {pages}: they must match")
    values = found.pixels[:, :1]
    if found.valid is not None:
        values = torch.where(found.valid[:, :1], values, torch.nan)
    return values, found.scale
