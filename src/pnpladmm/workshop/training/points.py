"""The pool of points at which the penalty of a gradient-step denoiser measures Hessian eigenvalues.

Each point is a picture `v` with a noise level and a direction `u`. It is about one end of the spectrum: `end = 1` for
the largest eigenvalue, with the bound `1 - margin`, or `end = -1` for the least one, with the bound `growth` on minus
the eigenvalue. A point with an eigenvalue near or beyond its bound stays for several visits; others are replaced.

- At each visit the point climbs: `v` changes along the gradient of `end lambda` by a vector of norm 2 sigma. Without
  climbing, `lambda` was 0.95 on nearly every picture after a training, with `u` spread over the whole picture, and 1.05
  on one of 68, around a single pixel. With climbing it was at most 0.97 on all of them.
- New points are crops, a quarter of them enlarged twofold, as smooth as blurred pictures. Most points of the upper end
  have exactly the noise that the denoiser is told, because there the squared error pulls `lambda` up to 1: after a
  training whose points seldom had it, `lambda` exceeded 1 only there (four crops: at most 1.02 at 25/255; 0.96 and 0.98
  with a fifth less or more noise). The others have 0 to 2.5 times as much.
- Points of the lower end resemble what solvers give the denoiser: smooth (enlarged two- or fourfold), with little
  noise, and moved by one step of the denoiser at each visit. Under the noise that it is told, the squared error asks
  for growth, because the noise hides which of two edges was there; that is allowed.
- Points must be as large as the part of the picture that the network sees. With 32x32 crops the bound was learnt for
  those and missed by 0.4 on larger pictures.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from pnpladmm.denoisers.network import SIGMA_MAX
from pnpladmm.workshop.training.data import CropStore
from pnpladmm.workshop.training.plan import Plan
from pnpladmm.workshop.training.schedule import draw_sigma

SIGMA_MIN = 0.5 / 255
"""The least noise level, since pictures are divided by it. At 0.2/255 eigenvalues of 17 turned up."""
NOISE_MAX = 2.5
"""Largest noise of upper points, in units of the noise level that the denoiser is told."""
LOWER_NOISE_MAX = 0.5
"""Largest noise of lower points, in the same units."""
LOWER_SHARE = 0.3
"""Share of the points that are about the lower end, if it has a bound."""
ENLARGED_SHARE = 0.25
"""Share of new upper points that are enlarged crops."""
MATCHED_SHARE = 0.7
"""Share of new upper points with the noise that the denoiser is told."""
STEP_SHARE = 0.3
"""Share of the replaced good points that move by a part of a denoiser step instead."""
VISITS, VISITS_BEYOND = 10, 20
"""Most visits of a point, and of one whose eigenvalue is beyond the bound by the margin or more."""
VISITS_FAR_BELOW = 2
"""Visits of a point whose eigenvalue is far below the bound: too far to climb."""
FAR_BELOW = 0.04
"""How far. Not the margin: at the second visit eigenvectors are not known to a margin of 0.02."""
CLIMB = 2.0
"""Norm of the change of a point at each visit, in units of its noise level."""
EIGENVALUE_MAX = 1e3
"""A point with a larger eigenvalue is replaced at once."""

Points = dict[str, Tensor]
"""`v` (P, C, H, W), `inside` (P, 1, H, W), `sigma` (P,), `end` (P,), `u` (P, C, H, W), `visits` (P,), `curvature`
(P,): the point, where it is picture and not beyond its border, its noise level, its end of the spectrum, the
eigenvector as far as it is known, and the last eigenvalue times `end`."""


class PointPool:
    """Draws, judges and replaces the points of a plan's penalty."""

    def __init__(self, plan: Plan, pictures: CropStore, generator: torch.Generator) -> None:
        self.plan, self.penalty, self.pictures, self.generator = plan, plan.penalty, pictures, generator
        self.device = generator.device
        count = 0 if self.penalty.growth is None else round(LOWER_SHARE * self.penalty.points)
        self._lower = torch.arange(self.penalty.points, device=self.device) < count
        """A place in the pool keeps its end, so that both ends are always watched."""

    def bound(self, points: Points) -> Tensor:
        """The bound of `end lambda` at each point, (P,)."""
        return torch.where(points["end"] > 0, 1 - self.penalty.margin, self.penalty.growth or 0.0)

    def resume(self, points: Points) -> Points:
        """The points of a checkpoint if they suit the plan; else new ones."""
        expected = (self.penalty.points, self.plan.channels, self.penalty.side, self.penalty.side)
        suits = "end" in points and points["v"].shape == expected
        return {key: value.to(self.device) for key, value in points.items()} if suits else self.draw()

    def draw(self) -> Points:
        """New points with noise, noise levels and random directions of norm 1."""
        count, lower = self.penalty.points, self._lower
        crops = self.pictures.crops(count, self.penalty.side, self.generator)
        twofold, fourfold = (_enlarged(crops, factor) for factor in (2, 4))
        smooth = torch.where(self._uniform() < 0.5, twofold, fourfold)
        crops = torch.where(self._uniform() < ENLARGED_SHARE, twofold, crops)
        crops = torch.where(_by_point(lower), smooth, crops)
        matched = self._uniform() < MATCHED_SHARE
        # Matched points have the noise levels of the squared error. For the others all octaves are equally likely,
        # since solvers end at weak noise.
        sigma = torch.where(
            matched.flatten(),
            draw_sigma(count, self.plan.weak_noise, self.generator).clamp_min(SIGMA_MIN),
            SIGMA_MIN * (SIGMA_MAX / SIGMA_MIN) ** self._uniform().flatten(),
        )
        noise, direction = (torch.empty_like(crops).normal_(generator=self.generator) for _ in range(2))
        inside = self.cut(crops)
        direction = direction * inside
        # Half of the points that are not matched have less noise than the denoiser is told.
        strength = torch.where(matched, 1.0, NOISE_MAX * self._uniform() ** 1.5)
        strength = torch.where(_by_point(lower), LOWER_NOISE_MAX * self._uniform(), strength)
        return {
            "v": inside * (crops + strength * _by_point(sigma) * noise),
            "inside": inside,
            "sigma": sigma,
            "end": torch.where(lower, -1.0, 1.0),
            "u": direction / _by_point(direction.flatten(1).norm(dim=1)),
            "visits": torch.zeros(count, device=self.device),
            "curvature": torch.zeros(count, device=self.device),
        }

    def move_on(self, points: Points, gradient: Tensor, uphill: Tensor) -> None:
        """After a visit: points climb, or are replaced, in place and without waiting for the device.

        Parameters
        ----------
        points : Points
            The points, with their eigenvalues in `curvature`.
        gradient : Tensor
            (P, C, H, W), of `g` at the points: the denoiser's step is minus it.
        uphill : Tensor
            (P, C, H, W), the gradient of `end lambda` at the points.
        """
        bound, margin, v = self.bound(points), self.penalty.margin, points["v"]
        curvature, visits = points["curvature"], points["visits"] + 1
        beyond = curvature >= bound + margin
        far_below = (curvature < bound - FAR_BELOW) & (visits >= VISITS_FAR_BELOW)
        old = visits >= torch.where(beyond, VISITS_BEYOND, VISITS)
        # Not `> EIGENVALUE_MAX`, which is false for NaN.
        invalid = ~(curvature.abs() <= EIGENVALUE_MAX) | ~torch.isfinite(uphill).flatten(1).all(1)
        leaves = far_below | old | invalid
        draws = torch.rand(2, len(leaves), generator=self.generator, device=self.device)
        steps = leaves & (curvature < bound + margin) & (draws[0] < STEP_SHARE)
        stepped = {**points, "v": v - _by_point(draws[1]) * gradient}
        climb = CLIMB * points["sigma"] / uphill.flatten(1).norm(dim=1).clamp_min(torch.finfo(uphill.dtype).tiny)
        denoised = torch.where(_by_point(points["end"] < 0), v - gradient, v)
        points["v"] = denoised + _by_point(torch.where(beyond, 0.0, climb)) * uphill
        for key, new in self.draw().items():
            shape = (-1, *(1,) * (new.ndim - 1))
            new = torch.where(steps.view(shape), stepped[key], new)
            points[key] = torch.where(leaves.view(shape), new, points[key])
        points["visits"] = torch.where(leaves, 0.0, visits)

    def cut(self, crops: Tensor) -> Tensor:
        """Where each crop counts as picture (1) and where as outside its border (0): (B, 1, H, W).

        Sides of pictures are seldom multiples of 8: half of the sides lose 1 to 7 pixels.
        """
        height, width = crops.shape[-2:]
        draws = torch.randint(-7, 8, (2, len(crops)), generator=self.generator, device=self.device)
        cuts = draws.clamp_min(0)
        rows, columns = torch.arange(height, device=self.device), torch.arange(width, device=self.device)
        high, wide = rows < height - cuts[0, :, None], columns < width - cuts[1, :, None]
        return (high[:, None, :, None] & wide[:, None, None, :]).to(crops.dtype)

    def _uniform(self) -> Tensor:
        """(P, 1, 1, 1), uniform in 0..1."""
        return _by_point(torch.rand(self.penalty.points, generator=self.generator, device=self.device))


def _by_point(values: Tensor) -> Tensor:
    """(P,) as (P, 1, 1, 1), to multiply pictures."""
    return values.reshape(-1, 1, 1, 1)


def _enlarged(crops: Tensor, factor: int) -> Tensor:
    """A corner of each crop, enlarged to the size of the crop."""
    height, width = (side // factor for side in crops.shape[-2:])
    return functional.interpolate(crops[..., :height, :width], scale_factor=factor, mode="bilinear")
