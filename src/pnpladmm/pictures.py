"""Picture files in and out."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from torch import Tensor

from pnpladmm.tensors import InputError


def write_png(path: Path, picture: Tensor) -> None:
    """The first picture of (B, C, H, W), C = 1 or 3, values in [0, 1], as 8-bit PNG; beside and renamed."""
    from PIL import Image

    if picture.ndim != 4 or picture.shape[1] not in (1, 3):
        raise InputError(f"picture has shape {tuple(picture.shape)}: give (B, C, H, W) with 1 or 3 channels")
    pixels = (picture[0].clamp(0, 1) * 255).round().permute(1, 2, 0).cpu().numpy().astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels).save(beside, "PNG")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
