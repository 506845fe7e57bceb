"""Training of gradient steps on the pictures at which certified runs end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gradient_step_cases import network
from pnpladmm.tensors import InputError
from pnpladmm.workshop.training import scenes
from pnpladmm.workshop.training.checkpoint import write_weights
from pnpladmm.workshop.training.gradient_step import GradientStepTraining
from pnpladmm.workshop.training.loop import train
from pnpladmm.workshop.training.plan import Penalty, Plan
from scene_cases import check_gradient


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (48, 48), dtype=np.uint8)).save(tmp_path / "a.png")
    write_weights(tmp_path / "start.safetensors", network(curvature=0.8).float().state_dict(), {})
    return Plan(
        tmp_path, tmp_path / "w.safetensors", network="prox-drunet", channels=1, steps=5, batch=4, crop=24,
        start=tmp_path / "start.safetensors", log_steps=5, learning_rate=1e-3, scenes_from=0.0,
        penalty=Penalty(points=2, side=24, every=3, begin=0.0),
    )  # fmt: skip


def test_the_gradient_is_that_of_the_fixed_point(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a picture whose sides are no multiples of the stride."""
    monkeypatch.setattr(GradientStepTraining, "forward_steps", 120)
    monkeypatch.setattr(GradientStepTraining, "backward_steps", 120)
    loop = GradientStepTraining(plan)
    loop.network.double()
    monkeypatch.setattr(GradientStepTraining, "_dtype", torch.float64)
    loop.schedule.data = loop.schedule.data.double()
    weights = dict(loop.smooth.named_parameters())
    parameters = [weights["entry.weight"], weights["body.0.outer.weight"], loop.schedule]
    check_gradient(loop, parameters, 0.75, 10, rel=1e-4)


def test_a_training_moves_weights_and_settings_and_is_resumed(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GradientStepTraining, "forward_steps", 3)
    monkeypatch.setattr(GradientStepTraining, "backward_steps", 2)
    monkeypatch.setattr(scenes, "KERNELS", 32)
    first = GradientStepTraining(plan)
    began = first.schedule.detach().clone()
    seen: list[str] = []
    card = first.run(lambda progress: seen.append(str(progress)))
    assert "at noise 10: sigma_d" in seen[-1]
    assert card["learned_settings"]["10"]["sigma_d"] == pytest.approx(10, rel=0.2)
    assert not torch.equal(first.schedule, began)
    resumed = GradientStepTraining(replace(plan, steps=6))
    assert torch.equal(resumed.schedule, first.schedule)
    assert torch.equal(resumed.extra["v"], first.extra["v"])
    assert "learned_settings" not in train(replace(plan, resume=False, scenes_from=1.0))
    with pytest.raises(InputError, match="scenes_from = 2"):
        replace(plan, scenes_from=2.0)


def test_scenes_that_grow_beyond_all_numbers_count_for_nothing(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GradientStepTraining, "forward_steps", 60)
    monkeypatch.setattr(GradientStepTraining, "backward_steps", 2)
    monkeypatch.setattr(scenes, "KERNELS", 32)
    loop = GradientStepTraining(plan)
    with torch.no_grad():
        loop.smooth.exit.weight *= 300
    loss = loop.loss_of_scenes(0)
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad for p in loop.smooth.parameters() if p.grad is not None]
    assert all(bool((g == 0).all()) for g in gradients)
