"""The noise model: its parts add up, and a result carries it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import pnpladmm as pl
from conftest import picture
from pnpladmm.restoration import NoiseModel
from pnpladmm.restoration.noise_model import joined_noise

QUICK = {"denoiser": "tv", "iterations": 2}


def test_variances_of_the_parts_add_up() -> None:
    model = NoiseModel("estimated", torch.tensor([3.0, 1.0]) / 255, jpeg=torch.tensor([4.0, 0.0]) / 255)
    torch.testing.assert_close(255 * model.level, torch.tensor([5.0, 1.0], dtype=torch.float64))
    assert str(model) == "noise 5.00, 1.00 of 255 (3.00, 1.00 estimated, 4.00, 0.00 JPEG errors)"
    assert str(model.of(1)) == "noise 1.00 of 255 (estimated)"
    worse = NoiseModel("given", torch.tensor([0.03]), blur_error=torch.tensor([0.04]))
    assert float(worse.level) == pytest.approx(0.05)


def test_pages_that_were_left_out_have_none() -> None:
    model = joined_noise([NoiseModel("given", torch.tensor([0.01])), NoiseModel("given", torch.tensor([0.02]))], 1)
    assert model.level[:2].tolist() == pytest.approx([0.01, 0.02])
    assert math.isnan(float(model.level[2]))


@pytest.mark.parametrize("brightest", [1.4, 1.6, 40.0])
def test_the_noise_of_files_of_floats_has_one_unit(tmp_path: Path, brightest: float) -> None:
    pixels = torch.rand(24, 24, generator=torch.Generator().manual_seed(0)).numpy()
    pixels[0, 0] = brightest  # above 1.5 the picture is divided by a power of two
    np.save(tmp_path / "y.npy", pixels)
    found = pl.restore(tmp_path / "y.npy", np.ones((3, 3)), 0.02, **QUICK)
    assert float(found.noise) * found.before.scale == pytest.approx(0.02)
    assert isinstance(found.problem.data_term, pl.Gaussian)
    assert float(found.problem.data_term.sigma) * found.before.scale == pytest.approx(0.02)


def test_the_level_is_told_in_the_numbers_that_the_picture_has() -> None:
    model = NoiseModel("estimated", torch.tensor([0.001]))
    assert model.words(unit=4096.0) == "noise 4.096 in the numbers of the picture (estimated)"


def test_a_result_says_what_was_assumed() -> None:
    y = picture(32) + 0.02 * torch.randn(1, 1, 32, 32, dtype=torch.float64)
    kernel = torch.full((3, 3), 1 / 9)
    found = pl.restore(y, kernel, **QUICK)
    assert found.noise_model.source == "estimated"
    assert float(found.noise_model.level) == float(found.noise)
    assert str(found.noise_model) in found.notes
    given = pl.restore(y, kernel, 0.02, **QUICK)
    assert (given.noise_model.source, float(given.noise_model.level)) == ("given", 0.02)
    mapped = pl.restore(y, kernel, variance=torch.full((32, 32), 0.02**2), **QUICK)
    assert mapped.noise_model.source == "variance map"
    assert float(mapped.noise_model.level) == pytest.approx(0.02)
    assert pl.restore(y, kernel, gain=1e-3, **QUICK).noise_model.source == "counts"
