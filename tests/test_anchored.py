"""Priors that hold a picture near a known one (docs/reference/anchored.md)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from certificate_cases import random_ridge
from gradient_step_cases import SIGMA, denoiser, network, pictures
from pnpladmm.denoisers import RidgeDenoiser
from pnpladmm.denoisers.anchored import Anchored
from pnpladmm.denoisers.base import curvature_meter
from pnpladmm.solvers.leaping import Certified, LeapingLADMM


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def blurred(size: int = 12) -> tuple[pl.Problem, Tensor]:
    """Two noisy pictures, and pictures near the sharp ones."""
    kernel = torch.tensor([[0.05, 0.1, 0.05], [0.1, 0.4, 0.1], [0.05, 0.1, 0.05]], dtype=torch.float64)
    blur = pl.SpatiallyVaryingBlur(kernel[None], torch.ones(1, size, size, dtype=torch.float64))
    sharp = pictures(size=size, batch=2)
    problem = pl.Problem(blur.forward(sharp) + SIGMA * normal(*sharp.shape), blur, pl.Gaussian(SIGMA))
    return problem, sharp + 0.02 * normal(*sharp.shape, seed=1)


@pytest.mark.parametrize("mu", [0.0, 0.3, torch.tensor([0.1, 0.5])])
def test_statement_8_the_prior_is_the_one_whose_proximal_operator_it_is(mu: float | Tensor) -> None:
    """`D(v)` minimises `phi + 1/2 ||. - v||^2` among all pictures that `D` returns, and `phi >= 0`."""
    a = normal(2, 1, 10, 9, seed=2)
    d = pl.anchored(denoiser(network(curvature=0.9)), 0.5, a, mu)
    arguments = [0.5 + SIGMA * 3 * normal(2, 1, 10, 9, seed=k) for k in range(12)]
    made = [d(v, SIGMA) for v in arguments]
    phi = [d.prior(x, v, SIGMA) for x, v in zip(made, arguments, strict=True)]
    for i, v in enumerate(arguments):
        pairs = zip(phi, made, strict=True)
        values = torch.stack([p + (x - v).square().sum((1, 2, 3)) / 2 for p, x in pairs if p is not None])
        assert bool((values[i] <= values.amin(0) + 1e-12).all())
        assert bool((values.sort(0).values[1] > values[i]).all())
    assert all(bool((p >= 0).all()) for p in phi if p is not None)
    again = d.prior(made[0], arguments[0].clone(), SIGMA)  # not remembered
    torch.testing.assert_close(again, phi[0], rtol=1e-10, atol=0)


def test_without_weight_it_is_the_relaxed_denoiser() -> None:
    v, inner = pictures(batch=2), denoiser(network())
    near, relaxed = pl.anchored(inner, 0.4, torch.zeros_like(v), 0), pl.relaxed(inner, 0.4)
    x = relaxed(v, SIGMA)
    torch.testing.assert_close(near(v, SIGMA), x, rtol=1e-12, atol=0)
    torch.testing.assert_close(near.prior(near(v, SIGMA), v, SIGMA), relaxed.prior(x, v, SIGMA), rtol=1e-9, atol=0)


def test_its_hessian_is_gamma_times_that_of_g_plus_mu() -> None:
    v, inner = pictures(size=8), denoiser(network())
    d = pl.anchored(inner, 0.4, torch.zeros_like(v), 0.25)
    exact = 0.4 * float(inner.curvature(v, SIGMA, 60)) + 0.25
    n = v.numel()
    step = 1e-5
    columns = [
        ((d(v + step * e.view(v.shape), SIGMA) - d(v - step * e.view(v.shape), SIGMA)) / (2 * step)).flatten()
        for e in torch.eye(n, dtype=v.dtype)
    ]
    hessian = torch.eye(n, dtype=v.dtype) - torch.stack(columns, 1)
    assert float(torch.linalg.eigvalsh((hessian + hessian.T) / 2)[-1]) == pytest.approx(exact, rel=1e-6)
    assert float(curvature_meter(d)(v, SIGMA)) == pytest.approx(exact, rel=0.05)  # type: ignore[arg-type]


def test_runs_are_checked_or_proved_and_end_between_the_start_and_the_plain_fixed_point() -> None:
    problem, start = blurred()
    ridge = RidgeDenoiser({1: random_ridge(1, 0)})
    for inner, level in ((denoiser(network()), pl.Level.CHECKED), (ridge, pl.Level.PROVED)):
        ends = []
        for mu in (0.0, 0.3, 0.6):
            method = LeapingLADMM.certified(pl.anchored(inner, 0.4, start, mu), problem, SIGMA)
            result = pl.solve(problem, method.started_from_blurred(), 400, 1e-9, start=start)
            assert result.certificate.level is level
            lagrangian = result.history.lagrangian
            assert lagrangian is not None
            changes = lagrangian.diff(dim=0)
            known = changes[changes.isfinite()]  # the start has no value, and a picture that has converged has no more
            assert len(known) >= 6
            assert float(known.max()) <= 1e-9
            assert {status.label for status in result.statuses} == {"converged"}
            ends.append(float((result.image - start).norm()))
        assert ends[0] > ends[1] > ends[2] > 0


def test_too_much_weight_is_refused_and_other_sizes_too() -> None:
    a = torch.zeros(1, 1, 8, 8)
    for gamma, mu in ((0.5, 0.6), (0.5, -0.1), (0.5, float("nan"))):
        with pytest.raises(pl.InputError, match="anchor = "):
            pl.anchored(pl.load_denoiser("tv"), gamma, a, mu)
    with pytest.raises(pl.InputError, match=r"\(1, 1, 4, 4\)"):
        pl.anchored(pl.load_denoiser("tv"), 0.5, a, 0.1)(torch.zeros(1, 1, 4, 4), 0.1)


def test_iterations_after_a_method_have_it_where_there_are_settings() -> None:
    problem, start = blurred()
    sigma = torch.full((2,), SIGMA, dtype=torch.float64)
    near = Certified.after(start, denoiser(network(), name="prox-drunet"), problem, sigma)
    assert isinstance(near, LeapingLADMM)
    assert isinstance(near.denoiser, Anchored)
    plain = Certified.after(start, pl.load_denoiser("tv"), problem, sigma)
    assert not isinstance(plain.denoiser, Anchored)  # type: ignore[attr-defined]
