"""What the tests of training on certified runs share: is the gradient that of the fixed point?"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from pnpladmm.workshop.training.scenes import SceneTraining


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def check_gradient(loop: SceneTraining, parameters: Sequence[Tensor], centre: float, width: int, rel: float) -> None:
    """Derivatives of `<x*, towards>` along random directions, against differences of fixed points.

    `centre` is that of a 3x3 kernel: the larger, the sooner the iterations arrive.
    """
    side = (1 - centre) / 5
    kernel = torch.tensor([[0, side, 0], [2 * side, centre, side], [0, side, 0]], dtype=torch.float64)
    blur = pl.SpatiallyVaryingBlur(kernel[None], torch.ones(1, 9, width, dtype=torch.float64))
    problem = pl.Problem(blur.forward(0.3 * normal(1, 1, 9, width)), blur, pl.Gaussian(0.1))
    towards = normal(1, 1, 9, width, seed=3)

    def value() -> float:
        with torch.no_grad():
            return float((loop._fixed_point(problem, 0.1)[0] * towards).sum())

    found, step = loop._fixed_point(problem, 0.1)
    assert float((step(found, False) - found).detach().abs().max()) < 1e-4
    useful = (loop._adjoint(step, found, towards) * step(found, True)).sum()
    for parameter, slope in zip(parameters, torch.autograd.grad(useful, list(parameters)), strict=True):
        direction = normal(*parameter.shape, seed=4)
        values = []
        for sign in (1, -2):
            parameter.data += sign * 1e-6 * direction
            values.append(value())
        parameter.data += 1e-6 * direction
        assert (values[0] - values[1]) / 2e-6 == pytest.approx(float((slope * direction).sum()), rel=rel)
