"""Drawings of an estimate, as PNG. They are small and made without axes, so they cost next to nothing."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from pnpladmm.blur.arrays import Array

if TYPE_CHECKING:
    from pnpladmm.estimate.star_fit import Fitted

SHOWN = 12
"""Points on a sheet."""
ZOOM = 3
"""Pixels of the drawing for one of the picture."""
WIDEST = 320
"""Pixels of a small picture."""


def star_sheet(fitted: Fitted) -> bytes:
    """The brightest points in columns: data and model on a logarithmic scale, and the residual over five sigma."""
    stars = fitted.stars
    chosen = stars.take(np.argsort(stars.flux)[::-1][:SHOWN])
    light = fitted.field.at(chosen.places, chosen.shift) * chosen.flux[:, None, None]
    data = chosen.stamps - chosen.background[:, None, None]
    top = light.max((1, 2), keepdims=True)
    rows = [1 + np.log10((image / top).clip(1e-3, 1)) / 3 for image in (data, light)]
    grey = [np.repeat(row[..., None], 3, -1) for row in rows]
    pull = (data - light) * np.sqrt(chosen.weights) / 5
    return tiles(np.stack([*grey, red_and_blue(pull)]))


def kernel_sheet(kernels: Array) -> bytes:
    """Kernels (P, k, k) side by side, dark where there is light; the root shows faint tails."""
    shown = kernels[:SHOWN]
    depth = np.sqrt((shown / shown.max((1, 2), keepdims=True)).clip(0, 1))
    return tiles(1 - np.repeat(depth[None, ..., None], 3, -1))


def pair_sheet(blurred: Array, sharp: Array, shown: Array, noise: float) -> bytes:
    """Two pictures, one made from the other, and their difference over five sigma, made small."""
    step = max(1, max(blurred.shape) // WIDEST)
    low, high = np.percentile(blurred, (0.5, 99.5))
    rows = [((p[::step, ::step] - low) / max(high - low, 1e-12)).clip(0, 1) for p in (blurred, sharp, shown)]
    grey = [np.repeat(row[..., None], 3, -1) for row in rows]
    return tiles(np.stack([*grey, red_and_blue((blurred - shown)[::step, ::step] / noise / 5)])[None], zoom=1)


def red_and_blue(values: Array) -> Array:
    """[-1, 1] as colours (..., 3): blue, white, red."""
    up, down = values.clip(0, 1)[..., None], (-values).clip(0, 1)[..., None]
    result: Array = 1 - up * np.array([0.2, 0.8, 0.85]) - down * np.array([0.85, 0.7, 0.2])
    return result


def tiles(images: Array, zoom: int = ZOOM) -> bytes:
    """Images (rows, columns, h, w, 3) in [0, 1] side by side with thin white seams, as PNG."""
    from PIL import Image

    padded = np.pad(images, ((0, 0), (0, 0), (1, 0), (1, 0), (0, 0)), constant_values=1.0)
    rows, columns, height, width, _ = padded.shape
    sheet = padded.transpose(0, 2, 1, 3, 4).reshape(rows * height, columns * width, 3)
    picture = Image.fromarray((sheet.clip(0, 1) * 255).round().astype(np.uint8))
    buffer = io.BytesIO()
    picture.resize((picture.width * zoom, picture.height * zoom), Image.Resampling.NEAREST).save(buffer, "PNG")
    return buffer.getvalue()
