"""Training pictures as files hold them: JPEG like Pillow's, PSFs and noise levels that are off by what is said."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from skimage.data import astronaut

from pnpladmm.blur import gaussian
from pnpladmm.data_terms import Gaussian, WeightedGaussian
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.restoration.jpeg import jpeg_noise
from pnpladmm.workshop.training.in_loop import InLoopTraining, train_in_loop
from pnpladmm.workshop.training.photographs import (
    LARGEST_KNOWN_SHARE,
    LARGEST_SHIFT,
    LARGEST_STRETCH,
    compressed,
    quantisation_tables,
    recorded,
    told_blur,
)
from test_in_loop import folder, plan_of

__all__ = ["folder"]  # a fixture of the other tests


def saved_by_pillow(picture: torch.Tensor, quality: int, half_chroma: bool) -> torch.Tensor:
    """One picture (C, H, W) in [0, 1] after a JPEG file."""
    values = (255 * picture).round().byte().movedim(0, -1).numpy()
    file = io.BytesIO()
    Image.fromarray(values.squeeze()).save(file, "JPEG", quality=quality, subsampling=2 if half_chroma else 0)
    read = np.atleast_3d(np.array(Image.open(file)))
    return torch.from_numpy(read).movedim(-1, 0).double() / 255


@pytest.mark.parametrize("quality", [60, 90])
@pytest.mark.parametrize(("channels", "half_chroma"), [(1, False), (3, False), (3, True)])
def test_compression_is_that_of_jpeg_files(quality: int, channels: int, half_chroma: bool) -> None:
    # Sides that are no multiples of 16.
    picture = torch.from_numpy(astronaut()[40:166, 150:260, :channels].copy()).movedim(-1, 0).double() / 255
    ours = compressed(picture[None], quality, half_chroma)[0]
    theirs = saved_by_pillow(picture, quality, half_chroma)
    difference, error = (ours - theirs).square().mean().sqrt(), (theirs - picture).square().mean().sqrt()
    # Transforms in whole numbers round a coefficient to the other side now and then.
    assert float(difference) < 1.2 / 255
    assert float(difference) < 0.33 * float(error)
    assert float((ours - picture).square().mean().sqrt() / error) == pytest.approx(1, abs=0.05)


def test_tables_are_those_of_the_quality() -> None:
    luma, chroma = quantisation_tables(50)
    assert luma[0].tolist() == [16, 11, 10, 16, 24, 40, 51, 61]
    assert chroma[0, :4].tolist() == [17, 18, 24, 47]
    assert quantisation_tables(100)[0].max() == 1


def test_told_kernels_are_off_by_at_most_what_is_said() -> None:
    count, side = 400, 31
    kernel = torch.as_tensor(gaussian(2.5), dtype=torch.float64)
    whole = torch.zeros(side, side, dtype=torch.float64)
    start = (side - kernel.shape[-1]) // 2
    whole[start : start + kernel.shape[-2], start : start + kernel.shape[-1]] = kernel
    true = SpatiallyVaryingBlur(whole.expand(count, 1, -1, -1), torch.ones(count, 1, 40, 40, dtype=torch.float64))
    told = told_blur(true, torch.Generator().manual_seed(0))
    assert torch.equal(told.weights, true.weights)
    kernels = told.kernels[:, 0, 0]
    torch.testing.assert_close(kernels.sum((-2, -1)), torch.ones(count, dtype=torch.float64))
    place = torch.arange(side, dtype=torch.float64) - side // 2
    centre = (kernels.sum(-2) * place).sum(-1)
    width = ((kernels.sum(-2) * place**2).sum(-1) - centre**2).sqrt() / 2.5
    right = (kernels == whole).all(-1).all(-1)
    assert float(right.double().mean()) == pytest.approx(0.3, abs=0.07)
    off = width[~right].log()
    # The Gaussian is cut where it has 0.2 % left, and interpolation widens it a little.
    assert 0.9 * LARGEST_STRETCH < float(off.max()) < LARGEST_STRETCH + 0.03
    assert 0.8 * LARGEST_STRETCH < -float(off.min()) < LARGEST_STRETCH + 0.03
    assert 0.9 * LARGEST_SHIFT < float(centre.abs().max()) < 1.2 * LARGEST_SHIFT
    assert float(centre.mean()) == pytest.approx(0, abs=0.1)


def test_what_is_recorded_has_8_bits_and_a_level_within_the_error() -> None:
    noisy = 0.6 + 0.3 * torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    levels, lossless, kinds, nothing = [], 0, set(), torch.zeros(2, dtype=torch.float64)
    for step in range(300):
        observed, term, told = recorded(noisy, 4.0, nothing, (0, step))
        kinds.add(type(term))
        torch.testing.assert_close(255 * observed, (255 * observed).round(), rtol=0, atol=1e-3)
        assert 0 <= float(observed.min()) <= float(observed.max()) <= 1
        lossless += bool(((observed - noisy.clamp(0, 1)).abs() < 0.51 / 255).all())
        levels.append(told)
        assert float(told.min()) >= 4 / 1.4
        assert told[0] != told[1]
        if isinstance(term, WeightedGaussian):
            assert torch.equal(term.precision == 0, observed == 1)
    assert kinds == {Gaussian, WeightedGaussian}
    assert lossless == pytest.approx(75, abs=25)
    most = math.hypot(4, 255 * jpeg_noise(float(quantisation_tables(60)[0][:3, :3].mean())))
    assert float(torch.stack(levels).max()) <= 1.4 * most
    assert torch.equal(recorded(noisy, 4.0, nothing, (0, 7))[2], levels[7])


def test_a_part_of_what_the_wrong_psf_does_is_in_the_told_level() -> None:
    noisy = torch.full((200, 1, 8, 8), 0.5)
    wrong = torch.full((200,), 30.0, dtype=torch.float64)
    alone, seed = next(  # not compressed: the level is that of the noise
        (levels, (0, step))
        for step in range(50)
        if (levels := recorded(noisy, 4.0, 0 * wrong, (0, step))[2]).max() <= 4 * 1.4
    )
    told = recorded(noisy, 4.0, wrong, seed)[2]
    shares = (told / alone).square().sub(1).sqrt() * 4 / 30  # the errors of the level are the same in both
    assert shares.min() < 0.1
    assert LARGEST_KNOWN_SHARE - 0.1 < shares.max() < LARGEST_KNOWN_SHARE + 1e-6


def test_a_training_on_photographs_learns_and_says_so(folder: Path, tmp_path: Path) -> None:
    plan = plan_of(folder, tmp_path / "w.safetensors", photo=True, steps=12, blurs=2)
    card = train_in_loop(plan)
    assert card["pictures"] == "photo"
    assert card["sigma_range"] == "0.5..25/255, noise of the observation"
    training = InLoopTraining(replace(plan, resume=False))
    pair = training.pool.at(0)
    assert not torch.equal(pair.true.kernels, pair.told.kernels)
    scene = training.scene(pair, 10.0, False)
    assert scene.problem.operator is pair.told
    assert math.isfinite(float(training.loss_on(scene, 3).detach()))
