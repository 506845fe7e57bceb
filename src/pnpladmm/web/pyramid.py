"""A picture as the page shows it: 8 bits, in levels that halve, cut into tiles when they are asked for.

The page draws what it needs of the level that fits its zoom. Level 0 has the picture's own pixels.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pnpladmm.files import StrictFile, replacing, write_text
from pnpladmm.pictures import Picture
from pnpladmm.web.limits import Refused

Bytes: TypeAlias = NDArray[np.uint8]

TILE = 512
STRIP = 1024
"""Rows that are converted at a time, so that no second copy of a large picture is made in floats."""


@dataclass(frozen=True)
class Shades:
    """The pixel values that are shown black and white."""

    black: float = 0.0
    white: float = 1.0

    @staticmethod
    def of(picture: Picture) -> Shades:
        """0 and 1, but for floats, which may lie anywhere: those are stretched to what they hold."""
        if np.dtype(picture.dtype).kind in "ui":
            return Shades()
        values = picture.pixels[0].numpy()
        step = max(1, int((values.size / 1e6) ** 0.5))
        low, high = np.percentile(values[:, ::step, ::step], (0.5, 99.8))
        inside = low >= 0 and 0.5 <= high <= 1
        return Shades() if inside or not high > low else Shades(float(low), float(high))

    def bytes(self, values: NDArray[Any]) -> Bytes:
        """Values as 8-bit shades."""
        scaled = (values - self.black) * (255 / (self.white - self.black))
        return np.asarray(scaled.clip(0, 255).round(), dtype=np.uint8)


def write_levels(picture: Picture, folder: Path, shades: Shades) -> int:
    """Write the levels of the first page, and return how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    level, count = _bottom(picture, shades), 0
    while True:
        with replacing(folder / f"{count}.npy") as beside, StrictFile(beside) as file:
            np.save(file, level)
        count += 1
        if max(level.shape[:2]) <= TILE:
            break
        level = _half(level)
    write_text(folder / "levels.json", json.dumps({"levels": count}))
    return count


def tile(folder: Path, level: int, row: int, column: int) -> bytes:
    """One tile as PNG; smaller at the right and lower edges."""
    path = folder / f"{level:d}.npy"
    if not path.is_file():
        raise Refused(404, "there is no such level")
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    part = array[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE]
    if row < 0 or column < 0 or part.size == 0:
        raise Refused(404, "there is no such tile")
    return png(np.asarray(part))


def png(values: Bytes) -> bytes:
    """8-bit values as PNG, packed lightly: it does not travel far."""
    file = io.BytesIO()
    Image.fromarray(values if values.shape[-1] == 3 else values[..., 0]).save(file, "PNG", compress_level=1)
    return file.getvalue()


def shown(pixels: NDArray[Any], colour: str, shades: Shades) -> Bytes:
    """Pixels (C, h, w) as (h, w, 1 or 3) bytes: in colour if there are three channels, else the first one."""
    if colour == "cmyk" and len(pixels) == 4:
        light = 1 - pixels.clip(0, 1)
        pixels = light[:3] * light[3:]
    parts = pixels if len(pixels) == 3 else pixels[:1]
    return np.ascontiguousarray(shades.bytes(parts).transpose(1, 2, 0))


def _bottom(picture: Picture, shades: Shades) -> Bytes:
    pixels = picture.from_linear().pixels[0].numpy()
    strips = [shown(pixels[:, top : top + STRIP], picture.colour, shades) for top in range(0, pixels.shape[1], STRIP)]
    return np.concatenate(strips)


def _half(level: Bytes) -> Bytes:
    """Means of 2x2 pixels; an odd last row or column is repeated."""
    height, width = level.shape[:2]
    even = np.pad(level, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    total = np.uint16(2) + even[::2, ::2] + even[1::2, ::2].astype(np.uint16) + even[::2, 1::2] + even[1::2, 1::2]
    return (total >> 2).astype(np.uint8)
