"""The picture that a blur is estimated from, as the ways see it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpladmm.pictures import Picture
from pnpladmm.pictures.arrays import Array
from pnpladmm.restoration.inputs import PictureLike, as_given, in_own_units
from pnpladmm.tensors import InputError

SMALLEST = 16
"""Pixels; nothing can be said about the blur of a smaller picture."""
PLATEAU = 3
"""Pixels at exactly the largest value of a float picture: with fewer it is a peak, with more the sensor's limit."""


@dataclass(frozen=True, eq=False)
class Scene:
    """One page of a picture, and which of its pixels count.

    `pixels` are (C, H, W) float64, in [0, 1] as `restore` would see them (`counts in the file = scale * pixel`).
    `valid` (H, W) is False on pixels without data, `saturated` (H, W) True on those at the sensor's limit.
    """

    picture: Picture
    page: int
    pixels: Array
    valid: Array
    saturated: Array
    linear: bool = False
    """The pixels are linear light."""
    saturation: float | None = None
    """The value from which pixels are saturated, as the user gave it, in the numbers of the file."""
    device: torch.device | str = "cpu"
    """Where ways that compute with torch do so."""

    @property
    def name(self) -> str:
        """What errors call the picture."""
        return self.picture.name

    @property
    def scale(self) -> float:
        """The file's value for a pixel of 1."""
        return self.picture.scale

    @property
    def size(self) -> tuple[int, int]:
        """(H, W)."""
        return self.pixels.shape[1], self.pixels.shape[2]

    @property
    def grey(self) -> Array:
        """The mean of the channels, (H, W)."""
        return self.pixels.mean(0)


def read_pages(picture: PictureLike, axes: str | None, linear: bool, saturation: float | None) -> list[Scene]:
    """All pages of a picture; a way takes one of them."""
    given = in_own_units(as_given(picture, axes), None, own_units=True)
    whole = given.picture
    height, width = whole.pixels.shape[-2:]
    if min(height, width) < SMALLEST:
        raise InputError(f"{whole.name} has {height}x{width} pixels: too small to say anything about its blur")
    limit = _limit(whole, saturation)
    shown = whole.to_linear() if linear else whole
    dead = given.dead
    pages = (_scene(whole, shown, i, limit, dead) for i in range(len(whole.pixels)))
    return [replace(page, linear=linear, saturation=saturation) for page in pages]


def _scene(whole: Picture, shown: Picture, page: int, limit: float | None, dead: Tensor | None) -> Scene:
    pixels = shown.pixels[page].detach().cpu().double().numpy()
    valid = np.ones(pixels.shape[1:], bool)
    if whole.valid is not None:
        valid &= whole.valid[page].cpu().numpy().all(0)
    if dead is not None:
        valid &= ~dead[page].cpu().numpy().any(0)
    raw = whole.pixels[page].detach().cpu().double().numpy().max(0)
    level = limit if limit is not None else _plateau(raw, valid)
    saturated = np.zeros(valid.shape, bool) if level is None else raw >= level
    return Scene(shown, page, pixels, valid, saturated & valid)


def _limit(picture: Picture, saturation: float | None) -> float | None:
    """The pixel value from which a pixel is saturated; None for floats, whose file does not say."""
    if saturation is not None:
        if not (np.isfinite(saturation) and saturation > 0):
            raise InputError(f"saturation = {saturation:g}: give the count from which pixels are saturated")
        return saturation / picture.scale * (1 - 1e-6)  # pixels are float32
    if np.dtype(picture.dtype).kind in "ui":
        return 1.0
    return None


def _plateau(pixels: Array, valid: Array) -> float | None:
    """The largest value of a float picture, if so many pixels have exactly it that it must be a limit."""
    known = pixels[valid]
    if not known.size:
        return None
    top = float(known.max())
    count = int((known == top).sum())
    return top if count >= PLATEAU and count < 0.3 * known.size else None


def chosen_page(scenes: list[Scene], page: int | None, name: str) -> Scene | None:
    """The page that was asked for; the only one; None if there are several and nobody said which."""
    if page is None:
        return scenes[0] if len(scenes) == 1 else None
    if isinstance(page, bool) or not isinstance(page, int) or not 0 <= page < len(scenes):
        raise InputError(f"{name}: page {page!r}: it has {len(scenes)}, counted from 0")
    return scenes[page]


def check_side(name: str, value: Any, least: int = 3) -> None:
    """Refuse a kernel side that is not an odd whole number."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least or value % 2 == 0:
        raise InputError(f"{name} = {value!r}: give the side of the kernels, an odd number of pixels, {least} or more")
