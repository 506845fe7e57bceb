"""The annealed method: its schedule, its data step, the orientations and the extrapolation of its calls."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from conftest import small_problem
from pnpladmm.denoisers import SoftThreshold
from pnpladmm.solvers import annealed

SIGMA = 0.05


def test_the_annealed_schedule_falls_to_sigma_d_and_ends() -> None:
    problem, _ = small_problem()
    seen: list[float] = []

    def note(v: Tensor, sigma: Tensor) -> Tensor:
        seen.append(float(sigma))
        return SoftThreshold()(v, sigma)

    result = pl.solve(problem, pl.Annealed(note, 2 / 255, calls=6))
    assert result.status is pl.Status.FINISHED
    assert seen[0] == pytest.approx(49 / 255)
    assert seen[-1] == pytest.approx(2 / 255)
    ratios = [b / a for a, b in pairwise(seen)]
    assert ratios == pytest.approx([ratios[0]] * 5)


def test_an_annealed_data_step_solves_its_system() -> None:
    problem, _ = small_problem()
    method = pl.Annealed(pl.load_denoiser("identity"), 0.02, mu=0.7, calls=4, cg_iterations=500, cg_tolerance=1e-13)
    start = method.init(problem)
    z = method.step(problem, start).z
    a = 0.7 / float(method.sigma_at(0)) ** 2
    H, y = problem.operator, problem.observed
    left = H.adjoint(H.forward(z)) / SIGMA**2 + a * z
    right = H.adjoint(y) / SIGMA**2 + a * start.x
    torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


def test_annealed_calls_see_all_eight_orientations() -> None:
    """A denoiser that marks a corner and an edge: over eight calls every orientation comes once, and goes back."""
    problem, _ = small_problem()
    seen: list[Tensor] = []

    def mark(v: Tensor, _sigma: Tensor) -> Tensor:
        seen.append(v)
        return v

    state = pl.Annealed(mark, 0.02, calls=9).init(problem)
    marked = torch.arange(6.0).reshape(1, 1, 2, 3)
    turned = [annealed.turn(marked, k) for k in range(8)]
    assert len({(t.shape, tuple(t.flatten().tolist())) for t in turned}) == 8
    for k, t in enumerate(turned):
        torch.testing.assert_close(annealed.turn_back(t, k), marked)
    method = pl.Annealed(mark, 0.02, calls=9)
    for k in range(9):
        state = method.step(problem, state)
        torch.testing.assert_close(state.x, state.z)  # the identity in any orientation
        torch.testing.assert_close(annealed.turn_back(seen[-1], k), state.z)


def test_annealed_extrapolates_from_the_second_call_on() -> None:
    problem, _ = small_problem()
    method = pl.Annealed(pl.load_denoiser("identity"), 0.02, calls=4, extrapolation=0.5)
    first = method.step(problem, method.init(problem))
    torch.testing.assert_close(first.x, first.z)
    second = method.step(problem, first)
    torch.testing.assert_close(second.x, second.z + 0.5 * (second.z - first.z))


def test_a_bent_schedule_falls_late() -> None:
    even, late = (pl.Annealed(pl.load_denoiser("identity"), 0.02, calls=5, bend=bend) for bend in (1.0, 2.0))
    for k in range(5):
        share = (k / 4) ** 2
        assert float(late.sigma_at(k)) == pytest.approx(49 / 255 * (0.02 / (49 / 255)) ** share)
    assert float(late.sigma_at(2)) > float(even.sigma_at(2))
    assert float(late.sigma_at(4)) == float(even.sigma_at(4)) == pytest.approx(0.02)
