"""Muon: steps with orthogonal matrices, checked against singular value decompositions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from pnpladmm.workshop.training.muon import Muon, orthogonal


def polar(matrix: Tensor) -> Tensor:
    """U V^T of a matrix U S V^T."""
    u, _, vt = torch.linalg.svd(matrix, full_matrices=False)
    return u @ vt


@pytest.mark.parametrize("shape", [(2, 6, 20), (3, 20, 6), (1, 8, 8)])
def test_orthogonal_keeps_the_singular_vectors_and_levels_the_values(shape: tuple[int, ...]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    result = orthogonal(matrices)
    for matrix, levelled in zip(matrices, result, strict=True):
        u, _, vt = torch.linalg.svd(matrix, full_matrices=False)
        inside = u.mT @ levelled @ vt.mT
        values = inside.diagonal()
        assert float(values.min()) > 0.6
        assert float(values.max()) < 1.3
        assert float((inside - torch.diag(values)).abs().max()) < 1e-12
        torch.testing.assert_close(u @ inside @ vt, levelled, rtol=0, atol=1e-12)
    torch.testing.assert_close(orthogonal(1e-6 * matrices), result, rtol=1e-9, atol=1e-12)
    assert bool((orthogonal(torch.zeros(shape)) == 0).all())


def test_steps_are_those_of_the_formula() -> None:
    generator = torch.Generator().manual_seed(1)
    weight = nn.Parameter(torch.randn(4, 3, 2, 2, generator=generator, dtype=torch.float64))
    other = nn.Parameter(torch.randn(4, 3, 2, 2, generator=generator, dtype=torch.float64))
    idle = nn.Parameter(torch.ones(2, 2, dtype=torch.float64))
    optimizer = Muon([weight, other, idle], lr=0.1, momentum=0.8, weight_decay=0.5)
    expected, momentum = weight.detach().clone().flatten(1), torch.zeros(4, 12, dtype=torch.float64)
    for rate in (0.1, 0.02):
        optimizer.param_groups[0]["lr"] = rate
        for parameter in (weight, other):
            parameter.grad = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        assert weight.grad is not None
        gradient = weight.grad.flatten(1).clone()
        momentum = 0.8 * momentum + gradient
        expected = (1 - rate * 0.5) * expected - rate * orthogonal((gradient + 0.8 * momentum)[None])[0]
        optimizer.step()
        torch.testing.assert_close(weight.detach().flatten(1), expected, rtol=1e-12, atol=0)
    assert bool((idle == 1).all())


@pytest.mark.parametrize("shape", [(16, 8, 3, 3), (16, 1, 3, 3)])
def test_a_step_s_spectral_norm_is_the_rate_whatever_the_gradient(shape: tuple[int, ...]) -> None:
    for scale in (1e-5, 1e3):
        weight = nn.Parameter(torch.zeros(shape, dtype=torch.float64).to(memory_format=torch.channels_last))
        weight.grad = scale * torch.randn(weight.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        Muon([weight], lr=0.01).step()
        assert 0.6 < float(torch.linalg.matrix_norm(weight.detach().flatten(1), 2)) / 0.01 < 1.3
        cosine = torch.nn.functional.cosine_similarity(
            weight.detach().flatten(), -polar(weight.grad.flatten(1)).flatten(), 0
        )
        assert float(cosine) > 0.95
