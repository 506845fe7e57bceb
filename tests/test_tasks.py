"""LADMM with total variation on four tasks, each at least 3 dB better than where it started."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from conftest import picture
from pnpladmm.blur import common_size, defocus, gaussian, motion, soft_regions
from pnpladmm.denoisers import TotalVariation
from pnpladmm.metrics import psnr

SIZE = 128
SIGMA = 5 / 255


def four_blurs(boundary: str = "circular") -> pl.SpatiallyVaryingBlur:
    labels = torch.zeros(SIZE, SIZE, dtype=torch.long)
    labels[: SIZE // 2, SIZE // 2 :] = 1
    labels[SIZE // 2 :, : SIZE // 2] = 2
    labels[SIZE // 2 :, SIZE // 2 :] = 3
    kernels = common_size([motion(9, 20), gaussian(1.6), defocus(2.5), motion(7, 110)])
    return pl.SpatiallyVaryingBlur(kernels, soft_regions(labels.numpy(), 2.0), boundary)


def observe(operator: pl.LinearOperator, sharp: Tensor, sigma: float = SIGMA) -> Tensor:
    y = operator.forward(sharp)
    return y + sigma * torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(0))


def gain(problem: pl.Problem, sharp: Tensor, tv_weight: float, beta: float, iterations: int = 60) -> float:
    """PSNR gained over the start by LADMM with `lambda f = tv_weight TV`."""
    L_x = 1.01 * beta * float(problem.norm_squared.upper)
    sigma_d = (tv_weight / 10 / L_x) ** 0.5
    method = pl.LADMM(TotalVariation(weight=10.0, accuracy=1e-3), sigma_d, beta=beta, L_x=L_x)
    result = pl.solve(problem, method, iterations, 1e-5, reference=sharp)
    assert result.certificate.level in (pl.Level.CONVEX, pl.Level.PROVED)
    assert result.status in (pl.Status.CONVERGED, pl.Status.ITERATION_LIMIT)
    return float(result.history.psnr[-1]) - float(psnr(problem.default_start(), sharp))


def test_deblurring() -> None:
    sharp = picture(SIZE)
    problem = pl.Problem(observe(four_blurs(), sharp), four_blurs(), pl.Gaussian(SIGMA))
    assert gain(problem, sharp, tv_weight=8.0, beta=0.1 / SIGMA**2) > 3


def test_super_resolution_with_blur_that_varies() -> None:
    sharp = picture(SIZE)
    operator = pl.Decimation(2) @ four_blurs()
    sigma = 2 / 255
    problem = pl.Problem(observe(operator, sharp, sigma), operator, pl.Gaussian(sigma))
    assert gain(problem, sharp, tv_weight=5.0, beta=0.3 / sigma**2) > 3


def test_inpainting_half_of_the_pixels() -> None:
    sharp = picture(SIZE)
    keep = torch.rand(SIZE, SIZE, generator=torch.Generator().manual_seed(1)) > 0.5
    operator = pl.Mask(keep)
    problem = pl.Problem(observe(operator, sharp) * keep, operator, pl.Gaussian(SIGMA))
    over_the_filled_start = gain(problem, sharp, tv_weight=20.0, beta=0.05 / SIGMA**2, iterations=100)
    assert over_the_filled_start > 0.9
    assert over_the_filled_start + float(psnr(problem.default_start(), sharp) - psnr(problem.observed, sharp)) > 15


@pytest.mark.parametrize("transform", ["dct", "hadamard"])
def test_compressed_sensing_at_40_per_cent(transform: str) -> None:
    sharp = picture(SIZE)
    operator = pl.SubsampledTransform((SIZE, SIZE), 0.4, transform)
    problem = pl.Problem(observe(operator, sharp), operator, pl.Gaussian(SIGMA))
    assert gain(problem, sharp, tv_weight=20.0, beta=0.05 / SIGMA**2, iterations=100) > 3


def test_poisson_deblurring() -> None:
    sharp = picture(SIZE)
    operator = four_blurs()
    gain_of_a_count, background = 1 / 500, 0.02
    torch.manual_seed(0)
    y = torch.poisson((operator.forward(sharp) + background).clamp_min(0) / gain_of_a_count) * gain_of_a_count
    data_term = pl.Poisson(gain_of_a_count, background)
    problem = pl.Problem(y, operator, data_term)
    assert gain(problem, sharp, tv_weight=8.0, beta=100.0) > 3
    certificate = pl.solve(problem, pl.LADMM(TotalVariation(), 0.02, beta=100.0, L_x=300.0), 2).certificate
    assert "tiny" in certificate.advice
