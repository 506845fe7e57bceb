"""The facts the program rests on, each as a test that fails if the code is wrong (docs/reference/theory.md)."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from conftest import positive_blur, small_problem
from pnpladmm.denoisers import HardThreshold, SoftThreshold, Tikhonov
from pnpladmm.solvers.ladmm import LADMMState

SIGMA = 0.05
CONVEX = SoftThreshold(weight=5.0)
NON_CONVEX = HardThreshold(weight=0.5)


def states(problem: pl.Problem, method: pl.LADMM, count: int, start: LADMMState | None = None) -> list[LADMMState]:
    found = [start or method.init(problem)]
    for _ in range(count):
        found.append(method.step(problem, found[-1]))
    return found


def lagrangians(problem: pl.Problem, method: pl.LADMM, found: list[LADMMState]) -> Tensor:
    return torch.cat([method.lagrangian(problem, s) for s in found])


def test_fact_1_the_printed_algorithm_diverges_where_ours_converges() -> None:
    problem, _ = small_problem(SIGMA)
    method = pl.LADMM.certified(Tikhonov(), problem, 0.05)
    result = pl.solve(problem, method, iterations=2000, tolerance=1e-8)
    assert result.status is pl.Status.CONVERGED

    H, y, beta, L_x = problem.operator, problem.observed, float(method.beta), float(method.L_x)
    x, z, u = y.clone(), y.clone(), torch.zeros_like(y)
    for _ in range(200):
        x = method.denoiser(x - beta / L_x * H.adjoint(H.forward(x) - z + u), method.sigma_d)
        z = (y + SIGMA**2 * beta * (H.forward(x) + u)) / (1 + SIGMA**2 * beta)
        u = u + beta * (z - H.forward(x))  # as printed
    assert not torch.isfinite(u).all() or float(u.abs().max()) > 1e6


@pytest.mark.parametrize("term", [pl.Gaussian(SIGMA), pl.Poisson(0.01, 0.1), "weighted"])
def test_fact_2_the_dual_is_the_gradient_of_the_data_term(term: pl.Gaussian | str) -> None:
    problem, _ = small_problem(SIGMA)
    if term == "weighted":
        term = pl.WeightedGaussian(400 * torch.rand(24, 24, dtype=torch.float64))
    problem = pl.Problem(problem.observed.clamp_min(0), problem.operator, term)
    for z_start in ("observed", "blurred", torch.rand(1, 1, 24, 24, dtype=torch.float64)):
        method = pl.LADMM(CONVEX, 0.05, beta=300.0, L_x=400.0, z_start=z_start)
        for state in states(problem, method, 5):
            gradient = term.gradient(state.z, problem.observed)
            torch.testing.assert_close(method.beta * state.u, gradient, rtol=1e-9, atol=1e-9)


def test_fact_2_a_start_without_that_dual_raises_the_lagrangian() -> None:
    problem, _ = small_problem(SIGMA)
    method = pl.LADMM.certified(Tikhonov(), problem, 0.05)
    x = torch.zeros_like(problem.observed)
    Hx = problem.operator.forward(x)
    careless = LADMMState(x=x, z=Hx, u=torch.zeros_like(Hx), Hx=Hx)
    rising = lagrangians(problem, method, states(problem, method, 1, careless))
    assert rising[1] > rising[0]
    careful = pl.LADMM(method.denoiser, 0.05, method.beta, method.L_x, z_start="blurred")
    falling = lagrangians(problem, careful, states(problem, careful, 1, careful.init(problem, x)))
    assert falling[1] < falling[0]


@pytest.mark.parametrize("denoiser", [CONVEX, NON_CONVEX, lambda x, s: torch.tanh(x)])
def test_fact_3_at_beta_one_over_sigma_squared_ladmm_is_ista(denoiser: SoftThreshold) -> None:
    problem, _ = small_problem(SIGMA)
    L_x = 1.3 / SIGMA**2
    ladmm, ista = pl.LADMM(denoiser, 0.04, beta=1 / SIGMA**2, L_x=L_x), pl.ISTA(denoiser, 0.04, L_x=L_x)
    a, b = ladmm.init(problem), ista.init(problem)
    for _ in range(40):
        a, b = ladmm.step(problem, a), ista.step(problem, b)
        assert float((a.x - b.x).abs().max()) < 1e-12
    other = pl.LADMM(denoiser, 0.04, beta=0.9 / SIGMA**2, L_x=L_x)
    assert float((states(problem, other, 40)[-1].x - b.x).abs().max()) > 1e-6


def test_fact_3_fixed_points_depend_on_sigma_d_and_L_x_alone() -> None:
    problem, _ = small_problem(SIGMA)
    L_x = 1.3 / SIGMA**2
    limits = []
    for beta in (0.2, 0.6, 1.0):
        method = pl.LADMM(Tikhonov(), 0.05, beta=beta / SIGMA**2, L_x=L_x)
        limits.append(pl.solve(problem, method, 5000, 1e-12).image)
    torch.testing.assert_close(limits[0], limits[2], atol=1e-8, rtol=0)
    torch.testing.assert_close(limits[1], limits[2], atol=1e-8, rtol=0)


@pytest.mark.parametrize("denoiser", [CONVEX, NON_CONVEX], ids=["convex", "non-convex"])
@pytest.mark.parametrize("seed", range(3))
def test_fact_4_the_lagrangian_falls_by_at_least_the_stated_amount(denoiser: SoftThreshold, seed: int) -> None:
    problem, _ = small_problem(SIGMA, seed)
    method = pl.LADMM.certified(denoiser, problem, 0.04)
    start = torch.rand(problem.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    found = states(problem, method, 150, method.init(problem, start))
    values = lagrangians(problem, method, found)
    beta, L_x, L_h = float(method.beta), float(method.L_x), 1 / SIGMA**2
    norm = float(problem.norm_squared.upper)
    for k, (old, new) in enumerate(pairwise(found)):
        dx, dz, dw = ((a - b).square().sum() for a, b in ((new.x, old.x), (new.z, old.z), (beta * new.u, beta * old.u)))
        promised = (L_x - beta * norm) / 2 * dx + beta / 2 * dz + (1 / (2 * L_h) - 1 / beta) * dw
        assert float(promised) >= 0
        assert float(values[k] - values[k + 1]) >= float(promised) - 1e-9


@pytest.mark.parametrize("denoiser", [CONVEX, NON_CONVEX], ids=["convex", "non-convex"])
def test_fact_4_the_lagrangian_rises_outside_the_condition(denoiser: SoftThreshold) -> None:
    problem, _ = small_problem(SIGMA)
    beta = 1.01 / SIGMA**2
    method = pl.LADMM(denoiser, 0.002, beta=beta, L_x=0.45 * beta * float(problem.norm_squared.lower))
    result = pl.solve(problem, method, iterations=400, tolerance=0)
    rises = result.history.lagrangian[1:, 0] - result.history.lagrangian[:-1, 0]
    assert float(rises.max()) > 1e-3 * float(result.history.lagrangian[0, 0])
    assert result.certificate.level is pl.Level.OUTSIDE


def test_fact_5_the_papers_adjoint_is_off_by_tens_of_per_cent() -> None:
    from test_norm import paper_like_blur

    operator = paper_like_blur(0)
    y = torch.rand(operator.domain, dtype=torch.float64)
    kernels, weights = operator.kernels[0, :, 0], operator.weights[0, :, 0]
    published = pl.SpatiallyVaryingBlur(kernels.flip(-2, -1), weights).forward(y)
    right = operator.adjoint(y)
    assert float((published - right).norm() / right.norm()) > 0.05
    assert pl.check_adjoint(operator, operator.domain) < 1e-14


def test_fact_7_the_boundary_of_convex_convergence() -> None:
    """Below `L_h` a convex prior still converges, as a primal-dual method does; the certificate says so."""
    problem, _ = small_problem(SIGMA)
    beta = 0.1 / SIGMA**2
    method = pl.LADMM(CONVEX, 0.04, beta=beta, L_x=beta * float(problem.norm_squared.upper))
    result = pl.solve(problem, method, 5000, 1e-9)
    assert result.status is pl.Status.CONVERGED
    assert result.certificate.level is pl.Level.CONVEX


def test_gradient_of_the_objective_vanishes() -> None:
    """`grad E(x+) = H^T grad h(Hx+) + L_x (v - x+)` goes to 0 for a certified run with a smooth prior."""
    problem, _ = small_problem(SIGMA)
    method = pl.LADMM.certified(Tikhonov(), problem, 0.05)

    def gradient_norm(state: LADMMState) -> float:
        data = problem.operator.adjoint(problem.data_term.gradient(state.Hx, problem.observed))
        return float((data + method.L_x * (state.denoised_from - state.x)).norm())

    found = states(problem, method, 600)
    assert gradient_norm(found[-1]) < 1e-6 * gradient_norm(found[1])


def test_blur_norm_matters_for_stability() -> None:
    """`L_x = beta` is not enough where `||H||^2 > 1`: the certificate says by how much."""
    operator = positive_blur()
    problem = pl.Problem(torch.rand(1, 1, 24, 20, dtype=torch.float64), operator, pl.Gaussian(SIGMA))
    upper = float(problem.norm_squared.upper)
    assert upper > 1.01
    method = pl.LADMM(NON_CONVEX, 0.04, beta=1.1 / SIGMA**2, L_x=1.1 / SIGMA**2)
    certificate = pl.solve(problem, method, 2).certificate
    assert certificate.level is pl.Level.OUTSIDE
    failing = [c for c in certificate.conditions if not c.holds]
    assert [c.left_name for c in failing] == ["L_x"]
    assert failing[0].left / failing[0].right == pytest.approx(1 / upper)
