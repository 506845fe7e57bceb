"""The certificate claims what the numbers allow and nothing more."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from conftest import small_problem
from pnpladmm.denoisers import HardThreshold, SoftThreshold
from pnpladmm.metrics import psnr
from pnpladmm.solvers import make_method

SIGMA = 0.05
L_h = 1 / SIGMA**2


def level(denoiser: object, beta: float, ratio: float) -> pl.Level:
    """Level of a LADMM run with `beta` in units of `L_h` and `L_x` in units of `beta ||H||^2` (the upper bound)."""
    problem, _ = small_problem(SIGMA)
    method = pl.LADMM(denoiser, 0.03, beta=beta * L_h, L_x=ratio * beta * L_h * float(problem.norm_squared.upper))
    return pl.solve(problem, method, 2).certificate.level


def mmse(x: Tensor, sigma: float) -> Tensor:
    return x


CASES = [
    (HardThreshold(), 1.001, 1.001, pl.Level.PROVED),
    (SoftThreshold(), 1.001, 1.001, pl.Level.PROVED),
    (HardThreshold(), 1.0, 1.001, pl.Level.PROVED),  # Gaussian noise, beta = L_h: it is ISTA
    (HardThreshold(), 0.99, 1.001, pl.Level.OUTSIDE),
    (HardThreshold(), 1.001, 1.0, pl.Level.OUTSIDE),  # strict
    (SoftThreshold(), 0.3, 1.0, pl.Level.CONVEX),
    (SoftThreshold(), 0.3, 0.999, pl.Level.OUTSIDE),
    (pl.as_denoiser(mmse, pl.Promise.MMSE), 1.001, 1.001, pl.Level.ASSUMED),
    (pl.as_denoiser(mmse, pl.Promise.MMSE), 0.5, 1.001, pl.Level.OUTSIDE),
    (mmse, 1.001, 1.001, pl.Level.OUTSIDE),
]


@pytest.mark.parametrize(("denoiser", "beta", "ratio", "expected"), CASES)
def test_levels_of_ladmm(denoiser: object, beta: float, ratio: float, expected: pl.Level) -> None:
    assert level(denoiser, beta, ratio) is expected


def test_certified_constants_satisfy_the_theorem_for_every_data_term() -> None:
    problem, _ = small_problem(SIGMA)
    y = problem.observed.clamp_min(0)
    for term in (pl.Gaussian(SIGMA), pl.WeightedGaussian(torch.rand(24, 24) * 400), pl.Poisson(0.01, 0.1)):
        case = pl.Problem(y, problem.operator, term)
        method = pl.LADMM.certified(HardThreshold(), case, 0.03)
        result = pl.solve(case, method, 30, 0)
        assert result.certificate.level is pl.Level.PROVED
        assert all(c.holds for c in result.certificate.conditions)
        lagrangian = result.history.lagrangian[:, 0]
        assert bool((lagrangian.diff() <= 1e-9 * lagrangian[0].abs()).all())


def test_equality_with_L_h_is_not_enough_beyond_gaussian_noise() -> None:
    problem, _ = small_problem(SIGMA)
    weighted = pl.Problem(problem.observed, problem.operator, pl.WeightedGaussian(torch.full((24, 24), 400.0)))
    method = pl.LADMM(HardThreshold(), 0.03, beta=400.0, L_x=1.1 * 400 * float(problem.norm_squared.upper))
    assert pl.solve(weighted, method, 2).certificate.level is pl.Level.OUTSIDE


def test_failing_numbers_are_named() -> None:
    problem, _ = small_problem(SIGMA)
    upper = float(problem.norm_squared.upper)
    method = pl.LADMM(HardThreshold(), 0.03, beta=0.5 * L_h, L_x=0.25 * L_h * upper)
    certificate = pl.solve(problem, method, 2).certificate
    text = str(certificate)
    assert "beta = 200 >= L_h = 400 fails (0.5 times)" in text
    assert "fails (0.5 times)" in text.splitlines()[-1]
    assert text.startswith("outside: no theorem covers this run")


def test_other_methods() -> None:
    problem, _ = small_problem(SIGMA)
    smooth = L_h * float(problem.norm_squared.upper)
    hard, soft = HardThreshold(), SoftThreshold()
    expected = [
        (pl.ISTA(hard, 0.03, L_x=1.001 * smooth), pl.Level.PROVED),
        (pl.ISTA(hard, 0.03, L_x=0.9 * smooth), pl.Level.OUTSIDE),
        (pl.ISTA(soft, 0.03, L_x=0.6 * smooth), pl.Level.CONVEX),
        (pl.FISTA(soft, 0.03, L_x=smooth), pl.Level.CONVEX),
        (pl.FISTA(hard, 0.03, L_x=2 * smooth), pl.Level.OUTSIDE),
        (pl.PrimalDual(soft, 0.03, beta=50.0, L_x=60.0), pl.Level.CONVEX),
        (pl.PrimalDual(soft, 0.03, beta=50.0, L_x=60.0, box=(0, 1)), pl.Level.OUTSIDE),
        (pl.PrimalDual(soft, 0.03, beta=50.0, L_x=120.0, box=(0, 1)), pl.Level.CONVEX),
        (pl.ADMM(soft, 0.03, rho=50.0), pl.Level.OUTSIDE),
        (pl.RichardsonLucy(), pl.Level.OUTSIDE),
    ]
    for method, level in expected:
        certificate = pl.solve(problem, method, 2).certificate
        assert certificate.level is level, (method, str(certificate))
        assert len(str(certificate).splitlines()) >= 2  # it always says on what it rests


@dataclass
class GradientStep:
    """`D = Id - grad g`, `g = c/2 ||x||^2`: the prox of `c / (2 (1 - c)) ||x||^2` for c < 1. It can be told to lie."""

    c: float
    lie: float = 0.0
    promise = pl.Promise.GRADIENT_STEP

    def __call__(self, v: Tensor, sigma: float) -> Tensor:
        return (1 - self.c) * v

    def prior(self, x: Tensor, v: Tensor | None, sigma: float) -> Tensor | None:
        if v is None:
            return None
        phi = (self.c / 2 * v.square() - 0.5 * (v - x).square()).flatten(1).sum(1)
        self.lie *= 1.5
        return phi + self.lie

    def curvature(self, v: Tensor, sigma: float) -> Tensor:
        return torch.full((len(v),), self.c, dtype=torch.float64)


class Unmeasured(GradientStep):
    curvature = None


def test_a_gradient_step_is_checked_in_the_run() -> None:
    problem, _ = small_problem(SIGMA)

    def certificate(denoiser: object) -> pl.Certificate:
        return pl.solve(problem, pl.LADMM.certified(denoiser, problem, 0.03), 30, 0).certificate

    good = certificate(GradientStep(0.01))
    assert good.level is pl.Level.CHECKED
    steep = certificate(GradientStep(1.2))
    assert steep.level is pl.Level.OUTSIDE
    assert "1.2" in steep.failures[0]
    rising = certificate(GradientStep(0.01, lie=1.0))
    assert rising.level is pl.Level.OUTSIDE
    assert "Lagrangian rose" in rising.failures[0]
    unmeasured = certificate(Unmeasured(0.01))
    assert unmeasured.level is pl.Level.OUTSIDE
    assert "not measured" in unmeasured.failures[0]
    unrecorded = pl.solve(problem, pl.LADMM.certified(GradientStep(0.01), problem, 0.03), 30, 0, record=False)
    assert unrecorded.certificate.level is pl.Level.OUTSIDE


def test_the_batch_certificate_is_the_weakest() -> None:
    problem, _ = small_problem(SIGMA)
    both = pl.Problem(problem.observed.repeat(2, 1, 1, 1), problem.operator, problem.data_term)
    beta = torch.tensor([1.01 * L_h, 0.5 * L_h], dtype=torch.float64)
    method = pl.LADMM(HardThreshold(), 0.03, beta=beta, L_x=2 * beta * float(problem.norm_squared.upper))
    result = pl.solve(both, method, 2)
    assert [c.level for c in result.certificates] == [pl.Level.PROVED, pl.Level.OUTSIDE]
    assert result.certificate.level is pl.Level.OUTSIDE


def test_nothing_is_proved_without_a_lower_bound_of_the_data_term() -> None:
    """Linear below 0, as Poisson noise once was where no count is: `E` falls for ever."""

    class Falling(pl.Gaussian):
        lowest = -math.inf

        def value(self, z: Tensor, y: Tensor) -> Tensor:
            return z.double().flatten(1).sum(1)

        def gradient(self, z: Tensor, y: Tensor) -> Tensor:
            return torch.ones_like(z)

        def prox(self, v: Tensor, step: float, y: Tensor) -> Tensor:
            return v - step

    problem, _ = small_problem(SIGMA)
    falling = pl.Problem(problem.observed, problem.operator, Falling(SIGMA))
    for denoiser in (SoftThreshold(), HardThreshold()):
        certificate = pl.solve(falling, pl.LADMM.certified(denoiser, falling, 0.03), 2).certificate
        assert certificate.level is pl.Level.OUTSIDE
        assert "bounded below" in certificate.failures[0]


@pytest.mark.parametrize(("name", "denoiser"), [("ladmm", "tv"), ("ladmm", "hard"), ("primal-dual", "identity")])
def test_a_dark_scene_of_few_counts_stays_a_picture(name: str, denoiser: str) -> None:
    """Two thirds of the pixels without a count: they drew the picture to -15 and from 26 to -1 dB."""
    generator = torch.Generator().manual_seed(0)
    sharp = torch.zeros(1, 1, 64, 64, dtype=torch.float64)
    for row, column in ((9, 12), (30, 44), (50, 20), (20, 28), (41, 8)):
        sharp[..., row : row + 4, column : column + 4] = 0.4
    operator = pl.SpatiallyVaryingBlur(torch.full((1, 5, 5), 1 / 25), torch.ones(1, 64, 64), boundary="circular")
    gain, background = 1 / 50, 0.005
    y = gain * torch.poisson((operator.forward(sharp).clamp_min(0) + background) / gain, generator)
    assert float((y == 0).double().mean()) > 0.6
    problem = pl.Problem(y, operator, pl.Poisson(gain, background))
    method = make_method(name, pl.load_denoiser(denoiser), problem, (gain * y.mean()).sqrt().reshape(1))
    result = pl.solve(problem, method, 60, 1e-4, reference=sharp)
    assert float(result.image.min()) > -1
    if denoiser == "tv":
        assert float(result.history.psnr[-1]) > float(psnr(y, sharp)) + 4
