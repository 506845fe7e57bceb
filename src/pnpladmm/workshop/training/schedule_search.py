"""The schedule that suits weights which were trained in the loop: a search over the method's settings.

How many steps of conjugate gradient the annealed method makes follows from its settings, and no gradient knows of that
(in_loop_plan.py). So the settings are not trained along with the weights. Here the weights are kept, and the settings
of one noise level after the other are changed at random. A change is kept if the training scenes are restored better
by it. More steps of conjugate gradient than before count as a loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pnpladmm.tensor_files import read_tensors
from pnpladmm.tensors import InputError
from pnpladmm.workshop.training.checkpoint import read_card
from pnpladmm.workshop.training.in_loop import InLoopTraining, Scene
from pnpladmm.workshop.training.in_loop_plan import InLoopPlan
from pnpladmm.workshop.training.method_schedule import LEVELS, TRAINED
from pnpladmm.workshop.training.tables import write_into_card

TRIALS = 40
"""Changes that are tried for each noise level and number of calls."""
BATCHES = 2
"""Batches of scenes that each change is tried on."""
FIRST_WIDTH, WIDER, NARROWER = 0.08, 1.5, 0.88
"""Standard deviation of the first change of a logarithm; the factors after a change that helped, and after one that did
not."""
STEP_PRICE = 0.5
"""What twice as many steps of conjugate gradient cost, over log 2: the loss is the logarithm of the squared error."""


def search_schedule(
    plan: InLoopPlan, trials: int = TRIALS, tell: Callable[[str], None] | None = None
) -> dict[str, dict[str, Any]]:
    """Search the settings that suit the weights `plan.start`, on scenes that `plan` draws.

    Parameters
    ----------
    plan : InLoopPlan
        Of a training in the loop. Its start gives the weights and the first settings; nothing is trained or written.
    trials : int
        Changes that are tried for each noise level and number of calls.
    tell : callable, optional
        Gets a line after each noise level.

    Returns
    -------
    dict
        The settings as cards have them: `fast-8` -> noise level -> parameters.
    """
    if plan.start is None:
        raise InputError("no weights: give those whose settings are to be found")
    if trials < 1:
        raise InputError(f"trials = {trials}: give at least 1")
    training = InLoopTraining(replace(plan, resume=False))
    training.network.requires_grad_(False)
    for calls, schedule in training.schedules.items():
        schedule.logs.requires_grad_(False)
        for place, level in enumerate(LEVELS):
            before, after = _search_level(training, calls, place, trials)
            (tell or (lambda _: None))(f"{calls} calls, noise {level:g}: loss {before:.4f} -> {after:.4f}")
    return {f"fast-{calls}": schedule.rows() for calls, schedule in training.schedules.items()}


def write_schedule(weights: Path, settings: dict[str, dict[str, Any]], photo: bool) -> None:
    """Write settings into the card of a weight file; those for other numbers of calls stay."""
    known = read_card(read_tensors(weights)[1], weights).get("settings", {})
    found_on = "photo" if photo else "exact"
    write_into_card(weights, {"settings": {**known, **settings}, "schedule": f"searched on {found_on} scenes"})


def _search_level(training: InLoopTraining, calls: int, place: int, trials: int) -> tuple[float, float]:
    """Improve the settings of one noise level in place; the loss before and after."""
    generator = torch.Generator().manual_seed(1000 * calls + place)
    logs = training.schedules[calls].logs
    scenes = _scenes(training, LEVELS[place])
    usual = _loss_and_steps(training, scenes, calls)[1]
    first = least = _price(training, scenes, calls, usual)
    width = FIRST_WIDTH
    for _ in range(trials):
        kept = logs[place].clone()
        logs[place] += width * torch.randn(len(TRAINED), generator=generator, dtype=logs.dtype)
        price = _price(training, scenes, calls, usual)
        if price < least:
            least, width = price, WIDER * width
        else:
            logs[place], width = kept, NARROWER * width
    return first, least


def _scenes(training: InLoopTraining, noise: float) -> list[Scene]:
    """Batches with blurs and crops of their own, the same for every trial."""
    return [training.scene(training.pool.source.pair(training.plan.seed, n), noise, False) for n in range(BATCHES)]


def _price(training: InLoopTraining, scenes: Sequence[Scene], calls: int, usual: Tensor) -> float:
    """The loss, with what more steps than `usual` cost."""
    loss, steps = _loss_and_steps(training, scenes, calls)
    price = float(loss + STEP_PRICE * (steps / usual).log().clamp_min(0).to(loss.device))
    return price if price == price else float("inf")


@torch.no_grad()
def _loss_and_steps(training: InLoopTraining, scenes: Sequence[Scene], calls: int) -> tuple[Tensor, Tensor]:
    """The mean loss, and the mean number of steps of conjugate gradient per call."""
    losses = [training.loss_on(scene, calls) for scene in scenes]
    steps = [torch.as_tensor(training.method_of(scene, calls).cg_iterations).double().mean() for scene in scenes]
    return torch.stack(losses).mean(), torch.stack(steps).mean()
