"""PSNR and SSIM, one number per picture."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pnpladmm.files import optional
from pnpladmm.metrics.convention import STANDARD, Convention
from pnpladmm.tensors import InputError, squared_norm

WINDOW = 11
"""Rows and columns of SSIM's window."""
PICTURES_AT_ONCE = 16
"""Pictures that SSIM compares together; it needs ten times their memory."""


def psnr(x: Tensor, reference: Tensor, convention: Convention = STANDARD) -> Tensor:
    """Peak signal-to-noise ratio `-10 log10(mean (x - reference)^2)` in dB, for pictures of peak 1.

    Parameters
    ----------
    x, reference : Tensor
        The estimate and the true picture, both (B, C, H, W), nominally in [0, 1].
    convention : Convention, optional
        Border, clipping and pooling; by default all pixels, no clipping, no pooling. Pictures that are pooled share one
        squared error and get the same number.

    Returns
    -------
    Tensor
        One number per picture, (B,), float64.

    Raises
    ------
    InputError
        If the shapes differ.

    Examples
    --------
    >>> import torch
    >>> from pnpladmm.metrics import psnr
    >>> reference = torch.full((2, 1, 8, 8), 0.5, dtype=torch.float64)
    >>> psnr(reference + 0.1, reference).round(decimals=3)
    tensor([20., 20.], dtype=torch.float64)
    """
    x, reference = convention.prepare(x, reference)
    error = squared_norm(x.double() - reference.double()) / reference[0].numel()
    if convention.pooled > 1:
        error = torch.cat([part.mean().expand(len(part)) for part in torch.split(error, convention.pooled)])
    return -10 * torch.log10(error)


def ssim(x: Tensor, reference: Tensor, convention: Convention = STANDARD) -> Tensor:
    """Structural similarity, mean over channels. Needs torchmetrics (`pnpladmm[experiments]`).

    Wang et al. 2004: Gaussian window of 11x11, sigma 1.5, biased covariances, `K1 = 0.01`, `K2 = 0.03`. The mean is
    over windows that lie inside the picture. Equals scikit-image's `structural_similarity` with
    `gaussian_weights=True, sigma=1.5, use_sample_covariance=False` up to rounding.

    Parameters
    ----------
    x, reference : Tensor
        The estimate and the true picture, both (B, C, H, W), nominally in [0, 1], of at least 11x11 pixels.
    convention : Convention, optional
        Border, clipping, pooling and data range; by default all pixels, no clipping, no pooling, range 1.

    Returns
    -------
    Tensor
        One number per picture, (B,), float64; 1 for equal pictures.

    Raises
    ------
    InputError
        If the shapes differ, the pictures are too small, or torchmetrics is not installed.

    Examples
    --------
    >>> import torch
    >>> from pnpladmm.metrics import ssim
    >>> picture = torch.rand(1, 3, 16, 16)
    >>> ssim(picture, picture)
    tensor([1.], dtype=torch.float64)
    """
    # In float64: variances are small differences of large numbers, and float32 would change SSIM by 3e-6.
    x, reference = (t.double() for t in convention.prepare(x, reference))
    if min(x.shape[2:]) < WINDOW:
        h, w = x.shape[2:]
        raise InputError(f"SSIM of {h}x{w} pixels: its window is {WINDOW}x{WINDOW}, give at least that")
    similarity, result = _similarity(), []
    together = PICTURES_AT_ONCE if convention.ssim_range else convention.pooled
    for a, b in zip(torch.split(x, together), torch.split(reference, together), strict=True):
        # SSIM for range r is that of the pictures divided by r for range 1. So a measured range stays on the GPU.
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
    """torchmetrics' function: importing torchmetrics is slow."""
    return optional("torchmetrics.functional.image").structural_similarity_index_measure
