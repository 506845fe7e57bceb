"""The training of a gradient-step denoiser: squared error, and a penalty on both ends of its Hessian's spectrum.

    loss = E ||D(x + sigma e) - x||^2 / m(sigma)  +  penalty E log(1 + max(0, end lambda - bound))

`lambda = <u, H u>` with `H` the Hessian of `g` at a point `v` and `u` the eigenvector at one end of its spectrum, held
fixed: to first order an eigenvalue does not feel its eigenvector move. Near the bound the logarithm is the excess
itself, which pushes until the bound holds, as its square would not; far above it, it keeps one bad point from being all
the network hears.

The upper end (`end = 1`, `bound = 1 - margin`) is what `D = prox_phi` asks for. The exact MMSE denoiser has `J_D =
Cov(x|v) / sigma^2 >= 0`, that is `H <= 1`: up to the margin the penalty asks for nothing that the error does not ask
for. What counts is the largest `lambda` over all pictures, so the points are a pool in which the bad ones stay. At each
visit a few products with the Hessian improve `u`, going on from the last visit's, and the point climbs: its noise
changes along the gradient of `end lambda`, by a vector of norm 2 sigma. After a training without climbing `lambda` was
0.95 on nearly every picture, with `u` all over it, and 1.05 on one of 68, around a single pixel; after one with it, it
was at most 0.97 on all. A point that stays far from the bound, or that was visited often, gives way to a new crop, or
to a step of the denoiser from where it was, as iterations take them.

The lower end (`end = -1`, `bound = growth`, where a growth is given) is about how soon a run settles. Where
`lambda < 0`, `D` enlarges what differs along `u`; in a restored picture only the data hold that back, and of what the
blur has erased they know little: whole pictures were lost (docs/proof.md). Points at this end are like
what solvers show the denoiser: smooth (enlarged two- or fourfold), with little noise, and taken a step by it at each
visit. Under the noise that it is told the error wants growth, where noise hides which of two edges there was, and it
may have it.

New points are crops (a quarter of them enlarged twofold, as smooth as blurred pictures). Most at the upper end have
just the noise that the denoiser is told: there the error pulls `lambda` up to 1, and after a training whose points
seldom had it `lambda` was above 1 only there (on four crops at most 1.02 at 25/255, with a fifth less or more noise
0.96 and 0.98). The others have 0 to 2.5 times as much. Points must be as large as the network reaches: with 32x32 crops
the bound was learnt for those and missed by 0.4 on larger ones.

Precision: `bfloat16` is what the convolutions compute in, but for the first, which sees pictures in units of their
noise and must not round them; pictures, residuals, their sums and the weights are float32. Eigenvalues that must be
known to three digits are measured in float32 after the training (`evaluate --curvature`).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from pnpladmm.denoisers.architecture import Network
from pnpladmm.denoisers.base import Denoiser
from pnpladmm.denoisers.gradient_step import GradientStepDenoiser
from pnpladmm.denoisers.network import SIGMA_MAX
from pnpladmm.denoisers.ritz import largest_eigenvalue
from pnpladmm.denoisers.smooth_unet import SmoothUNet
from pnpladmm.workshop.training.evaluate import curvature_table
from pnpladmm.workshop.training.loop import Training
from pnpladmm.workshop.training.recipe import Recipe, draw_sigma, expected_error

SIGMA_MIN = 0.5 / 255
"""Pictures are divided by their noise level: none is below this. At 0.2/255 points with a `lambda` of 17 turned up."""
NOISE_MAX = 2.5
"""Noise in the points of the pool, at most, in units of what the denoiser is told."""
ENLARGED, MATCHED, WALK = 0.25, 0.7, 0.3
"""Shares of new points that are smooth, of upper ones with the noise the denoiser is told, and of good points that go a
step of the denoiser instead of leaving."""
PRODUCTS = 8
"""With the Hessian, at each visit of a point."""
VISITS, VISITS_BAD = 10, 20
"""Of a point at most, and while its eigenvalue is beyond the bound by the margin."""
FAR_BELOW_VISITS = 2
"""A point whose eigenvalue is short of the bound by the margin gives way after so many: too far to climb."""
LOWER, CALM = 0.3, 0.5
"""Share of the points that are about the lower end, if any are, and their noise, at most, in units of what the denoiser
is told."""
CLIMB = 2.0
"""How far a point climbs at each visit, in units of its noise level: the norm of the change, over all samples."""
WHISPER = 1e-6
"""Weight of the curvature itself in the loss: nothing to the network, all to the points below the bound that climb."""


class GradientStepTraining(Training):
    """A training of `SmoothUNet` for `D = Id - grad g`."""

    mirrored = False  # padded by zeros instead, with a noise map of 0 (docs/proof.md)

    def __init__(self, recipe: Recipe) -> None:
        """As any training, with a pool of points; `more` holds it, so that it is part of the checkpoint."""
        super().__init__(recipe)
        for state in (self.network.state_dict(), self.average):
            state["relaxation"].fill_(1)  # what it was belonged to the weights that this training started from
        self._watched = ""
        self._met: dict[int, Tensor] = {}
        loss = torch.compile(self._loss_inside, dynamic=False) if recipe.compile_network else self._loss_inside
        self._loss_of = lambda clean, noise, sigma: loss(clean, noise, sigma, self._cut(clean))
        self._curvature_of: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = self._curvature
        if recipe.compile_network:
            # `_improve` is not: its graph is the longest to compile, and nothing is gained by fusing without gradients.
            self._curvature_of = torch.compile(self._curvature, dynamic=False)
        expected = (recipe.penalty_crops, recipe.channels, recipe.penalty_crop, recipe.penalty_crop)
        pool = {key: value.to(self.device) for key, value in self.more.items()}
        self.more = pool if "end" in pool and pool["v"].shape == expected else self._new_points()

    @property
    def smooth(self) -> SmoothUNet:
        """The network."""
        assert isinstance(self.network, SmoothUNet)
        return self.network

    @property
    def _dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.recipe.precision == "bfloat16" else torch.float32

    def _loss_inside(self, clean: Tensor, noise: Tensor, sigma: Tensor, inside: Tensor) -> Tensor:
        sigma = sigma.clamp_min(SIGMA_MIN)
        noisy = clean + sigma.reshape(-1, 1, 1, 1) * noise
        here = self.smooth.linearise(noisy * inside, sigma, inside, dtype=self._dtype)
        error = ((noisy - here.gradient - clean) * inside).square().sum((1, 2, 3))
        error = error / (clean.shape[1] * inside.sum((1, 2, 3)))
        return (error / expected_error(sigma)).mean()

    def _add_gradients(self) -> None:
        recipe = self.recipe
        if recipe.penalty == 0 or self.step % recipe.penalty_every or self.share < recipe.penalty_from:
            return
        pool = self.more
        pool["u"], gradient = self._improve(pool["v"], pool["sigma"], pool["u"], pool["inside"], pool["end"])
        v = pool["v"].detach().requires_grad_()
        curvature = pool["end"] * self._curvature_of(v, pool["sigma"], pool["u"], pool["inside"])
        excess = (curvature - self._bound).clamp_min(0).log1p()
        penalty = recipe.penalty * excess.mean() + WHISPER * curvature.sum()
        penalty.backward()  # type: ignore[no-untyped-call]
        assert v.grad is not None
        pool["curvature"] = curvature.detach()
        self._met = {end: torch.where(pool["end"] == end, pool["curvature"], torch.nan) for end in (1, -1)}
        self._move_on(gradient, pool["inside"] * v.grad)

    @property
    def _bound(self) -> Tensor:
        """Of `end lambda`, for each point."""
        return torch.where(self.more["end"] > 0, 1 - self.recipe.margin, self.recipe.growth or 0.0)

    def _improve(self, v: Tensor, sigma: Tensor, u: Tensor, inside: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
        """A better eigenvector of the end that each point is about, and the gradient of `g`, at the points."""
        signed = end.view(-1, 1, 1, 1) * inside
        with torch.no_grad():
            here = self.smooth.linearise(v, sigma, inside, products=True, dtype=self._dtype)
            found = largest_eigenvalue(lambda direction: signed * here.product(direction), u, PRODUCTS)
        return found.vector, inside * here.gradient

    def _curvature(self, v: Tensor, sigma: Tensor, u: Tensor, inside: Tensor) -> Tensor:
        """`<u, H u>` of each point, for `||u|| = 1`."""
        product = self.smooth.linearise(v, sigma, inside, products=True, dtype=self._dtype).product(u)
        return (u * product).flatten(1).sum(1)

    def _move_on(self, gradient: Tensor, uphill: Tensor) -> None:
        """Points about their bound climb, lower ones from where `D` takes them; others give way. All on the device."""
        pool, bound, margin = self.more, self._bound, self.recipe.margin
        curvature, visits = pool["curvature"], pool["visits"] + 1
        bad = curvature >= bound + margin
        far_below = (curvature < bound - margin) & (visits >= FAR_BELOW_VISITS)
        old = visits >= torch.where(bad, VISITS_BAD, VISITS)
        # Not `> 1e3`: what is not a number must go, too.
        leaves = far_below | old | ~(curvature.abs() <= 1e3) | ~torch.isfinite(uphill).flatten(1).all(1)
        draws = torch.rand(2, len(leaves), generator=self.generator, device=self.device)
        walks = leaves & (curvature < bound + margin) & (draws[0] < WALK)
        step = {**pool, "v": pool["v"] - draws[1].reshape(-1, 1, 1, 1) * gradient}
        climb = CLIMB * pool["sigma"] / uphill.flatten(1).norm(dim=1).clamp_min(torch.finfo(uphill.dtype).tiny)
        denoised = torch.where((pool["end"] < 0).view(-1, 1, 1, 1), pool["v"] - gradient, pool["v"])
        pool["v"] = denoised + torch.where(bad, 0.0, climb).reshape(-1, 1, 1, 1) * uphill
        fresh = self._new_points()
        for key, new in fresh.items():
            shape = (-1, *(1,) * (new.ndim - 1))
            new = torch.where(walks.view(shape), step[key], new)
            pool[key] = torch.where(leaves.view(shape), new, pool[key])
        pool["visits"] = torch.where(leaves, 0.0, visits)

    def _new_points(self) -> dict[str, Tensor]:
        """Points with noise, the levels that the denoiser is told, random directions of norm 1."""
        recipe, count = self.recipe, self.recipe.penalty_crops

        def uniform() -> Tensor:
            return torch.rand(count, generator=self.generator, device=self.device).reshape(-1, 1, 1, 1)

        crops = self.pictures.crops(count, recipe.penalty_crop, self.generator)
        twice, fourfold = (_enlarged(crops, factor) for factor in (2, 4))
        # A place in the pool keeps its end, whoever takes it: neither end is ever left alone.
        lower = torch.arange(count, device=self.device) < (0 if recipe.growth is None else round(LOWER * count))
        smooth = torch.where(uniform() < 0.5, twice, fourfold)
        crops = torch.where(uniform() < ENLARGED, twice, crops)
        crops = torch.where(lower.view(-1, 1, 1, 1), smooth, crops)
        matched = uniform() < MATCHED
        # Matched points have the error's levels, the others every octave alike, since solvers end at weak noise.
        sigma = torch.where(
            matched.flatten(),
            draw_sigma(count, recipe.weak_noise, self.generator).clamp_min(SIGMA_MIN),
            SIGMA_MIN * (SIGMA_MAX / SIGMA_MIN) ** uniform().flatten(),
        )
        noise, direction = (torch.empty_like(crops).normal_(generator=self.generator) for _ in range(2))
        inside = self._cut(crops)
        direction = direction * inside
        # Half of those that do not match have less noise than the denoiser is told.
        strength = torch.where(matched, 1.0, NOISE_MAX * uniform() ** 1.5)
        strength = torch.where(lower.view(-1, 1, 1, 1), CALM * uniform(), strength)
        visits, curvature = torch.zeros(2, count, device=self.device).unbind()
        return {
            "v": inside * (crops + strength * sigma.reshape(-1, 1, 1, 1) * noise),
            "inside": inside,
            "sigma": sigma,
            "end": torch.where(lower, -1.0, 1.0),
            "u": direction / direction.flatten(1).norm(dim=1).reshape(-1, 1, 1, 1),
            "visits": visits.clone(),
            "curvature": curvature.clone(),
        }

    def _cut(self, crops: Tensor) -> Tensor:
        """Where a crop is taken to be picture, 1, and where beyond its border, 0: (B, 1, H, W).

        Sides of pictures are no multiples of 8: half of them lose 1 to 7 pixels.
        """
        height, width = crops.shape[-2:]
        draws = torch.randint(-7, 8, (2, len(crops)), generator=self.generator, device=self.device)
        cuts = draws.clamp_min(0)
        rows, columns = torch.arange(height, device=self.device), torch.arange(width, device=self.device)
        high, wide = rows < height - cuts[0, :, None], columns < width - cuts[1, :, None]
        return (high[:, None, :, None] & wide[:, None, None, :]).to(crops.dtype)

    def _roll_back(self, good: dict[str, Tensor]) -> None:
        super()._roll_back(good)
        self.more = self._new_points()

    def _note(self) -> str:
        note = ""
        for end, met in self._met.items():
            values = met[torch.isfinite(met)]
            if len(values):
                where, most = ("in the pool", "most") if end > 0 else ("at calm points", "least")
                note += f"  lambda {where} {end * values.mean():.3f}, at {most} {end * values.max():.3f}"
        return note + self._watched

    def _validate(self) -> dict[str, float]:
        """With the curvature at the first pictures, which is the other half of what is wanted."""
        psnr = super()._validate()
        assert self.recipe.validation is not None
        averaged = deepcopy(self.network)
        averaged.load_state_dict(self.average)
        denoiser, levels, channels = self._denoiser(averaged), (5.0, 15.0, 25.0), self.recipe.channels
        rows = curvature_table(denoiser, self.recipe.validation, levels, channels, products=20, limit=2)
        self._watched = "  lambda in pictures " + " ".join(f"{row.sigma:g}: {row.most:.3f}" for row in rows)
        return psnr

    def _denoiser(self, network: Network) -> Denoiser:
        assert isinstance(network, SmoothUNet)
        return GradientStepDenoiser({self.recipe.channels: network})

    def card(self) -> dict[str, Any]:
        """As for every training, with the penalty."""
        recipe = self.recipe
        loss = "squared error, weighted by the noise level alone; penalty on the ends of the Hessian's spectrum"
        penalty = {"weight": recipe.penalty, "margin": recipe.margin, "from": recipe.penalty_from}
        penalty |= {"crops": recipe.penalty_crops, "crop": recipe.penalty_crop, "every": recipe.penalty_every}
        penalty |= {"matched": MATCHED, "climb": CLIMB, "gradient_limit": recipe.gradient_limit}
        if recipe.growth is not None:
            penalty |= {"growth": recipe.growth, "lower": LOWER, "calm": CALM}
        return super().card() | {"loss": loss, "penalty": penalty, "relaxation": float(self.smooth.relaxation)}


def _enlarged(crops: Tensor, factor: int) -> Tensor:
    """A corner of each, enlarged to the size of all."""
    height, width = (side // factor for side in crops.shape[-2:])
    return functional.interpolate(crops[..., :height, :width], scale_factor=factor, mode="bilinear")
