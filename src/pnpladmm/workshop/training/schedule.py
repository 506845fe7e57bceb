"""Noise levels, the budget spent and the learning rate: what changes from step to step."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pnpladmm.denoisers.network import SIGMA_MAX

WEAK_SIGMA_MAX = 12 / 255


def share_spent(step: int, seconds: float, steps: int | None, minutes: float | None) -> float:
    """The share of the budget that is spent, 0 to 1 and beyond: the larger one of time and steps."""
    by_time = seconds / (60 * minutes) if minutes is not None else 0.0
    by_steps = step / steps if steps is not None else 0.0
    return max(by_time, by_steps)


def learning_rate(peak: float, step: int, warmup_steps: int, share: float) -> float:
    """Linear over the first `warmup_steps`, times half a cosine that falls to 0 over the budget.

    A function of its own because torch's schedulers count steps, and here the budget is usually a time.
    """
    warmup = min(1.0, (step + 1) / max(1, warmup_steps))
    return peak * warmup * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))


def draw_sigma(count: int, weak_noise: float, generator: torch.Generator) -> Tensor:
    """Noise levels (count,): uniform in 0..60/255, a share `weak_noise` of them in 0..12/255.

    The additional weak noise is for solvers, which end at a sigma_d of 1 to 5/255.
    """
    device = generator.device
    level = torch.rand(count, generator=generator, device=device)
    weak = torch.rand(count, generator=generator, device=device) < weak_noise
    return level * torch.where(weak, WEAK_SIGMA_MAX, SIGMA_MAX)


def expected_error(sigma: Tensor) -> Tensor:
    """`m(sigma)`: about the mean squared error of a good denoiser, for noise levels `sigma` (B,).

    The loss is the squared error divided by it, so that all noise levels count alike:

        loss = E_{x, sigma, e}  ||D_sigma(x + sigma e) - x||^2 / m(sigma).

    The weight depends on the noise level only, so for each sigma the minimiser is still the conditional mean
    E[x | x + sigma e], the MMSE estimator. (Except for the last rows and columns of crops that end in a mirror image,
    where the same noise comes twice: `data.mirror_ends`.)

    With s = 255 sigma, m is (2 s^2 / (s + 2) + 0.2) / 255^2: close to sigma^2 for weak noise, linear for strong
    noise, and 0.2 keeps the weight finite at 0. In units of 1/255^2 DRUNet on CBSD68 leaves 5.7 at s = 5 and 96 at
    s = 50, where m is 7.3 and 96.
    """
    s = sigma * 255
    return (2 * s.square() / (s + 2) + 0.2) / 255**2
