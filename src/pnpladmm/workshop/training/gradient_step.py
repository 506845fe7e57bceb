"""The training of a gradient-step denoiser: squared error, and a penalty on both ends of its Hessian's spectrum.

    loss = E ||D(x + sigma e) - x||^2 / m(sigma)  +  weight E log(1 + max(0, end lambda - bound))

`lambda = <u, H u>`, where `H` is the Hessian of `g` at a point `v` and `u` the eigenvector at one end of its spectrum.
`u` is held fixed: to first order an eigenvalue does not depend on its eigenvector. Close to the bound the logarithm is
the excess itself, whose gradient does not vanish before the bound holds, as that of its square would. Far beyond the
bound it keeps a single bad point from dominating the gradient.

The upper end (`end = 1`, `bound = 1 - margin`) is the condition of `D = prox_phi`. For the exact MMSE denoiser
`J_D = Cov(x|v) / sigma^2 >= 0`, that is `H <= 1`; so, apart from the margin, the penalty asks for nothing that the
squared error does not ask for. The condition is about the largest `lambda` over all pictures. Therefore the points are
a pool in which bad points stay (points.py). At each visit a few products with the Hessian improve `u`, starting from
the last visit's.

With `scenes_from` a part of the steps also has the loss of scenes.py, the error at which certified runs end.

The lower end (`end = -1`, `bound = growth`, if the plan has a growth) determines how soon a run settles. Where
`lambda < 0`, `D` amplifies differences along `u`. In a restored picture only the data work against it, and where the
blur has erased the picture they are weak: whole pictures were lost (docs/reference/proof.md).

Precision: with `bfloat16` all convolutions compute in it but the first, whose input is the picture in units of its
noise and must not be rounded. Pictures, residuals, their sums and the weights are float32. Eigenvalues that must be
known to three digits are measured in float32 after the training (`pnpladmm train evaluate --curvature`).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.denoisers.gradient_step import GradientStepDenoiser
from pnpladmm.denoisers.ritz import largest_eigenvalue
from pnpladmm.denoisers.smooth_unet import SmoothUNet
from pnpladmm.workshop.training import points
from pnpladmm.workshop.training.evaluate import curvature_table
from pnpladmm.workshop.training.plan import Plan
from pnpladmm.workshop.training.points import SIGMA_MIN, PointPool
from pnpladmm.workshop.training.scenes import Gradient, SceneTraining
from pnpladmm.workshop.training.schedule import expected_error

PRODUCTS = 8
"""Products with the Hessian at each visit of a point."""
CURVATURE_WEIGHT = 1e-6
"""Weight of the eigenvalues themselves in the loss: too little for the network, but it gives points below the bound,
whose penalty is 0, the gradient along which they climb."""

SCENES_EVERY, SCENES_WEIGHT = 4, 1.0
"""Steps from one batch of scenes to the next, and the weight of its loss."""


class GradientStepTraining(SceneTraining):
    """A training of `SmoothUNet` for `D = Id - grad g`."""

    mirrored = False  # padded by zeros instead, with a noise map of 0 (docs/reference/proof.md)
    # As tuned for earlier weights.
    first_settings: ClassVar[tuple[tuple[float, ...], ...]] = (
        (3.0, 3.0, 2.2, 1.5, 1.05, 0.75, 0.6, 0.55),
        (0.04, 0.05, 0.12, 0.25, 0.42, 0.6, 0.85, 0.92),
    )
    forward_steps: ClassVar[int] = 32
    backward_steps: ClassVar[int] = 10
    least_noise: ClassVar[float] = 3.0  # below, so few iterations do not arrive

    def __init__(self, plan: Plan) -> None:
        """As every training, with a pool of points; `extra` holds it, so that it is part of the checkpoint."""
        super().__init__(plan)
        for network in (self.network, self.average.network):
            assert isinstance(network, SmoothUNet)
            network.relaxation.fill_(1)  # the one in the file belonged to the weights that this training starts from
        self._eigenvalues_in_pictures = ""
        self._last: dict[int, Tensor] = {}
        """Last eigenvalues for both ends, times the end, NaN at points of the other end."""
        loss = torch.compile(self._loss_inside, dynamic=False) if plan.compile_network else self._loss_inside
        self._loss_of = lambda clean, noise, sigma: loss(clean, noise, sigma, self.pool.cut(clean))
        self._curvature_of: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = self._curvature
        if plan.compile_network:
            # Not `_improve`: its graph takes longest to compile, and without gradients nothing is gained.
            self._curvature_of = torch.compile(self._curvature, dynamic=False)
        self.pool = PointPool(plan, self.pictures, self.generator)
        self.extra = self.pool.resume(self.extra)

    @property
    def smooth(self) -> SmoothUNet:
        """The network."""
        assert isinstance(self.network, SmoothUNet)
        return self.network

    @property
    def _dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.plan.precision == "bfloat16" else torch.float32

    def _loss_inside(self, clean: Tensor, noise: Tensor, sigma: Tensor, inside: Tensor) -> Tensor:
        """The weighted squared error where `inside` is 1."""
        sigma = sigma.clamp_min(SIGMA_MIN)
        noisy = clean + sigma.reshape(-1, 1, 1, 1) * noise
        here = self.smooth.linearise(noisy * inside, sigma, inside, dtype=self._dtype)
        error = ((noisy - here.gradient - clean) * inside).square().sum((1, 2, 3))
        error = error / (clean.shape[1] * inside.sum((1, 2, 3)))
        return (error / expected_error(sigma)).mean()

    def _loss_of_step(self) -> Tensor:
        """The squared error, and in some steps that of restored scenes."""
        loss = super()._loss_of_step()
        if self.share < self.plan.scenes_from or self.step % SCENES_EVERY:
            return loss
        return loss + SCENES_WEIGHT * self.loss_of_scenes(self.step // SCENES_EVERY)

    def held_gradient(self, sigma: Tensor) -> Gradient:
        """Weights need not be held: who asks takes derivatives in the picture alone."""
        return self.learning_gradient(sigma)

    def learning_gradient(self, sigma: Tensor) -> Gradient:
        """Pictures are extended by 0 to the stride, as the denoiser does."""

        def gradient(v: Tensor) -> Tensor:
            high, wide = v.shape[-2:]
            ends = (0, -wide % self.smooth.stride, 0, -high % self.smooth.stride)
            inside = functional.pad(torch.ones_like(v[:1, :1]), ends)
            level = sigma.clamp_min(SIGMA_MIN)
            here = self.smooth.linearise(functional.pad(v, ends), level, inside, dtype=self._dtype)
            return here.gradient[..., :high, :wide]

        return gradient

    def _add_gradients(self) -> None:
        """Add the gradients of the penalty, and move the points on; the step of the settings."""
        self.move_settings()
        penalty, pool = self.plan.penalty, self.extra
        if penalty.weight == 0 or self.step % penalty.every or self.share < penalty.begin:
            return
        pool["u"], gradient = self._improve(pool["v"], pool["sigma"], pool["u"], pool["inside"], pool["end"])
        v = pool["v"].detach().requires_grad_()
        curvature = pool["end"] * self._curvature_of(v, pool["sigma"], pool["u"], pool["inside"])
        excess = (curvature - self.pool.bound(pool)).clamp_min(0).log1p()
        loss = penalty.weight * excess.mean() + CURVATURE_WEIGHT * curvature.sum()
        loss.backward()  # type: ignore[no-untyped-call]
        assert v.grad is not None
        pool["curvature"] = curvature.detach()
        self._last = {end: torch.where(pool["end"] == end, pool["curvature"], torch.nan) for end in (1, -1)}
        self.pool.move_on(pool, gradient, pool["inside"] * v.grad)

    def _improve(self, v: Tensor, sigma: Tensor, u: Tensor, inside: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
        """Better eigenvectors for the end of each point, and the gradient of `g` at the points."""
        signed = end.view(-1, 1, 1, 1) * inside
        with torch.no_grad():
            here = self.smooth.linearise(v, sigma, inside, products=True, dtype=self._dtype)
            found = largest_eigenvalue(lambda direction: signed * here.product(direction), u, PRODUCTS)
        return found.vector, inside * here.gradient

    def _curvature(self, v: Tensor, sigma: Tensor, u: Tensor, inside: Tensor) -> Tensor:
        """`<u, H u>` of each point, for `||u|| = 1`."""
        product = self.smooth.linearise(v, sigma, inside, products=True, dtype=self._dtype).product(u)
        return (u * product).flatten(1).sum(1)

    def _roll_back(self, good: dict[str, Tensor]) -> None:
        super()._roll_back(good)
        self.extra = self.pool.draw()

    def _note(self) -> str:
        note = ""
        for end, last in self._last.items():
            values = last[torch.isfinite(last)]
            if len(values):
                where, extreme = ("in the pool", "at most") if end > 0 else ("at points with little noise", "at least")
                note += f"  lambda {where} {end * values.mean():.3f}, {extreme} {end * values.max():.3f}"
        if self.plan.scenes_from < 1:
            told, gamma = (value.detach() for value in self.settings_at(10 / 255))
            note += f"  at noise 10: sigma_d {10 * float(told):.3g}, relaxation {float(gamma):.3g}"
        return note + self._eigenvalues_in_pictures

    def _validate(self) -> dict[str, float]:
        """PSNR, and the largest eigenvalues at the first pictures."""
        psnr = super()._validate()
        assert self.plan.validation is not None
        levels, channels = (5.0, 15.0, 25.0), self.plan.channels
        rows = curvature_table(self._denoiser(), self.plan.validation, levels, channels, products=20, limit=2)
        figures = " ".join(f"{row.sigma:g}: {row.most:.3f}" for row in rows)
        self._eigenvalues_in_pictures = f"  lambda in pictures {figures}"
        return psnr

    def _denoiser(self) -> Denoiser:
        network = deepcopy(self.average.network)
        assert isinstance(network, SmoothUNet)
        return GradientStepDenoiser({self.plan.channels: network})

    def card(self) -> dict[str, Any]:
        """As for every training, with the penalty."""
        plan, penalty = self.plan, self.plan.penalty
        settings = {"weight": penalty.weight, "margin": penalty.margin, "from": penalty.begin}
        settings |= {"crops": penalty.points, "crop": penalty.side, "every": penalty.every}
        settings |= {"matched": points.MATCHED_SHARE, "climb": points.CLIMB, "gradient_limit": plan.gradient_limit}
        if penalty.growth is not None:
            settings |= {"growth": penalty.growth, "lower": points.LOWER_SHARE, "calm": points.LOWER_NOISE_MAX}
        loss = "squared error, weighted by the noise level alone; penalty on the ends of the Hessian's spectrum"
        card = super().card() | {"loss": loss, "penalty": settings, "relaxation": float(self.smooth.relaxation)}
        if plan.scenes_from < 1:
            scenes = {"from": plan.scenes_from, "every": SCENES_EVERY, "weight": SCENES_WEIGHT}
            card |= {"scenes": scenes, "learned_settings": self.learned_settings()}
        return card
