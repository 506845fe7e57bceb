"""The curvature of a gradient step is the largest eigenvalue of its Hessian, however hard that is to find."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from gradient_step_cases import SIGMA, denoiser, network, pictures
from pnpladmm.denoisers import ritz
from pnpladmm.denoisers.base import curvature_meter
from pnpladmm.denoisers.gradient_step import GradientStepDenoiser
from pnpladmm.denoisers.ritz import Ritz, largest_eigenvalue


def dense_hessian(d: GradientStepDenoiser, v: Tensor) -> Tensor:
    """By automatic differentiation of `g`, padding and all."""
    (net,) = d._smooth.values()
    level = torch.tensor([SIGMA], dtype=v.dtype)

    def g(flat: Tensor) -> Tensor:
        x = flat.view(v.shape)
        padding = (0, -v.shape[3] % 8, 0, -v.shape[2] % 8)
        padded, inside = (torch.nn.functional.pad(a, padding) for a in (x, torch.ones_like(x)))
        return net.residual(padded, level, inside)[..., : v.shape[2], : v.shape[3]].square().sum() / 2

    return torch.autograd.functional.hessian(g, v.flatten())  # type: ignore[no-untyped-call]


def test_the_curvature_is_the_dense_hessians_largest_eigenvalue_and_the_growth_minus_its_least() -> None:
    d = denoiser(network(), relaxation=0.8)
    v = pictures(size=24)[..., :10, :9]
    eigenvalues = 0.8 * torch.linalg.eigvalsh(dense_hessian(d, v))
    assert float(eigenvalues[0]) < 0  # both signs: g is not convex
    pair = d.top_eigenpair(v, SIGMA, 60)
    assert float(pair.value) == pytest.approx(float(eigenvalues[-1]), rel=1e-9)
    assert float(pair.residual) < 1e-5
    assert float(d.growth(v, SIGMA, 60)) == pytest.approx(-float(eigenvalues[0]), rel=1e-9)
    few = float(d.curvature(v, SIGMA, 12))
    assert 0.97 * float(eigenvalues[-1]) < few <= float(eigenvalues[-1]) * (1 + 1e-12)


def symmetric(eigenvalues: Tensor, seed: int = 0) -> tuple[Callable[[Tensor], Tensor], Tensor, Tensor]:
    """Products with a matrix of these eigenvalues, a random start, its eigenvectors."""
    generator = torch.Generator().manual_seed(seed)
    n = len(eigenvalues)
    vectors = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator))[0]
    matrix = vectors @ torch.diag(eigenvalues.double()) @ vectors.T
    start = torch.randn(1, 1, 1, n, dtype=torch.float64, generator=generator)
    return lambda u: (u.flatten(1) @ matrix).view(u.shape), start, vectors


def test_eigenvalues_far_below_0_do_not_mislead_it() -> None:
    product, start, vectors = symmetric(torch.cat([torch.linspace(-50, -40, 20), torch.linspace(0, 0.9, 30)]))
    found = largest_eigenvalue(product, start, 30)
    assert float(found.value) == pytest.approx(0.9, abs=1e-3)
    assert abs(float(found.vector.flatten() @ vectors[:, -1])) > 0.9
    all_negative, start, _ = symmetric(torch.linspace(-9, -0.5, 12))
    assert float(largest_eigenvalue(all_negative, start, 20).value) == pytest.approx(-0.5, rel=1e-9)  # exhausts it
    multiple, start, _ = symmetric(torch.full((8,), -0.5))
    assert float(largest_eigenvalue(multiple, start, 5).value) == pytest.approx(-0.5, rel=1e-9)


def test_it_is_at_least_what_power_iterations_give_with_any_shift() -> None:
    product, start, _ = symmetric(torch.linspace(-3, 0.99, 60))
    found = float(largest_eigenvalue(product, start, 9).value)
    for shift in (0.0, 1.0, 3.0, 10.0):
        u = start / start.norm()
        for _ in range(8):
            u = product(u) + shift * u
            u = u / u.norm()
        assert float((u * product(u)).sum()) <= found + 1e-12


def test_a_start_in_one_eigenvector_finds_larger_ones() -> None:
    product, start, vectors = symmetric(torch.linspace(-1, 0.8, 40))
    stuck = vectors[:, 20].view(start.shape)
    assert float(largest_eigenvalue(product, stuck, 6).value) == pytest.approx(float(-1 + 1.8 * 20 / 39), rel=1e-6)
    assert float(largest_eigenvalue(product, stuck, 6, fresh=start).value) > 0.5


def test_large_pictures_have_the_quotient_of_their_vector() -> None:
    """Sums of three million products in float32 may be too small by more than what is decided on."""
    spread = torch.linspace(0.9, 0.95, 3 * 1024 * 1024).view(1, 3, 1024, 1024)
    start = torch.randn(spread.shape, generator=torch.Generator().manual_seed(0))
    found = largest_eigenvalue(lambda u: spread * u, start, 4)
    vector = found.vector.double()
    quotient = float((vector * spread * vector).sum() / vector.square().sum())
    assert float(found.value) == pytest.approx(quotient, abs=1e-7)
    residual = float((spread * vector - quotient * vector).norm())
    assert float(found.residual) == pytest.approx(residual, rel=1e-4)


def test_what_is_not_finite_is_never_small() -> None:
    for bad in (math.nan, math.inf):
        start = torch.ones(2, 1, 1, 5)  # an odd number of samples: the rows are padded

        def product(u: Tensor, bad: float = bad) -> Tensor:
            return torch.cat([u[:1] * bad, 0.5 * u[1:]])

        found = largest_eigenvalue(product, start, 3)
        assert float(found.value[0]) == ritz.NOT_FINITE
        assert float(found.value[1]) == pytest.approx(0.5)
        assert bool(torch.isfinite(found.vector).all())


def test_a_meter_goes_on_from_iterate_to_iterate() -> None:
    d = denoiser(network())
    v = pictures()
    exact = float(d.curvature(v, SIGMA, 80))
    meter = d.curvature_meter()
    values = [float(meter(v + 1e-4 * k, SIGMA)) for k in range(8)]
    assert values[-1] == pytest.approx(exact, rel=1e-3)
    again = d.curvature_meter()
    assert [float(again(v + 1e-4 * k, SIGMA)) for k in range(3)] == values[:3]  # a run does not depend on earlier ones
    larger = pictures(size=32)
    assert float(meter(larger, SIGMA)) > 0


@pytest.mark.parametrize(
    ("curvature", "limit", "expected"),
    [(0.5, 1.0, [8, 2]), (0.9, 1.0, [8, 20, 2, 4]), (0.9, 2.0, [8, 2]), (1.5, 2.0, [8, 20, 2, 4])],
)
def test_a_meter_takes_few_products_where_there_is_room(
    curvature: float, limit: float, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of a relaxed denoiser is larger, as it is for its run."""
    d = denoiser(network(curvature=curvature))
    exact = float(d.curvature(pictures(), SIGMA, 80))
    asked: list[int] = []
    measure = GradientStepDenoiser.top_eigenpair

    def counted(self: GradientStepDenoiser, v: Tensor, sigma: float, products: int, *rest: Any, **more: Any) -> Ritz:
        asked.append(products)
        return measure(self, v, sigma, products, *rest, **more)

    monkeypatch.setattr(GradientStepDenoiser, "top_eigenpair", counted)
    meter = curvature_meter(pl.relaxed(d, 1 / limit))  # type: ignore[arg-type]
    values = [float(meter(pictures(), SIGMA)) for _ in range(2)]
    assert asked == expected
    assert values[-1] == pytest.approx(exact / limit, rel=0.03)
