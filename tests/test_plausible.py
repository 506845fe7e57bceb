"""A word where nothing is blurred, and where a picture is mostly taken for noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pnpladmm as pl
from pnpladmm.blur import Blur, gaussian
from pnpladmm.restoration.noise_model import NoiseModel
from pnpladmm.restoration.plausible import mostly_noise, no_blur

POINT = torch.zeros(5, 5, dtype=torch.float64)
POINT[2, 3] = 2.0


def bank(*kernels: torch.Tensor) -> Blur:
    return Blur(torch.stack(kernels), torch.ones(len(kernels), 16, 16) / len(kernels))


def test_a_psf_that_is_a_point_gets_a_word() -> None:
    assert "single point" in str(no_blur(bank(POINT, POINT)))
    assert no_blur(bank(POINT, gaussian(0.8, size=5))) is None
    assert no_blur(bank(gaussian(0.4, size=5))) is None  # a little blur is blur
    assert no_blur(pl.Mask(torch.ones(8, 8))) is None
    found = pl.restore(np.tile(np.linspace(0, 1, 24), (24, 1)), [[1.0]], noise=0.02, denoiser="tv", iterations=3)
    assert any("single point" in words for words in found.warnings)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_a_picture_that_is_mostly_noise_gets_a_word(scale: float) -> None:
    grain = torch.randn(1, 3, 40, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ramp = torch.linspace(0, 4, 40, dtype=torch.float64).expand_as(grain)

    def words(picture: torch.Tensor, source: str = "estimated") -> str | None:
        problem = pl.Problem(scale * picture, pl.Mask(torch.ones(40, 40)), pl.Gaussian(scale))
        return mostly_noise(problem, NoiseModel(source, torch.full((len(picture),), scale)))  # type: ignore[arg-type]

    assert "taken for noise" in str(words(grain + 100))
    assert words(grain, "given") is None
    assert words(ramp + grain) is None
    # One picture with something in it does not hide another one without.
    assert "taken for noise" in str(words(torch.cat([ramp + grain, grain])))
