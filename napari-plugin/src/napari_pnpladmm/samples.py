"""Sample data: a photograph with two blurs."""

from __future__ import annotations

from typing import Any

import numpy as np
import skimage.data

import pnpladmm as pl
from pnpladmm.blur import defocus, motion

LayerData = tuple[np.ndarray, dict[str, Any], str]


def two_blurs() -> list[LayerData]:
    """The blurred picture, the PSFs (2, k, k), and the regions where each of them acts."""
    sharp = skimage.data.camera()[64:320, 128:384]
    bank = [motion(11, 30).numpy(), defocus(3).numpy()]
    side = max(max(kernel.shape) for kernel in bank)
    psfs = np.stack([_padded(kernel, side) for kernel in bank])
    regions = np.ones(sharp.shape, np.int32)
    regions[:, 128:] = 2
    blurred = pl.simulate(sharp, psfs, labels=regions - 1, noise=2 / 255, boundary="reflect", seed=0)
    return [
        (blurred.picture.to_array(), {"name": "blurred"}, "image"),
        (psfs, {"name": "PSFs", "visible": False}, "image"),
        (regions, {"name": "regions", "opacity": 0.2}, "labels"),
    ]


def _padded(kernel: np.ndarray, side: int) -> np.ndarray:
    """The kernel in the middle of a square; its centre stays at k // 2."""
    widths = [(side // 2 - n // 2, side - n - (side // 2 - n // 2)) for n in kernel.shape]
    return np.pad(kernel, widths)
