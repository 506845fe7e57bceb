"""What is worth a word before anything is looked at in the restored picture: no blur, or hardly more than noise."""

from __future__ import annotations

import torch
from torch import Tensor

from pnpladmm.blur import Blur
from pnpladmm.restoration.noise_model import NoiseModel
from pnpladmm.solvers import Problem

POINT = 1 - 1e-6
"""A PSF with this share of its light in one pixel blurs nothing."""
ROWS = 64
NOISE_SHARE = 0.5
"""From here on most of what varies in a picture was taken for noise."""


def no_blur(blur: object) -> str | None:
    """A warning where every PSF is a single point; else None."""
    if not isinstance(blur, Blur):
        return None
    sizes = blur.kernels.abs().flatten(2)
    if bool((sizes.amax(-1) < POINT * sizes.sum(-1)).any()):
        return None
    return "the PSF is a single point, which blurs nothing: the picture is only denoised"


def mostly_noise(problem: Problem, model: NoiseModel) -> str | None:
    """A warning where the estimated noise is most of what varies in a picture; else None."""
    if model.source != "estimated":
        return None
    y, precision = problem.observed, problem.data_term.precision_of(problem.observed)

    def sums(mean: Tensor, power: int) -> tuple[Tensor, Tensor]:
        """Of `(y - mean)^power` and of the pixels that count, some rows at a time: large pictures need many copies."""
        total, number = torch.zeros(2, *y.shape[:2], 1, 1, dtype=torch.float64, device=y.device)
        for top in range(0, y.shape[-2], ROWS):
            part = y[..., top : top + ROWS, :].double()
            counts = torch.ones_like(part)
            if precision is not None:
                counts = (precision.expand_as(y)[..., top : top + ROWS, :] > 0).double()
            total += ((part - mean).pow(power) * counts).sum((-2, -1), keepdim=True)
            number += counts.sum((-2, -1), keepdim=True)
        return total, number.clamp_min(1)

    total, number = sums(torch.zeros((), dtype=torch.float64, device=y.device), 1)
    spread = (sums(total / number, 2)[0] / number).mean((1, 2, 3))
    if bool((model.white.to(spread).square() < NOISE_SHARE * spread).all()):
        return None
    return (
        "most of what varies in the picture was taken for noise and is smoothed away: if it is not noise, give the "
        "noise level"
    )
