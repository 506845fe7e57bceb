"""No false word: what a status or a certificate says is true, whatever the denoiser, the start or the step does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pnpladmm as pl
from conftest import picture, positive_blur, small_problem
from pnpladmm.denoisers import HardThreshold, SoftThreshold, TotalVariation
from pnpladmm.solvers.promises import broken_promise

SIGMA = 0.05
TV = pl.load_denoiser("tv")


@pytest.mark.parametrize("make", [lambda d, s, L: pl.ISTA(d, s, L_x=L), lambda d, s, L: pl.ADMM(d, s, rho=L)])
@pytest.mark.parametrize("denoiser", [TV, lambda x, sigma: x], ids=["tv", "identity"])
def test_a_tiny_step_is_no_convergence(make: Callable[..., Any], denoiser: Any) -> None:
    problem, _ = small_problem(SIGMA)
    sigma_d = (0.3 / 1e9) ** 0.5  # the same lambda, a step a million times too short
    result = pl.solve(problem, make(denoiser, sigma_d, 1e9), 10, tolerance=1e-4)
    assert float(result.history.x_change[-1]) < 1e-4
    assert result.status is pl.Status.ITERATION_LIMIT


def test_the_residual_is_small_where_a_run_has_converged() -> None:
    problem, _ = small_problem(SIGMA)
    method = pl.LADMM.certified(SoftThreshold(), problem, 0.02)
    result = pl.solve(problem, method, 2000, tolerance=1e-4)
    assert result.status is pl.Status.CONVERGED
    gradient = method.gradient(problem, result.state)
    scale = problem.L_h() * problem.norm_squared.upper * result.image.norm()
    assert float(gradient.norm()) <= 1e-4 * float(scale)


def test_tiny_certified_steps_on_dark_counts_are_no_convergence() -> None:
    operator = positive_blur((24, 24))
    scene = 0.05 * picture(24)
    counts = torch.from_numpy(np.random.default_rng(0).poisson(50 * operator.forward(scene).numpy()) / 50)
    problem = pl.Problem(counts, operator, pl.Poisson(1 / 50, 0.001))
    method = pl.LADMM.certified(TV, problem, 0.001)
    result = pl.solve(problem, method, 20, tolerance=1e-4)
    assert result.status is pl.Status.ITERATION_LIMIT


def test_a_dim_psf_is_no_divergence() -> None:
    problem, sharp = small_problem(1e-4)
    dim = pl.SpatiallyVaryingBlur(problem.operator.kernels.squeeze(2)[0] * 0.004, problem.operator.weights[0, :, 0])
    case = pl.Problem(dim.forward(sharp), dim, pl.Gaussian(1e-4))
    result = pl.solve(case, pl.ADMM(TV, 0.001, rho=1.0), 30)
    assert result.image.norm() > 100 * case.observed.norm()  # what was called diverged
    assert not result.status.failed


def test_changes_that_grow_again_are_divergence() -> None:
    """The picture is calm for a while and then drifts away with the denoiser, long before it is too large."""
    rows = torch.arange(32)
    board = (rows[:, None] + rows) % 2 * 2.0 - 1  # which the blur hardly sees

    def drifting(x: torch.Tensor, sigma: object) -> torch.Tensor:
        return x + 0.3 * (x * board).mean((-2, -1), keepdim=True) * board

    blur = pl.SpatiallyVaryingBlur(torch.full((1, 5, 5), 1 / 25), torch.ones(1, 32, 32))
    noise = torch.randn(1, 1, 32, 32, generator=torch.Generator().manual_seed(2))
    y = blur.forward(torch.rand(1, 1, 32, 32, generator=torch.Generator().manual_seed(1))) + 0.01 * noise
    problem, method = pl.Problem(y, blur, pl.Gaussian(0.1)), pl.ISTA(drifting, sigma_d=0.1, L_x=110.0)
    calm, drifted = (pl.solve(problem, method, iterations) for iterations in (20, 40))
    assert calm.status is pl.Status.ITERATION_LIMIT
    assert drifted.status is pl.Status.DIVERGED
    assert float((drifted.image * board).mean().abs()) < 0.01  # the calmest picture; the last one had 0.5 and more


def test_growth_of_the_objective_is_divergence() -> None:
    problem, _ = small_problem(SIGMA)
    method = pl.LADMM(SoftThreshold(), 1e-4, beta=400.0, L_x=150.0)  # below beta ||H||^2 / 2
    result = pl.solve(problem, method, 15, tolerance=0)
    assert result.state.x.norm() < 100 * problem.observed.norm()  # the size alone does not show it yet
    assert result.status is pl.Status.DIVERGED
    assert result.certificate.level is pl.Level.OUTSIDE


def test_a_schedule_does_not_converge_before_its_end() -> None:
    problem, _ = small_problem(SIGMA)
    method = pl.Annealed(lambda x, sigma: x, 0.02, mu=1e9, calls=6)
    result = pl.solve(problem, method, tolerance=0.1)
    assert (result.status, len(result.history)) == (pl.Status.FINISHED, 6)


def test_acceleration_that_spoils_a_picture_is_told() -> None:
    """At weak noise a network has little to hold against: the faster the method, the sooner the picture is worse."""
    sharp, operator = picture(24).float(), positive_blur((24, 24))
    noise = 0.1 / 255
    y = operator.forward(sharp) + noise * torch.randn(sharp.shape, generator=torch.Generator().manual_seed(0))
    result = pl.restore(y, operator, noise=noise, method="fista", denoiser="light", iterations=60)
    error = [float((image - sharp).square().mean()) for image in (result.image, y)]
    assert error[0] < error[1] or any("times the assumed noise" in warning for warning in result.warnings)
    assert result.certificate.level is pl.Level.OUTSIDE
    assert result.status is not pl.Status.CONVERGED


# ---- certificates


def times(factor: float) -> Callable[[Tensor, Any], Tensor]:
    return lambda x, sigma: factor * x


class Random:
    promise, name = pl.Promise.CONVEX, "random"

    def __call__(self, x: Tensor, sigma: Any) -> Tensor:
        return x + 0.01 * torch.randn_like(x)


BROKEN = {
    "it grows": (pl.as_denoiser(times(1.5), pl.Promise.CONVEX), "does not contract"),
    "it turns the picture": (pl.as_denoiser(times(-0.5), pl.Promise.PROX), "not monotone"),
    "it shifts": (pl.as_denoiser(lambda x, sigma: x.roll(3, -1), pl.Promise.CONVEX), "proximal operator"),
    "it is random": (Random(), "different pictures for one picture"),
    "hard thresholds are not convex": (pl.as_denoiser(HardThreshold(), pl.Promise.CONVEX), "does not contract"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_found_out(name: str) -> None:
    denoiser, words = BROKEN[name]
    problem, _ = small_problem(SIGMA)
    certificate = pl.solve(problem, pl.LADMM.certified(denoiser, problem, 0.05), 11).certificate
    assert certificate.level is pl.Level.OUTSIDE
    assert any(words in failure for failure in certificate.failures), certificate.failures


@pytest.mark.parametrize("sigma", [1e-4, 0.01, 0.05, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kept_promises_are_kept(sigma: float, dtype: torch.dtype) -> None:
    """Also where strong denoising leaves nearly the same of all pictures: then only rounding and accuracy are left."""
    levels = torch.tensor([sigma, sigma / 2], dtype=torch.float64)
    for _ in range(6):
        v = torch.rand(2, 3, 20, 20, dtype=dtype)
        for denoiser in (SoftThreshold(), HardThreshold(), TotalVariation(1.0)):
            assert broken_promise(denoiser, denoiser.promise, v, levels) == ("", "")
            assert broken_promise(denoiser, pl.Promise.PROX, v, levels) == ("", "")


def test_a_dual_that_does_not_belong_to_z_withdraws_the_descent() -> None:
    problem, _ = small_problem(SIGMA)
    method = pl.LADMM.certified(HardThreshold(), problem, 0.03)
    state = method.init(problem)
    assert pl.solve(problem, method, 3, start=state).certificate.level is pl.Level.PROVED
    wrong = pl.solve(problem, method, 3, start=replace(state, u=state.u + 0.1))
    assert wrong.certificate.level is pl.Level.OUTSIDE
    assert "does not belong to its z" in wrong.certificate.failures[0]
    # One iteration repairs it.
    assert pl.solve(problem, method, 3, start=wrong.state).certificate.level is pl.Level.PROVED
    # For convex priors the other theorem holds from any start.
    convex = pl.LADMM.certified(SoftThreshold(), problem, 0.03)
    started = replace(convex.init(problem), u=state.u + 0.1)
    assert pl.solve(problem, convex, 3, start=started).certificate.level is pl.Level.CONVEX


class Rising:
    """Soft thresholds whose prior is said to grow: the Lagrangian contradicts the theorem."""

    promise, name, calls = pl.Promise.PROX, "rising", 0

    def __call__(self, x: Tensor, sigma: Any) -> Tensor:
        return SoftThreshold()(x, sigma)

    def prior(self, x: Tensor, v: Tensor | None, sigma: Any) -> Tensor:
        self.calls += 1
        return SoftThreshold().prior(x, v, sigma) + self.calls


def test_a_lagrangian_that_rose_withdraws_the_certificate() -> None:
    problem, _ = small_problem(SIGMA)
    for method in (pl.LADMM.certified(Rising(), problem, 0.03), pl.ISTA(Rising(), 0.03, L_x=900.0)):
        certificate = pl.solve(problem, method, 5).certificate
        assert certificate.level is pl.Level.OUTSIDE
        assert "rose by" in certificate.failures[-1]


# ---- denoisers that do what they must not


class Buffer:
    """Writes every result into the same tensor."""

    def __init__(self) -> None:
        self.kept: Tensor | None = None

    def __call__(self, x: Tensor, sigma: Any) -> Tensor:
        self.kept = x.clone() if self.kept is None else self.kept.copy_(0.9 * x)
        return self.kept


def spoil(x: Tensor, sigma: Any) -> Tensor:
    return x.mul_(0.5)


BAD: dict[str, tuple[Any, str]] = {
    "changes its input": (spoil, "changed its input"),
    "nothing": (lambda x, sigma: None, "returned a NoneType"),
    "an array": (lambda x, sigma: x.numpy(), "returned a ndarray"),
    "a pair": (lambda x, sigma: (x, sigma), "returned a tuple"),
    "integers": (lambda x, sigma: (255 * x).long(), "torch.int64"),
    "complex numbers": (lambda x, sigma: x.to(torch.complex64), "torch.complex64"),
    "sparse": (lambda x, sigma: x.to_sparse(), "sparse"),
    "another device": (lambda x, sigma: x.to("meta"), "on meta for pictures on cpu"),
    "one channel more": (lambda x, sigma: torch.cat([x, x], 1), "they must match"),
    "the same tensor again": (Buffer(), "a new one"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("method", ["ladmm", "fast"])
def test_bad_denoisers_are_named_in_one_line(name: str, method: str) -> None:
    denoiser, words = BAD[name]
    if name == "the same tensor again" and method == "fast":
        pytest.skip("turned back by a copy: it does no harm there")
    problem, _ = small_problem(SIGMA)
    kinds = {"ladmm": pl.LADMM(denoiser, 0.03, beta=100.0, L_x=120.0), "fast": pl.Annealed(denoiser, 0.03)}
    with pytest.raises(pl.InputError) as error:
        pl.solve(problem, kinds[method], 4)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_nan_is_laid_to_the_denoiser() -> None:
    problem, _ = small_problem(SIGMA)
    method = pl.LADMM.certified(pl.as_denoiser(lambda x, s: x / 0 * 0, pl.Promise.CONVEX), problem, 0.03)
    result = pl.solve(problem, method, 4)
    assert result.status is pl.Status.NON_FINITE
    assert result.certificate.failures == ("the denoiser returned NaN or infinity",)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.bfloat16])
def test_other_floats_are_converted(dtype: torch.dtype) -> None:
    problem, _ = small_problem(SIGMA)
    problem = pl.Problem(problem.observed.float(), problem.operator, problem.data_term)
    for method in (
        pl.ISTA(lambda x, s: x.to(dtype), 0.03, L_x=900.0),
        pl.Annealed(pl.relaxed(lambda x, s: x.to(dtype), 0.5), 0.03),
    ):
        assert pl.solve(problem, method, 2).image.dtype is torch.float32


def test_a_module_records_no_gradients() -> None:
    """100 iterations of a graph are gigabytes."""

    class Shrink(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.by = nn.Parameter(torch.tensor(0.9))

        def forward(self, x: Tensor, sigma: Any) -> Tensor:
            return self.by * x

    problem, _ = small_problem(SIGMA)
    result = pl.solve(problem, pl.ISTA(Shrink(), 0.03, L_x=900.0), 3)
    assert not result.image.requires_grad
    assert not result.state.denoised_from.requires_grad


def test_the_monitor_asks_for_the_residual_only_where_changes_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("pnpladmm.solvers.monitor.relative_residual", lambda p, m, s: asked.append(s.iteration))
    problem, _ = small_problem(SIGMA)
    pl.solve(problem, pl.LADMM.certified(SoftThreshold(), problem, 0.02), 5, tolerance=1e-9)
    assert asked == []
