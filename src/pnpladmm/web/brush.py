"""Strokes of a brush as a mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from pnpladmm.web.sketch import Stroke

Mask: TypeAlias = NDArray[np.uint8]


def painted(
    size: tuple[int, int], strokes: Sequence[Stroke], under: Mask | None = None, origin: tuple[int, int] = (0, 0)
) -> Mask:
    """255 where strokes painted last, over what was there before; (H, W) from `origin` (x, y) of the picture on.

    >>> mask = painted((9, 12), [Stroke(radius=2, points=[(3, 4), (8, 4)])])
    >>> mask[4].tolist()
    [0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0]
    """
    height, width = size
    image = Image.new("L", (width, height)) if under is None else Image.fromarray(under)
    draw = ImageDraw.Draw(image)
    for stroke in strokes:
        colour = 0 if stroke.erase else 255
        points = [(x - origin[0], y - origin[1]) for x, y in stroke.points]
        r = stroke.radius
        if r >= 1 and len(points) > 1:
            draw.line(points, fill=colour, width=max(1, round(2 * r)))
        elif len(points) > 1:
            draw.line(points, fill=colour)
        for x, y in points:  # round ends and joints
            draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)
    return np.asarray(image)
