"""Data terms: prox against numeric minimisation, gradient against autograd, `L_h` against difference quotients."""

from __future__ import annotations

import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

import pnpladmm as pl

SHAPE = (2, 1, 4, 5)


def observation() -> Tensor:
    y = torch.rand(SHAPE, dtype=torch.float64)
    y[0, 0, 0, 0] = 0  # a pixel without a single count
    return y


TERMS = {
    "gaussian": lambda: pl.Gaussian(0.3),
    "gaussian, one sigma a picture": lambda: pl.Gaussian(torch.tensor([0.3, 0.05])),
    "weighted": lambda: pl.WeightedGaussian(torch.rand(SHAPE, dtype=torch.float64) * (torch.rand(SHAPE) > 0.3)),
    "weighted, one map": lambda: pl.WeightedGaussian(torch.rand(4, 5, dtype=torch.float64)),
    "poisson": lambda: pl.Poisson(gain=0.01, background=0.05),
    "poisson, numbers a picture": lambda: pl.Poisson(torch.tensor([0.01, 0.5]), torch.tensor([0.05, 0.2])),
}


@pytest.fixture(params=TERMS)
def term(request: pytest.FixtureRequest) -> pl.Gaussian | pl.WeightedGaussian | pl.Poisson:
    return TERMS[request.param]()


def test_gradient_equals_autograd(term: pl.Gaussian) -> None:
    y = observation()
    z = torch.randn(SHAPE, dtype=torch.float64, requires_grad=True)  # both signs: the extension below 0 too
    (automatic,) = torch.autograd.grad(term.value(z, y).sum(), z)
    torch.testing.assert_close(term.gradient(z.detach(), y), automatic, rtol=1e-10, atol=1e-10)


def test_prox_is_the_minimiser(term: pl.Gaussian) -> None:
    y = observation()
    v = torch.randn(SHAPE, dtype=torch.float64)
    for step in (0.003, 0.5):
        z = term.prox(v, step, y)
        for index in [(0, 0, 0, 0), (0, 0, 2, 3), (1, 0, 1, 1), (1, 0, 3, 4)]:

            def objective(value: float, index: tuple[int, ...] = index, step: float = step, z: Tensor = z) -> float:
                moved = z.clone()
                moved[index] = value
                return float(term.value(moved, y)[index[0]] + (value - float(v[index])) ** 2 / (2 * step))

            best = minimize_scalar(objective, bracket=(float(z[index]) - 0.4, float(z[index]) + 0.3), tol=1e-12)
            assert float(z[index]) == pytest.approx(best.x, abs=2e-6)


def test_prox_is_stationary(term: pl.Gaussian) -> None:
    """`grad h(z) + (z - v) / step = 0`, for one step and for one per picture."""
    y, v = observation(), torch.randn(SHAPE, dtype=torch.float64)
    for step in (1e-4, 0.02, 3.0, torch.tensor([0.02, 3.0], dtype=torch.float64)):
        z = term.prox(v, step, y)
        by_step = (z - v) / torch.as_tensor(step, dtype=torch.float64).reshape(-1, 1, 1, 1)
        residual = term.gradient(z, y) + by_step
        assert float(residual.abs().max()) < 1e-10 * float(by_step.abs().max())


def test_L_h_bounds_the_gradient_and_is_reached(term: pl.Gaussian) -> None:
    y = observation()
    L_h = term.L_h(y).expand(2)
    a, b = (torch.randn(2000, *SHAPE, dtype=torch.float64) * 0.3 for _ in range(2))
    difference = torch.stack([term.gradient(p, y) - term.gradient(q, y) for p, q in zip(a, b, strict=True)])
    ratio = (difference / (a - b)).abs().flatten(2).amax((0, 2))
    assert bool((ratio <= L_h * (1 + 1e-6)).all())
    assert bool((ratio >= 0.99 * L_h).all())


def test_poisson_matches_the_log_likelihood() -> None:
    """Up to a constant, and to the gain, `h` is minus the log-likelihood of the counts."""
    gain, background = 0.02, 0.1
    counts = torch.poisson(torch.full(SHAPE, 20.0, dtype=torch.float64))
    term, y = pl.Poisson(gain, background), counts * gain
    z1, z2 = (torch.rand(SHAPE, dtype=torch.float64) + 0.1 for _ in range(2))
    log_likelihood = [
        torch.distributions.Poisson((z + background) / gain).log_prob(counts).flatten(1).sum(1) for z in (z1, z2)
    ]
    difference = term.value(z2, y) - term.value(z1, y)
    torch.testing.assert_close(difference, log_likelihood[0] - log_likelihood[1], rtol=1e-9, atol=1e-9)


def test_no_data_term_falls_without_end(term: pl.Gaussian) -> None:
    """Dark and bright pixels, near 0 and far on both sides."""
    assert term.lowest == 0
    for pixel in (0.0, 1e-12, 1e-3, 0.05, 0.2, 0.9):  # below, at and above the background
        y = torch.full(SHAPE, pixel, dtype=torch.float64)
        for z in (-1e6, -1e3, -1.0, -pixel, -1e-3, 0.0, 1e-3, 1.0, 1e3):
            assert float(term.value(torch.full_like(y, z), y).min()) >= term.lowest - 1e-12


def test_the_poisson_term_is_lowest_where_the_mean_is_the_count() -> None:
    """Also below the background, where a pixel without a count drew the picture down without end before."""
    term = pl.Poisson(gain=0.02, background=0.05)
    y = torch.tensor([0.0, 1e-6, 0.01, 0.04, 0.05, 0.06, 0.5, 1.0], dtype=torch.float64).view(1, 1, 2, 4)
    assert float(term.gradient(y - 0.05, y).abs().max()) < 1e-12
    assert float(term.prox(y - 0.05, 7.0, y).sub(y - 0.05).abs().max()) < 1e-14
    for far in (-3.0, -1e6):
        assert float(term.prox(torch.full_like(y, far), 1e9, y).sub(y - 0.05).abs().max()) < 1e-3
    # C^1 at 0, and convex: the gradient never falls.
    z = torch.linspace(-0.2, 0.4, 60_001, dtype=torch.float64).view(-1, 1, 1, 1)
    slope = term.gradient(z.expand(-1, 1, 2, 4), y.expand(len(z), -1, -1, -1)).diff(dim=0)
    assert float(slope.min()) >= 0
    assert float(slope.max()) <= 1.0001 * float(term.L_h(y)) * 1e-5


def test_dead_pixels_do_not_count() -> None:
    precision = torch.ones(1, 1, 4, 4)
    precision[..., 1, 2] = 0
    term = pl.WeightedGaussian(precision)
    y, z = torch.rand(1, 1, 4, 4), torch.rand(1, 1, 4, 4)
    wild = y.clone()
    wild[..., 1, 2] = 1e6
    torch.testing.assert_close(term.value(z, y), term.value(z, wild))
    torch.testing.assert_close(term.prox(z, 0.5, y), term.prox(z, 0.5, wild))
    assert float(term.prox(z, 0.5, wild)[0, 0, 1, 2]) == float(z[0, 0, 1, 2])


def test_weights_of_one_are_plain_gaussian_noise() -> None:
    y, z = observation(), torch.randn(SHAPE, dtype=torch.float64)
    plain = pl.Gaussian(0.2)
    weighted = pl.WeightedGaussian(torch.full((4, 5), 25.0, dtype=torch.float64))
    torch.testing.assert_close(plain.value(z, y), weighted.value(z, y))
    torch.testing.assert_close(plain.prox(z, 0.1, y), weighted.prox(z, 0.1, y))


def test_a_precision_map_is_moved_once_and_keeps_its_digits() -> None:
    term = pl.WeightedGaussian(torch.rand(4, 5, dtype=torch.float64))
    exact = term.precision.clone()
    single = term.precision_of(torch.zeros(SHAPE))
    assert single.dtype == torch.float32
    assert term.precision_of(torch.ones(SHAPE)) is single
    # float64 again: not by way of the float32 copy.
    assert torch.equal(term.precision_of(observation()), exact)


def test_mean_and_precision_are_those_of_the_noise() -> None:
    """Of a hundred thousand draws, with a blurred picture that is below 0 at some pixels."""
    generator = torch.Generator().manual_seed(4)
    z = torch.tensor([-0.3, 0.0, 0.4, 2.0], dtype=torch.float64).view(1, 1, 2, 2)
    gain, background = 0.5, 0.7
    y = gain * torch.poisson(((z.clamp_min(0) + background) / gain).expand(100_000, -1, -1, -1), generator)
    mean, precision = pl.Poisson(gain, background).mean_and_precision(z, y[:1])
    assert torch.allclose(y.mean(0, keepdim=True), mean, rtol=0.01)
    assert torch.allclose(y.var(0, keepdim=True), 1 / precision, rtol=0.02)

    weights = torch.tensor([[0.0, 1.0], [4.0, 9.0]], dtype=torch.float64)
    quadratic = pl.WeightedGaussian(weights).mean_and_precision(z, y[:1])
    assert quadratic is not None
    assert torch.equal(quadratic[0], z)
    assert torch.equal(quadratic[1], weights)
