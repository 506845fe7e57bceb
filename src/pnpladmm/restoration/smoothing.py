"""The mean of a few neighbours."""

from __future__ import annotations

import torch
from torch import Tensor


def smoothed(pixels: Tensor) -> Tensor:
    """Each pixel as the mean of 5x5, the nearer the more, (B, C, H, W)."""
    kernel = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0], dtype=pixels.dtype, device=pixels.device) / 16
    padded = torch.nn.functional.pad(pixels, (2, 2, 2, 2), mode="replicate").flatten(0, 1).unsqueeze(1)
    return torch.nn.functional.conv2d(padded, (kernel[:, None] * kernel)[None, None]).reshape(pixels.shape)
