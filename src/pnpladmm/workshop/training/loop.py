"""The training loop: a folder of pictures in, weights and their card out; it can be killed at any time."""

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

from pnpladmm.denoisers.architecture import Network
from pnpladmm.denoisers.base import Denoiser
from pnpladmm.denoisers.building import new_network, read_network
from pnpladmm.denoisers.drunet import DRUNet
from pnpladmm.denoisers.light import LightNet
from pnpladmm.denoisers.network import NetworkDenoiser
from pnpladmm.denoisers.smooth_unet import SmoothUNet
from pnpladmm.tensors import InputError
from pnpladmm.workshop.training.checkpoint import checkpoint_path, read_checkpoint, write_checkpoint, write_weights
from pnpladmm.workshop.training.data import CropStore, mirror_ends, soften_chroma
from pnpladmm.workshop.training.evaluate import psnr_table
from pnpladmm.workshop.training.muon import Muon
from pnpladmm.workshop.training.recipe import Recipe, draw_sigma, expected_error

MAX_ROLLBACKS = 5
HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}
# Float16 has few digits for gradients of single pixels, about 1e-6; the longest of a weight are 1e-2, far from its
# largest number, 65504. A power of 2, which rounds nothing.
LOSS_SCALE = 64.0
VALIDATION_SIGMAS = (5.0, 15.0, 25.0, 50.0)
NAMES: dict[type, str] = {DRUNet: "drunet", LightNet: "light", SmoothUNet: "prox-drunet"}


@dataclass(frozen=True)
class Progress:
    """Where a training stands: said every `log_steps` steps; `psnr` where it was just validated."""

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
    """One training: its network, average, optimiser and random numbers. `run` does it all."""

    mirrored = True
    """Whether the network will be given pictures padded by their mirror image."""

    def __init__(self, recipe: Recipe) -> None:
        """Make or resume everything; the pictures are decoded here."""
        self.recipe = recipe
        self.began = time.monotonic()
        self.ended: float | None = None
        self.device = torch.device(recipe.device)
        torch.manual_seed(recipe.seed)
        network = _first_network(recipe)
        network.to(self.device)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.network = network
        self.average = {key: value.detach().clone() for key, value in self.network.state_dict().items()}
        # Both lists alias what they list: made once, because a step of the light network is short.
        self._averaged = list(self.average.values())
        self._live = list(self.network.state_dict().values())
        self.optimizer = _optimizer(recipe, self.network)
        self.generator = torch.Generator(self.device).manual_seed(recipe.seed)
        self.step = 0
        self.rate_factor = 1.0
        self.loss = math.nan
        self.psnr: dict[str, float] = {}
        self.psnr_on: str | None = None
        self.more: dict[str, Tensor] = {}
        """What only some trainings carry from step to step; part of the checkpoint."""
        self._resume()
        self.pictures = CropStore.from_folder(
            recipe.data, recipe.channels, recipe.largest_crop, self.device, recipe.scales
        )
        self._loss_of: Callable[[Tensor, Tensor, Tensor], Tensor] = self._weighted_loss
        if recipe.compile_network:
            self._loss_of = torch.compile(self._weighted_loss, dynamic=False)

    @property
    def seconds(self) -> float:
        """Seconds spent, those before a resumption included; they stand still when it is over, as its card does."""
        return (self.ended or time.monotonic()) - self.began

    @property
    def share(self) -> float:
        """The share of the budget spent."""
        return self.recipe.progress(self.step, self.seconds)

    def _resume(self) -> None:
        path = checkpoint_path(self.recipe.out)
        if not (self.recipe.resume and path.is_file()):
            return
        numbers = read_checkpoint(path, self.network, self.average, self.optimizer, self.generator, self.more)
        self.step = int(numbers.get("step", 0))
        self.rate_factor = numbers.get("rate_factor", 1.0)
        self.loss = numbers.get("loss", math.nan)
        self.began -= numbers.get("seconds", 0.0)

    def _weighted_loss(self, clean: Tensor, noise: Tensor, sigma: Tensor) -> Tensor:
        noisy = clean + sigma.reshape(-1, 1, 1, 1) * noise
        half = HALF.get(self.recipe.precision)
        with torch.autocast(self.device.type, half) if half else contextlib.nullcontext():
            restored = self.network(noisy, sigma)
        error = (restored.float() - clean).square().mean((1, 2, 3))
        loss: Tensor = (error / expected_error(sigma)).mean()
        return loss

    def _advance(self) -> Tensor:
        """One step; returns its loss without waiting for the device."""
        recipe = self.recipe
        rate = self.rate_factor * recipe.learning_rate_at(self.step, self.share)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        clean, noise, sigma = self._draw()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._loss_of(clean, noise, sigma)
        (LOSS_SCALE * loss).backward()  # type: ignore[no-untyped-call]
        gradients = [p.grad for p in self.network.parameters() if p.grad is not None]
        torch._foreach_mul_(gradients, 1 / LOSS_SCALE)
        self._add_gradients()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), recipe.gradient_limit, foreach=True)
        if recipe.precision == "float16":
            # An overflow has become 0 in all gradients but for NaN where it was: a step that is left out.
            for gradient in gradients:
                gradient.nan_to_num_(0.0)
        self.optimizer.step()
        self.step += 1
        # The average forgets the first steps quickly and settles to `ema`.
        keep = min(recipe.ema, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            torch._foreach_lerp_(self._averaged, self._live, 1 - keep)
        return loss.detach()

    def _draw(self) -> tuple[Tensor, Tensor, Tensor]:
        """Crops, noise of deviation 1, and noise levels of one batch."""
        recipe = self.recipe
        clean = self.pictures.crops(recipe.batch, recipe.crop, self.generator)
        if recipe.soft_chroma:
            clean = soften_chroma(clean, recipe.soft_chroma, self.generator)
        sigma = draw_sigma(recipe.batch, recipe.weak_noise, self.generator)
        noise = torch.empty_like(clean).normal_(generator=self.generator)
        if self.mirrored:
            both = mirror_ends(torch.cat([clean, noise], 1), self.network.stride, self.generator)
            clean, noise = (one.contiguous(memory_format=torch.channels_last) for one in both.tensor_split(2, 1))
        return clean, noise, sigma

    def _add_gradients(self) -> None:
        """Add the gradients of what a training wants beyond a small error; most want nothing."""

    def _note(self) -> str:
        """What a training has to say for the log beyond its loss."""
        return ""

    def run(self, progress: Callable[[Progress], None] | None = None) -> dict[str, Any]:
        """Train until the budget is spent; write weights and card; return the card."""
        recipe = self.recipe
        say = progress or (lambda _: None)
        good = self._snapshot()
        rollbacks = 0
        last_checkpoint = last_validation = self.seconds
        while self.share < 1:
            began, first = self.seconds, self.step
            total = torch.zeros((), device=self.device)
            while self.share < 1 and self.step - first < recipe.log_steps:
                total += self._advance()
            loss = float(total) / (self.step - first)  # waits for the device
            if not math.isfinite(loss):
                rollbacks += 1
                if rollbacks > MAX_ROLLBACKS:
                    raise InputError(
                        f"the loss is not finite after {MAX_ROLLBACKS} restarts: learning_rate = "
                        f"{recipe.learning_rate} is too high"
                    )
                self._roll_back(good)
                continue
            self.loss = loss
            psnr = None
            if recipe.validation is not None and self.seconds - last_validation > recipe.validation_seconds:
                psnr = self._validate()
                last_validation = self.seconds
            if self.seconds - last_checkpoint >= recipe.checkpoint_seconds:
                good = self._snapshot()
                self.save()
                last_checkpoint = self.seconds
            crops = (self.step - first) * recipe.batch
            speed = crops / max(1e-9, self.seconds - began)
            rate = float(self.optimizer.param_groups[0]["lr"])
            note = self._note()
            say(Progress(self.step, self.seconds, min(1.0, self.share), loss, rate, speed, psnr, note))
        self.ended = time.monotonic()
        # Weights first: they are what a training is for, and validation may take a while.
        self.save()
        if recipe.validation is not None:
            psnr = self._validate()
            say(Progress(self.step, self.seconds, 1.0, self.loss, 0.0, 0.0, psnr, self._note()))
            write_weights(recipe.out, self.average, self.card())
        return self.card()

    def save(self) -> None:
        """Write the averaged weights with their card, and the checkpoint."""
        write_weights(self.recipe.out, self.average, self.card())
        numbers = {
            "step": float(self.step),
            "seconds": self.seconds,
            "loss": self.loss,
            "rate_factor": self.rate_factor,
        }
        path = checkpoint_path(self.recipe.out)
        write_checkpoint(path, self.network, self.average, self.optimizer, self.generator, numbers, self.more)

    def _snapshot(self) -> dict[str, Tensor]:
        return {key: value.detach().clone() for key, value in self.average.items()}

    def _roll_back(self, good: dict[str, Tensor]) -> None:
        """After a non-finite loss: back to the last good average, a fresh optimiser, half the rate."""
        self.network.load_state_dict(good)
        for key, value in self.average.items():
            value.copy_(good[key])
        self.optimizer.state.clear()
        self.rate_factor /= 2

    def _validate(self) -> dict[str, float]:
        assert self.recipe.validation is not None
        averaged = deepcopy(self.network)
        averaged.load_state_dict(self.average)
        rows = psnr_table(self._denoiser(averaged), self.recipe.validation, VALIDATION_SIGMAS, self.recipe.channels)
        self.psnr = {f"{row.sigma:g}": round(row.psnr, 2) for row in rows}
        self.psnr_on = f"{self.recipe.validation.name}, {rows[0].pictures} pictures"
        return self.psnr

    def _denoiser(self, network: Network) -> Denoiser:
        return NetworkDenoiser({self.recipe.channels: network}, precision=torch.float32)

    def card(self) -> dict[str, Any]:
        """What the weights are and how they were made; no paths, so that it can be shipped."""
        recipe = self.recipe
        return {
            "network": recipe.network,
            "channels": recipe.channels,
            "parameters": sum(value.numel() for value in self.average.values()),
            "data": recipe.data_note or recipe.data.name,
            "pictures": len(self.pictures),
            "steps": self.step,
            "batch": recipe.batch,
            "crop": recipe.crop,
            "scales": list(recipe.scales),
            "soft_chroma_share": recipe.soft_chroma,
            "mirrored_ends": self.mirrored,
            "crops": self.step * recipe.batch,
            "minutes": round(self.seconds / 60, 2),
            "device": torch.cuda.get_device_name() if self.device.type == "cuda" else "CPU",
            "precision": recipe.precision,
            "optimizer": recipe.optimizer,
            "learning_rate": recipe.learning_rate,
            "sigma_range": "0..60/255",
            "weak_noise_share": recipe.weak_noise,
            "weight_average": recipe.ema,
            "loss": "squared error, weighted by the noise level alone",
            "final_loss": self.loss if math.isfinite(self.loss) else None,
            "started_from": recipe.start.name if recipe.start is not None else None,
            "psnr": self.psnr,
            "psnr_on": self.psnr_on,
        }


def _first_network(recipe: Recipe) -> Network:
    if recipe.start is None:
        return new_network(recipe.network, recipe.channels, recipe.widths, recipe.blocks)
    network = read_network(recipe.start)
    name = NAMES[type(network)]
    if (name, network.channels) != (recipe.network, recipe.channels):
        raise InputError(
            f"{recipe.start}: holds a {name} for {network.channels} channels, and a {recipe.network} for "
            f"{recipe.channels} was asked for"
        )
    return network


def _optimizer(recipe: Recipe, network: Network) -> torch.optim.Optimizer:
    if recipe.optimizer == "muon":
        return Muon(network.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay)
    fused = recipe.device.startswith("cuda")
    return torch.optim.AdamW(
        network.parameters(), recipe.learning_rate, (0.9, 0.99), weight_decay=recipe.weight_decay, fused=fused
    )


def train(recipe: Recipe, progress: Callable[[Progress], None] | None = None) -> dict[str, Any]:
    """Train as the recipe says and return the card; resumes from the checkpoint beside `recipe.out`."""
    if recipe.network == "prox-drunet":
        from pnpladmm.workshop.training.gradient_step import GradientStepTraining

        return GradientStepTraining(recipe).run(progress)
    return Training(recipe).run(progress)
