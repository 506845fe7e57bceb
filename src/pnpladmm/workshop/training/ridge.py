"""The training of a ridge regulariser: squared error, and later the pictures at which certified runs end.

The first part of the budget is an ordinary training of a denoiser; the network divides its shares by the curvature
bound at each step (`RidgeNet.normalised`), so that all it learns is a proximal operator. In the second part each step
also has a blurred scene (random_blurs.py). The fixed point of

    T(x) = (1 - gamma) v + gamma D_{c sigma}(v),    v = x - H^T (Hx - y) / L,    L > ||H||^2,

is the one of certified LADMM with `sigma_d = c sigma` and relaxation `gamma`; both are learned with the weights, at the
noise levels of the network's tables. The loss is the logarithm of the error at the fixed point `x*`. Its gradient is

    w^T dT/dtheta  at x*,    w = dloss/dx + (dT/dx)^T w,

so that memory does not grow with the iterations. Both equations are solved by accelerated iterations, a fixed number.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pnpladmm.data_terms import Gaussian
from pnpladmm.denoisers.base import Denoiser
from pnpladmm.denoisers.ridge import LEVELS, RidgeNet
from pnpladmm.denoisers.ridge_step import RidgeDenoiser
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

LOOP_FROM = 0.35
"""Share of the budget after which steps have blurred scenes too."""
SCENES = 0.25
"""Of them, as a share of the batch."""
FORWARD, BACKWARD = 50, 25
"""Iterations towards the fixed point, and towards `w`."""
KERNELS, BLURS, RENEW = 8192, 64, 3
SCHEDULE_RATE = 5e-3


class RidgeTraining(Training):
    """A training of `RidgeNet`; `extra` holds `log c` and the logit of `gamma`."""

    mirrored = False

    def __init__(self, plan: Plan) -> None:
        """As every training; blurs are made when they are first needed."""
        super().__init__(replace(plan, compile_network=False))
        saved = self.extra.get("schedule")
        first = torch.tensor([[0.0], [1.0]]).expand(2, len(LEVELS)) if saved is None else saved
        self.schedule = first.clone().to(self.device).requires_grad_()
        self.schedule_optimizer = torch.optim.Adam([self.schedule], SCHEDULE_RATE)
        self._pool: BlurPool | None = None
        self._norms: dict[SpatiallyVaryingBlur, Tensor] = {}

    @property
    def ridge(self) -> RidgeNet:
        """The network."""
        assert isinstance(self.network, RidgeNet)
        return self.network

    def _loss_of_step(self) -> Tensor:
        """The squared error, and later that of restored scenes."""
        loss = super()._loss_of_step()
        return loss if self.share < LOOP_FROM else loss + self._loss_of_scenes()

    def _loss_of_scenes(self) -> Tensor:
        """The mean logarithm of the error at the fixed points of one batch of scenes."""
        plan, noise = self.plan, draw_noise(self.plan.seed, self.step, STRONGEST)
        blur = self._blurs().at(self.step).true
        clean = self.pictures.crops(blur_count(plan), blur.scene[0], self.generator).contiguous()
        blurred = blur.forward(clean)
        noisy = blurred + noise / 255 * torch.empty_like(blurred).normal_(generator=self.generator)
        problem = Problem(noisy, blur, Gaussian(noise / 255))
        found, step = self._fixed_point(problem, noise / 255)

        picture = found.clone().requires_grad_()
        error = problem.crop_to_observed(picture - clean).square().mean((1, 2, 3))
        loss = (error + FLOOR * usual_error(noise)).log().mean()
        (slope,) = torch.autograd.grad(loss, picture)
        # Only T depends on the weights: the value of what is differentiated does not matter.
        weights = self._adjoint(step, found, slope)
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
            held, (told, held_gamma) = self.ridge.prepared(), self.settings_at(sigma)
            tables = held.at(told * levels)

        def step(x: Tensor, learning: bool) -> Tensor:
            v = x - rate * (SymmetricMap.apply(x, normal) - back)  # type: ignore[no-untyped-call]
            if not learning:
                return v - held_gamma * held.gradient(v, *tables)
            told, gamma = self.settings_at(sigma)
            return v - gamma * self.ridge.gradient(v, told * levels)

        with torch.no_grad():
            x = before = problem.default_start()
            for k in range(FORWARD):
                after = step(x, False)
                x = after + k / (k + 3) * (after - before)
                before = after
        return before, step

    def _adjoint(self, step: Callable[[Tensor, bool], Tensor], found: Tensor, slope: Tensor) -> Tensor:
        """`w` of the fixed point `found`."""
        picture = found.clone().requires_grad_()
        after = step(picture, False)
        w = ahead = slope
        for k in range(BACKWARD):
            (pulled,) = torch.autograd.grad(after, picture, ahead, retain_graph=k + 1 < BACKWARD)
            new = slope + pulled
            ahead, w = new + k / (k + 3) * (new - w), new
        return w

    def settings_at(self, sigma: float) -> tuple[Tensor, Tensor]:
        """`c` and `gamma` at a noise level."""
        place = self.schedule.new_tensor(sigma * 255 / LEVELS[0]).log2().clamp(0, len(LEVELS) - 1)
        low = int(place.floor().clamp(max=len(LEVELS) - 2))
        logs = torch.lerp(self.schedule[:, low], self.schedule[:, low + 1], place - low)
        return logs[0].exp(), logs[1].sigmoid()

    def _add_gradients(self) -> None:
        """Drop what is not finite; the step of the settings, whose rate falls as the network's does."""
        for parameter in self.network.parameters():
            if parameter.grad is not None:
                parameter.grad.nan_to_num_(0.0, 0.0, 0.0)
        if self.schedule.grad is None:
            return
        self.schedule.grad.nan_to_num_(0.0, 0.0, 0.0)
        share = float(self.optimizer.param_groups[0]["lr"]) / self.plan.learning_rate
        self.schedule_optimizer.param_groups[0]["lr"] = share * SCHEDULE_RATE
        self.schedule_optimizer.step()
        self.schedule_optimizer.zero_grad(set_to_none=True)

    def _blurs(self) -> BlurPool:
        if self._pool is None:
            plan = self.plan
            bank = KernelBank.drawn(KERNELS, torch.Generator().manual_seed(plan.seed)).to(self.device)
            source = BlurSource(bank, blur_count(plan), plan.crop, self.device)
            self._pool = BlurPool(source, plan.seed, BLURS, RENEW)
        return self._pool

    def _norm(self, blur: SpatiallyVaryingBlur, problem: Problem) -> Tensor:
        """The upper bound of `||H||^2`, (B,), kept as long as the blur is in use."""
        if blur not in self._norms:
            while len(self._norms) > 2 * BLURS:
                self._norms.pop(next(iter(self._norms)))
            self._norms[blur] = problem.norm_squared.upper.to(self.device).expand(len(problem.observed))
        return self._norms[blur]

    def save(self) -> None:
        """As every training, with the settings."""
        self.extra = {"schedule": self.schedule.detach()}
        super().save()

    def _note(self) -> str:
        told, gamma = (value.detach() for value in self.settings_at(10 / 255))
        return f"  at noise 10: sigma_d {10 * float(told):.3g}, relaxation {float(gamma):.3g}"

    def _denoiser(self) -> Denoiser:
        network = deepcopy(self.average.network)
        assert isinstance(network, RidgeNet)
        network.load_state_dict(network.finished())
        return RidgeDenoiser({self.plan.channels: network})

    def card(self) -> dict[str, Any]:
        """As for every training, with the bound and the settings for certified runs that were learned."""
        network = deepcopy(self.average.network).cpu()
        assert isinstance(network, RidgeNet)
        network.load_state_dict(network.finished())
        low, high = network.bounds()
        learned = {}
        for noise in (1, 10, 20, 40):
            told, gamma = (float(value.detach()) for value in self.settings_at(noise / 255))
            learned[f"{noise}"] = {"sigma_d": round(noise * told, 3), "relaxation": round(gamma, 4)}
        loss = "squared error, weighted by the noise level alone; error of certified runs on blurred scenes"
        return super().card() | {"loss": loss, "curvature": [low, high], "learned_settings": learned}


def blur_count(plan: Plan) -> int:
    """Scenes of a step."""
    return max(1, round(SCENES * plan.batch))
