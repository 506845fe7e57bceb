"""Random blurs to train with: kernels, weights, adjoints, and that a step gets the same ones again."""

from __future__ import annotations

import pytest
import torch

from pnpladmm.operators import check_adjoint
from pnpladmm.tensors import InputError
from pnpladmm.workshop.training.in_loop import draw_noise
from pnpladmm.workshop.training.random_blurs import BlurPool, BlurSource
from pnpladmm.workshop.training.random_kernels import KINDS, LARGEST, SIDE, KernelBank


@pytest.fixture(scope="module")
def bank() -> KernelBank:
    return KernelBank.drawn(160, torch.Generator().manual_seed(0))


def test_kernels_are_light_of_their_own_reach(bank: KernelBank) -> None:
    kernels, reaches = bank.kernels, bank.reaches
    assert kernels.shape[1:] == (SIDE, SIDE)
    assert abs(len(kernels) - 160) <= len(KINDS)
    assert bool((kernels >= 0).all())
    torch.testing.assert_close(kernels.sum((1, 2)), torch.ones(len(kernels)))
    assert bool((reaches.diff() >= 0).all())
    axis = (torch.arange(SIDE) - LARGEST).abs()
    outside = torch.maximum(axis[:, None], axis[None, :]) > reaches.view(-1, 1, 1)
    assert not bool((kernels * outside).any())
    assert bank.count_up_to(LARGEST) == len(kernels)
    assert int(reaches[: bank.count_up_to(8)].max()) <= 8 < int(reaches[bank.count_up_to(8)])
    # In the middle: what a kernel moved, the network would have to move back.
    for make, _ in KINDS[:1] + KINDS[2:7]:
        drawn = make(torch.full((20,), 12.0), torch.Generator().manual_seed(1))
        drawn = drawn / drawn.sum((1, 2), keepdim=True)
        place = torch.arange(SIDE) - float(LARGEST)
        assert float((drawn * place).sum((1, 2)).abs().max()) < 0.6
        assert float((drawn * place[:, None]).sum((1, 2)).abs().max()) < 0.6


def test_blurs_of_all_kinds_have_exact_adjoints_and_weights_of_sum_one(bank: KernelBank) -> None:
    seen = set()
    source = BlurSource(bank, 3, 48, torch.device("cpu"))
    for number in range(24):
        blur = source.blur(5, number)
        seen.add((blur.boundary, blur.order))
        assert 40 < blur.scene[0] <= 48
        assert check_adjoint(blur, (3, 1, *blur.scene)) < 1e-10
        torch.testing.assert_close(blur.weights.sum(1), torch.ones_like(blur.weights[:, 0]))
        torch.testing.assert_close(blur.kernels.sum((-2, -1)), torch.ones_like(blur.kernels[..., 0, 0]))
        assert bool((blur.weights >= 0).all())
    assert len(seen) == 4
    counts = [int(n) for i in range(24) for n in source.blur(5, i).weights.flatten(2).any(-1).sum(1)]
    assert {1, 2, 3} <= set(counts)
    assert max(counts) <= 8
    with pytest.raises(InputError, match="crop = 16: give at least 24"):
        BlurSource(bank, 3, 16, torch.device("cpu"))


def test_a_step_gets_the_blur_that_seed_and_step_say(bank: KernelBank) -> None:
    source = BlurSource(bank, 2, 32, torch.device("cpu"))
    first, second = BlurPool(source, 0, 4, 2), BlurPool(source, 0, 4, 2)
    for step in range(6):
        first.at(step)
    torch.testing.assert_close(first.at(9).true.weights, second.at(9).true.weights, rtol=0, atol=0)
    torch.testing.assert_close(first.at(9).true.kernels, second.at(9).true.kernels, rtol=0, atol=0)
    assert first.at(9) is first.at(9)
    assert len(first._made) <= 4
    assert draw_noise(0, 3, 60) == draw_noise(0, 3, 60) != draw_noise(0, 4, 60)
    levels = [draw_noise(1, step, 60) for step in range(500)]
    assert 0.5 <= min(levels) < 1
    assert 50 < max(levels) <= 60
