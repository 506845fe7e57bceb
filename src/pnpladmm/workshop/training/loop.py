"""The training loop: a folder of pictures in, weights and their card out. It can be killed at any time and resumed."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.denoisers.network import NetworkDenoiser
from pnpladmm.locks import only_writer_of
from pnpladmm.tensors import InputError
from pnpladmm.workshop.training.average import WeightAverage
from pnpladmm.workshop.training.checkpoint import (
    Parts,
    checkpoint_path,
    read_checkpoint,
    write_checkpoint,
    write_weights,
)
from pnpladmm.workshop.training.data import CropStore, mirror_ends, soften_chroma
from pnpladmm.workshop.training.evaluate import SIGMAS, psnr_table
from pnpladmm.workshop.training.plan import Plan
from pnpladmm.workshop.training.schedule import draw_sigma, expected_error, learning_rate, share_spent
from pnpladmm.workshop.training.start import first_network, make_optimizer

MAX_ROLLBACKS = 5
HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}
LOSS_SCALE = 64.0
"""Where torch's scaling of float16 losses begins. Gradients of single pixels are about 1e-6, which has few digits in
float16; the largest of a weight are about 1e-2."""
LEAST_LOSS_SCALE = 4.0
"""Below this, most gradients would be lost in float16. Every step that is not finite halves the scale."""
STEPS_TO_GROW = 200
"""Finite steps after which the scale is doubled."""


@dataclass(frozen=True)
class Progress:
    """Where a training stands, reported every `log_steps` steps; `psnr` (dB) when it was validated just before."""

    step: int
    seconds: float
    share: float
    loss: float
    learning_rate: float
    crops_per_second: float
    psnr: dict[str, float] | None = None
    note: str = ""

    def __str__(self) -> str:
        """One line for a log."""
        line = (
            f"step {self.step}  {self.seconds:.0f} s  {100 * self.share:.1f} %  loss {self.loss:.4f}  "
            f"rate {self.learning_rate:.2e}  {self.crops_per_second:.0f} crops/s"
        )
        if self.psnr:
            line += "  PSNR " + "  ".join(f"{sigma}: {value:.2f}" for sigma, value in self.psnr.items())
        return line + self.note


class Training:
    """One training: its network, average, optimizer and random numbers. `run` does all of it."""

    mirrored = True
    """Whether the network will be given pictures that are padded by their mirror image."""

    def __init__(self, plan: Plan) -> None:
        """Make or resume everything; the pictures are decoded here."""
        self.plan = plan
        self.began = time.monotonic()
        self.ended: float | None = None
        self.device = torch.device(plan.device)
        torch.manual_seed(plan.seed)
        network = first_network(plan)
        network.to(self.device)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.network = network
        self.average = WeightAverage(network, plan.ema)
        self.optimizer = make_optimizer(plan, network)
        self.generator = torch.Generator(self.device).manual_seed(plan.seed)
        self.step = 0
        self.rate_factor = 1.0
        self.loss = math.nan
        self.psnr: dict[str, float] = {}
        self.psnr_on: str | None = None
        self.extra: dict[str, Tensor] = {}
        """What only some trainings carry from step to step; part of the checkpoint."""
        loss_scale = self._resume()
        self.scaler = torch.amp.GradScaler(
            self.device.type, loss_scale, growth_interval=STEPS_TO_GROW, enabled=plan.precision == "float16"
        )
        self.pictures = CropStore.from_folder(plan.data, plan.channels, plan.largest_crop, self.device, plan.scales)
        self._loss_of: Callable[[Tensor, Tensor, Tensor], Tensor] = self._weighted_loss
        if plan.compile_network:
            self._loss_of = torch.compile(self._weighted_loss, dynamic=False)

    @property
    def seconds(self) -> float:
        """Seconds spent, including those before a resumption; constant once the training has ended."""
        return (self.ended or time.monotonic()) - self.began

    @property
    def share(self) -> float:
        """The share of the budget that is spent."""
        return share_spent(self.step, self.seconds, self.plan.steps, self.plan.minutes)

    @property
    def _parts(self) -> Parts:
        return Parts(self.network, self.average.network, self.optimizer, self.generator)

    def _resume(self) -> float:
        """Continue from the checkpoint if there is one; returns the scale of the loss."""
        path = checkpoint_path(self.plan.out)
        if not (self.plan.resume and path.is_file()):
            return LOSS_SCALE
        numbers, self.extra = read_checkpoint(path, self._parts)
        self.step = int(numbers.get("step", 0))
        self.rate_factor = numbers.get("rate_factor", 1.0)
        self.loss = numbers.get("loss", math.nan)
        self.began -= numbers.get("seconds", 0.0)
        return numbers.get("loss_scale", LOSS_SCALE)

    def _weighted_loss(self, clean: Tensor, noise: Tensor, sigma: Tensor) -> Tensor:
        noisy = clean + sigma.reshape(-1, 1, 1, 1) * noise
        half = HALF.get(self.plan.precision)
        with torch.autocast(self.device.type, half) if half else contextlib.nullcontext():
            restored = self.network(noisy, sigma)
        error = (restored.float() - clean).square().mean((1, 2, 3))
        loss: Tensor = (error / expected_error(sigma)).mean()
        return loss

    def _advance(self) -> Tensor:
        """One step; returns its loss without waiting for the device."""
        plan = self.plan
        rate = self.rate_factor * learning_rate(plan.learning_rate, self.step, plan.warmup_steps, self.share)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._loss_of_step()
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.scaler.unscale_(self.optimizer)
        self._add_gradients()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), plan.gradient_limit, foreach=True)
        self.scaler.step(self.optimizer)  # left out if a gradient overflowed
        self.scaler.update()
        self.step += 1
        self.average.update(self.step)
        return loss.detach()

    def _loss_of_step(self) -> Tensor:
        """Draw a batch; returns its loss."""
        clean, noise, sigma = self._draw()
        return self._loss_of(clean, noise, sigma)

    def _draw(self) -> tuple[Tensor, Tensor, Tensor]:
        """Crops, noise of standard deviation 1, and noise levels of one batch."""
        plan = self.plan
        clean = self.pictures.crops(plan.batch, plan.crop, self.generator)
        if plan.soft_chroma:
            clean = soften_chroma(clean, plan.soft_chroma, self.generator)
        sigma = draw_sigma(plan.batch, plan.weak_noise, self.generator)
        noise = torch.empty_like(clean).normal_(generator=self.generator)
        if self.mirrored:
            both = mirror_ends(torch.cat([clean, noise], 1), self.network.stride, self.generator)
            clean, noise = (one.contiguous(memory_format=torch.channels_last) for one in both.tensor_split(2, 1))
        return clean, noise, sigma

    def _add_gradients(self) -> None:
        """Add the gradients of further terms of the loss; by default there are none."""

    def _note(self) -> str:
        """What the log says of further terms of the loss."""
        return ""

    def run(self, progress: Callable[[Progress], None] | None = None) -> dict[str, Any]:
        """Train until the budget is spent; write weights and card; return the card."""
        plan = self.plan
        report = progress or (lambda _: None)
        good = self._snapshot()
        rollbacks = 0
        last_checkpoint = last_validation = self.seconds
        while self.share < 1:
            began, first = self.seconds, self.step
            total = torch.zeros((), device=self.device)
            while self.share < 1 and self.step - first < plan.log_steps:
                total += self._advance()
            loss = float(total) / (self.step - first)  # waits for the device
            if self.scaler.is_enabled() and self.scaler.get_scale() < LEAST_LOSS_SCALE:
                self.scaler.update(LEAST_LOSS_SCALE)
            if not math.isfinite(loss):
                rollbacks += 1
                if rollbacks > MAX_ROLLBACKS:
                    raise InputError(
                        f"learning_rate = {plan.learning_rate}: the loss is not finite after {MAX_ROLLBACKS} restarts: "
                        "it is too high, give a lower one"
                    )
                self._roll_back(good)
                continue
            self.loss = loss
            psnr = None
            if plan.validation is not None and self.seconds - last_validation > plan.validation_seconds:
                psnr = self._validate()
                last_validation = self.seconds
            if self.seconds - last_checkpoint >= plan.checkpoint_seconds:
                good = self._snapshot()
                self.save()
                last_checkpoint = self.seconds
            speed = (self.step - first) * plan.batch / max(1e-9, self.seconds - began)
            rate = float(self.optimizer.param_groups[0]["lr"])
            report(Progress(self.step, self.seconds, min(1.0, self.share), loss, rate, speed, psnr, self._note()))
        self.ended = time.monotonic()
        self.save()  # before the validation, which may take a while
        if plan.validation is not None:
            psnr = self._validate()
            report(Progress(self.step, self.seconds, 1.0, self.loss, 0.0, 0.0, psnr, self._note()))
            self._write_weights()
        return self.card()

    def save(self) -> None:
        """Write the averaged weights with their card, and the checkpoint."""
        self._write_weights()
        numbers = {
            "step": float(self.step),
            "seconds": self.seconds,
            "loss": self.loss,
            "rate_factor": self.rate_factor,
        }
        if self.scaler.is_enabled():
            numbers["loss_scale"] = self.scaler.get_scale()
        write_checkpoint(checkpoint_path(self.plan.out), self._parts, numbers, self.extra)

    def _write_weights(self) -> None:
        network = self.average.network
        write_weights(self.plan.out, network.finished(), self.card(), network.file_precision)

    def _snapshot(self) -> dict[str, Tensor]:
        return deepcopy(self.average.network.state_dict())

    def _roll_back(self, good: dict[str, Tensor]) -> None:
        """After a loss that is not finite: the last good average, a fresh optimizer, half the learning rate."""
        self.network.load_state_dict(good)
        self.average.network.load_state_dict(good)
        self.optimizer.state.clear()
        self.rate_factor /= 2

    def _validate(self) -> dict[str, float]:
        """PSNR in dB at each noise level on the validation pictures."""
        assert self.plan.validation is not None
        rows = psnr_table(self._denoiser(), self.plan.validation, SIGMAS, self.plan.channels)
        self.psnr = {f"{row.sigma:g}": round(row.psnr, 2) for row in rows}
        self.psnr_on = f"{self.plan.validation.name}, {rows[0].pictures} pictures"
        return self.psnr

    def _denoiser(self) -> Denoiser:
        """A denoiser with a copy of the averaged weights."""
        return NetworkDenoiser({self.plan.channels: deepcopy(self.average.network)}, precision=torch.float32)

    def card(self) -> dict[str, Any]:
        """What the weights are and how they were made; without paths, so that it can be shipped."""
        plan = self.plan
        return {
            "network": plan.network,
            "channels": plan.channels,
            "parameters": sum(value.numel() for value in self.network.state_dict().values()),
            "data": plan.data_note or plan.data.name,
            "pictures": len(self.pictures),
            "steps": self.step,
            "batch": plan.batch,
            "crop": plan.crop,
            "scales": list(plan.scales),
            "soft_chroma_share": plan.soft_chroma,
            "mirrored_ends": self.mirrored,
            "crops": self.step * plan.batch,
            "minutes": round(self.seconds / 60, 2),
            "device": torch.cuda.get_device_name() if self.device.type == "cuda" else "CPU",
            "precision": plan.precision,
            "optimizer": plan.optimizer,
            "learning_rate": plan.learning_rate,
            "sigma_range": "0..60/255",
            "weak_noise_share": plan.weak_noise,
            "weight_average": plan.ema,
            "loss": "squared error, weighted by the noise level alone",
            "final_loss": self.loss if math.isfinite(self.loss) else None,
            "started_from": plan.start.name if plan.start is not None else None,
            "psnr": self.psnr,
            "psnr_on": self.psnr_on,
        }


def train(plan: Plan, progress: Callable[[Progress], None] | None = None) -> dict[str, Any]:
    """Train by a plan and return the card; continues from the checkpoint beside `plan.out`."""
    with only_writer_of(plan.out):
        if plan.is_gradient_step:
            from pnpladmm.workshop.training.gradient_step import GradientStepTraining

            return GradientStepTraining(plan).run(progress)
        if plan.is_ridge:
            from pnpladmm.workshop.training.ridge import RidgeTraining

            return RidgeTraining(plan).run(progress)
        return Training(plan).run(progress)
