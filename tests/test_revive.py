"""Channels that a network has lost start again: what it computes stays, and gradients reach them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from pnpladmm.denoisers.drunet import DRUNet
from pnpladmm.denoisers.light import LightNet
from pnpladmm.tensors import InputError
from pnpladmm.training.checkpoint import write_weights
from pnpladmm.training.loop import Progress, Training, train
from pnpladmm.training.recipe import Recipe
from pnpladmm.training.revive import Hidden, revive

Broken = tuple[nn.Module, nn.Conv2d, nn.Conv2d]


def broken(kind: str) -> Broken:
    """A network with a block whose hidden channels 1 and 3 are negative wherever its input is not 0.

    Their filters look at the middle pixel of one input channel that is made positive: minus it is negative.
    """
    torch.manual_seed(0)
    network: LightNet | DRUNet
    if kind == "light":
        network = LightNet(3, (8, 8, 8), (1, 1, 1), (8, 8, 6))
        network.initialise()
        inner, outer = network.down1[0].inner, network.down1[0].outer
        source = network.head.weight
    else:
        network = DRUNet(3, (8, 8, 8, 8), 1)
        network.initialise()
        inner, outer = network.m_down1[0].res[0], network.m_down1[0].res[2]
        source = network.m_head.weight
    assert isinstance(inner, nn.Conv2d)
    assert isinstance(outer, nn.Conv2d)
    with torch.no_grad():
        source[0] = 0.0
        source[0, :, 1, 1] = 0.1  # a mean of the picture and its noise level: above 0
        for lost in (1, 3):
            inner.weight[lost] = 0.0
            inner.weight[lost, 0, 1, 1] = -1.0
    return network, inner, outer


def pictures() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return 0.3 + 0.5 * torch.rand(2, 3, 32, 32, generator=generator), torch.tensor([0.05, 0.1])


def lost_in(blocks: list[Hidden], inner: nn.Conv2d) -> list[int]:
    (block,) = (block for block in blocks if block.inner is inner)
    return torch.nonzero(block.lost).flatten().tolist()


@pytest.mark.parametrize("kind", ["light", "drunet"])
def test_lost_channels_are_found_and_start_again_without_a_change_of_the_picture(kind: str) -> None:
    network, inner, outer = broken(kind)
    x, sigma = pictures()
    before, filters = network(x, sigma).detach(), inner.weight.detach().clone()
    blocks = revive(network, x, sigma, torch.Generator().manual_seed(2))
    assert lost_in(blocks, inner) == [1, 3]
    torch.testing.assert_close(network(x, sigma), before, rtol=1e-5, atol=1e-6)
    kept = [0, 2, 4, 5, 6, 7]
    assert torch.equal(inner.weight[kept], filters[kept])
    assert not outer.weight[:, [1, 3]].any()
    length = filters[kept].flatten(1).norm(dim=1).mean()
    torch.testing.assert_close(inner.weight[[1, 3]].flatten(1).norm(dim=1), length.expand(2))

    again = revive(network, x, sigma, torch.Generator().manual_seed(3))
    assert lost_in(again, inner) == []


@pytest.mark.parametrize("kind", ["light", "drunet"])
def test_gradients_reach_what_was_lost(kind: str) -> None:
    network, inner, outer = broken(kind)
    x, sigma = pictures()

    def lengths() -> tuple[float, float]:
        """Of the gradients of the channels' filters and of their weights in the next layer."""
        network.zero_grad()
        network(x, sigma).square().sum().backward()
        assert inner.weight.grad is not None
        assert outer.weight.grad is not None
        return float(inner.weight.grad[[1, 3]].norm()), float(outer.weight.grad[:, [1, 3]].norm())

    assert lengths() == (0.0, 0.0)
    revive(network, x, sigma, torch.Generator().manual_seed(2))
    assert lengths()[1] > 0.0
    with torch.no_grad():
        outer.weight -= 1e-3 * (outer.weight.grad if outer.weight.grad is not None else 0.0)
    assert min(lengths()) > 0.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two pictures to train on."""
    path = tmp_path / "pictures"
    path.mkdir()
    rng = np.random.default_rng(0)
    for i in range(2):
        coarse = Image.fromarray(rng.integers(60, 256, (6, 5, 3), dtype=np.uint8))
        coarse.resize((40, 48), Image.Resampling.BICUBIC).save(path / f"{i}.png")
    return path


def test_a_training_revives_as_often_as_it_was_asked_to(folder: Path, tmp_path: Path) -> None:
    network, *_ = broken("light")
    start = tmp_path / "start.safetensors"
    write_weights(start, network.state_dict(), {})
    out = tmp_path / "out.safetensors"
    recipe = Recipe(
        data=folder, out=out, start=start, steps=40, batch=4, crop=16, warmup_steps=5, log_steps=5, revive=2,
        learning_rate=1e-4,
    )  # fmt: skip
    said: list[Progress] = []
    card = train(recipe, said.append)
    assert card["revivals"] == 2
    notes = {progress.step: progress.note for progress in said if progress.note}
    assert list(notes) == [5, 15]  # at the start, and after a quarter of the budget
    assert "of 38 hidden channels" in notes[5]
    assert int(notes[5].split()[1]) >= 2


def test_the_average_and_the_optimiser_follow(folder: Path, tmp_path: Path) -> None:
    network, *_ = broken("light")
    start = tmp_path / "start.safetensors"
    write_weights(start, network.state_dict(), {})
    training = Training(
        Recipe(data=folder, out=tmp_path / "out.safetensors", start=start, steps=9, batch=4, crop=16, revive=1)
    )
    for _ in range(3):
        training._advance()
    inner = training.network.get_submodule("down1.0.inner")
    outer = training.network.get_submodule("down1.0.outer")
    assert isinstance(inner.weight, nn.Parameter)
    assert isinstance(outer.weight, nn.Parameter)
    note = training._revive()
    assert note.startswith("  revived ")
    assert torch.equal(training.average["down1.0.inner.weight"][[1, 3]], inner.weight[[1, 3]])
    assert not training.average["down1.0.outer.weight"][:, [1, 3]].any()
    state = training.optimizer.state
    for moment in ("exp_avg", "exp_avg_sq"):
        assert not state[inner.weight][moment][[1, 3]].any()
        assert not state[outer.weight][moment][:, [1, 3]].any()
        assert state[inner.weight][moment][[0, 2]].any()


@pytest.mark.parametrize(("network", "times"), [("light", -1), ("prox-drunet", 1)])
def test_revivals_that_cannot_be_are_refused(tmp_path: Path, network: str, times: int) -> None:
    with pytest.raises(InputError, match=f"revive = {times}, network {network}"):
        Recipe(data=tmp_path, out=tmp_path / "a.safetensors", steps=1, network=network, revive=times)
