"""Noise before, residual after: estimates within a few per cent, and warnings that are right."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import pnpladmm as pl
import pnpladmm.restoration.noise as noise_module
from conftest import picture
from pnpladmm.blur import gaussian
from pnpladmm.denoisers import TotalVariation
from pnpladmm.restoration.noise import ResidualCheck, check_residual, estimate_noise

SIZE = 128


def observe(sigma: float, kernel_sigma: float = 1.5) -> tuple[torch.Tensor, pl.SpatiallyVaryingBlur]:
    blur = pl.SpatiallyVaryingBlur(gaussian(kernel_sigma)[None], torch.ones(1, SIZE, SIZE), "reflect")
    clean = blur.forward(picture(SIZE))
    noise = torch.randn(clean.shape, dtype=clean.dtype, generator=torch.Generator().manual_seed(0))
    return clean + sigma * noise, blur


@pytest.mark.parametrize("sigma", [1 / 255, 5 / 255, 20 / 255])
def test_estimate_is_within_five_per_cent_on_a_blurred_picture(sigma: float) -> None:
    assert float(estimate_noise(observe(sigma)[0])) == pytest.approx(sigma, rel=0.05)


def test_estimate_ignores_saturated_and_dead_areas() -> None:
    y, _ = observe(0.02)
    y = y.clamp(0, 1)
    y[..., :70, :] = 1  # more than half of the picture saturated
    assert float(estimate_noise(y)) == pytest.approx(0.02, rel=0.1)
    y, _ = observe(0.02)
    valid = torch.ones_like(y, dtype=torch.bool)
    valid[..., ::3, ::5] = False
    y[~valid] = torch.rand(int((~valid).sum()), dtype=y.dtype) * 100
    assert float(estimate_noise(y, valid)) == pytest.approx(0.02, rel=0.1)


def test_estimate_is_per_picture_and_refuses_what_has_no_noise() -> None:
    pair = torch.cat([observe(0.01)[0], observe(0.05)[0]])
    torch.testing.assert_close(estimate_noise(pair), torch.tensor([0.01, 0.05], dtype=torch.float64), rtol=0.05, atol=0)
    with pytest.raises(pl.InputError, match="no noise that could be estimated"):
        estimate_noise(torch.ones(1, 1, 32, 32))
    with pytest.raises(pl.InputError, match="4x4 is too small"):
        estimate_noise(torch.rand(1, 1, 4, 4))


def residual(true_sigma: float, assumed: float, true_kernel: float, assumed_kernel: float) -> ResidualCheck:
    y, _ = observe(true_sigma, true_kernel)
    blur = pl.SpatiallyVaryingBlur(gaussian(assumed_kernel)[None], torch.ones(1, SIZE, SIZE), "reflect")
    problem = pl.Problem(y, blur, pl.Gaussian(assumed))
    L_x = 0.1 / assumed**2
    method = pl.LADMM(TotalVariation(accuracy=1e-3), (0.6 / L_x) ** 0.5, beta=L_x / 1.01, L_x=L_x)
    return check_residual(problem, pl.solve(problem, method, 60, 1e-4).image)[0]


def test_a_good_fit_leaves_noise() -> None:
    check = residual(0.02, 0.02, 1.5, 1.5)
    assert check.problems == ()
    assert 0.8 < check.size < 1.05


def test_a_wrong_psf_is_noticed() -> None:
    assert any("structured" in p for p in residual(0.02, 0.02, 1.5, 3.0).problems)


def test_wrong_noise_levels_are_noticed() -> None:
    assert any("noise is stronger" in p for p in residual(0.04, 0.02, 1.5, 1.5).problems)
    too_small = residual(0.01, 0.02, 1.5, 1.5)
    assert any("weaker" in p for p in too_small.problems)
    assert replace(too_small, estimated=True).problems == ()


def test_a_large_residual_is_looked_at_in_strips_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(5)
    observed = torch.rand(2, 3, 70, 40, generator=generator)
    precision = 100 * torch.rand(2, 3, 70, 40, generator=generator)
    precision[..., 10:30, 5:9] = 0
    problem = pl.Problem(observed, pl.Mask(torch.ones(70, 40)), pl.WeightedGaussian(precision))
    whole = noise_module.check_residual(problem, observed.roll(1, -2))
    monkeypatch.setattr(noise_module, "LARGE", 0)
    monkeypatch.setattr(noise_module, "STRIP", 16)
    strips = noise_module.check_residual(problem, observed.roll(1, -2))
    assert len(strips) == 2
    for one, other in zip(whole, strips, strict=True):
        assert (one.size, one.correlation) == pytest.approx((other.size, other.correlation), rel=1e-6)
