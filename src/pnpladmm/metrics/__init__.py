"""How good a picture is."""

from __future__ import annotations

import torch
from torch import Tensor

from pnpladmm.tensors import squared_norm


def psnr(x: Tensor, reference: Tensor) -> Tensor:
    """`-10 log10(mean (x - reference)^2)` of each picture in dB, for pictures of peak 1: (B,), float64."""
    error = squared_norm(x.double() - reference.double()) / reference[0].numel()
    return -10 * torch.log10(error)
