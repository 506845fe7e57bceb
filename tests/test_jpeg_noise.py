"""The noise level that is assumed of a JPEG restores about as well as the best one."""

from __future__ import annotations

import io

import numpy as np
import pytest
import skimage.data
import torch
from PIL import Image

import pnpladmm as pl
from pnpladmm.blur import gaussian

SIZE = 96


def compressed(quality: int) -> tuple[Image.Image, torch.Tensor, torch.Tensor]:
    """A blurred, noisy crop as JPEG, with its kernel and the sharp crop."""
    scene = torch.from_numpy(skimage.data.coffee()[60 : 60 + SIZE + 8, 160 : 160 + SIZE + 8] / 255).permute(2, 0, 1)[
        None
    ]
    kernel = gaussian(1.6)
    pad = kernel.shape[-1] // 2
    blurred = pl.SpatiallyVaryingBlur(kernel[None], torch.ones(1, *scene.shape[-2:]), boundary="replicate").forward(
        scene
    )
    generator = torch.Generator().manual_seed(0)
    noisy = blurred + 2 / 255 * torch.randn(blurred.shape, generator=generator, dtype=blurred.dtype)
    inside = (..., slice(pad, -pad), slice(pad, -pad))
    samples = (noisy[inside][0].permute(1, 2, 0).clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(samples)).save(buffer, "JPEG", quality=quality)
    return Image.open(io.BytesIO(buffer.getvalue())), kernel, scene[inside]


@pytest.mark.parametrize("quality", [95, 85, 70])
def test_the_default_is_near_the_best_level(quality: int) -> None:
    picture, kernel, sharp = compressed(quality)

    def score(noise: float | str) -> float:
        image = pl.restore(picture, kernel, noise).image.double().clamp(0, 1)
        return -10 * float((image - sharp).square().mean().log10())

    best = max(score(level / 255) for level in (1.5, 2.5, 4.0, 6.0))
    assert score("auto") > best - 0.3
