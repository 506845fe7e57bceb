"""The training of a ridge regulariser: squared error, and later the pictures at which certified runs end.

The first part of the budget is an ordinary training of a denoiser, unless there are weights to start from; the network
divides its shares by the curvature bound at each step (`RidgeNet.normalised`), so that all it learns is a proximal
operator. In the second part each step has blurred scenes (scenes.py), and the squared error of the denoiser counts
little.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.denoisers.ridge import RidgeNet
from pnpladmm.denoisers.ridge_step import RidgeDenoiser
from pnpladmm.workshop.training.plan import Plan
from pnpladmm.workshop.training.scenes import LEVELS, Gradient, SceneTraining

LOOP_FROM = 0.35
"""Share of the budget after which steps have blurred scenes too, in a training from nothing."""
DENOISING = 0.1
"""Weight of the denoiser's squared error beside the scenes: enough to keep a denoiser, too little to decide what the
prior is."""


class RidgeTraining(SceneTraining):
    """A training of `RidgeNet`."""

    mirrored = False
    first_settings: ClassVar[tuple[tuple[float, ...], ...]] = ((0.67,) * len(LEVELS), (0.5,) * len(LEVELS))

    def __init__(self, plan: Plan) -> None:
        """As every training."""
        super().__init__(replace(plan, compile_network=False))

    @property
    def ridge(self) -> RidgeNet:
        """The network."""
        assert isinstance(self.network, RidgeNet)
        return self.network

    def _loss_of_step(self) -> Tensor:
        """The squared error, and later mostly that of restored scenes."""
        loss = super()._loss_of_step()
        if self.plan.start is None and self.share < LOOP_FROM:
            return loss
        return DENOISING * loss + self.loss_of_scenes(self.step)

    def held_gradient(self, sigma: Tensor) -> Gradient:
        """With tables and the bound computed once."""
        held = self.ridge.prepared()
        tables = held.at(sigma)
        return lambda v: held.gradient(v, *tables)

    def learning_gradient(self, sigma: Tensor) -> Gradient:
        """Through the bound too."""
        return lambda v: self.ridge.gradient(v, sigma)

    def _add_gradients(self) -> None:
        """Drop what is not finite; the step of the settings."""
        for parameter in self.network.parameters():
            if parameter.grad is not None:
                parameter.grad.nan_to_num_(0.0, 0.0, 0.0)
        self.move_settings()

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
        loss = "squared error, weighted by the noise level alone; error of certified runs on blurred scenes"
        return super().card() | {"loss": loss, "curvature": [low, high], "learned_settings": self.learned_settings()}
