"""Total variation without inner iterations: the end is a minimum, and each picture is by itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from pnpladmm.denoisers.tv import TotalVariation
from pnpladmm.solvers import make_method
from pnpladmm.solvers.split_prior import SplitDescent

SIGMA = 25 / 255


def observed(seed: int = 0, pictures: int = 1) -> tuple[Tensor, pl.SpatiallyVaryingBlur]:
    """Blocks of light, blurred by a PSF that is not symmetric, with noise."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(pictures, 2, 4, 5, generator=generator, dtype=torch.float64)
    x = x.repeat_interleave(8, 2).repeat_interleave(8, 3)
    kernel = torch.rand(1, 5, 5, generator=generator, dtype=torch.float64)
    blur = pl.SpatiallyVaryingBlur(kernel / kernel.sum(), torch.ones(1, 32, 40), boundary="circular")
    return blur.forward(x) + SIGMA * torch.randn(x.shape, generator=generator, dtype=torch.float64), blur


def test_gradient_and_its_adjoint() -> None:
    tv, generator = TotalVariation(weight=3.0), torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 7, 9, generator=generator, dtype=torch.float64)
    p = torch.randn(2, 2, 3, 7, 9, generator=generator, dtype=torch.float64)
    forward, back = (tv.analysis(x) * p).sum(), (x * tv.synthesis(p)).sum()
    assert float(forward) == pytest.approx(float(back), rel=1e-12)
    assert float(tv.analysis(x).square().sum()) <= tv.norm_squared * float(x.square().sum())
    steepest = tv.project(1e9 * tv.analysis(x))
    assert float(steepest.square().sum(1).amax()) <= 1 + 1e-12
    assert float((tv.analysis(x) * steepest).sum()) == pytest.approx(float(tv.total(x).sum()), rel=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_end_satisfies_the_conditions_of_a_minimum(weighted: bool) -> None:
    """Slope 0 with a dual that is feasible and aligned with the gradient: E has no lower value anywhere."""
    y, blur = observed()
    precision = torch.full_like(y, SIGMA**-2)
    if weighted:
        precision[..., 5:9, :] = 0
        precision[..., 20:, :] /= 4
    term = pl.WeightedGaussian(precision) if weighted else pl.Gaussian(SIGMA)
    problem, tv = pl.Problem(y, blur, term), TotalVariation()
    method = SplitDescent(tv, 0.6)
    found = pl.solve(problem, method, 2000, 0)
    state, total = found.state, float(tv.total(found.image).sum())
    pull = blur.adjoint(term.gradient(blur.forward(found.image), y))
    slope = pull + 0.6 * tv.synthesis(state.u)
    assert float(slope.norm() / pull.norm()) < 2e-3
    assert float(state.u.square().sum(1).amax()) <= 1 + 1e-9
    assert float((tv.analysis(found.image) * state.u).sum()) == pytest.approx(total, rel=2e-3)
    objective = found.history.objective
    assert float(objective[149]) == pytest.approx(float(objective[-1]), rel=3e-3)
    assert float(objective[-1]) < 0.9 * float(objective[0])
    assert found.certificate.level is pl.Level.CONVEX


def test_pictures_of_a_batch_are_independent() -> None:
    y, blur = observed(1, 2)
    sigma = torch.tensor([SIGMA, SIGMA / 5], dtype=torch.float64)
    both = pl.solve(pl.Problem(y, blur, pl.Gaussian(sigma)), SplitDescent(TotalVariation(), 0.6), 60, 1e-4)
    for i in range(2):
        alone = pl.Problem(y[i : i + 1], blur, pl.Gaussian(float(sigma[i])))
        one = pl.solve(alone, SplitDescent(TotalVariation(), 0.6), 60, 1e-4)
        assert torch.allclose(one.image[0], both.image[i], rtol=0, atol=1e-10)


def test_fast_uses_it_for_blur_and_not_for_transforms() -> None:
    y, blur = observed()
    sigma, tv = torch.tensor([SIGMA], dtype=torch.float64), pl.load_denoiser("tv")
    method = make_method("fast", tv, pl.Problem(y, blur, pl.Gaussian(SIGMA)), sigma, strength=1.5)
    assert isinstance(method, SplitDescent)
    assert float(method.weight) * tv.weight == pytest.approx(1.5**2 * 6)
    mask = pl.Problem(y, pl.Mask(torch.ones(32, 40)), pl.Gaussian(SIGMA))
    assert isinstance(make_method("fast", tv, mask, sigma), pl.LADMM)
    soft = make_method("fast", pl.load_denoiser("soft"), pl.Problem(y, blur, pl.Gaussian(SIGMA)), sigma)
    assert isinstance(soft, pl.LADMM)
