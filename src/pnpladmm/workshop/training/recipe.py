"""What a training is: its settings, its noise levels, its loss and its learning rate.

The loss is the squared error weighted by a function of the noise level alone,

    loss = E_{x, sigma, e}  ||D_sigma(x + sigma e) - x||^2 / m(sigma),

so that for each sigma the minimiser is still the conditional mean E[x | x + sigma e] (the MMSE estimator)
and the weight only says how the network's capacity is shared between the noise levels. (But for the last rows and
columns of crops that end in a mirror image, whose noise comes twice: training/data.py.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pnpladmm.denoisers.network import SIGMA_MAX
from pnpladmm.tensors import InputError

WEAK_SIGMA_MAX = 12 / 255


@dataclass(frozen=True)
class Recipe:
    """The settings of one training. Give `minutes`, `steps` or both: the first to be spent ends it.

    `start` takes the weights of a file and trains on from there. `resume` goes on where the checkpoint
    beside `out` stopped, if there is one. `minutes` count decoding and compilation too.
    """

    data: Path
    out: Path
    network: str = "light"
    channels: int = 3
    minutes: float | None = None
    steps: int | None = None
    batch: int = 64
    crop: int = 128
    scales: tuple[float, ...] = (1.0,)
    soft_chroma: float = 0.0
    """The share of colour crops whose chroma has half the resolution (training/data.py)."""
    optimizer: str = "adamw"
    """"adamw" or "muon" (training/muon.py), whose rates are some 10 times as large: 0.004 for DRUNet."""
    learning_rate: float = 1e-3
    warmup_steps: int = 500
    weight_decay: float = 1e-4
    weak_noise: float = 0.2
    ema: float = 0.999
    clip: float | None = None
    """Longer gradients are cut to this norm; by default 1, and 100 for gradient steps (`gradient_limit`)."""
    seed: int = 0
    device: str = "cpu"
    precision: str = "float32"
    compile_network: bool = False
    start: Path | None = None
    resume: bool = True
    widths: tuple[int, ...] | None = None
    blocks: int | None = None
    log_steps: int = 200
    checkpoint_seconds: float = 120.0
    validation: Path | None = None
    validation_seconds: float = 120.0
    data_note: str = ""
    penalty: float = 4.0
    """For gradient steps: the weight of the penalty on their curvature (training/gradient_step.py)."""
    margin: float = 0.05
    """How far below 1 the curvature is to stay; eigenvalues closer than this to their bound are watched for longer."""
    growth: float | None = None
    """How far below 0 the other end of the spectrum may go in pictures with little noise; None: as far as it likes."""
    penalty_crops: int = 4
    penalty_crop: int = 128
    penalty_every: int = 1
    penalty_from: float = 0.4
    """The share of the budget after which the penalty begins."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot be trained with."""
        if self.minutes is None and self.steps is None:
            raise InputError("a training without end: give minutes or steps")
        above_0 = ("minutes", "steps", "batch", "crop", "learning_rate", "clip", "log_steps", "margin")
        for name in (*above_0, "penalty_crops", "penalty_crop", "penalty_every"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} = {value}: give a number above 0")
        if not self.scales or not all(0 < scale <= 1 for scale in self.scales):
            raise InputError(f"scales = {self.scales}: give numbers above 0 and up to 1")
        if self.crop % 8 or self.penalty_crop % 8:
            raise InputError(f"crop = {self.crop}, penalty_crop = {self.penalty_crop}: give multiples of 8, the stride")
        if not (math.isfinite(self.penalty) and self.penalty >= 0 and self.margin < 1):
            raise InputError(f"penalty = {self.penalty}, margin = {self.margin}: give at least 0, and less than 1")
        if self.growth is not None and not (math.isfinite(self.growth) and self.growth >= 0):
            raise InputError(f"growth = {self.growth}: give a number of at least 0")
        if self.channels not in (1, 3):
            raise InputError(f"channels = {self.channels}: give 1 (grey) or 3 (colour)")
        for name in ("weak_noise", "soft_chroma"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} = {getattr(self, name)}: give a share between 0 and 1")
        if self.soft_chroma and self.channels == 1:
            raise InputError(
                f"soft_chroma = {self.soft_chroma}, channels = 1: grey pictures have no colour; leave it out"
            )
        optimizers = ("adamw",) if self.network == "prox-drunet" else ("adamw", "muon")
        if self.optimizer not in optimizers:
            raise InputError(f"optimizer = {self.optimizer}, network {self.network}: give {' or '.join(optimizers)}")
        precisions = ("float32", "bfloat16") if self.network == "prox-drunet" else ("float32", "float16", "bfloat16")
        if self.precision not in precisions:
            raise InputError(f"precision = {self.precision}, network {self.network}: give {' or '.join(precisions)}")
        if self.out.suffix != ".safetensors":
            raise InputError(f"{self.out}: weights are written as .safetensors; end the name so")

    @property
    def largest_crop(self) -> int:
        """The side in pixels that pictures must have to be trained on."""
        return max(self.crop, self.penalty_crop) if self.network == "prox-drunet" else self.crop

    @property
    def gradient_limit(self) -> float:
        """The norm that gradients are cut to.

        Of gradient steps only accidents are cut. The penalty's gradient opposes the error's (cosine -0.96; norms of 6
        and 9, measured after a training that cut to 1). With a penalty at every second step, both kinds of step had
        norm 1 then, and took turns: the curvature stayed where it was, whatever the penalty's weight.
        """
        return self.clip or (100.0 if self.network == "prox-drunet" else 1.0)

    def progress(self, step: int, seconds: float) -> float:
        """The share of the budget that is spent, from 0 to 1 (and beyond)."""
        by_time = seconds / (60 * self.minutes) if self.minutes is not None else 0.0
        by_steps = step / self.steps if self.steps is not None else 0.0
        return max(by_time, by_steps)

    def learning_rate_at(self, step: int, progress: float) -> float:
        """Linear over the first `warmup_steps`, then half a cosine down to 0 over the budget."""
        warmup = min(1.0, (step + 1) / max(1, self.warmup_steps))
        return self.learning_rate * warmup * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def draw_sigma(count: int, weak_noise: float, generator: torch.Generator) -> Tensor:
    """Noise levels (count,): uniform in 0..60/255, a share `weak_noise` of them in 0..12/255.

    The extra weak noise is for solvers, which end at sigma_d of 1 to 5/255.
    """
    device = generator.device
    level = torch.rand(count, generator=generator, device=device)
    weak = torch.rand(count, generator=generator, device=device) < weak_noise
    return level * torch.where(weak, WEAK_SIGMA_MAX, SIGMA_MAX)


def expected_error(sigma: Tensor) -> Tensor:
    """`m(sigma)`: about the mean squared error a good denoiser leaves, so that all levels weigh alike.

    In units of 1/255: 2 s^2 / (s + 2) + 0.2. Under weak noise that is nearly the noise itself, under strong
    noise it is linear; the 0.2 keeps the weight finite at 0. DRUNet on CBSD68 leaves 5.7 at s = 5 and 96
    at s = 50, where m is 7.3 and 96.
    """
    s = sigma * 255
    return (2 * s.square() / (s + 2) + 0.2) / 255**2
