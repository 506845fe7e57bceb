r"""A bound of a filter bank's spectrum that holds for pictures of all sizes.

A bank of filters `w_o` (C, k, k) with weights `c_o >= 0`, each filter in its four mirror images, is the quadratic form

    sum_o c_o sum_g sum_p |(w_o^g * x~)(p)|^2  <=  sup_omega lambda_max M(omega)  ||x||^2,
    M(omega) = sum_o c_o sum_g  Re( w^_o(g omega) w^_o(g omega)^H ),

where `x~` is the picture continued by its mirror image without end and `p` runs over its pixels. *Proof.* `x~` is
periodic with the period 2H x 2W and equal to its mirror images, so the sum over the four images of a filter at the
pixels of the picture is the sum of one of them at the 4 H W pixels of the period. There the filter is a circular
convolution: Parseval's theorem bounds the form by a quarter of the supremum times `||x~||^2 = 4 ||x||^2`.

The supremum is over all frequencies, and a grid has some of them. For each vector `a`, `a^H M a` is a trigonometric
polynomial of degree `n = k - 1` in both frequencies. On `N > 2n` equidistant points such a polynomial of one variable
has at least `cos(pi n / N)` of its largest absolute value (Ehlich and Zeller, 1964), so

    sup_omega lambda_max M(omega)  <=  max_grid lambda_max M(omega) / cos(pi n / N)^2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

POINTS_PER_DEGREE = 32
"""Grid points along each frequency for a proof: with them the bound is 1 % above the largest value of the grid."""


def spectrum_bound(filters: Tensor, weights: Tensor, points: int | None = None) -> Tensor:
    """The bound above for filters (O, C, k, k) and weights (O, S) of at least 0, for each of the S columns."""
    degree = filters.shape[-1] - 1
    points = points or max(1, POINTS_PER_DEGREE * degree)
    if points <= 2 * degree:
        raise ValueError(f"{points} grid points for filters of {degree + 1} pixels")
    return largest_on_grid(filters, weights, points) / math.cos(math.pi * degree / points) ** 2


def largest_on_grid(filters: Tensor, weights: Tensor, points: int) -> Tensor:
    """The largest eigenvalue of `M` on the grid, (S,)."""
    return torch.linalg.eigvalsh(symbol(filters, weights, points))[..., -1].flatten(1).amax(1)


def symbol(filters: Tensor, weights: Tensor, points: int) -> Tensor:
    """`M` on the grid, (S, points//2 + 1, points//2 + 1, C, C), real; its other frequencies are mirror images."""
    line = torch.arange(points // 2 + 1, device=filters.device, dtype=filters.dtype) * (2 * math.pi / points)
    place = torch.arange(filters.shape[-1], device=filters.device, dtype=filters.dtype)
    wave = torch.exp(-1j * line[:, None] * place)
    across = torch.einsum("ocij,xj->ocix", filters.to(wave.dtype), wave)
    total: Tensor | int = 0
    for turned in (wave, wave.conj()):  # the mirror images: both signs of one frequency, then the real part
        spectrum = torch.einsum("ocix,yi->ocyx", across, turned)
        pairs = torch.einsum("ocyx,odyx->ocdyx", spectrum, spectrum.conj()).real
        total = total + 2 * torch.einsum("os,ocdyx->syxcd", weights.to(pairs.dtype), pairs)
    assert isinstance(total, Tensor)
    return total
