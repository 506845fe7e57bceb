"""A denoiser: the mean of 3x3 pixels, mixed with the picture."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


class BoxMean:
    """`(1 - s) x + s mean(x)` with `s` growing with `sigma`; promises nothing."""

    name = "box-mean"

    def __call__(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        """Smooth `x`."""
        sigma = torch.as_tensor(sigma, dtype=x.dtype, device=x.device).reshape(-1, 1, 1, 1)
        share = sigma / (sigma + 0.05)
        mean = F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, 1)
        return (1 - share) * x + share * mean


def make_box_mean(device: object = None, precision: object = None) -> BoxMean:
    """What the entry point names."""
    return BoxMean()
