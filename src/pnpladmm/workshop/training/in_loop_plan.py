"""The plan of a training in the loop: its settings, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pnpladmm.tensors import InputError
from pnpladmm.workshop.training.plan import Plan

STRONGEST, STRONGEST_IN_PHOTOGRAPHS = 60.0, 25.0
"""Of 255. Files with stronger noise are rare."""


@dataclass(frozen=True)
class InLoopPlan(Plan):
    """The settings of one training in the loop: those of every training, and those of blurs and method.

    `start` should be a network that denoises. `crop` is the side of a scene before it is blurred. `weak_noise` and
    `penalty` are not used.
    """

    batch: int = 32
    crop: int = 160
    learning_rate: float = 2e-4
    warmup_steps: int = 100
    calls: tuple[int, ...] = (8,)
    """Denoiser calls of the annealed method. With several numbers the weights learn all of them, the first the most."""
    photo: bool = False
    """Train on pictures as files hold them (photographs.py): JPEG, clipped, with a PSF and a noise level that are off.
    Otherwise PSF and noise level are exact."""
    settings_of: str | None = None
    """The denoiser whose tuned settings the schedule begins with; if None, `network`."""
    schedule_rate: float = 0.0
    """Learning rate of the schedule; it falls as `learning_rate` does. 0 keeps the schedule.

    The steps of conjugate gradient follow the schedule, and no gradient knows of them: trained along for 3,000 steps
    at 2e-3 the schedule came to half as many steps, and the loss rose by 0.4 (docs/notes/2026-11-19-in-loop.md)."""
    grey: float = 0.12
    """Share of the steps with grey pictures, which the colour network gets as colour pictures."""
    kernels: int = 8192
    """Random kernels that the blurs are made of."""
    blurs: int = 64
    """Batches of blurs in use at a time."""
    renew_steps: int = 3
    """Steps after which a new one replaces the oldest of them."""

    @property
    def strongest(self) -> float:
        """The strongest noise of the training pictures, of 255."""
        return STRONGEST_IN_PHOTOGRAPHS if self.photo else STRONGEST

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("kernels", "blurs", "renew_steps"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} = {getattr(self, name)}: give at least 1")
        if not self.calls or min(self.calls) < 2 or len(set(self.calls)) < len(self.calls):
            given = ",".join(map(str, self.calls))
            raise InputError(f"calls = {given}: give different numbers of at least 2")
        if not 0 <= self.grey <= 1:
            raise InputError(f"grey = {self.grey}: give a share between 0 and 1")
        if not (math.isfinite(self.schedule_rate) and self.schedule_rate >= 0):
            raise InputError(f"schedule_rate = {self.schedule_rate}: give a number of at least 0")
        if self.is_gradient_step:
            raise InputError(
                f"network = {self.network}: trained in the loop it would lose its theorem: give another one"
            )
        if self.channels != 3:
            raise InputError(
                f"channels = {self.channels}: give 3: the colour network serves grey pictures too (grey = {self.grey})"
            )
