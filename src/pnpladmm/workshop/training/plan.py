"""The plan of a training: all its settings, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from pnpladmm.denoisers.shipped import is_gradient_step, needs_float32
from pnpladmm.tensors import InputError


@dataclass(frozen=True)
class Penalty:
    """The penalty on the Hessian's eigenvalues when a gradient step is trained (gradient_step.py)."""

    weight: float = 4.0
    margin: float = 0.05
    """The largest eigenvalue is to stay this far below 1."""
    growth: float | None = None
    """The least eigenvalue is to stay above minus this, where pictures have little noise; None: no bound."""
    points: int = 4
    """Pictures in the pool at which the eigenvalues are watched."""
    side: int = 128
    """Side of those pictures in pixels."""
    every: int = 1
    """Steps from one penalty to the next."""
    begin: float = 0.4
    """Share of the budget after which the penalty begins."""

    def __post_init__(self) -> None:
        _above_0(self, ("margin", "points", "side", "every"), "penalty.")
        if not (math.isfinite(self.weight) and self.weight >= 0):
            raise InputError(f"penalty.weight = {self.weight}: give a number of at least 0")
        if self.margin >= 1:
            raise InputError(f"penalty.margin = {self.margin}: give a number below 1")
        if self.growth is not None and not (math.isfinite(self.growth) and self.growth >= 0):
            raise InputError(f"penalty.growth = {self.growth}: give a number of at least 0")
        if self.side % 8:
            raise InputError(f"penalty.side = {self.side}: give a multiple of 8, the network's stride")


@dataclass(frozen=True)
class Plan:
    """The settings of one training. It ends when `minutes` or `steps` are spent, whichever comes first.

    `start` trains on from the weights in a file. `resume` continues from the checkpoint beside `out`, if there is
    one. `minutes` include the decoding of the pictures and compilation.
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
    """Share of colour crops whose chroma has half the resolution (data.py)."""
    optimizer: str = "adamw"
    """`adamw`, or `muon` (muon.py), whose learning rates are about ten times larger: 0.004 for DRUNet."""
    learning_rate: float = 1e-3
    warmup_steps: int = 500
    weight_decay: float = 1e-4
    weak_noise: float = 0.2
    """Share of crops with a noise level below 12/255."""
    ema: float = 0.999
    """Decay of the average of the weights."""
    clip: float | None = None
    """Gradients longer than this are shortened to it; see `gradient_limit` for the default."""
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
    penalty: Penalty = field(default_factory=Penalty)
    """Used for gradient steps only."""
    scenes_from: float = 1.0
    """Share of the budget after which a gradient step is also trained on the pictures at which certified runs end
    (scenes.py)."""

    def __post_init__(self) -> None:
        if self.minutes is None and self.steps is None:
            raise InputError("minutes, steps: the training would never end: give one of them, or both")
        _above_0(self, ("minutes", "steps", "batch", "crop", "learning_rate", "clip", "log_steps"))
        if self.crop % 8:
            raise InputError(f"crop = {self.crop}: give a multiple of 8, the networks' stride")
        if not self.scales or not all(0 < scale <= 1 for scale in self.scales):
            raise InputError(f"scales = {self.scales}: give numbers above 0 and up to 1")
        if self.channels not in (1, 3):
            raise InputError(f"channels = {self.channels}: give 1 (grey) or 3 (colour)")
        for name in ("weak_noise", "soft_chroma", "scenes_from"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} = {getattr(self, name)}: give a share between 0 and 1")
        if self.soft_chroma and self.channels == 1:
            raise InputError(f"soft_chroma = {self.soft_chroma}: grey pictures have no colour; leave it out")
        optimizers = ("adamw",) if self.is_gradient_step or self.is_ridge else ("adamw", "muon")
        if self.optimizer not in optimizers:
            raise InputError(f"optimizer = {self.optimizer}, network {self.network}: give {' or '.join(optimizers)}")
        precisions: tuple[str, ...] = ("float32", "float16", "bfloat16")
        if self.is_gradient_step or self.is_ridge:
            precisions = ("float32", "bfloat16") if self.is_gradient_step else ("float32",)
        if self.precision not in precisions:
            raise InputError(f"precision = {self.precision}, network {self.network}: give {' or '.join(precisions)}")
        if self.out.suffix != ".safetensors":
            raise InputError(f"{self.out}: weights are written as .safetensors: end the name with that")

    @property
    def is_gradient_step(self) -> bool:
        """Is the network trained as a gradient step, with the penalty?"""
        return is_gradient_step(self.network)

    @property
    def is_ridge(self) -> bool:
        """Is the network one whose curvature is bounded by its weights?"""
        return needs_float32(self.network)

    @property
    def largest_crop(self) -> int:
        """The least side in pixels of pictures that can be trained on."""
        return max(self.crop, self.penalty.side) if self.is_gradient_step else self.crop

    @property
    def gradient_limit(self) -> float:
        """The norm that longer gradients are shortened to: `clip`; by default 1, for gradient steps 100.

        The gradients of the error and of the penalty oppose each other (cosine -0.96, norms of 6 and 9, measured after
        a training with the limit 1). With limit 1 and a penalty at every second step, both kinds of step had norm 1
        and cancelled each other, whatever the penalty's weight. With limit 100 only outliers are shortened.
        """
        return self.clip or (100.0 if self.is_gradient_step else 1.0)


def _above_0(settings: Plan | Penalty, names: tuple[str, ...], prefix: str = "") -> None:
    """Refuse numbers that are given and not above 0."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InputError(f"{prefix}{name} = {value}: give a number above 0")
