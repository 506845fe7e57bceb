"""One step of a training: its crops, the precision of its gradients, its optimiser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from conftest import Run
from pnpladmm.denoisers.building import new_network
from pnpladmm.workshop.training import loop
from pnpladmm.workshop.training.average import WeightAverage
from pnpladmm.workshop.training.data import mirror_ends, soften_chroma
from pnpladmm.workshop.training.gradient_step import GradientStepTraining
from pnpladmm.workshop.training.loop import LOSS_SCALE, Training
from pnpladmm.workshop.training.muon import Muon
from pnpladmm.workshop.training.plan import Penalty, Plan
from pnpladmm.workshop.training.schedule import expected_error


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Steps of a small DRUNet on crops of one colourful picture; gradients are not cut."""
    pixels = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    return Plan(
        data=tmp_path, out=tmp_path / "w.safetensors", network="drunet", widths=(8, 8, 8, 8), blocks=1, steps=10,
        batch=4, crop=16, clip=1e30, warmup_steps=1,
    )  # fmt: skip


def test_soft_chroma_keeps_luma_and_halves_the_resolution_of_colour() -> None:
    generator = torch.Generator().manual_seed(0)
    pictures = 0.4 + 0.2 * torch.rand(400, 3, 8, 6, generator=generator, dtype=torch.float64)
    weights = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)
    soft = soften_chroma(pictures, 0.25, generator)
    changed = (soft != pictures).flatten(1).any(1)
    assert 0.18 < float(changed.double().mean()) < 0.32
    luma, before = (torch.einsum("c,bchw->bhw", weights, x) for x in (soft, pictures))
    torch.testing.assert_close(luma, before, rtol=0, atol=1e-12)
    # Colour that alternates from pixel to pixel is gone; colour that is the same everywhere stays.
    stripes = torch.full((1, 3, 8, 8), 0.5, dtype=torch.float64)
    stripes[:, 0, :, ::2] += 0.2
    soft = soften_chroma(stripes, 1.0, generator)
    colour = soft[:, 0] - soft[:, 2]
    torch.testing.assert_close(colour, torch.full_like(colour, 0.1), rtol=0, atol=1e-12)
    assert float((soft[0, 1, 0, 0] - soft[0, 1, 0, 1]).abs()) == pytest.approx(0.2 * 0.299)
    assert bool((soften_chroma(pictures, 0.0, generator) == pictures).all())


def _mirrored_at_the_end(picture: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> int:
    """How many of the last columns mirror those before them."""
    width = picture.shape[-1]
    ends = [(picture[..., width - k :], picture[..., width - 2 * k : width - k][..., ::-1]) for k in range(8)]
    return max(k for k, (end, before) in enumerate(ends) if np.array_equal(end, before))


def test_mirrored_ends_are_those_of_the_padding() -> None:
    generator = torch.Generator().manual_seed(0)
    pictures = torch.rand(300, 2, 16, 24, generator=generator)
    added = []
    for before, after in zip(pictures.numpy(), mirror_ends(pictures, 8, generator).numpy(), strict=True):
        # How many rows and columns are new is read off the result; no two of the old ones are alike.
        rows = _mirrored_at_the_end(after.swapaxes(1, 2))
        columns = _mirrored_at_the_end(after)
        cut = before[:, : 16 - rows, : 24 - columns]
        np.testing.assert_array_equal(after, np.pad(cut, ((0, 0), (0, rows), (0, columns)), mode="symmetric"))
        added += [rows, columns]
    shares = np.bincount(added, minlength=8) / len(added)
    assert abs(shares[0] - 8 / 15) < 0.06
    assert np.all(abs(shares[1:] - 1 / 15) < 0.03)


def test_ends_longer_than_what_they_mirror_go_back_and_forth() -> None:
    row = torch.arange(8.0).expand(200, 1, 8, 8)
    ended = mirror_ends(row, 8, torch.Generator().manual_seed(0))[:, 0, 0].numpy()
    wanted = [np.pad(np.arange(8.0)[:kept], (0, 8 - kept), mode="symmetric") for kept in range(1, 9)]
    assert {tuple(one) for one in ended} == {tuple(one) for one in wanted}


@pytest.mark.parametrize(("network", "mirrored"), [("drunet", True), ("prox-drunet", False)])
def test_crop_and_noise_are_mirrored_alike_where_the_padding_is(plan: Plan, network: str, mirrored: bool) -> None:
    chosen = replace(plan, network=network, batch=150, penalty=Penalty(side=16))
    training = GradientStepTraining(replace(chosen, widths=None)) if network == "prox-drunet" else Training(chosen)
    clean, noise, _ = training._draw()
    for axis in (-2, -1):
        # One in fifteen crops has one row more than it had: it repeats the one before.
        repeated = [(t.select(axis, 15) == t.select(axis, 14)).flatten(1).all(1) for t in (clean, noise)]
        assert torch.equal(*repeated)
        assert bool(repeated[0].any()) == mirrored
    assert training.card()["mirrored_ends"] == mirrored


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-6), ("float16", 0.02)])
def test_gradients_are_those_of_the_loss(plan: Plan, precision: str, tolerance: float) -> None:
    training = Training(replace(plan, precision=precision))
    clean, noise, sigma = training._draw()
    restored = training.network(clean + sigma.view(-1, 1, 1, 1) * noise, sigma)
    loss = ((restored - clean).square().mean((1, 2, 3)) / expected_error(sigma)).mean()
    expected = torch.autograd.grad(loss, list(training.network.parameters()))
    training._draw = lambda: (clean, noise, sigma)  # type: ignore[method-assign]
    assert float(training._advance()) == pytest.approx(float(loss.detach()), rel=tolerance)
    found = torch.cat([p.grad.flatten() for p in training.network.parameters() if p.grad is not None])
    wanted = torch.cat([gradient.flatten() for gradient in expected])
    error = float((found - wanted).norm() / wanted.norm())
    assert error < tolerance
    assert (error > 1e-5) == (precision == "float16")  # half precision is really used


def test_a_gradient_beyond_float16_costs_a_step_and_no_more(plan: Plan) -> None:
    training = Training(replace(plan, precision="float16"))
    before = [p.detach().clone() for p in training.network.parameters()]
    weighted = training._loss_of
    training._loss_of = lambda *batch: weighted(*batch) * 1e9 / LOSS_SCALE
    training._advance()
    for old, new in zip(before, training.network.parameters(), strict=True):
        # The weight decay is all that a step of no gradient leaves.
        torch.testing.assert_close(new.detach(), old, rtol=1e-3, atol=0)
    training._loss_of = weighted
    training._advance()
    moved = [float((p.detach() - old).norm()) for old, p in zip(before, training.network.parameters(), strict=True)]
    assert all(np.isfinite(moved))
    assert min(moved) > 0


def test_the_plan_chooses_crops_and_optimiser(plan: Plan) -> None:
    plain = Training(plan)
    soft = Training(replace(plan, soft_chroma=1.0, optimizer="muon"))
    assert isinstance(plain.optimizer, torch.optim.AdamW)
    assert isinstance(soft.optimizer, Muon)
    assert [soft.card()[key] for key in ("optimizer", "soft_chroma_share")] == ["muon", 1.0]
    colour = [(clean[:, 0] - clean[:, 2]).diff().square().mean() for clean, _, _ in (plain._draw(), soft._draw())]
    assert float(colour[1]) < 0.2 * float(colour[0])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", ("float32", "adamw", 0.0)),
        ("--device cuda --optimizer muon --soft-chroma 0.5", ("float16", "muon", 0.5)),
        ("--device cuda --network prox-drunet", ("bfloat16", "adamw", 0.0)),
        ("--device cuda --precision float32", ("float32", "adamw", 0.0)),
    ],
)
def test_options_reach_the_plan(
    monkeypatch: pytest.MonkeyPatch, run: Run, options: str, expected: tuple[object, ...]
) -> None:
    seen: list[Plan] = []
    monkeypatch.setattr(loop, "train", lambda plan, progress: seen.append(plan))
    assert run("train", "photos", "w.safetensors", "--steps", "1", *options.split())[0] == 0
    assert (seen[0].precision, seen[0].optimizer, seen[0].soft_chroma) == expected


def test_options_for_the_penalty_reach_the_plan(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    seen: list[Plan] = []
    monkeypatch.setattr(loop, "train", lambda plan, progress: seen.append(plan))
    options = "--penalty 80 --margin 0.04 --growth 0.03 --penalty-from 0 --penalty-crops 16 --penalty-every 2"
    given = "--network prox-drunet --minutes 7 --scales 1,0.5 --fresh --penalty-crop 64"
    assert run("train", "photos", "w.safetensors", *options.split(), *given.split())[0] == 0
    assert seen[0].penalty == Penalty(80, 0.04, 0.03, 16, 64, 2, 0.0)
    assert (seen[0].scales, seen[0].resume, seen[0].compile_network) == ((1.0, 0.5), False, False)


def test_the_scale_of_the_loss_is_kept_when_a_training_is_resumed(plan: Plan) -> None:
    training = Training(replace(plan, precision="float16"))
    weighted = training._loss_of
    training._loss_of = lambda *batch: weighted(*batch) * 1e9
    training._advance()
    training._loss_of = weighted
    training._advance()
    training.save()
    assert training.scaler.get_scale() == LOSS_SCALE / 2
    assert Training(training.plan).scaler.get_scale() == LOSS_SCALE / 2
    assert Training(plan).scaler.get_scale() == 1  # off: nothing else needs it


def test_the_average_forgets_the_first_weights_and_settles() -> None:
    network = new_network("light", 1, (8, 8, 8), 1)
    average = WeightAverage(network, 0.75)
    (name, weight), *_ = network.named_parameters()
    expected = weight.detach().double()
    for step in range(1, 40):
        with torch.no_grad():
            weight += 0.1
        decay = min(0.75, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * weight.detach().double()
        average.update(step)
    found = dict(average.network.named_parameters())[name].detach()
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)
    assert not torch.equal(found, weight)
