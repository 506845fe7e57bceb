"""LADMM with leaps: Newton's where the map is linear, never uphill, and LADMM where no leap is taken."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from conftest import picture, small_problem
from gradient_step_cases import SIGMA, denoiser, network
from pnpladmm.denoisers import Tikhonov, relaxed
from pnpladmm.denoisers.gradient_step import GradientStepDenoiser
from pnpladmm.denoisers.relaxed import Relaxed
from pnpladmm.denoisers.smooth_unet import SmoothUNet
from pnpladmm.solvers import LeapingLADMM, leaping, make_method, settings
from pnpladmm.solvers.ladmm import LADMMState
from pnpladmm.solvers.leaping import LEAST_REACH, LeapingState, _extra_step
from pnpladmm.tensors import PerPicture

BOTH = (pl.LADMM, LeapingLADMM)


def linear_map(mu: list[float]) -> tuple[Tensor, Tensor]:
    """A symmetric `B` (4, 4) with these eigenvalues, and its eigenvectors."""
    generator = torch.Generator().manual_seed(0)
    vectors = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=generator))[0]
    return vectors @ torch.diag(torch.tensor(mu, dtype=torch.float64)) @ vectors.T, vectors


def leap(B: Tensor, b: Tensor, v: Tensor, reach: float) -> Tensor:
    """Where a leap from `v` ends for `f(v) = b - B v`, four earlier points known."""

    def f(points: Tensor) -> Tensor:
        return b - points @ B

    generator = torch.Generator().manual_seed(1)
    points = v + torch.randn(1, 4, 4, dtype=torch.float64, generator=generator)
    shaped = (1, 4, 1, 2, 2)
    now, move = (a.reshape(1, 1, 2, 2) for a in (v, f(v)))
    extra, _ = _extra_step(points.reshape(shaped), f(points).reshape(shaped), now, move, torch.tensor([reach]).double())
    return (now + move + extra).flatten()


def test_a_leap_is_newtons_step_where_the_map_is_linear() -> None:
    B, _ = linear_map([0.9, 0.3, 0.05, 0.01])
    b, v = torch.tensor([1.0, -2, 3, 0.5]).double(), torch.tensor([0.3, 0.2, -1, 2]).double()
    torch.testing.assert_close(leap(B, b, v, 1000.0), torch.linalg.solve(B, b), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("mu", "gains"),
    [
        ([0.9, 0.3, 0.01, 0.1], [1 / 0.9, 1 / 0.3, 10, 10]),
        ([0.9, 0.3, 0.01, -1e-3], [1 / 0.9, 1 / 0.3, 10, 10]),  # 0, as far as one can tell
        ([0.9, 0.3, 0.01, -0.05], [1, 1, 1, 1]),
        ([1.5, 0.3, 0.01, 0.1], [1, 1 / 0.3, 10, 10]),
    ],
)
def test_no_direction_is_followed_beyond_the_reach_and_none_where_changes_grow(
    mu: list[float], gains: list[float]
) -> None:
    B, vectors = linear_map(mu)
    b, v = torch.tensor([1.0, -2, 3, 0.5]).double(), torch.tensor([0.3, 0.2, -1, 2]).double()
    moved, f = vectors.T @ (leap(B, b, v, 10.0) - v), vectors.T @ (b - B @ v)
    torch.testing.assert_close(moved / f, torch.tensor(gains, dtype=f.dtype), rtol=1e-8, atol=0)


def test_directions_that_are_only_rounding_are_left_out() -> None:
    """Earlier points that differ by the last digit say nothing of the map."""
    v, f = picture(8).float(), 0.01 * picture(8).flip(-1).float()
    generator = torch.Generator().manual_seed(0)
    pick = torch.rand((1, 3, *v.shape[1:]), generator=generator) < 0.5
    points = torch.where(pick, torch.nextafter(v, torch.tensor(2.0)).unsqueeze(1), v.unsqueeze(1))
    noise = 1e-7 * torch.randn(points.shape, generator=generator)
    extra, shrink = _extra_step(points, f.unsqueeze(1) + noise, v, f, torch.tensor([500.0]).double())
    assert float(extra.norm()) == 0
    assert bool(shrink)


def test_a_quadratic_problem_is_solved_in_a_fraction_of_the_iterations() -> None:
    problem, _ = small_problem(0.02)
    size = problem.observed.shape[-1] ** 2
    basis = torch.eye(size, dtype=torch.float64).reshape(-1, 1, *problem.observed.shape[-2:])
    gamma, sigma_d = 0.5, 0.05
    needed, images = {}, {}
    for kind in BOTH:
        method = kind.certified(relaxed(Tikhonov(), gamma), problem, sigma_d)
        result = pl.solve(problem, method, 4000, 1e-10)
        assert result.status is pl.Status.CONVERGED
        needed[kind], images[kind] = len(result.history), result.image
    # E = ||Hx - y||^2 / (2 sigma^2) + L_x <x, (A^-1 - I) x> / 2 with A = gamma D + (1 - gamma) I.
    H = problem.operator.forward(basis).reshape(size, size).T
    A = gamma * Tikhonov()(basis, sigma_d).reshape(size, size) + (1 - gamma) * torch.eye(size).double()
    L_x = float(method.L_x)
    normal = H.T @ H / 0.02**2 + L_x * (torch.linalg.inv(A) - torch.eye(size).double())
    exact = torch.linalg.solve(normal, H.T @ problem.observed.flatten() / 0.02**2)
    assert float((images[LeapingLADMM].flatten() - exact).norm() / exact.norm()) < 1e-6
    assert needed[LeapingLADMM] < needed[pl.LADMM] / 3


def test_the_lagrangian_never_rises_and_the_run_is_checked() -> None:
    problem, _ = small_problem(SIGMA)
    method = LeapingLADMM.certified(denoiser(network()), problem, SIGMA)
    seen: list[LeapingState] = []

    def watch(progress: pl.Progress) -> None:
        assert isinstance(progress.state, LeapingState)
        seen.append(progress.state)

    result = pl.solve(problem, method, 60, 0, callback=watch)
    assert result.certificate.level is pl.Level.CHECKED
    lagrangian, objective = result.history.lagrangian, result.history.objective
    assert lagrangian is not None
    assert objective is not None
    assert float(lagrangian.diff(dim=0).max()) <= 1e-12 * float(lagrangian[0])
    taken = [s for s in seen if s.iteration % 5 == 0 and torch.equal(s.z, s.Hx)]
    assert len(taken) >= 3
    for s in taken:  # a start that the theorem is about, and a picture that the denoiser made
        assert s.denoised_from is not None
        torch.testing.assert_close(s.x, method.denoiser(s.denoised_from, SIGMA), rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(
            s.u, (s.z - problem.observed) / SIGMA**2 / float(method.beta), rtol=1e-12, atol=1e-14
        )
        assert float(lagrangian[s.iteration - 1]) == pytest.approx(float(objective[s.iteration - 1]), rel=1e-12)


def test_it_ends_where_ladmm_ends_only_sooner() -> None:
    problem, _ = small_problem(SIGMA)
    results = [pl.solve(problem, kind.certified(denoiser(network()), problem, SIGMA), 3000, 1e-8) for kind in BOTH]
    assert [r.status for r in results] == [pl.Status.CONVERGED] * 2
    plain, leapt = results
    assert len(leapt.history) < len(plain.history) / 2
    torch.testing.assert_close(leapt.image, plain.image, rtol=0, atol=2e-5)


class Changed(GradientStepDenoiser):
    """Adds `more` to one prior in six: the 6th is that of a leap, the 5th that of the iteration before it."""

    which, more, asked = 6, 0.0, 0

    def prior(self, x: Tensor, v: Tensor | None, sigma: PerPicture, /) -> Tensor | None:
        value = super().prior(x, v, sigma)
        self.asked += 1
        return value + self.more if value is not None and self.asked % 6 == self.which % 6 else value


def changed(net: SmoothUNet, which: int, more: float) -> Changed:
    d = Changed({1: net}, precision=torch.float64)
    d.which, d.more = which, more
    return d


def test_where_no_leap_is_taken_it_is_ladmm() -> None:
    problem, _ = small_problem(SIGMA)
    net = network()
    plain = pl.solve(problem, pl.LADMM.certified(denoiser(net), problem, SIGMA), 23, 0)
    for more in (1e9, -1e9, math.nan):  # larger than any; a prior below 0 is none
        result = pl.solve(problem, LeapingLADMM.certified(changed(net, 6, more), problem, SIGMA), 23, 0)
        assert torch.equal(result.image, plain.image)
        assert isinstance(result.state, LeapingState)
        assert float(result.state.reach) == LEAST_REACH


def test_a_leap_hides_no_iteration_that_raised_the_lagrangian() -> None:
    problem, _ = small_problem(SIGMA)
    result = pl.solve(problem, LeapingLADMM.certified(changed(network(), 5, 1.0), problem, SIGMA), 9, 0)
    assert result.certificate.level is pl.Level.OUTSIDE
    assert "the Lagrangian rose" in str(result.certificate)


def test_what_is_proved_for_convex_priors_is_not_claimed() -> None:
    problem, _ = small_problem(SIGMA)
    method = LeapingLADMM.certified(Tikhonov(), problem, SIGMA)
    assert pl.solve(problem, method, 5).certificate.level is pl.Level.PROVED
    small = replace(method, beta=0.1 * torch.as_tensor(method.beta), L_x=0.1 * torch.as_tensor(method.L_x))
    assert pl.solve(problem, small, 5).certificate.level is pl.Level.OUTSIDE
    plain = pl.LADMM(Tikhonov(), SIGMA, beta=small.beta, L_x=small.L_x)
    assert pl.solve(problem, plain, 5).certificate.level is pl.Level.CONVEX


def test_after_its_last_leap_it_is_ladmm(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, _ = small_problem(SIGMA)
    d = denoiser(network())
    method = LeapingLADMM.certified(d, problem, SIGMA)
    at_10 = pl.solve(problem, method, 10, 0).state
    monkeypatch.setattr(leaping, "MAX_LEAPS", 2)
    result = pl.solve(problem, method, 23, 0)
    assert int(result.history.denoiser_calls[-1]) == 25
    plain = pl.LADMM(d, SIGMA, beta=method.beta, L_x=method.L_x)
    assert isinstance(at_10, LeapingState)
    same = LADMMState(x=at_10.x, z=at_10.z, u=at_10.u, Hx=at_10.Hx, denoised_from=at_10.denoised_from, iteration=10)
    assert torch.equal(result.image, pl.solve(problem, plain, 13, 0, start=same).image)


def test_calls_are_counted_with_those_of_leaps() -> None:
    problem, _ = small_problem(SIGMA)
    net, calls = network(), []

    class Counted(GradientStepDenoiser):
        def __call__(self, x: Tensor, sigma: PerPicture, /) -> Tensor:
            calls.append(1)
            return super().__call__(x, sigma)

    d = relaxed(Counted({1: net}, precision=torch.float64), 0.5)
    result = pl.solve(problem, LeapingLADMM.certified(d, problem, SIGMA), 12, 0)
    assert int(result.history.denoiser_calls[-1]) == len(calls) == 14


@pytest.mark.parametrize("stop", [1, 4, 5, 8])
def test_a_saved_state_goes_on_as_if_never_stopped(tmp_path: Path, stop: int) -> None:
    problem, _ = small_problem(SIGMA)
    method = LeapingLADMM.certified(denoiser(network()), problem, SIGMA)
    whole = pl.solve(problem, method, 17, 0)
    part = pl.solve(problem, method, stop, 0)
    pl.save_state(part.state, tmp_path / "state.safetensors")
    rest = pl.solve(problem, method, 17 - stop, 0, start=pl.load_state(tmp_path / "state.safetensors"))
    assert torch.equal(rest.image, whole.image)


def test_pictures_leap_by_themselves_and_a_bad_one_spoils_none() -> None:
    problem, _ = small_problem(SIGMA)
    bad = problem.observed.clone()
    bad[..., 3, 3] = 1e200
    observed = torch.cat([problem.observed, bad, problem.observed.flip(-1)])
    together = pl.Problem(observed, problem.operator, pl.Gaussian(SIGMA))
    net = network()
    result = pl.solve(together, LeapingLADMM.certified(denoiser(net), together, SIGMA), 30, 0)
    assert isinstance(result.state, LeapingState)
    for i in (0, 2):
        one = pl.Problem(observed[i : i + 1], problem.operator, pl.Gaussian(SIGMA))
        alone = pl.solve(one, LeapingLADMM.certified(denoiser(net), one, SIGMA), 30, 0)
        torch.testing.assert_close(result.image[i : i + 1], alone.image, rtol=0, atol=1e-9)


def test_numbers_too_large_to_square_spoil_no_other_picture() -> None:
    problem, _ = small_problem(SIGMA)
    bad = problem.observed.clone()
    bad[..., 3, 3] = 1e160
    both = pl.Problem(torch.cat([problem.observed, bad]), problem.operator, pl.Gaussian(SIGMA))
    result = pl.solve(both, LeapingLADMM.certified(relaxed(Tikhonov(), 0.5), both, SIGMA), 12, 0)
    alone = pl.solve(problem, LeapingLADMM.certified(relaxed(Tikhonov(), 0.5), problem, SIGMA), 12, 0)
    torch.testing.assert_close(result.image[:1], alone.image, rtol=0, atol=1e-12)


@pytest.mark.parametrize("term", ["poisson", "weighted"])
def test_other_data_terms_are_checked_too(term: str) -> None:
    problem, sharp = small_problem(SIGMA)
    if term == "poisson":
        counts = (problem.operator.forward(sharp) * 200).round()
        problem = pl.Problem(counts / 200, problem.operator, pl.Poisson(gain=1 / 200, background=0.05))
    else:
        precision = torch.full_like(problem.observed, 1 / SIGMA**2)
        precision[..., 4:7, 4:7] = 0
        problem = pl.Problem(problem.observed, problem.operator, pl.WeightedGaussian(precision))
    result = pl.solve(problem, LeapingLADMM.certified(denoiser(network()), problem, SIGMA), 40, 0)
    assert result.certificate.level is pl.Level.CHECKED


def test_what_cannot_leap_is_refused() -> None:
    problem, _ = small_problem(SIGMA)

    def plain(v: Tensor, sigma: PerPicture) -> Tensor:
        return v

    with pytest.raises(pl.InputError, match="cannot evaluate its prior"):
        pl.solve(problem, LeapingLADMM.certified(plain, problem, SIGMA), 5)
    method = LeapingLADMM.certified(denoiser(network()), problem, SIGMA)
    with pytest.raises(pl.InputError, match="every = 2"):
        replace(method, every=2)


def test_certified_runs_of_gradient_steps_leap_with_the_tuned_relaxation() -> None:
    problem, _ = small_problem(10 / 255)
    sigma = torch.tensor([10 / 255], dtype=torch.float64)
    method = make_method("certified", denoiser(network(), name="prox-drunet"), problem, sigma)
    assert isinstance(method, LeapingLADMM)
    row = settings.shipped_settings()["prox-drunet"]["certified"][10.0]
    assert float(method.sigma_d) == pytest.approx(row["sigma_d"] / 255)
    assert isinstance(method.denoiser, Relaxed)
    assert float(method.denoiser.gamma) == pytest.approx(row["relaxation"])
    assert type(make_method("certified", pl.load_denoiser("light"), problem, sigma)) is pl.LADMM
    own = make_method("certified", denoiser(network(), name="my own"), problem, sigma)
    assert isinstance(own, LeapingLADMM)
    assert isinstance(own.denoiser, Relaxed)
