"""Relaxed denoisers are proximal operators of a known prior (docs/reference/proof.md, statement 6)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from conftest import picture, small_problem
from gradient_step_cases import SIGMA, denoiser, network, pictures
from pnpladmm.denoisers import Denoiser, HardThreshold, SoftThreshold, Tikhonov, TotalVariation, relaxed
from pnpladmm.denoisers.base import MeasuredCurvature
from pnpladmm.tensors import squared_norm


def known(value: Tensor | None) -> Tensor:
    assert value is not None
    return value


def test_a_linear_one_has_the_quadratic_prior_that_its_inverse_says() -> None:
    """`D = A` linear: `phi_gamma(x) = <x, (A_gamma^-1 - I) x> / 2`."""
    size, gamma = 6, 0.3
    basis = torch.eye(size**2, dtype=torch.float64).reshape(-1, 1, size, size)
    A = Tikhonov()(basis, SIGMA).reshape(size**2, -1)
    A_gamma = gamma * A + (1 - gamma) * torch.eye(size**2, dtype=torch.float64)
    v = picture(size)
    d = relaxed(Tikhonov(), gamma)
    x = d(v, SIGMA)
    torch.testing.assert_close(x.flatten(), A_gamma @ v.flatten(), rtol=1e-12, atol=1e-14)
    quadratic = (x.flatten() * (torch.linalg.solve(A_gamma, x.flatten()) - x.flatten())).sum() / 2
    assert float(known(d.prior(x, v, SIGMA))) == pytest.approx(float(quadratic), rel=1e-9)


@pytest.mark.parametrize("gamma", [0.1, 0.5, 1.0])
@pytest.mark.parametrize(
    "inner", [SoftThreshold(), HardThreshold(), Tikhonov(), None], ids=lambda inner: type(inner).__name__
)
def test_it_minimises_its_proximal_problem(inner: Denoiser | None, gamma: float) -> None:
    """Against 100 other pictures that it makes, near and far: `phi` is known at those."""
    inner = inner or denoiser(network())
    d = relaxed(inner, gamma)
    v = pictures()
    x = d(v, SIGMA)
    least = known(d.prior(x, v, SIGMA)) + squared_norm(x - v) / 2
    generator = torch.Generator().manual_seed(1)
    steps = torch.logspace(-4, 0.5, 100, dtype=torch.float64).reshape(-1, 1, 1, 1)
    others = v + SIGMA * steps * torch.randn(100, *v.shape[1:], dtype=v.dtype, generator=generator)
    made = d(others, SIGMA)
    values = known(d.prior(made, others, SIGMA)) + squared_norm(made - v) / 2
    assert bool((values >= least - 1e-13).all())
    # Near, what `made` costs more is of second order: the bound is tight, not loose.
    assert float(values.min() - least) < 1e-6


@pytest.mark.parametrize("gamma", [0.25, 1.0])
def test_of_a_gradient_step_it_is_the_gradient_step_of_that_relaxation(gamma: float) -> None:
    net, v = network(), pictures(batch=2)
    wrapped, built = relaxed(denoiser(net), gamma), denoiser(net, relaxation=gamma)
    x = wrapped(v, SIGMA)
    torch.testing.assert_close(x, built(v, SIGMA), rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(wrapped.prior(x, v, SIGMA), built.prior(x, v, SIGMA), rtol=1e-12, atol=0)
    assert isinstance(wrapped, MeasuredCurvature)
    torch.testing.assert_close(wrapped.curvature(v, SIGMA), built.curvature(v, SIGMA), rtol=1e-12, atol=0)


def test_each_picture_has_its_own_gamma() -> None:
    gammas = torch.tensor([0.2, 1.0], dtype=torch.float64)
    net, v = network(), pictures(batch=2)
    together = relaxed(denoiser(net), gammas)
    x = together(v, SIGMA)
    for i, gamma in enumerate(gammas.tolist()):
        alone = relaxed(denoiser(net), gamma)
        torch.testing.assert_close(x[i : i + 1], alone(v[i : i + 1], SIGMA), rtol=1e-12, atol=1e-14)
        value = known(together.prior(x, v, SIGMA))[i]
        assert float(value) == pytest.approx(float(known(alone.prior(x[i : i + 1], v[i : i + 1], SIGMA))), rel=1e-11)


def test_a_call_is_not_made_twice_for_the_prior_and_never_taken_for_another() -> None:
    calls = []

    class Counting(Tikhonov):
        def __call__(self, v: Tensor, sigma: pl.tensors.PerPicture) -> Tensor:
            calls.append(1)
            return super().__call__(v, sigma)

    d, v = relaxed(Counting(), 0.5), picture(8)
    x = d(v, SIGMA)
    value = float(known(d.prior(x, v, SIGMA)))
    assert len(calls) == 1
    w = v + 0.1 * picture(8).flip(-1)
    d(w, SIGMA)  # what was kept is of another picture now
    assert float(known(d.prior(x, v, SIGMA))) == pytest.approx(value, rel=1e-14)
    assert len(calls) == 3
    x = d(v, SIGMA)
    x.add_(1)
    d.prior(x, v, SIGMA)
    assert len(calls) == 5


def test_what_it_promises_is_what_the_denoiser_does() -> None:
    def plain(v: Tensor, sigma: pl.tensors.PerPicture) -> Tensor:
        return 0.9 * v

    d = relaxed(plain, 0.5)
    assert d.promise is pl.Promise.NONE
    assert not isinstance(d, MeasuredCurvature)
    assert d.prior(picture(8), picture(8), SIGMA) is None
    assert relaxed(TotalVariation(), 0.5).promise is pl.Promise.CONVEX
    assert relaxed(HardThreshold(), 0.5).promise is pl.Promise.PROX
    assert relaxed(SoftThreshold(), 0.5).prior(picture(8), None, SIGMA) is None


@pytest.mark.parametrize("gamma", [0.0, -0.1, 1.01, math.nan, torch.tensor([0.5, 2.0])])
def test_other_gammas_are_refused(gamma: pl.tensors.PerPicture) -> None:
    with pytest.raises(pl.InputError, match="above 0 and up to 1"):
        relaxed(Tikhonov(), gamma)


def test_a_certified_run_is_checked_with_the_relaxed_curvature() -> None:
    problem, _ = small_problem(SIGMA)
    histories = {}
    for gamma in (1.0, 0.4):
        result = pl.solve(problem, pl.LADMM.certified(relaxed(denoiser(network()), gamma), problem, SIGMA), 40, 0)
        assert result.certificate.level is pl.Level.CHECKED
        assert bool((known(result.history.lagrangian).diff(dim=0) <= 0).all())
        histories[gamma] = result.history
    first = {gamma: float(known(history.curvature)[0]) for gamma, history in histories.items()}
    assert 0.95 * 0.4 * first[1.0] < first[0.4] < 0.4 * first[1.0]  # from below, with fewer products: there is room


def test_relaxation_brings_a_denoiser_that_is_no_proximal_operator_into_the_theorem() -> None:
    problem, _ = small_problem(SIGMA)
    steep = denoiser(network(curvature=1.3))
    for d, level in ((steep, pl.Level.OUTSIDE), (relaxed(steep, 0.5), pl.Level.CHECKED)):
        assert pl.solve(problem, pl.LADMM.certified(d, problem, SIGMA), 30, 0).certificate.level is level
