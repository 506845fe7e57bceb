"""Training on the pictures at which certified runs end.

A step has blurred scenes (random_blurs.py). The fixed point of

    T(x) = v - gamma grad g_{c sigma}(v),    v = x - H^T (Hx - y) / L,    L > ||H||^2,

is the one of certified LADMM with `sigma_d = c sigma` and relaxation `gamma`; both are learned with the weights, at the
noise levels of a table. The loss is the logarithm of the error at the fixed point `x*`. Its gradient is

    w^T dT/dtheta  at x*,    w = dloss/dx + (dT/dx)^T w,

so that memory does not grow with the iterations. Both equations are solved by accelerated iterations, a fixed number.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from pnpladmm.data_terms import Gaussian
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.solvers import Problem
from pnpladmm.solvers.certificate import MARGIN
from pnpladmm.workshop.training.in_loop import FLOOR, draw_noise, usual_error
from pnpladmm.workshop.training.in_loop_plan import STRONGEST
from pnpladmm.workshop.training.loop import Training
from pnpladmm.workshop.training.plan import Plan
from pnpladmm.workshop.training.random_blurs import BlurPool, BlurSource
from pnpladmm.workshop.training.random_kernels import KernelBank
from pnpladmm.workshop.training.unrolled import NormalPart, SymmetricMap

LEVELS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Noise levels (of 255) of the learned settings."""
SCENES = 0.25
"""Scenes of a step, as a share of the batch."""
KERNELS, BLURS, RENEW = 8192, 32, 8
SCHEDULE_RATE = 5e-3

Gradient = Callable[[Tensor], Tensor]
"""`grad g` at pictures."""


class SceneTraining(Training):
    """A training with scenes; `extra` holds `log c` and the logit of `gamma`."""

    first_settings: ClassVar[tuple[tuple[float, ...], ...]]
    """`c` and `gamma` to begin with, for each of `LEVELS`."""
    forward_steps: ClassVar[int] = 50
    """Iterations towards the fixed point."""
    backward_steps: ClassVar[int] = 25
    """Iterations towards `w`."""
    least_noise: ClassVar[float] = 0.0
    """Scenes have no weaker noise than this (of 255)."""

    def __init__(self, plan: Plan) -> None:
        """As every training; blurs are made when they are first needed."""
        super().__init__(plan)
        saved = self.extra.pop("schedule", None)
        c, gamma = torch.tensor(self.first_settings)
        first = torch.stack([c.log(), gamma.logit()]) if saved is None else saved
        self.schedule = first.clone().to(self.device).requires_grad_()
        self.schedule_optimizer = torch.optim.Adam([self.schedule], SCHEDULE_RATE)
        self._blur_pool: BlurPool | None = None
        self._norms: dict[SpatiallyVaryingBlur, Tensor] = {}

    @abstractmethod
    def held_gradient(self, sigma: Tensor) -> Gradient:
        """`grad g` for noise levels `sigma` (B,), through which no gradients reach the weights."""

    @abstractmethod
    def learning_gradient(self, sigma: Tensor) -> Gradient:
        """The same with gradients to the weights and `sigma`."""

    def loss_of_scenes(self, number: int) -> Tensor:
        """The mean logarithm of the error at the fixed points of one batch of scenes."""
        plan = self.plan
        noise = max(self.least_noise, draw_noise(plan.seed, number, STRONGEST))
        blur = self._blurs().at(number).true
        clean = self.pictures.crops(scene_count(plan), blur.scene[0], self.generator).contiguous()
        blurred = blur.forward(clean)
        noisy = blurred + noise / 255 * torch.empty_like(blurred).normal_(generator=self.generator)
        problem = Problem(noisy, blur, Gaussian(noise / 255))
        found, step = self._fixed_point(problem, noise / 255)
        good = torch.isfinite(found).flatten(1).all(1).view(-1, 1, 1, 1)
        found = torch.where(good, found, clean)

        picture = found.clone().requires_grad_()
        error = problem.crop_to_observed(picture - clean).square().mean((1, 2, 3))
        loss = (error + FLOOR * usual_error(noise)).log().mean()
        (slope,) = torch.autograd.grad(loss, picture)
        weights = torch.where(good, self._adjoint(step, found, slope), 0.0).nan_to_num(0.0, 0.0, 0.0)
        # Only T depends on the weights: the value of what is differentiated does not matter.
        useful = (weights * step(found, True)).sum()
        return loss.detach() + useful - useful.detach()

    def _fixed_point(self, problem: Problem, sigma: float) -> tuple[Tensor, Callable[[Tensor, bool], Tensor]]:
        """`x*`, and `T(x, learning)`, through which gradients reach the weights if it is learning."""
        blur = problem.operator
        assert isinstance(blur, SpatiallyVaryingBlur)
        rate = 1 / (MARGIN * self._norm(blur, problem)).float()[:, None, None, None]
        back = blur.adjoint(problem.observed)
        normal = NormalPart(blur, torch.ones((), device=back.device))
        levels = back.new_full((len(back),), sigma)
        with torch.no_grad():
            told, held_gamma = self.settings_at(sigma)
            held = self.held_gradient(told * levels)

        def step(x: Tensor, learning: bool) -> Tensor:
            v = x - rate * (SymmetricMap.apply(x, normal) - back)  # type: ignore[no-untyped-call]
            if not learning:
                return v - held_gamma * held(v)
            told, gamma = self.settings_at(sigma)
            return v - gamma * self.learning_gradient(told * levels)(v)

        with torch.no_grad():
            x = before = problem.default_start()
            for k in range(self.forward_steps):
                after = step(x, False)
                x = after + k / (k + 3) * (after - before)
                before = after
        return before, step

    def _adjoint(self, step: Callable[[Tensor, bool], Tensor], found: Tensor, slope: Tensor) -> Tensor:
        """`w` of the fixed point `found`."""
        picture = found.clone().requires_grad_()
        after = step(picture, False)
        w = ahead = slope
        for k in range(self.backward_steps):
            (pulled,) = torch.autograd.grad(after, picture, ahead, retain_graph=k + 1 < self.backward_steps)
            new = slope + pulled
            ahead, w = new + k / (k + 3) * (new - w), new
        return w

    def settings_at(self, sigma: float) -> tuple[Tensor, Tensor]:
        """`c` and `gamma` at a noise level."""
        place = self.schedule.new_tensor(sigma * 255 / LEVELS[0]).log2().clamp(0, len(LEVELS) - 1)
        low = int(place.floor().clamp(max=len(LEVELS) - 2))
        logs = torch.lerp(self.schedule[:, low], self.schedule[:, low + 1], place - low)
        return logs[0].exp(), logs[1].sigmoid()

    def learned_settings(self) -> dict[str, dict[str, float]]:
        """`sigma_d` (of 255) and the relaxation at the noise levels of the tables."""
        found = {}
        for noise in (1, 10, 20, 40):
            told, gamma = (float(value.detach()) for value in self.settings_at(noise / 255))
            found[f"{noise}"] = {"sigma_d": round(noise * told, 3), "relaxation": round(gamma, 4)}
        return found

    def move_settings(self) -> None:
        """A step of the settings, whose rate falls as the network's does."""
        if self.schedule.grad is None:
            return
        self.schedule.grad.nan_to_num_(0.0, 0.0, 0.0)
        share = float(self.optimizer.param_groups[0]["lr"]) / self.plan.learning_rate
        self.schedule_optimizer.param_groups[0]["lr"] = share * SCHEDULE_RATE
        self.schedule_optimizer.step()
        self.schedule_optimizer.zero_grad(set_to_none=True)

    def _blurs(self) -> BlurPool:
        if self._blur_pool is None:
            plan = self.plan
            bank = KernelBank.drawn(KERNELS, torch.Generator().manual_seed(plan.seed)).to(self.device)
            source = BlurSource(bank, scene_count(plan), plan.crop, self.device)
            self._blur_pool = BlurPool(source, plan.seed, BLURS, RENEW)
        return self._blur_pool

    def _norm(self, blur: SpatiallyVaryingBlur, problem: Problem) -> Tensor:
        """The upper bound of `||H||^2`, (B,), kept as long as the blur is in use."""
        if blur not in self._norms:
            while len(self._norms) > 2 * BLURS:
                self._norms.pop(next(iter(self._norms)))
            self._norms[blur] = problem.norm_squared.upper.to(self.device).expand(len(problem.observed))
        return self._norms[blur]

    def save(self) -> None:
        """As every training, with the settings."""
        self.extra["schedule"] = self.schedule.detach()
        super().save()
        self.extra.pop("schedule")


def scene_count(plan: Plan) -> int:
    """Scenes of a step."""
    return max(1, round(SCENES * plan.batch))
