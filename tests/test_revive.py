"""Channels that a network has lost start again: what it computes stays, and gradients reach them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from pnpladmm.denoisers.drunet import DRUNet
from pnpladmm.denoisers.light import LightNet
from pnpladmm.tensors import InputError
from pnpladmm.training.__main__ import main
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


@pytest.mark.parametrize("seed", range(4))
def test_what_starts_again_is_active(seed: int) -> None:
    network, inner, _ = broken("drunet")
    x, sigma = pictures()
    revive(network, x, sigma, torch.Generator().manual_seed(seed))
    responses: list[Tensor] = []
    # A copy: the ReLU that follows works in place.
    inner.register_forward_hook(lambda _, __, response: responses.append(response.detach().clone()))
    network(x, sigma)
    assert bool((responses[0].mean((0, 2, 3))[[1, 3]] > 0).all())


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


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """The weights of a light network with two lost channels."""
    path = tmp_path / "start.safetensors"
    write_weights(path, broken("light")[0].state_dict(), {})
    return path


def recipe(folder: Path, start: Path, **changes: object) -> Recipe:
    short = Recipe(
        data=folder, out=start.parent / "out.safetensors", start=start, steps=40, batch=4, crop=16, warmup_steps=5,
        log_steps=5, revive=2, learning_rate=1e-4,
    )  # fmt: skip
    return replace(short, **changes)  # type: ignore[arg-type]


def notes(said: list[Progress]) -> dict[int, str]:
    return {progress.step: progress.note for progress in said if progress.note}


def test_a_training_revives_as_often_as_it_was_asked_to(folder: Path, start: Path) -> None:
    said: list[Progress] = []
    card = train(recipe(folder, start), said.append)
    assert card["revivals"] == 2
    assert list(notes(said)) == [5, 15]  # at the start, and after a quarter of the budget
    assert "of 38 hidden channels" in notes(said)[5]
    assert int(notes(said)[5].split()[1]) >= 2


def test_the_command_line_revives(folder: Path, start: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--steps", "4", "--batch", "2", "--crop", "16", "--log-steps", "2", "--revive", "1"]
    assert main([str(folder), str(start.parent / "out.safetensors"), "--start", str(start), *options]) == 0
    out = capsys.readouterr().out
    assert "  revived " in out
    assert out.count(" of 38 hidden channels") == 1


def test_a_resumed_training_revives_only_what_is_still_to_come(folder: Path, start: Path) -> None:
    first = Training(recipe(folder, start, steps=20, checkpoint_seconds=0.0))
    first.run()
    assert first.revivals == 2
    said: list[Progress] = []
    resumed = Training(recipe(folder, start, steps=100, revive=3))
    assert resumed.revivals == 2
    resumed.run(said.append)
    assert list(notes(said)) == [40]  # the third is due after a third of the steps; windows are of 5


def test_after_a_loss_that_is_not_finite_what_was_revived_is_still_there(folder: Path, start: Path) -> None:
    training = Training(recipe(folder, start, revive=1, learning_rate=1e-9))
    step, calls = training._advance, 0
    inner = training.network.get_submodule("down1.0.inner")
    assert isinstance(inner, nn.Conv2d)

    def advance() -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 3:
            with torch.no_grad():
                inner.weight.fill_(math.nan)
        return step()

    training._advance = advance  # type: ignore[method-assign]
    assert training.run()["revivals"] == 1
    assert training.rate_factor == 0.5
    # Random filters; those that were lost are 0 but for one weight.
    for filters in (inner.weight, training.average["down1.0.inner.weight"]):
        assert bool((filters[[1, 3]] != 0).all())


def test_the_average_and_the_optimiser_follow(folder: Path, start: Path) -> None:
    training = Training(recipe(folder, start))
    for _ in range(3):
        training._advance()
    inner = training.network.get_submodule("down1.0.inner")
    outer = training.network.get_submodule("down1.0.outer")
    assert isinstance(inner.weight, nn.Parameter)
    assert isinstance(outer.weight, nn.Parameter)
    state = training.optimizer.state
    kinds = ("exp_avg", "exp_avg_sq")
    for weight in (inner.weight, outer.weight):
        for kind in kinds:
            state[weight][kind].fill_(1.0)
    assert training._revive().startswith("  revived ")
    assert torch.equal(training.average["down1.0.inner.weight"][[1, 3]], inner.weight[[1, 3]])
    assert not training.average["down1.0.outer.weight"][:, [1, 3]].any()
    for kind in kinds:
        assert not state[inner.weight][kind][[1, 3]].any()
        assert not state[outer.weight][kind][:, [1, 3]].any()
        assert bool((state[inner.weight][kind][[0, 2]] == 1).all())
        assert bool((state[outer.weight][kind][:, [0, 2]] == 1).all())


def test_channels_are_lost_below_a_thousandth_of_the_pixels() -> None:
    """One active pixel in 8,192 is too few, 16 are enough."""
    network, inner, _ = broken("drunet")
    x, sigma = torch.full((2, 3, 64, 64), 0.5), torch.tensor([0.05, 0.05])
    x[0, :, 20, 20] = -1.0
    assert lost_in(revive(network, x, sigma, torch.Generator().manual_seed(2)), inner) == [1, 3]
    network, inner, _ = broken("drunet")
    x[0, :, 20:24, 20:24] = -1.0
    assert lost_in(revive(network, x, sigma, torch.Generator().manual_seed(2)), inner) == []


@pytest.mark.parametrize(("network", "times"), [("light", -1), ("prox-drunet", 1)])
def test_revivals_that_cannot_be_are_refused(tmp_path: Path, network: str, times: int) -> None:
    with pytest.raises(InputError, match=f"revive = {times}, network {network}"):
        Recipe(data=tmp_path, out=tmp_path / "a.safetensors", steps=1, network=network, revive=times)
