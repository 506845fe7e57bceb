"""`solve_with_gradients`: its values are those of `solve`, its derivatives those of finite differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import pnpladmm as pl

STEP = 1e-4


class Soft:
    """`x - grad g(x)` of a smooth convex `g` that is not a square: small details shrink more than large ones."""

    name = "soft"

    def __call__(self, x: Tensor, sigma: Any) -> Tensor:
        return x - 0.2 * detail(0.2 * torch.tanh(detail(x) / 0.2))


def detail(x: Tensor) -> Tensor:
    """`x` less the mean of its neighbours: symmetric, of norm 2."""
    return x - (x.roll(1, -1) + x.roll(-1, -1) + x.roll(1, -2) + x.roll(-1, -2)) / 4


def start(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "observed": torch.rand(2, 1, 9, 10, generator=generator, dtype=torch.float64),
        "noise": torch.tensor([0.08, 0.05], dtype=torch.float64),
        "kernels": torch.rand(2, 3, 3, generator=generator, dtype=torch.float64) / 9 + 0.05,
    }


def problem_of(given: dict[str, Tensor], boundary: str) -> pl.Problem:
    weights = torch.linspace(0, 1, 10, dtype=torch.float64).expand(9, 10)
    blur = pl.SpatiallyVaryingBlur(given["kernels"], torch.stack([weights, 1 - weights]), boundary=boundary)
    return pl.Problem(given["observed"], blur, pl.Gaussian(given["noise"]))


def annealed(problem: pl.Problem) -> pl.Annealed:
    return pl.Annealed(Soft(), 0.05, calls=3, extrapolation=0.3, cg_iterations=400, cg_tolerance=1e-13)


def fixed(denoiser: Any) -> Callable[[pl.Problem], Any]:
    """Constants that do not follow the problem: the finite differences must not change the method."""
    return lambda problem: pl.LADMM(denoiser, 0.06, beta=450.0, L_x=900.0)


METHODS: dict[str, Callable[[pl.Problem], Any]] = {
    "schedule": annealed,
    "fixed point, linear": fixed(pl.load_denoiser("tikhonov")),
    "fixed point, not linear": fixed(Soft()),
    "fixed point of ISTA": lambda problem: pl.ISTA(Soft(), 0.06, L_x=900.0),
}


@pytest.mark.parametrize("boundary", ["circular", "unknown"])
@pytest.mark.parametrize("which", ["observed", "noise", "kernels"])
@pytest.mark.parametrize("name", METHODS)
def test_gradients_are_those_of_finite_differences(name: str, which: str, boundary: str) -> None:
    if boundary == "unknown" and name != "schedule" and which != "kernels":
        pytest.skip("the border changes nothing here that the other cases do not have")

    def loss(given: dict[str, Tensor], solver: Callable[..., Tensor]) -> Tensor:
        problem = problem_of(given, boundary)
        x = solver(problem, METHODS[name](problem))
        weights = torch.linspace(-1, 2, x.numel(), dtype=torch.float64).reshape(x.shape)
        return (weights * x + x**2).sum()

    given = start()
    given[which].requires_grad_(True)
    options: dict[str, Any] = {} if name == "schedule" else {"iterations": 2000, "tolerance": 1e-9}
    (gradient,) = torch.autograd.grad(loss(given, lambda p, m: pl.solve_with_gradients(p, m, **options)), given[which])
    options = {"iterations": 3} if name == "schedule" else options
    direction = torch.randn(given[which].shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    size = STEP * float(given[which].detach().abs().mean())
    ends = [
        loss(
            given | {which: given[which].detach() + sign * size * direction},
            lambda p, m: pl.solve(p, m, **options).state.x,
        )
        for sign in (1, -1)
    ]
    expected = float(ends[0] - ends[1]) / (2 * size)
    assert float((gradient * direction).sum()) == pytest.approx(expected, rel=1e-4)


def test_values_are_those_of_solve() -> None:
    problem = problem_of(start(), "unknown")
    method = pl.Annealed(pl.load_denoiser("light"), 0.05)
    expected = pl.solve(problem, method, iterations=8).state.x
    torch.testing.assert_close(pl.solve_with_gradients(problem, method), expected, rtol=1e-6, atol=1e-6)


def test_a_shipped_network_passes_gradients() -> None:
    given = start()
    given["observed"].requires_grad_(True)
    problem = problem_of(given, "circular")
    x = pl.solve_with_gradients(
        problem, pl.Annealed(pl.load_denoiser("light"), 0.05, cg_iterations=200, cg_tolerance=1e-10)
    )
    (gradient,) = torch.autograd.grad(x.square().sum(), given["observed"])
    assert bool(torch.isfinite(gradient).all())
    assert float(gradient.norm()) > 0.1


def test_a_gradient_step_passes_gradients() -> None:
    denoiser = pl.load_denoiser("prox-drunet", precision=torch.float64)
    v = torch.rand(1, 1, 16, 16, dtype=torch.float64)
    u = torch.randn(1, 1, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    product = denoiser.jacobian_product(v, 0.1, u)
    expected = (denoiser(v + 1e-5 * u, 0.1) - denoiser(v - 1e-5 * u, 0.1)) / 2e-5
    torch.testing.assert_close(product, expected, rtol=1e-5, atol=1e-6)


def test_what_cannot_be_had_is_one_line() -> None:
    given = start()
    given["observed"].requires_grad_(True)
    problem = problem_of(given, "circular")
    with pytest.raises(pl.InputError, match="use a method with a denoiser"):
        pl.solve_with_gradients(problem, pl.RichardsonLucy())
    with pytest.raises(pl.InputError, match="no fixed point within 3 iterations"):
        pl.solve_with_gradients(problem, fixed(Soft())(problem), iterations=3)

    def blind(x: Tensor, sigma: Any) -> Tensor:
        return x.detach() * 0.9

    with pytest.raises(pl.InputError, match="passes no gradients"):
        pl.solve_with_gradients(problem, fixed(blind)(problem), iterations=3000)


def test_plain_calls_say_that_they_pass_no_gradients() -> None:
    y = torch.rand(1, 1, 12, 12, requires_grad=True)
    blur = pl.SpatiallyVaryingBlur(torch.full((1, 3, 3), 1 / 9), torch.ones(1, 12, 12))
    problem = pl.Problem(y, blur, pl.Gaussian(0.05))
    for method in (
        pl.ADMM(pl.load_denoiser("tikhonov"), 0.05, 100.0),
        pl.LADMM.certified(lambda x, s: x, problem, 0.1),
    ):
        with pytest.warns(UserWarning, match="solve_with_gradients"):
            pl.solve(problem, method, 2)
    with pytest.warns(UserWarning, match="restore passes no gradients"):
        pl.restore(y, blur, 0.05, denoiser="tikhonov", iterations=2)
    method = pl.ADMM(pl.load_denoiser("tikhonov"), 0.05, 100.0)
    with pytest.warns(UserWarning, match="a data step passes no gradients"):
        method.step(problem, method.init(problem))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        pl.solve(problem, method, 2)
