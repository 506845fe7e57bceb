"""Where regions of different blur end, to the pixel, from a sharp and a blurred picture and a kernel for each region.

    min_m  1/2 sum_n t_n (y_n - sum_i u_i K_i x)_n^2 / sigma^2 + LENGTH TV(m),    u_i = (k_i * m_i) / sum_j (k_j * m_j)

`m_i >= 0`, `sum_i m_i = 1`, says what belongs to thing `i`, and `u_i` how far the light of the thing reaches: its own
blur carries it beyond its outline. `t` is small where light comes from beyond the picture.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur.arrays import Array
from pnpladmm.estimate.kernel_fields import Field
from pnpladmm.estimate.pair import Pair

LENGTH = 3.0
"""What a pixel of outline costs, in units of log-likelihood."""
STEPS = 60
RATE = 0.3
"""Largest change of the logarithms of `m` in a step."""
SHARPEST = 1e-2
"""Changes of `m` below this are not counted as outline."""
LEAST = 1e-2
"""Of `m` at the start: what is 0 would stay 0."""
BEYOND = 3.0
"""Standard deviations by which light from beyond the picture differs from its mirror image."""
ELSEWHERE = 0.1
"""Share of the variance of the whole picture that is added to that nearby."""


def fit_outlines(pair: Pair, field: Field, shares: Array, steps: int = STEPS) -> tuple[Array, Array]:
    """The regions `m` (P, H, W) and their weights `u` (P, H, W) for the kernels of a field, starting from `shares`."""
    kernels = torch.from_numpy(field.kernels).float()
    sharp, blurred = (torch.from_numpy(picture).float() for picture in (pair.sharp, pair.blurred))
    shown = torch.stack([_convolved(sharp, kernel) for kernel in kernels])
    trust = torch.from_numpy(trusted(pair, field) / (2 * pair.noise**2)).float()
    logs = torch.from_numpy(shares.clip(LEAST)).float().log()
    logs = (logs - logs.mean(0)).requires_grad_()
    optimiser = torch.optim.Adam([logs], lr=RATE, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda n: 0.5 + 0.5 * math.cos(math.pi * n / steps))
    for _ in range(steps):
        regions = logs.softmax(0)
        misfit = (trust * (blurred - (_weights(regions, kernels) * shown).sum(0)) ** 2).sum()
        optimiser.zero_grad()
        (misfit + LENGTH * _outline(regions)).backward()  # type: ignore[no-untyped-call]  # torch has no types here
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        regions = logs.softmax(0)
        weights = _weights(regions, kernels).double()
    return regions.double().numpy(), (weights / weights.sum(0)).numpy()


def trusted(pair: Pair, field: Field) -> Array:
    """How far each pixel counts, 0 to 1: the variance of the noise over that of the noise and of unknown light.

    Light from beyond the picture is guessed to be that of its mirror image, with an error of `BEYOND` times the
    contrast of the picture there. A flat sky may end just beyond the border: the contrast of the whole counts a little.
    """
    from scipy.ndimage import uniform_filter
    from scipy.signal import fftconvolve

    unknown = np.pad((~pair.sharp_valid).astype(float), pair.side // 2, constant_values=1.0)
    lost = sum(
        weight * fftconvolve(unknown, kernel, mode="valid")
        for weight, kernel in zip(field.weights, field.kernels, strict=True)
    )
    mean, square = (uniform_filter(p, pair.side, mode="reflect") for p in (pair.sharp, pair.sharp**2))
    contrast = (square - mean**2).clip(0) + ELSEWHERE * pair.sharp[pair.sharp_valid].var()
    error = (BEYOND * lost) ** 2 * contrast
    result: Array = pair.valid * pair.noise**2 / (pair.noise**2 + error)
    return result


def _weights(regions: Tensor, kernels: Tensor) -> Tensor:
    spread = _convolved(regions, kernels).clamp(min=1e-6)
    return spread / spread.sum(0)


def _convolved(pictures: Tensor, kernels: Tensor) -> Tensor:
    """True convolution of (..., H, W) with (..., k, k); beyond the border the picture is mirrored."""
    half = kernels.shape[-1] // 2
    height, width = pictures.shape[-2:]
    flat = pictures.reshape(1, -1, height, width)
    wide = torch.nn.functional.pad(flat, (half,) * 4, mode="reflect")
    wide = wide.reshape(*pictures.shape[:-2], *wide.shape[-2:])
    size = wide.shape[-2:]
    product = torch.fft.rfft2(wide) * torch.fft.rfft2(kernels, s=size)
    return torch.fft.irfft2(product, s=size)[..., 2 * half :, 2 * half :]


def _outline(regions: Tensor) -> Tensor:
    """The length of all outlines, in pixels: total variation."""
    across = regions[:, :-1, 1:] - regions[:, :-1, :-1]
    down = regions[:, 1:, :-1] - regions[:, :-1, :-1]
    return ((across**2 + down**2 + SHARPEST**2).sqrt() - SHARPEST).sum()
