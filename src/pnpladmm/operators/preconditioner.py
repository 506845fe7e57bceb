r"""An approximate inverse of `H^T p H + a` for a blur: a Wiener filter for each region of the picture.

Where one kernel rules, `H^T p H + a` is nearly the convolution with spectrum `p |k(f)|^2 + a`, which the FFT
inverts. With regions `v_q >= 0`, `sum_q v_q = 1`,

    M^-1 r = sum_q sqrt(v_q) F^-1 [ 1 / (p_q S_q(f) + t_q) ] F ( sqrt(v_q) r ),    t_q = max(a, FLOOR p_q max S_q),

`p_q` the mean precision of the region and `S_q(f)` the power spectrum of its kernel. Each term is `B^T C B` with
`C` positive definite, and at every pixel some `v_q > 0`, so `M^-1` is symmetric positive definite, as conjugate
gradient needs; a poor fit costs iterations, never the result.

A blur with few non-negative weights (segments) has them for regions, each with its own kernel: an application
then costs about as much as `H^T H`. Any other blur is one region with `S` the mean of `|k_r(f)|^2` over its pixels
`r` (the best circulant matrix, T. Chan): 2 transforms.

Why `t` is not always `a`: what the blur has all but erased (`p S < t`) is left to the start and to later steps.
Where regions meet, their filters are wrong, and a filter that amplifies weak frequencies by `1/a` makes of that
small error in the data a large one in the picture (docs/speed.md has the numbers).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.fft import irfft2, rfft2

from pnpladmm.operators.convolution import Size, fast_size, kernel_spectra

if TYPE_CHECKING:
    from pnpladmm.operators.blur import SpatiallyVaryingBlur

# How far below the strongest frequency a filter still amplifies fully.
FLOOR = 0.1
# More regions than this cost more than they save.
MOST_REGIONS = 16
TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class Regions:
    """`v_q` and `S_q` on the scene, in one dtype and on one device; b = 1 or B, c = 1 or C."""

    root: Tensor  # sqrt(v_q), (b, Q, 1, H, W)
    power: Tensor  # S_q(f), (b, Q, c, fft)
    share: Tensor  # v_q on the observed domain, each of sum 1, (b, Q, 1, h, w)
    fft_size: Size
    floor: float


class LocalWiener:
    """`M^-1`, for one `p` and one `a`; a callable on pictures (B, C, H, W) of the scene."""

    def __init__(self, regions: Regions, precision: Tensor, a: Tensor) -> None:
        """`precision` broadcasts to the observation, `a` is () or (B, 1, 1, 1)."""
        self.regions = regions
        if precision.ndim and precision.shape[-2:] != (1, 1):
            # The mean of each region, for each picture and channel.
            precision = (regions.share * precision.unsqueeze(1)).sum((-2, -1), keepdim=True)
        elif precision.ndim:
            precision = precision.unsqueeze(1)
        power = precision * regions.power
        floor = regions.floor * power.amax((-2, -1), keepdim=True)
        self.filter = (power + torch.maximum(floor, a.unsqueeze(1) if a.ndim else a)).reciprocal_()

    def __call__(self, r: Tensor) -> Tensor:
        """`M^-1 r`."""
        root, size = self.regions.root, self.regions.fft_size
        h, w = r.shape[-2:]
        spectrum = rfft2(root * r.unsqueeze(1), size)
        spectrum *= self.filter
        return (root * irfft2(spectrum, size)[..., :h, :w]).sum(1)


def regions_of(blur: SpatiallyVaryingBlur, like: Tensor) -> Regions:
    """The weights as regions where they are few and not negative, else one region."""
    kernels, weights = (t.to(like.device, torch.float64) for t in (blur.kernels, blur.weights))
    size = fast_size(blur.scene)
    count = weights.shape[1]
    if count <= MOST_REGIONS and bool((weights >= 0).all()):
        total = weights.sum(1, keepdim=True)
        v = torch.where(total > 0, weights / total.clamp_min(TINY), 1 / count)
        # Weights need not sum to one: |total k_q|^2, its mean over the region.
        scale = (_normalised(v) * total.square()).sum((-2, -1))[..., None, None]
        power = scale * kernel_spectra(kernels, size, (0, 0)).abs().square()
    else:
        v = torch.ones_like(weights[:, :1])
        power = mean_power(kernels, weights, size)
    # One kernel on a torus: then M^-1 is the inverse itself.
    exact = (
        blur.boundary == "circular" and size == blur.scene and count == 1 and bool((weights == weights.mean()).all())
    )
    return Regions(
        root=blur.on_scene(v).sqrt().to(like.dtype),
        power=power.to(like.dtype),
        share=_normalised(blur.on_observed(v)).to(like.dtype),
        fft_size=size,
        floor=0.0 if exact else FLOOR,
    )


def mean_power(kernels: Tensor, weights: Tensor, size: Size) -> Tensor:
    """`S(f) = sum_ij mean(u_i u_j) conj(k_i(f)) k_j(f)`, (b, 1, c, fft)."""
    kh, kw = kernels.shape[-2:]
    # Autocorrelations have 2k - 1 pixels: the products are taken at that size, and only their sum at the picture's.
    small = fast_size((2 * kh - 1, 2 * kw - 1))
    spectra = rfft2(kernels, small).flatten(-2).movedim(1, -1)  # (b, c, f, P)
    flat = weights.flatten(2)
    gram = (flat @ flat.mT / flat.shape[-1]).unsqueeze(1).to(spectra.dtype)
    power = ((spectra @ gram) * spectra.conj()).sum(-1).view(*spectra.shape[:2], small[0], small[1] // 2 + 1)
    correlation = irfft2(power, small).roll((kh - 1, kw - 1), (-2, -1))[..., : 2 * kh - 1, : 2 * kw - 1]
    return rfft2(_wrapped(correlation, size, (kh - 1, kw - 1))).real.clamp_min(0).unsqueeze(1)


def _wrapped(values: Tensor, size: Size, origin: Size) -> Tensor:
    """`values` (..., m, n) on a torus of `size`, index `origin` at 0; what reaches beyond it is added."""
    for axis, n, at in zip((-2, -1), size, origin, strict=True):
        index = (torch.arange(values.shape[axis], device=values.device) - at) % n
        shape = list(values.shape)
        shape[axis] = n
        values = values.new_zeros(shape).index_add_(axis, index, values)
    return values


def _normalised(v: Tensor) -> Tensor:
    return v / v.sum((-2, -1), keepdim=True).clamp_min(TINY)
