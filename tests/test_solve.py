"""The loop: stopping, failing, freezing, resuming, interrupting; what a run leaves behind."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from conftest import picture, positive_blur, small_problem
from pnpladmm.denoisers import SoftThreshold, Tikhonov
from pnpladmm.metrics import psnr
from pnpladmm.solvers import Method, Progress, Workspace
from pnpladmm.solvers.annealed import AnnealedState

SIGMA = 0.05
SMOOTH = 1.3 / SIGMA**2

METHODS: dict[str, Method] = {
    "ladmm": pl.LADMM(SoftThreshold(), 0.03, beta=0.5 / SIGMA**2, L_x=SMOOTH),
    "ista": pl.ISTA(SoftThreshold(), 0.03, L_x=SMOOTH),
    "fista": pl.FISTA(SoftThreshold(), 0.03, L_x=SMOOTH),
    "admm": pl.ADMM(SoftThreshold(), 0.03, rho=200.0),
    "primal-dual": pl.PrimalDual(SoftThreshold(), 0.03, beta=0.5 / SIGMA**2, L_x=1.5 * SMOOTH, box=(0.0, 1.0)),
    "richardson-lucy": pl.RichardsonLucy(),
    "sources": pl.Sources(iterations=40),
    "annealed": pl.Annealed(SoftThreshold(), 0.03, mu=0.5, calls=12),
}
NO_DENOISER = pl.RichardsonLucy | pl.Sources


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> Method:
    return METHODS[request.param]


def test_every_method_improves_the_picture(method: Method) -> None:
    problem, sharp = small_problem(0.01)
    scaled = {"beta": 0.5 / 0.01**2, "L_x": 1.3 / 0.01**2, "rho": 200.0 * 25}
    parameters = {k: v for k, v in scaled.items() if hasattr(method, k)}
    if not isinstance(method, NO_DENOISER):
        method = type(method)(SoftThreshold(), 0.004, **parameters)
    result = pl.solve(problem, method, 60, 0, reference=sharp)
    assert float(result.history.psnr[-1]) > float(psnr(problem.observed, sharp)) + 1


def test_columns_have_a_row_an_iteration_and_a_column_a_picture(method: Method) -> None:
    problem, sharp = small_problem()
    both = pl.Problem(problem.observed.repeat(2, 1, 1, 1), problem.operator, problem.data_term)
    history = pl.solve(both, method, 7, 0, reference=sharp.repeat(2, 1, 1, 1)).history
    assert len(history) == 7
    assert history.x_change.shape == history.data_fit.shape == history.psnr.shape == (7, 2)
    assert history.seconds.shape == (7,)
    assert bool((history.seconds.diff() > 0).all())
    calls = 0 if isinstance(method, NO_DENOISER) else 1
    assert history.denoiser_calls.tolist() == [calls * k for k in range(1, 8)]
    assert (history.objective is None) == isinstance(method, pl.RichardsonLucy)
    assert (history.z_change is None) == isinstance(method, NO_DENOISER | pl.ISTA | pl.FISTA)
    assert (history.lagrangian is not None) == isinstance(method, pl.LADMM | pl.ADMM)
    assert (history.u_change is not None) == isinstance(method, pl.LADMM | pl.ADMM | pl.PrimalDual)


def test_history_holds_what_its_names_say() -> None:
    problem, sharp = small_problem()
    method = METHODS["ladmm"]
    states = [method.init(problem)]
    history = pl.solve(problem, method, 3, 0, reference=sharp).history
    for k in range(3):
        states.append(method.step(problem, states[-1]))
        old, new = states[-2:]
        assert float(history.x_change[k]) == pytest.approx(float((new.x - old.x).norm() / new.x.norm()))
        assert float(history.z_change[k]) == pytest.approx(float((new.z - old.z).norm() / new.z.norm()))
        assert float(history.u_change[k]) == pytest.approx(float((new.Hx - new.z).norm() / new.z.norm()))
        fit = (problem.operator.forward(new.x) - problem.observed).square().sum() / (2 * SIGMA**2)
        assert float(history.data_fit[k]) == pytest.approx(float(fit))
        prior = method.L_x * method.denoiser.prior(new.x, new.denoised_from, method.sigma_d)
        assert float(history.objective[k]) == pytest.approx(float(fit + prior))
        w, gap = method.beta * new.u, new.Hx - new.z
        lagrangian = (new.z - problem.observed).square().sum() / (2 * SIGMA**2) + prior
        lagrangian = lagrangian + (w * gap).sum() + method.beta / 2 * gap.square().sum()
        assert float(history.lagrangian[k]) == pytest.approx(float(lagrangian))
        assert float(history.psnr[k]) == pytest.approx(float(-10 * (new.x - sharp).square().mean().log10()))


def test_a_run_saved_and_resumed_is_the_same_run_bit_for_bit(method: Method, tmp_path: Path) -> None:
    problem, _ = small_problem()
    whole = pl.solve(problem, method, 9, 0)
    half = pl.solve(problem, method, 4, 0)
    pl.save_state(half.state, tmp_path / "state.safetensors")
    resumed = pl.solve(problem, method, 5, 0, start=pl.load_state(tmp_path / "state.safetensors"))
    assert torch.equal(resumed.image, whole.image)
    assert resumed.state.iteration == 9
    assert torch.equal(resumed.history.x_change, whole.history.x_change[4:])
    assert [path.name for path in tmp_path.iterdir()] == ["state.safetensors"]


def test_states_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"not a state")
    with pytest.raises(pl.InputError, match="not a safetensors file"):
        pl.load_state(tmp_path / "a")
    with pytest.raises(pl.InputError, match="missing: no such"):
        pl.load_state(tmp_path / "missing")


def test_convergence_stops_each_picture_at_its_own_time() -> None:
    """In a batch each picture gets what it gets alone: image, status, certificate, length of history."""
    blurs = [positive_blur((20, 20), seed=s) for s in range(3)]
    batched = pl.SpatiallyVaryingBlur(
        torch.cat([b.kernels for b in blurs]).squeeze(2), torch.cat([b.weights for b in blurs]).squeeze(2)
    )
    sigmas = torch.tensor([0.05, 0.02, 0.1], dtype=torch.float64)
    sharp = picture(20).repeat(3, 1, 1, 1)
    y = batched.forward(sharp) + sigmas.view(-1, 1, 1, 1) * torch.randn(sharp.shape, dtype=torch.float64)
    problem = pl.Problem(y, batched, pl.Gaussian(sigmas))
    method = pl.LADMM.certified(Tikhonov(), problem, torch.tensor([0.05, 0.02, 0.08], dtype=torch.float64))
    together = pl.solve(problem, method, 400, 1e-6)
    lengths = torch.isfinite(together.history.x_change).sum(0).tolist()
    assert len(set(lengths)) > 1
    for i in range(3):
        alone = pl.Problem(y[i : i + 1], blurs[i], pl.Gaussian(float(sigmas[i])))
        single = pl.LADMM(Tikhonov(), float(method.sigma_d[i]), float(method.beta[i]), float(method.L_x[i]))
        expected = pl.solve(alone, single, 400, 1e-6)
        torch.testing.assert_close(together.image[i : i + 1], expected.image, atol=1e-12, rtol=0)
        assert together.statuses[i] is expected.status
        assert together.certificates[i].level is expected.certificate.level is pl.Level.PROVED
        assert lengths[i] == len(expected.history)
        assert float(together.history.last("x_change")[i]) == pytest.approx(float(expected.history.x_change[-1]))


def test_divergence_is_noticed_and_the_calmest_picture_comes_back() -> None:
    problem, sharp = small_problem()
    method = pl.LADMM(Tikhonov(weight=1e-3), 0.01, beta=1 / SIGMA**2, L_x=0.2 / SIGMA**2)
    result = pl.solve(problem, method, 2000, 1e-6, reference=sharp)
    assert result.status is pl.Status.DIVERGED
    assert "L_x" in result.status.advice
    assert float(result.image.abs().max()) < 10
    assert len(result.history) < 2000


def test_nan_is_noticed_and_neighbours_go_on() -> None:
    problem, _ = small_problem()
    both = pl.Problem(problem.observed.repeat(2, 1, 1, 1), problem.operator, problem.data_term)

    def breaks_the_first(v: Tensor, sigma: float) -> Tensor:
        x = Tikhonov()(v, sigma)
        breaks_the_first.calls += 1
        if breaks_the_first.calls > 5:
            x[0, 0, 3, 3] = torch.nan
        return x

    breaks_the_first.calls = 0
    method = pl.LADMM(breaks_the_first, 0.05, beta=0.5 / SIGMA**2, L_x=SMOOTH)
    result = pl.solve(both, method, 300, 1e-7)
    assert result.statuses == (pl.Status.NON_FINITE, pl.Status.CONVERGED)
    assert result.status is pl.Status.NON_FINITE
    assert bool(torch.isfinite(result.image).all())
    alone = pl.solve(problem, pl.LADMM(Tikhonov(), 0.05, beta=0.5 / SIGMA**2, L_x=SMOOTH), 300, 1e-7)
    torch.testing.assert_close(result.image[1:], alone.image, atol=1e-13, rtol=0)


def test_an_interrupt_returns_what_there_is(method: Method) -> None:
    problem, _ = small_problem()

    def press_ctrl_c(progress: Progress) -> None:
        if progress.iteration == 3:
            raise KeyboardInterrupt

    result = pl.solve(problem, method, 50, 0, callback=press_ctrl_c)
    assert result.status is pl.Status.STOPPED
    assert torch.equal(result.image, pl.solve(problem, method, 3, 0).image)


def test_a_callback_can_stop_the_run_and_sees_the_row() -> None:
    problem, _ = small_problem()
    seen: list[Progress] = []

    def stop_at_five(progress: Progress) -> bool:
        seen.append(progress)
        return progress.iteration == 5

    result = pl.solve(problem, METHODS["ladmm"], 50, 0, callback=stop_at_five)
    assert result.status is pl.Status.STOPPED
    assert [p.iteration for p in seen] == [1, 2, 3, 4, 5]
    assert float(seen[-1].row["x_change"]) == float(result.history.x_change[-1])


def test_an_identity_start_is_not_taken_for_convergence() -> None:
    """The first primal-dual step does not move x: its duals do, and they count."""
    problem, _ = small_problem()
    method = pl.PrimalDual(pl.load_denoiser("identity"), 1.0, beta=1.0, L_x=3.0, box=(0.0, 0.5))
    assert len(pl.solve(problem, method, 20, 1e-6).history) > 1


@pytest.mark.parametrize("start", ["observed", "adjoint", None])
def test_starts(start: str | None) -> None:
    problem, _ = small_problem()
    state = METHODS["ladmm"].init(problem, start)
    expected = problem.operator.adjoint(problem.observed) if start == "adjoint" else problem.observed
    assert torch.equal(state.x, expected)


def test_default_starts_lie_where_the_picture_lies() -> None:
    """Replicated for an unknown border, interpolated without a shift for decimation."""
    sharp = picture(32)
    unknown = positive_blur((32, 32), k=6, boundary="unknown")
    start = pl.Problem(sharp, unknown, pl.Gaussian(0.1)).default_start()
    assert start.shape == (1, 1, 37, 37)
    assert torch.equal(start[..., 2:34, 2:34], sharp)
    assert torch.equal(pl.Problem(sharp, unknown, pl.Gaussian(0.1)).crop_to_observed(start), sharp)
    decimation = pl.Decimation(3)
    ramp = torch.arange(24, dtype=torch.float64).expand(1, 1, 24, 24)
    start = pl.Problem(decimation.forward(ramp), decimation, pl.Gaussian(0.1)).default_start()
    torch.testing.assert_close(start[..., :22], ramp[..., :22], atol=1e-12, rtol=0)


def test_weighted_conjugate_gradient_solves_the_system() -> None:
    from pnpladmm.solvers.conjugate_gradient import conjugate_gradient

    root = torch.randn(2, 12, 12, dtype=torch.float64)
    matrix = root @ root.mT + torch.eye(12)
    b = torch.randn(2, 1, 3, 4, dtype=torch.float64)

    def apply(q: Tensor) -> Tensor:
        return (matrix @ q.reshape(2, 12, 1)).reshape(q.shape)

    expected = torch.linalg.solve(matrix, b.reshape(2, 12, 1)).reshape(b.shape)
    found = conjugate_gradient(apply, b, torch.zeros_like(b), 100, 1e-12)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    warm = conjugate_gradient(apply, b, expected, 100, 1e-6)
    assert torch.equal(warm, expected)


def test_float32_runs_in_float32() -> None:
    problem, _ = small_problem()
    single = pl.Problem(problem.observed.float(), problem.operator, problem.data_term)
    result = pl.solve(single, METHODS["ladmm"], 20, 0)
    assert result.image.dtype == torch.float32
    expected = pl.solve(problem, METHODS["ladmm"], 20, 0).image
    torch.testing.assert_close(result.image.double(), expected, atol=1e-5, rtol=0)


def test_without_record_the_picture_is_the_same_and_the_history_short() -> None:
    problem, sharp = small_problem()
    method = pl.LADMM.certified(SoftThreshold(), problem, 0.02)
    full, bare = (pl.solve(problem, method, 12, 0.0, reference=sharp, record=record) for record in (True, False))
    assert torch.equal(full.image, bare.image)
    torch.testing.assert_close(full.history.x_change, bare.history.x_change, rtol=0, atol=0)
    torch.testing.assert_close(full.history.z_change, bare.history.z_change, rtol=0, atol=0)
    for name in ("data_fit", "objective", "lagrangian", "psnr", "curvature"):
        assert getattr(bare.history, name) is None, name
    assert len(bare.history) == 12
    assert bare.status is full.status
    assert bare.certificate == full.certificate


@pytest.mark.parametrize("fails", [False, True])
def test_a_workspace_is_made_for_a_run_and_freed_with_it(fails: bool) -> None:
    """What a GPU records for a run is large, and good for that run only. The problem stays what it was."""
    problem, _ = small_problem()
    before = dict(vars(problem))
    seen: list[weakref.ref[Workspace]] = []

    class Watched(pl.Annealed):
        def step_in(self, workspace: Workspace | None, problem: pl.Problem, state: AnnealedState) -> AnnealedState:
            assert workspace is not None
            assert not seen or seen[-1]() is workspace  # the same in all steps
            seen.append(weakref.ref(workspace))
            if fails and len(seen) == 2:
                raise ArithmeticError
            return super().step_in(workspace, problem, state)

    with pytest.raises(ArithmeticError) if fails else nullcontext():
        pl.solve(problem, Watched(SoftThreshold(), 0.02, calls=2))
    assert len(seen) == 2
    gc.collect()  # the traceback of the error held it
    assert all(workspace() is None for workspace in seen)
    derived = {"shape", "norm_squared", "colour_planes"}
    assert {name: value for name, value in vars(problem).items() if name not in derived} == before


def test_steps_by_hand_are_those_of_the_loop(method: Method[Any]) -> None:
    problem, _ = small_problem()
    state = method.init(problem)
    for _ in range(3):
        state = method.step(problem, state)
    assert torch.equal(state.x, pl.solve(problem, method, 3, 0).image)
