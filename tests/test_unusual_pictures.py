"""Pictures on which restorations once went wrong without a word: tiny, flat, noisy, dark; a region out of place."""

from __future__ import annotations

import numpy as np
import pytest
import skimage.data
import torch
from scipy.ndimage import convolve, shift

import pnpladmm as pl
from pnpladmm.blur import Blur, defocus, gaussian
from pnpladmm.restoration.noise import estimate_noise

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
KERNEL = gaussian(1.6).numpy()


def camera() -> tuple[Array, Array]:
    """A sharp crop and its blurred version, in [0, 1]."""
    sharp = skimage.data.camera()[100:196, 180:276] / 255
    return sharp, convolve(sharp, KERNEL, mode="reflect")


def error(image: object, sharp: Array) -> float:
    return float(np.square(np.clip(np.asarray(image, dtype=float), 0, 1) - sharp).mean())


@pytest.mark.parametrize(
    ("picture", "kernel"),
    [
        (np.random.default_rng(0).random((2, 2)), np.ones((1, 1))),
        (np.random.default_rng(0).random((1, 9)), np.ones((1, 3)) / 3),
        (np.random.default_rng(0).random((7, 7)), np.pad([[1.0]], 2)),
    ],
    ids=["2x2", "1x9", "a PSF of one point"],
)
def test_pictures_that_cannot_be_restored_get_a_word(picture: Array, kernel: Array) -> None:
    found = pl.restore(picture, kernel, 0.02)
    assert found.warnings


def test_a_flat_picture_stays_as_it_is_or_is_refused() -> None:
    flat = np.full((32, 32), 0.5)
    assert np.abs(np.asarray(pl.restore(flat, KERNEL, 0.02)) - flat).max() < 1 / 255
    with pytest.raises(pl.InputError, match="no noise that could be estimated"):
        pl.restore(np.full((32, 32), 77, np.uint8), KERNEL)


def test_strong_noise_is_seen_and_restored() -> None:
    sharp, blurred = camera()
    for level in (25, 60, 100):
        y = blurred + level / 255 * np.random.default_rng(0).standard_normal(blurred.shape)
        assert 255 * float(estimate_noise(torch.from_numpy(y)[None, None])) == pytest.approx(level, rel=0.05)
    samples = np.rint(255 * y.clip(0, 1)).astype(np.uint8)  # of 100, clipped at both ends
    found = pl.restore(samples, KERNEL)
    assert 255 * float(found.noise[0]) > 55
    assert error(np.asarray(found) / 255, sharp) < 0.3 * error(samples / 255, sharp)


def test_total_variation_restores_a_dark_frame_of_16_bits() -> None:
    """The largest of its numbers is 50 of 65535."""
    sharp, blurred = camera()
    counts = np.rint(50 * blurred + np.random.default_rng(0).standard_normal(blurred.shape)).clip(0)
    given = counts.astype(np.uint16)
    found = np.asarray(pl.restore(given, KERNEL, denoiser="tv")) / 50
    assert error(found, sharp) < 0.7 * error(given / 50, sharp)


def test_a_region_out_of_place_is_told_or_does_no_harm() -> None:
    sharp, _ = camera()
    inside = np.zeros(sharp.shape)
    inside[30:70, 30:70] = 1
    kernels = torch.stack([defocus(4.0), defocus(4.0) * 0])
    kernels[1, 4, 4] = 1
    rng = np.random.default_rng(0)
    blurs = [
        Blur(kernels, torch.from_numpy(np.stack([m, 1 - m])))
        for m in (inside, np.round(shift(inside, (0, 5), order=0)).astype(float))
    ]
    y = blurs[0].operator("reflect").forward(torch.from_numpy(sharp)[None, None]).numpy()[0, 0]
    y = y + 2 / 255 * rng.standard_normal(y.shape)
    found = pl.restore(y, blurs[1])
    assert found.warnings or error(found, sharp) < error(y, sharp)
