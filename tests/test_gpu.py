"""What holds on the CPU holds on a GPU: operators, data terms, the loop, the shipped network."""

from __future__ import annotations

import pytest
import torch

import pnpladmm as pl
from pnpladmm.denoisers import TotalVariation

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SIGMA = 0.05


def blur(order: str = "convolve-then-weight", boundary: str = "reflect") -> pl.SpatiallyVaryingBlur:
    generator = torch.Generator().manual_seed(0)
    kernels = torch.rand(3, 5, 4, generator=generator, dtype=torch.float64)
    weights = torch.rand(3, 40, 36, generator=generator, dtype=torch.float64)
    return pl.SpatiallyVaryingBlur(
        kernels / kernels.sum((1, 2), keepdim=True), weights / weights.sum(0), boundary, order
    )


def test_operators_agree_with_the_cpu() -> None:
    for order in ("convolve-then-weight", "weight-then-convolve"):
        for boundary in ("circular", "replicate", "reflect", "zero"):
            operator = pl.Decimation(2) @ blur(order, boundary)
            x = torch.rand(2, 3, 40, 36, dtype=torch.float64)
            y = operator.forward(x)
            torch.testing.assert_close(operator.forward(x.cuda()).cpu(), y, atol=1e-12, rtol=0)
            torch.testing.assert_close(operator.adjoint(y.cuda()).cpu(), operator.adjoint(y), atol=1e-12, rtol=0)


def test_runs_agree_with_the_cpu() -> None:
    """Per-picture parameters, frozen pictures and certificates included."""
    operator = blur()
    x = torch.rand(2, 1, 40, 36, dtype=torch.float64)
    y = operator.forward(x)
    images, levels, statuses = [], [], []
    for device in ("cpu", "cuda"):
        sigma = torch.tensor([SIGMA, 2 * SIGMA], dtype=torch.float64, device=device)
        problem = pl.Problem(y.to(device), operator, pl.Gaussian(sigma))
        method = pl.LADMM.certified(TotalVariation(), problem, 0.03)
        result = pl.solve(problem, method, 30, 1e-3, reference=x.to(device))
        images.append(result.image.cpu())
        levels.append([c.level for c in result.certificates])
        statuses.append(result.statuses)
    torch.testing.assert_close(images[0], images[1], atol=1e-8, rtol=0)
    assert levels[0] == levels[1] == [pl.Level.PROVED] * 2
    assert statuses[0] == statuses[1]


def test_other_methods_run() -> None:
    operator = blur()
    y = operator.forward(torch.rand(1, 3, 40, 36, dtype=torch.float64)).float()
    problem = pl.Problem(y.cuda(), operator, pl.Gaussian(SIGMA))
    tv = TotalVariation()
    for method in (pl.ADMM(tv, 0.03, rho=100.0), pl.PrimalDual(tv, 0.03, beta=50.0, L_x=200.0, box=(0, 1)),
                   pl.RichardsonLucy(), pl.FISTA(tv, 0.03, L_x=900.0), pl.Annealed(tv, 0.03)):  # fmt: skip
        image = pl.solve(problem, method, 8, 0).image
        assert image.is_cuda
        assert bool(torch.isfinite(image).all())


def test_restore_with_the_shipped_network_agrees_with_the_cpu() -> None:
    """Half precision inside the network moves the picture by less than a quarter of a grey level."""
    operator = blur()
    y = operator.forward(torch.rand(1, 3, 40, 36, dtype=torch.float64)).float()
    images = [pl.restore(y, operator, SIGMA, device=device).image.cpu() for device in ("cpu", "cuda")]
    assert float((images[0] - images[1]).square().mean().sqrt()) < 0.25 / 255
