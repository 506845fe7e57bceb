"""What the tests of gradient steps share: a random network of known curvature, noisy pictures, and its denoiser."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from conftest import picture
from pnpladmm.denoisers.building import new_network
from pnpladmm.denoisers.gradient_step import GradientStepDenoiser
from pnpladmm.denoisers.smooth_unet import SmoothUNet

SIGMA = 0.05


def network(channels: int = 1, curvature: float | None = 0.8, seed: int = 0, size: int = 24) -> SmoothUNet:
    """A random network, its last convolution scaled so that `lambda_max` is `curvature` at a noisy picture."""
    torch.manual_seed(seed)
    net = new_network("prox-drunet", channels, (8, 8, 8), 1).double()
    assert isinstance(net, SmoothUNet)
    for parameter in net.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    if curvature is not None:
        v = pictures(channels, size)
        found = float(GradientStepDenoiser({channels: net}, precision=torch.float64).curvature(v, SIGMA, 40))
        net.exit.weight.data *= math.sqrt(curvature / found)
    return net


def pictures(channels: int = 1, size: int = 24, batch: int = 1, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(batch, channels, size, size, dtype=torch.float64, generator=generator)
    return picture(size).expand(batch, channels, -1, -1) + SIGMA * noise


def denoiser(net: SmoothUNet, **options: object) -> GradientStepDenoiser:
    return GradientStepDenoiser({net.channels: net}, precision=torch.float64, **options)  # type: ignore[arg-type]
