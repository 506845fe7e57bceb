"""Certificates of runs with a gradient step: what the proof says is seen in the run, and none is false."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from conftest import picture, positive_blur, small_problem
from gradient_step_cases import SIGMA, denoiser, network
from pnpladmm.denoisers.gradient_step import GradientStepDenoiser
from pnpladmm.tensors import squared_norm


def certified(d: object, iterations: int = 40, **options: object) -> pl.Result:
    problem, _ = small_problem(SIGMA)
    return pl.solve(problem, pl.LADMM.certified(d, problem, SIGMA), iterations, 0, **options)  # type: ignore[arg-type]


def test_a_certified_run_is_checked_and_its_lagrangian_falls() -> None:
    result = certified(denoiser(network()))
    assert result.certificate.level is pl.Level.CHECKED
    history = result.history
    assert history.lagrangian is not None
    assert history.curvature is not None
    assert history.objective is not None
    assert bool((history.lagrangian.diff(dim=0) <= 0).all())
    assert torch.isfinite(history.curvature[:, 0]).nonzero().flatten().tolist() == [0, 8, 17, 26, 35]
    # At convergence the two agree: z = Hx.
    assert float(history.lagrangian[-1]) == pytest.approx(float(history.objective[-1]), rel=1e-3)
    assert "measured in this run" in str(result.certificate)


@pytest.mark.parametrize("curvature", [0.8, 1.3])
def test_the_lagrangian_changes_by_exactly_what_the_proof_says(curvature: float) -> None:
    """docs/reference/proof.md, statement 3, an identity whatever the curvature: only the sign of `B` needs it."""
    problem, _ = small_problem(SIGMA)
    d = denoiser(network(curvature=curvature), relaxation=0.9)
    method = pl.LADMM.certified(d, problem, SIGMA)
    beta, L_x = float(method.beta), float(method.L_x)
    old = method.step(problem, method.init(problem))

    def psi(v: Tensor) -> Tensor:
        return squared_norm(v) / 2 - 0.9 * d.energy(v, SIGMA)

    for _ in range(5):
        new = method.step(problem, old)
        assert old.denoised_from is not None
        assert new.denoised_from is not None
        dx, dz, dw = new.x - old.x, new.z - old.z, beta * (new.u - old.u)
        bregman = float(
            psi(new.denoised_from) - psi(old.denoised_from) - (old.x * (new.denoised_from - old.denoised_from)).sum()
        )
        fall = L_x * (bregman + float(dx.square().sum()) / 2)
        fall -= beta / 2 * float((problem.operator.forward(dx)).square().sum())
        fall += (beta / 2 + 1 / (2 * SIGMA**2)) * float(dz.square().sum()) - float(dw.square().sum()) / beta
        values = [method.lagrangian(problem, state) for state in (old, new)]
        assert values[0] is not None
        assert values[1] is not None
        assert float(values[0] - values[1]) == pytest.approx(fall, rel=1e-9)
        if curvature < 1:
            assert bregman >= 0
            assert float(d.prior(new.x, new.denoised_from, SIGMA)) >= 0.9 * float(d.energy(new.x, SIGMA))  # type: ignore[arg-type]
        old = new


def test_the_gradient_of_the_objective_goes_to_0() -> None:
    problem, _ = small_problem(SIGMA)
    method = pl.LADMM.certified(denoiser(network()), problem, SIGMA)
    sizes: list[float] = []

    def watch(progress: pl.solvers.loop.Progress) -> None:
        gradient = method.gradient(problem, progress.state)
        assert gradient is not None
        sizes.append(float(gradient.norm()))

    assert method.gradient(problem, method.init(problem)) is None
    result = pl.solve(problem, method, 400, 1e-9, callback=watch)
    assert sizes[-1] < 1e-3 * sizes[0]
    assert result.certificate.level is pl.Level.CHECKED


class Untrue(GradientStepDenoiser):
    """Evaluates another prior than its own."""

    def prior(self, x: Tensor, v: Tensor | None, sigma: pl.tensors.PerPicture, /) -> Tensor | None:
        phi = super().prior(x, v, sigma)
        self.lie = getattr(self, "lie", 1.0) * 1.01
        return None if phi is None else phi * self.lie


def test_no_failing_condition_gives_a_false_certificate() -> None:
    net = network()
    good = denoiser(net)
    steep = certified(denoiser(network(curvature=1.3)))
    assert steep.certificate.level is pl.Level.OUTSIDE
    assert "largest eigenvalue" in steep.certificate.failures[0]

    problem, _ = small_problem(SIGMA)
    inside = pl.LADMM.certified(good, problem, SIGMA)
    for change in ({"beta": 0.9 * inside.beta}, {"L_x": 0.9 * inside.L_x}):
        result = pl.solve(problem, replace(inside, **change), 12, 0)
        assert result.certificate.level is pl.Level.OUTSIDE
        assert any(not c.holds for c in result.certificate.conditions)

    rising = certified(Untrue({1: net}, precision=torch.float64))
    assert rising.certificate.level is pl.Level.OUTSIDE
    assert "Lagrangian rose" in rising.certificate.failures[0]

    unmeasured = certified(good, record=False)
    assert unmeasured.certificate.level is pl.Level.OUTSIDE
    assert "not measured" in unmeasured.certificate.failures[0]
    assert "not evaluated" in unmeasured.certificate.failures[1]

    broken = network()
    broken.exit.weight.data[0] = math.nan
    gone = certified(denoiser(broken), 3)
    assert gone.status is pl.Status.NON_FINITE
    assert gone.certificate.level is pl.Level.OUTSIDE


def test_a_run_that_turns_bad_late_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calm at first, then one iterate is not finite: nothing that was measured before counts."""
    d = denoiser(network())
    calls = 0
    step = GradientStepDenoiser.__call__

    def late(self: GradientStepDenoiser, x: Tensor, sigma: pl.tensors.PerPicture, /) -> Tensor:
        nonlocal calls
        calls += 1
        return step(self, x, sigma) * (math.nan if calls == 15 else 1.0)

    monkeypatch.setattr(GradientStepDenoiser, "__call__", late)
    result = certified(d)
    assert result.status is pl.Status.NON_FINITE
    assert result.certificate.level is pl.Level.OUTSIDE
    assert "the denoiser returned NaN" in result.certificate.failures[0]


def test_certificates_are_each_pictures_own() -> None:
    """Told twice the noise, the same network is steeper at the second picture: only that one loses its certificate."""
    net = network(curvature=0.95)
    sharp = picture(24)
    operator = positive_blur((24, 24))
    y = operator.forward(sharp.repeat(2, 1, 1, 1)) + SIGMA * torch.randn(2, 1, 24, 24, dtype=torch.float64)
    problem = pl.Problem(y, operator, pl.Gaussian(SIGMA))
    d = denoiser(net)
    levels = torch.tensor([0.1, 4.0], dtype=torch.float64) * SIGMA
    measured = [float(d.curvature(y[i : i + 1], float(levels[i]), 40)) for i in range(2)]
    order = sorted(range(2), key=lambda i: measured[i])
    net.exit.weight.data *= math.sqrt(1 / math.sqrt(measured[0] * measured[1]))  # one below 1, one above
    assert abs(measured[0] / measured[1] - 1) > 0.3
    result = pl.solve(problem, pl.LADMM.certified(denoiser(net), problem, levels), 12, 0)
    expected = {order[0]: pl.Level.CHECKED, order[1]: pl.Level.OUTSIDE}
    assert [c.level for c in result.certificates] == [expected[0], expected[1]]


def test_float32_runs_are_checked_to_their_rounding() -> None:
    problem, _ = small_problem(SIGMA)
    single = pl.Problem(problem.observed.float(), problem.operator, problem.data_term)
    net = network().float()
    d = GradientStepDenoiser({1: net})
    for case in (single, problem):  # float32 throughout, and a float32 network inside a float64 run
        result = pl.solve(case, pl.LADMM.certified(d, case, SIGMA), 200, 1e-7)
        assert result.certificate.level is pl.Level.CHECKED, str(result.certificate)
        assert result.history.rounding > 1e-8


def test_restore_ends_with_certified_iterations() -> None:
    problem, _ = small_problem(SIGMA)
    result = pl.restore(
        problem.observed, problem.operator, SIGMA, denoiser=denoiser(network()), iterations=4, certify=30
    )
    assert result.certificate.level is pl.Level.CHECKED
