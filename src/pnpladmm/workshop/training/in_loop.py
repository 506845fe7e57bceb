"""Training in the loop: the network learns on what the data steps of the annealed method leave behind.

A step draws crops, blurs them (random_blurs.py), adds noise, restores them by the annealed method (unrolled.py), and
moves the weights that all calls share, and the method's own parameters (method_schedule.py), towards a smaller loss:

    loss = E log( ||x_K - x||^2 / N  +  FLOOR m(noise) )

`x_K` is the picture after all calls and `m(noise)` about the error that is left at that noise. The logarithm makes it
the mean PSNR, and the floor keeps pictures that are nearly perfect already from dominating it. The best network for
this is not the conditional mean at each call: it knows what the blur leaves behind, and is no proximal operator.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpladmm.data_terms import Gaussian
from pnpladmm.denoisers.network import mirrored
from pnpladmm.locks import only_writer_of
from pnpladmm.solvers import Annealed, Problem
from pnpladmm.tensor_files import read_tensors
from pnpladmm.tensors import InputError
from pnpladmm.workshop.training.checkpoint import checkpoint_path, read_card
from pnpladmm.workshop.training.data import soften_chroma
from pnpladmm.workshop.training.in_loop_plan import InLoopPlan
from pnpladmm.workshop.training.in_loop_table import restored_psnr
from pnpladmm.workshop.training.loop import HALF, Progress, Training
from pnpladmm.workshop.training.method_schedule import TRAINED, MethodSchedule
from pnpladmm.workshop.training.photographs import recorded
from pnpladmm.workshop.training.random_blurs import BlurPair, BlurPool, BlurSource
from pnpladmm.workshop.training.random_kernels import KernelBank
from pnpladmm.workshop.training.unrolled import unrolled

WEAKEST = 0.5
"""The weakest noise of the training pictures, of 255."""
EVEN_IN_LOG = 0.75
"""Share of the steps whose noise level is even in its logarithm; that of the others is even in itself."""
FLOOR = 0.05
FIRST_SHARE = 0.65
"""Share of the steps with the first of several numbers of calls; the others share the rest evenly."""
LUMA = (0.299, 0.587, 0.114)

Net = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Scene:
    """What a step restores, and the pictures it should become."""

    problem: Problem
    clean: Tensor
    noise: Tensor
    """As the restoration is told, of 255: (B,), float64, on the CPU."""


class InLoopTraining(Training):
    """A training of a network, and of the schedule, for `Annealed`."""

    plan: InLoopPlan

    def __init__(self, plan: InLoopPlan) -> None:
        """As every training, with blurs and a schedule; `extra` holds the schedule, so the checkpoint does."""
        super().__init__(plan)
        self.schedules = {calls: MethodSchedule(plan.settings_of or plan.network, calls) for calls in plan.calls}
        if plan.start is not None:
            self._take_schedules_of_start()
        numbers = [schedule.logs for schedule in self.schedules.values()]
        self.schedule_optimizer = torch.optim.Adam(numbers, plan.schedule_rate, (0.9, 0.99))
        self._resume_schedules()
        bank = KernelBank.drawn(plan.kernels, torch.Generator().manual_seed(plan.seed)).to(self.device)
        source = BlurSource(bank, plan.batch, plan.crop, self.device, plan.photo)
        self.pool = BlurPool(source, plan.seed, plan.blurs, plan.renew_steps)
        self._network: Net = self.network
        if plan.compile_network:
            self._network = torch.compile(self.network, dynamic=False)

    def scene(self, blur: BlurPair, noise: float, grey: bool) -> Scene:
        """Crops, blurred, with noise (of 255); with `photo` as a file holds them, and what a user says of them."""
        clean = self.pictures.crops(self.plan.batch, blur.true.scene[0], self.generator).contiguous()
        if self.plan.soft_chroma:
            clean = soften_chroma(clean, self.plan.soft_chroma, self.generator)
        if grey:
            clean = (torch.tensor(LUMA, device=clean.device).view(1, -1, 1, 1) * clean).sum(1, keepdim=True)
        blurred = blur.true.forward(clean)
        error = torch.empty_like(blurred).normal_(generator=self.generator)
        noisy = blurred + noise / 255 * error
        if not self.plan.photo:
            levels = torch.full((len(clean),), noise, dtype=torch.float64)
            return Scene(Problem(noisy, blur.told, Gaussian(noise / 255)), clean, levels)
        wrong = 255 * (blurred - blur.told.forward(clean)).square().mean((1, 2, 3)).sqrt()
        observed, term, told = recorded(noisy, noise, wrong.double().cpu(), (self.plan.seed, self.step, 5))
        return Scene(Problem(observed, blur.told, term), clean, told)

    def method_of(self, scene: Scene, calls: int) -> Annealed:
        """The method that restores a scene in this many calls."""
        denoise = self.denoiser_of(self._network)
        return Annealed.from_settings(denoise, scene.problem, self.schedules[calls].at(scene.noise), calls)

    def restored(self, scene: Scene, calls: int) -> Tensor:
        """The picture after this many calls, with gradients to the network and the schedule."""
        return unrolled(scene.problem, self.method_of(scene, calls))

    def loss_on(self, scene: Scene, calls: int) -> Tensor:
        """`log(error + FLOOR m)` on what was observed, mean over the pictures where it is finite."""
        error = scene.problem.crop_to_observed(self.restored(scene, calls) - scene.clean).square().mean((1, 2, 3))
        each = (error + FLOOR * usual_error(scene.noise).to(error)).log()
        finite = each.isfinite()
        return torch.where(finite, each, 0.0).sum() / finite.sum()

    def denoiser_of(self, network: Net) -> Callable[[Tensor, Any], Tensor]:
        """The network as `NetworkDenoiser` uses it, with gradients; grey pictures are copied into its channels."""
        stride, half = self.network.stride, HALF.get(self.plan.precision)

        def denoise(v: Tensor, sigma: Any) -> Tensor:
            (batch, channels), (height, width) = v.shape[:2], v.shape[2:]
            copies = self.plan.channels // channels
            sigma = torch.as_tensor(sigma, dtype=torch.float32, device=v.device)
            if copies > 1:
                v, sigma = v.expand(-1, copies, -1, -1), math.sqrt(copies) * sigma
            padded = mirrored(v, stride).contiguous(memory_format=torch.channels_last)
            with torch.autocast(self.device.type, half) if half else contextlib.nullcontext():
                out = network(padded, sigma.expand(batch).contiguous())
            out = out[..., :height, :width].to(v.dtype)
            return out.mean(1, keepdim=True) if copies > 1 else out

        return denoise

    def _loss_of_step(self) -> Tensor:
        """On a new scene."""
        rng = np.random.default_rng((self.plan.seed, self.step, 3))
        noise = draw_noise(self.plan.seed, self.step, self.plan.strongest)
        scene = self.scene(self.pool.at(self.step), noise, grey=rng.random() < self.plan.grey)
        return self.loss_on(scene, draw_calls(self.plan.calls, rng.random()))

    def _add_gradients(self) -> None:
        """Drop what is not finite, and do the step of the schedule in use; its rate falls as the network's does."""
        for parameter in self.network.parameters():
            if parameter.grad is not None:
                parameter.grad.nan_to_num_(0.0, 0.0, 0.0)
        share = float(self.optimizer.param_groups[0]["lr"]) / self.plan.learning_rate
        self.schedule_optimizer.param_groups[0]["lr"] = share * self.plan.schedule_rate
        for schedule in self.schedules.values():
            if schedule.logs.grad is not None:
                schedule.logs.grad.div_(self.scaler.get_scale()).nan_to_num_(0.0, 0.0, 0.0)
        self.schedule_optimizer.step()
        self.schedule_optimizer.zero_grad(set_to_none=True)

    def save(self) -> None:
        """As every training, with the schedules."""
        self.extra = {}
        for calls, schedule in self.schedules.items():
            state = self.schedule_optimizer.state.get(schedule.logs, {})
            self.extra[f"schedule-{calls}"] = schedule.logs.detach()
            for key, value in state.items():
                self.extra[f"schedule-{calls}.{key}"] = torch.as_tensor(value, dtype=torch.float64)
        super().save()

    def _resume_schedules(self) -> None:
        """Take the schedules, and the state of their optimizer, from a checkpoint."""
        if not self.extra and self.step == 0:
            return
        path = checkpoint_path(self.plan.out)
        for calls, schedule in self.schedules.items():
            name, logs = f"schedule-{calls}", schedule.logs
            if name not in self.extra or self.extra[name].shape != logs.shape:
                raise InputError(f"{path}: a checkpoint of another kind of training: move it away to begin anew")
            with torch.no_grad():
                logs.copy_(self.extra[name])
            prefix = f"{name}."
            state = {key.removeprefix(prefix): value for key, value in self.extra.items() if key.startswith(prefix)}
            if state:
                self.schedule_optimizer.state[logs] = {**state, "step": state["step"].float()}

    def _take_schedules_of_start(self) -> None:
        """The schedules of weights that were trained in the loop already: those of as many calls, else any."""
        path = self.plan.start
        assert path is not None
        card = read_card(read_tensors(path)[1], path)
        known = card.get("settings", {}) if isinstance(card, dict) else None
        if not isinstance(known, dict):
            raise InputError(f"{path}: its card holds no settings that can be read: give other weights")
        for calls, schedule in self.schedules.items():
            if known:
                schedule.load(known.get(f"fast-{calls}", next(iter(known.values()))), str(path))

    def _validate(self) -> dict[str, float]:
        """PSNR in dB of blurred validation pictures, restored by the annealed method as it is shipped."""
        assert self.plan.validation is not None
        denoise = self.denoiser_of(deepcopy(self.average.network).requires_grad_(False))
        self.psnr = {}
        for calls, schedule in self.schedules.items():
            settings = {noise: schedule.at(noise) for noise in (1.0, 10.0, 20.0, 40.0)}
            found, pictures = restored_psnr(self.plan.validation, denoise, settings, calls, self.pool.source)
            self.psnr |= {f"{noise} ({calls} calls)": psnr for noise, psnr in found.items()}
        self.psnr_on = f"{self.plan.validation.name}, {pictures} pictures, blurred"
        return self.psnr

    def _note(self) -> str:
        row = self.schedules[self.plan.calls[0]].rows()["10"]
        settings = "  at noise 10: " + " ".join(f"{key} {row[key]:.3g}" for key in TRAINED)
        return settings + (f"  scale of the loss {self.scaler.get_scale():g}" if self.scaler.is_enabled() else "")

    def card(self) -> dict[str, Any]:
        """As for every training, with the settings that belong to the weights."""
        plan = self.plan
        return super().card() | {
            "loss": "logarithm of the squared error of the picture after all calls",
            "sigma_range": f"{WEAKEST:g}..{plan.strongest:g}/255, noise of the observation",
            "weak_noise_share": None,
            "mirrored_ends": None,
            "calls": list(plan.calls),
            "pictures": "photo" if plan.photo else "exact",
            "grey_share": plan.grey,
            "settings": {f"fast-{calls}": schedule.rows() for calls, schedule in self.schedules.items()},
        }


def draw_noise(seed: int, step: int, strongest: float) -> float:
    """The noise level (of 255) of a step, at most `strongest`."""
    rng = np.random.default_rng((seed, step, 2))
    if rng.random() < EVEN_IN_LOG:
        return float(WEAKEST * (strongest / WEAKEST) ** rng.random())
    return float(rng.uniform(WEAKEST, strongest))


def draw_calls(calls: tuple[int, ...], share: float) -> int:
    """The number of calls of a step; `share` is a random number in [0, 1)."""
    if share < FIRST_SHARE or len(calls) == 1:
        return calls[0]
    return calls[1 + int((share - FIRST_SHARE) / (1 - FIRST_SHARE) * (len(calls) - 1))]


def usual_error(noise: float | Tensor) -> Tensor:
    """`m(noise)`: about the mean squared error of a restored photograph at a noise level (of 255)."""
    return 6e-4 * torch.sqrt(torch.as_tensor(noise) + 1.0)


def train_in_loop(plan: InLoopPlan, progress: Callable[[Progress], None] | None = None) -> dict[str, Any]:
    """Train by a plan and return the card; continues from the checkpoint beside `plan.out`."""
    with only_writer_of(plan.out):
        return InLoopTraining(plan).run(progress)
