"""The noise level that is assumed of a JPEG restores about as well as the best one."""

from __future__ import annotations

import io

import numpy as np
import pytest
import skimage.data
import torch
from PIL import Image
from scipy import ndimage

import pnpladmm as pl
from pnpladmm.blur import gaussian
from pnpladmm.restoration.jpeg import (
    PER_CHANNEL,
    brightness,
    compression_errors,
    found_compression,
    hidden_noise,
)

SIZE = 96


def compressed(quality: int, noise: float = 2.0) -> tuple[Image.Image, torch.Tensor, torch.Tensor]:
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
    noisy = blurred + noise / 255 * torch.randn(blurred.shape, generator=generator, dtype=blurred.dtype)
    inside = (..., slice(pad, -pad), slice(pad, -pad))
    samples = (noisy[inside][0].permute(1, 2, 0).clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(samples)).save(buffer, "JPEG", quality=quality)
    return Image.open(io.BytesIO(buffer.getvalue())), kernel, scene[inside]


@pytest.mark.parametrize(
    ("quality", "noise", "levels"),
    [
        (95, 2, (1.5, 2.5, 4)),
        (85, 2, (2.5, 4, 6)),
        (70, 2, (2.5, 4, 6)),
        (90, 5, (4, 5, 7, 9)),  # noise that JPEG hides from a plain estimate: 1.6 of 255 is left
    ],
)
def test_the_default_is_near_the_best_level(quality: int, noise: float, levels: tuple[float, ...]) -> None:
    picture, kernel, sharp = compressed(quality, noise)

    def score(noise: float | str) -> float:
        image = pl.restore(picture, kernel, noise).image.double().clamp(0, 1)
        return -10 * float((image - sharp).square().mean().log10())

    best = max(score(level / 255) for level in levels)
    assert score("auto") > best - 0.3


def texture(noise: float) -> np.ndarray:
    """8-bit brightness of a blurred, noisy scene, (H, W)."""
    clean = ndimage.gaussian_filter(skimage.data.coffee()[:256, 100:356].astype(float), (2, 2, 0))
    noisy = clean + noise * np.random.default_rng(0).standard_normal(clean.shape)
    return noisy.clip(0, 255).round().astype(np.uint8)


def decoded(samples: np.ndarray, quality: int, **options: int) -> np.ndarray:
    buffer = io.BytesIO()
    Image.fromarray(samples).save(buffer, "JPEG", quality=quality, **options)
    return np.asarray(Image.open(io.BytesIO(buffer.getvalue())))


@pytest.mark.parametrize("options", [{}, {"subsampling": 2}, {"progressive": 1}, {"optimize": 1}])
@pytest.mark.parametrize(("quality", "step"), [(95, 11 / 9), (85, 36 / 9), (50, 118 / 9)])
def test_the_steps_and_the_grid_are_found_in_pixels_alone(quality: int, step: float, options: dict[str, int]) -> None:
    pixels = decoded(texture(2.0), quality, **options)[3:, 6:]
    found = found_compression(brightness(torch.from_numpy(pixels / 255).permute(2, 0, 1)))
    assert found is not None
    assert (found.top, found.left) == (5, 2)
    assert found.step == pytest.approx(step, rel=0.25)


@pytest.mark.parametrize("noise", [0.5, 2.0, 8.0])
def test_pictures_that_were_no_jpeg_are_not_taken_for_one(noise: float) -> None:
    levels = brightness(torch.from_numpy(texture(noise) / 255).permute(2, 0, 1))
    assert found_compression(levels) is None
    picture = pl.Picture.from_array(texture(noise))
    assert float(compression_errors(picture, torch.zeros(1))) == 0


@pytest.mark.parametrize(("quality", "noise"), [(95, 2), (95, 8), (85, 5), (70, 8)])
def test_noise_is_seen_through_the_compression(quality: int, noise: float) -> None:
    pixels = torch.from_numpy(decoded(texture(noise), quality) / 255).permute(2, 0, 1)
    found = found_compression(brightness(pixels))
    assert found is not None
    assert hidden_noise(brightness(pixels), found) / PER_CHANNEL == pytest.approx(noise, rel=0.15)


def test_a_png_made_from_a_jpeg_gets_the_same_noise_as_the_jpeg() -> None:
    kernel = gaussian(1.6)
    picture, *_ = compressed(85)
    quick = {"denoiser": "soft", "iterations": 2}
    of_file, of_array = (pl.restore(p, kernel, **quick) for p in (picture, np.asarray(picture)))
    of_floats = pl.restore(np.asarray(picture) / 255, kernel, **quick)
    assert float(of_file.noise) > 2.5 / 255
    assert float(of_array.noise) == pytest.approx(float(of_file.noise), rel=0.1)
    assert float(of_floats.noise) == pytest.approx(float(of_array.noise), rel=1e-3)


def test_a_turned_jpeg_has_its_table_turned() -> None:
    buffer = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(texture(2.0)[:, :200]).save(buffer, "JPEG", quality=50, exif=exif)
    plain = Image.open(io.BytesIO(buffer.getvalue()))
    table = np.reshape(plain.quantization[0], (8, 8))
    assert not np.array_equal(table, table.T)
    np.testing.assert_array_equal(pl.Picture.from_pil(plain).metadata.jpeg_table, table.T)
