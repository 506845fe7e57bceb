"""The annealed loop with gradients: the shipped loop to rounding, gradients to finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from pnpladmm.data_terms import Gaussian, WeightedGaussian
from pnpladmm.denoisers import as_denoiser
from pnpladmm.operators import Mask, SpatiallyVaryingBlur
from pnpladmm.solvers import Annealed, Problem, solve
from pnpladmm.workshop.training.unrolled import unrolled

SIDE = 24


def smoother(weight: Tensor) -> Callable[[Tensor, Any], Tensor]:
    """A small network that depends on sigma, is not symmetric and mixes colours."""

    def denoise(v: Tensor, sigma: Any) -> Tensor:
        level = torch.as_tensor(sigma, dtype=v.dtype).reshape(-1, 1, 1, 1)
        around = torch.nn.functional.conv2d(v, weight, padding=1)
        return v - level * torch.tanh(around) - 0.1 * level * v.roll(1, 1)

    return denoise


def problem_of(boundary: str, channels: int, pictures: int = 2, regions: int = 3) -> Problem:
    """Noisy pictures, each with a blur of its own."""
    generator = torch.Generator().manual_seed(3)
    kernels = torch.rand(pictures, regions, 5, 5, generator=generator, dtype=torch.float64) ** 4
    kernels /= kernels.sum((-2, -1), keepdim=True)
    fields = torch.randn(pictures, regions, 3, 3, generator=generator, dtype=torch.float64)
    weights = torch.nn.functional.interpolate(fields, size=(SIDE, SIDE), mode="bicubic").mul(4).softmax(1)
    blur = SpatiallyVaryingBlur(kernels, weights, boundary)  # type: ignore[arg-type]
    clean = torch.rand(pictures, channels, *blur.scene, generator=generator, dtype=torch.float64)
    blurred = blur.forward(clean)
    sigma = torch.tensor([0.01, 0.04][:pictures], dtype=torch.float64)
    noise = torch.randn(blurred.shape, generator=generator, dtype=torch.float64)
    return Problem(blurred + sigma.view(-1, 1, 1, 1) * noise, blur, Gaussian(sigma))


def numbers(**changes: Any) -> dict[str, Any]:
    """A schedule with something in every place."""
    return {"sigma_d": 0.03, "mu": 0.2, "sigma_start": 0.2, "bend": 1.3, "extrapolation": 0.4, "tilt": 1.7, **changes}


@pytest.fixture
def weight() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return 0.3 * torch.randn(3, 3, 3, 3, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("boundary", ["circular", "unknown"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("calls", [4, 9])
def test_it_is_the_shipped_loop(boundary: str, channels: int, calls: int, weight: Tensor) -> None:
    problem = problem_of(boundary, channels)
    denoise = smoother(weight[:channels, :channels])
    row = numbers(sigma_d=torch.tensor([0.02, 0.05], dtype=torch.float64))
    shipped = Annealed.from_settings(as_denoiser(denoise), problem, row, calls)
    wanted = solve(problem, shipped, tolerance=0).image
    method = Annealed.from_settings(denoise, problem, row, calls)
    torch.testing.assert_close(unrolled(problem, method), wanted, rtol=0, atol=1e-11)
    changed = Annealed.from_settings(denoise, problem, {**row, "tilt": 1.0}, calls)
    assert float((unrolled(problem, changed) - wanted).abs().max()) > 1e-5  # tilt does something


def test_weighted_data_and_operators_without_colour_planes(weight: Tensor) -> None:
    blurred = problem_of("circular", 3)
    generator = torch.Generator().manual_seed(1)
    precision = 400 * torch.rand(2, 1, SIDE, SIDE, generator=generator, dtype=torch.float64)
    mask = (torch.rand(1, 1, SIDE, SIDE, generator=generator) < 0.7).double()
    for operator in (blurred.operator, Mask(mask)):
        problem = Problem(blurred.observed, operator, WeightedGaussian(precision))
        method = Annealed.from_settings(smoother(weight), problem, numbers(), 5)
        assert isinstance(method, Annealed)
        wanted = solve(problem, method, tolerance=0).image
        torch.testing.assert_close(unrolled(problem, method), wanted, rtol=0, atol=1e-11)


def restored(problem: Problem, weight: Tensor, row: dict[str, Any], **changes: Any) -> Tensor:
    """With as many steps at every call, however the numbers change: what is differentiated must be smooth."""
    method = Annealed(smoother(weight), calls=4, cg_tolerance=0.0, **{"cg_iterations": 3, **row, **changes})
    return unrolled(problem, method)


def test_gradients_to_the_denoiser_are_those_of_the_steps_that_are_done(weight: Tensor) -> None:
    problem = problem_of("unknown", 3)
    generator = torch.Generator().manual_seed(5)
    direction = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
    target = torch.rand(problem.shape, generator=generator, dtype=torch.float64)

    def loss(w: Tensor) -> Tensor:
        return (restored(problem, w, numbers()) - target).square().sum()

    w = weight.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(w), w)
    step = 1e-5
    with torch.no_grad():
        slope = (loss(weight + step * direction) - loss(weight - step * direction)) / (2 * step)
    assert float((gradient * direction).sum()) == pytest.approx(float(slope), rel=1e-6)
    assert abs(float(slope)) > 1e-3


@pytest.mark.parametrize("name", ["sigma_d", "mu", "sigma_start", "bend", "extrapolation", "tilt"])
def test_gradients_to_the_schedule(name: str, weight: Tensor) -> None:
    """Data steps converged, so that the preconditioner's own change makes no difference; more steps are rounding."""
    problem = problem_of("circular", 3)

    def loss(value: Tensor) -> Tensor:
        return restored(problem, weight, numbers(**{name: value}), cg_iterations=20).square().sum()

    value = torch.tensor(numbers()[name], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(value), value)
    step = 1e-4 * numbers()[name]
    with torch.no_grad():
        slope = (loss(value + step) - loss(value - step)) / (2 * step)
    assert float(gradient) == pytest.approx(float(slope), rel=1e-5)


def test_what_is_done_at_once_leaves_no_nan(weight: Tensor) -> None:
    """Pictures without colour have planes whose residual is 0, and a noiseless flat picture has nothing to solve."""
    problem = problem_of("circular", 3)
    grey = problem.observed[:, :1].expand(-1, 3, -1, -1).contiguous()
    grey[0] = 0.5
    flat = Problem(grey, problem.operator, problem.data_term)
    w = weight.clone().requires_grad_()
    method = Annealed.from_settings(smoother(w), flat, numbers(), 4)
    unrolled(flat, method).square().sum().backward()
    assert w.grad is not None
    assert bool(torch.isfinite(w.grad).all())


def test_a_picture_that_stops_early_stays_finite(weight: Tensor) -> None:
    """In float32, beside one with many steps: what has stopped must not grow until it overflows."""
    generator = torch.Generator().manual_seed(5)
    blur = SpatiallyVaryingBlur(torch.full((2, 1, 9, 9), 1 / 81), torch.ones(2, 1, SIDE, SIDE), "zero")
    clean = torch.rand(2, 3, SIDE, SIDE, generator=generator)
    problem = Problem(blur.forward(clean), blur, Gaussian(5e-4))
    weight.requires_grad_()
    steps = torch.tensor([[2], [40]]).expand(2, 4)
    method = Annealed(smoother(weight.float()), cg_iterations=steps, calls=4, **numbers(sigma_d=5e-4))
    image = unrolled(problem, method)
    assert bool(torch.isfinite(image).all())
    torch.testing.assert_close(image[0].detach(), solve(problem, method, tolerance=0).image[0], rtol=0, atol=1e-5)
    (gradient,) = torch.autograd.grad(image.square().mean(), weight)
    assert bool(torch.isfinite(gradient).all())
