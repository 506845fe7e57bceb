"""Each classical denoiser is the proximal operator it says it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from pnpladmm.denoisers import HardThreshold, SoftThreshold, Tikhonov, TotalVariation, promise_of
from pnpladmm.denoisers.tv import gradient, gradient_adjoint
from pnpladmm.operators.transforms import DCT, Hadamard, Wavelet

SIGMA = 0.1
EXACT = TotalVariation(accuracy=1e-7, iterations=100_000)


def noisy(shape: tuple[int, ...] = (2, 2, 12, 9)) -> Tensor:
    steps = torch.linspace(0, 1, shape[-1], dtype=torch.float64).round()
    return steps + 0.1 * torch.randn(shape, dtype=torch.float64)


DENOISERS = {
    "tv": EXACT,
    "soft, wavelet": SoftThreshold(Wavelet(3)),
    "soft, dct": SoftThreshold(DCT()),
    "hard, wavelet": HardThreshold(Wavelet(3)),
    "hard, dct": HardThreshold(DCT()),
    "tikhonov": Tikhonov(),
    "identity": pl.load_denoiser("identity"),
}


@pytest.mark.parametrize("name", DENOISERS)
def test_it_minimises_its_own_objective(name: str) -> None:
    """No perturbation, of any size, lowers `1/2 ||x - v||^2 + sigma^2 f(x)`."""
    denoiser, v = DENOISERS[name], noisy()
    x = denoiser(v, SIGMA)
    generator = torch.Generator().manual_seed(5)

    def objective(p: Tensor, q: Tensor | None) -> Tensor:
        return 0.5 * (p - v).square().flatten(1).sum(1) + denoiser.prior(p, q, SIGMA)

    best = objective(x, v)
    for trial in range(100):
        noise = torch.randn(v.shape, dtype=torch.float64, generator=generator)
        size = 10.0 ** (-(trial % 5))
        for other in (x + size * noise, x + size * (v - x), x * (1 + size)):
            assert bool((objective(other, None) >= best - 1e-9).all())


@pytest.mark.parametrize("name", ["tv", "soft, wavelet", "soft, dct", "tikhonov"])
def test_convex_ones_satisfy_moreaus_subgradient_inequality(name: str) -> None:
    """`phi(q) >= phi(x) + <v - x, q - x>` for every `q`: it pins the prox exactly."""
    denoiser, v = DENOISERS[name], noisy()
    x = denoiser(v, SIGMA)
    for _ in range(50):
        q = noisy()
        slack = denoiser.prior(q, None, SIGMA) - denoiser.prior(x, v, SIGMA)
        slack = slack - ((v - x) * (q - x)).flatten(1).sum(1)
        assert bool((slack >= -1e-5).all())


def test_tv_reaches_the_accuracy_it_states() -> None:
    v = noisy((1, 1, 24, 24))
    exact = TotalVariation(accuracy=1e-6, iterations=100_000)(v, 0.15)
    for accuracy in (1e-2, 1e-3, 1e-4):
        error = (TotalVariation(accuracy=accuracy)(v, 0.15) - exact).square().mean().sqrt()
        assert float(error) <= accuracy


def test_tv_gradient_and_its_adjoint() -> None:
    x, p = torch.randn(1, 2, 7, 6, dtype=torch.float64), torch.randn(2, 1, 2, 7, 6, dtype=torch.float64)
    assert float((gradient(x) * p).sum()) == pytest.approx(float((x * gradient_adjoint(p)).sum()), rel=1e-12)


def test_soft_and_hard_are_thresholds_of_the_coefficients() -> None:
    v = noisy((1, 1, 16, 16))
    c = Wavelet(2).forward(v)
    soft = Wavelet(2).forward(SoftThreshold(Wavelet(2), weight=20)(v, SIGMA))
    hard = Wavelet(2).forward(HardThreshold(Wavelet(2), weight=4.5)(v, SIGMA))
    details = np.ones((16, 16), dtype=bool)
    details[:4, :4] = False
    shrunk = c.sign() * (c.abs() - 20 * SIGMA**2).clamp_min(0)
    torch.testing.assert_close(soft[0, 0][details], shrunk[0, 0][details], atol=1e-12, rtol=0)
    torch.testing.assert_close(hard[0, 0][details], (c * (c.abs() > 3 * SIGMA))[0, 0][details], atol=1e-12, rtol=0)
    for kept in (soft, hard):
        torch.testing.assert_close(kept[..., :4, :4], c[..., :4, :4], atol=1e-12, rtol=0)


def test_tikhonov_equals_the_dense_solve() -> None:
    v = noisy((1, 1, 6, 5))
    eye = torch.eye(30, dtype=torch.float64).reshape(30, 1, 6, 5)
    laplacian = gradient_adjoint(gradient(eye)).reshape(30, 30)
    expected = torch.linalg.solve(torch.eye(30) + SIGMA**2 * 300.0 * laplacian, v.flatten())
    torch.testing.assert_close(Tikhonov()(v, SIGMA).flatten(), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("transform", [DCT(), Wavelet(1), Wavelet(4)])
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (9, 14), (16, 16), (31, 8)])
def test_transforms_are_orthonormal(transform: DCT | Wavelet, size: tuple[int, int]) -> None:
    count = size[0] * size[1]
    matrix = transform.forward(torch.eye(count, dtype=torch.float64).reshape(count, 1, *size)).reshape(count, count)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(count), atol=1e-12)
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    torch.testing.assert_close(transform.inverse(transform.forward(x)), x, atol=1e-12, rtol=0)


def test_wavelet_has_two_vanishing_moments() -> None:
    """Details of a plane are 0 away from where the period wraps."""
    plane = torch.arange(16, dtype=torch.float64).expand(1, 1, 16, 16)
    details = Wavelet(1).forward(plane)[..., 8:15]
    assert float(details.abs().max()) < 1e-12
    assert Hadamard().forward(torch.ones(1, 1, 4, 4))[0, 0, 0, 0] == 4


@pytest.mark.parametrize("name", ["tv", "soft", "hard", "tikhonov", "identity"])
def test_pictures_do_not_depend_on_their_neighbours(name: str) -> None:
    denoiser = pl.load_denoiser(name)
    v = noisy((3, 1, 16, 16))
    sigmas = torch.tensor([0.02, 0.1, 0.3], dtype=torch.float64)
    together = denoiser(v, sigmas)
    for i in range(3):
        torch.testing.assert_close(together[i : i + 1], denoiser(v[i : i + 1], float(sigmas[i])), atol=0, rtol=0)


def test_promises() -> None:
    assert promise_of(pl.load_denoiser("tv")) is pl.Promise.CONVEX
    assert promise_of(pl.load_denoiser("hard")) is pl.Promise.PROX
    assert promise_of(lambda x, sigma: x) is pl.Promise.NONE
