"""Conjugate gradient with step lengths that are given, and the search for ones that suit a whole picture.

The step lengths `alpha` and `beta` are ratios of inner products of all that is solved together. Where few steps leave
an error, tiles with step lengths of their own differ from each other, and from the picture that is not divided. So a
few parts of the picture are solved side by side first, with inner products summed over all of them, and every tile
takes the steps found there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from pnpladmm.solvers.conjugate_gradient import TINY, Map
from pnpladmm.solvers.inner_products import products, squares

ASTRAY = 2.0
"""Given steps are given up where they leave a residual that is so many times the one before them."""

StepLengths: TypeAlias = tuple[Tensor, ...]
"""For each data step of a run `beta` and `alpha` of each step: (steps, 2, B, 1), or (steps, 2, B, C)."""


def descend_by(lengths: Tensor, apply: Map, r: Tensor, precondition: Map | None) -> tuple[Tensor, Tensor] | None:
    """Solve from 0 for the right-hand side `r`: the solution and its residual. None where the steps lead away from it.

    `lengths` are `beta` and `alpha` of each step, (steps, 2, B, 1) or (steps, 2, B, C). Channels of which all further
    `alpha` are 0 are left out.
    """
    x, p, left = torch.zeros_like(r), torch.zeros_like(r), r.clone()
    for beta, alpha in lengths:
        going_on = alpha.any(0).nonzero()
        width = r.shape[1] if alpha.shape[1] == 1 or not len(going_on) else int(going_on.amax()) + 1
        rest, direction = left[:, :width], p[:, :width]
        z = rest if precondition is None else precondition(rest)
        torch.addcmul(z, _factor(beta, r, width), direction, out=direction)
        factor = _factor(alpha, r, width)
        x[:, :width].addcmul_(factor, direction)
        rest.addcmul_(factor, apply(direction), value=-1)
    before, after = (squares(one, by_channel=True) for one in (r, left))
    return (x, left) if bool((after <= ASTRAY**2 * before).all()) else None


@dataclass
class Descending:
    """A part of a picture in conjugate gradient."""

    apply: Map
    precondition: Map | None
    r: Tensor
    share: Tensor
    """How much each pixel (H, W) counts in the inner products."""
    stays: bool = True
    """Does it count in the second steps, too?"""

    def __post_init__(self) -> None:
        """Begin at 0."""
        self.x, self.p = torch.zeros_like(self.r), torch.zeros_like(self.r)
        self.z = self.Ap = self.r

    def inner(self, a: Tensor, b: Tensor, by_channel: bool) -> Tensor:
        """The share of an inner product, (B, 1) or (B, C)."""
        return products(self.share * a, b, by_channel).cpu()


def descend_together(parts: Sequence[Descending], goal: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
    """Solve the systems of all parts with the same steps, and return these: (steps, 2, B, 1) or (steps, 2, B, C).

    Second come the ratios of the inner products without the parts that do not stay: how far they are from the first
    shows how much the steps depend on the choice of the parts.

    `goal` is that of all parts together, (B, 1), `limits` the most steps, (B, 1) or (B, C) on the CPU.
    """
    by_channel = limits.shape[1] > 1
    rz, found, second = torch.ones(2, *limits.shape, dtype=torch.float64), [], []
    for step in range(int(limits.max())):
        for part in parts:
            part.z = part.r if part.precondition is None else part.precondition(part.r)
        size = _total([part.inner(part.z, part.z, by_channel) for part in parts])
        running = (size > goal / limits.shape[1]) & (limits > step)
        if not bool(running.any()):
            break
        before, rz = rz, _both(parts, [part.inner(part.r, part.z, by_channel) for part in parts])
        beta = torch.zeros_like(rz) if step == 0 else rz / before.clamp_min(TINY)
        for part in parts:
            part.p = torch.addcmul(part.z, _factor(beta[0], part.r), part.p)
            part.Ap = part.apply(part.p)
        alpha = rz / _both(parts, [part.inner(part.p, part.Ap, by_channel) for part in parts]).clamp_min(TINY)
        alpha = torch.where(running, alpha, 0.0)
        for part in parts:
            factor = _factor(alpha[0], part.r)
            part.x.addcmul_(factor, part.p)
            part.r = torch.addcmul(part.r, factor, part.Ap, value=-1)
        found.append(torch.stack([beta[0], alpha[0]]))
        second.append(torch.stack([beta[1], alpha[1]]))
    nothing = torch.zeros(0, 2, *limits.shape, dtype=torch.float64)
    return (torch.stack(found), torch.stack(second)) if found else (nothing, nothing)


def _both(parts: Sequence[Descending], shares: list[Tensor]) -> Tensor:
    """The sum over all parts, and over those that stay."""
    return torch.stack([_total(shares), _total([s for s, part in zip(shares, parts, strict=True) if part.stays])])


def _total(shares: list[Tensor]) -> Tensor:
    return torch.stack(shares).sum(0)


def _factor(value: Tensor, like: Tensor, width: int | None = None) -> Tensor:
    """(B, 1) or (B, C) as a factor of the first channels of pictures."""
    return value[:, :width].to(like.device, like.dtype)[:, :, None, None]
