"""PSNR and SSIM, one number a picture."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pnpladmm.metrics.convention import STANDARD, Convention
from pnpladmm.tensors import InputError, squared_norm

WINDOW = 11
"""Rows and columns of SSIM's window."""
AT_ONCE = 16
"""Pictures that SSIM compares together: it keeps ten times their memory."""


def psnr(x: Tensor, reference: Tensor, convention: Convention = STANDARD) -> Tensor:
    """`-10 log10(mean (x - reference)^2)` of each picture in dB, for pictures of peak 1: (B,), float64.

    Pictures that the convention pools share one error, and get the same number: the mean over the batch is what a
    mean over pools of one size would be.
    """
    x, reference = convention.prepare(x, reference)
    error = squared_norm(x.double() - reference.double()) / reference[0].numel()
    if convention.pooled > 1:
        error = torch.cat([part.mean().expand(len(part)) for part in torch.split(error, convention.pooled)])
    return -10 * torch.log10(error)


def ssim(x: Tensor, reference: Tensor, convention: Convention = STANDARD) -> Tensor:
    """Structural similarity of each picture, mean over channels: (B,), float64.

    Wang et al. 2004: Gaussian window of 11x11, sigma 1.5, biased covariances, `K1 = 0.01`, `K2 = 0.03`. The mean is
    over windows that lie inside the picture. Equals scikit-image's `structural_similarity` with
    `gaussian_weights=True, sigma=1.5, use_sample_covariance=False` to rounding.
    """
    # In float64: variances are small differences of large numbers, in float32 they move SSIM by 3e-6.
    x, reference = (t.double() for t in convention.prepare(x, reference))
    if min(x.shape[2:]) < WINDOW:
        raise InputError(f"SSIM of {x.shape[2]}x{x.shape[3]} pixels: its window is {WINDOW}x{WINDOW}, give no less")
    similarity, result = _similarity(), []
    together = AT_ONCE if convention.ssim_range else convention.pooled
    for a, b in zip(torch.split(x, together), torch.split(reference, together), strict=True):
        # SSIM for range r is that of the pictures divided by r for range 1: so nothing waits for a range measured.
        span = a.new_tensor(convention.ssim_range) if convention.ssim_range else _span(a, b)
        _, image = similarity(a / span, b / span, sigma=1.5, reduction="none", data_range=1.0, return_full_image=True)
        inside = image[..., WINDOW // 2 : -(WINDOW // 2), WINDOW // 2 : -(WINDOW // 2)]
        result.append(inside.flatten(1).mean(1))
    return torch.cat(result)


def _span(a: Tensor, b: Tensor) -> Tensor:
    """The larger of the two spans of values; 1 where both pictures are flat."""
    span = torch.maximum(a.amax() - a.amin(), b.amax() - b.amin())
    return torch.where(span > 0, span, torch.ones_like(span))


def _similarity() -> Any:
    try:
        from torchmetrics.functional.image import structural_similarity_index_measure
    except ImportError:
        raise InputError("SSIM needs torchmetrics: pip install 'pnpladmm[experiments]'") from None
    return structural_similarity_index_measure
