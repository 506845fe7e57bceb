r"""An approximate inverse of `H^T p H + a` for a blur: a Wiener filter for each region of the picture.

Where one kernel rules, `H^T p H + a` is nearly the convolution with spectrum `p |k(f)|^2 + a`, which the FFT
inverts. With regions `v_q >= 0`, `sum_q v_q = 1` (the blur's own weights where they are segments),

    M^-1 r = sum_q sqrt(v_q) F^-1 [ 1 / (p_q S_q(f) + a) ] F ( sqrt(v_q) r ),

`p_q` the mean precision of the region and `S_q(f)` its mean of `|k_r(f)|^2`, `k_r = sum_i u_i(r) k_i` being the
kernel at pixel `r`. Each term is `B^T C B` with `C` positive definite, and at every pixel some `v_q > 0`, so
`M^-1` is symmetric positive definite, as conjugate gradient needs; a poor fit costs iterations, never the result.

With one region it is the best circulant matrix in the sense of T. Chan, 2 transforms of the picture; with the
weights as regions it costs about as much as `H^T H`, and 2 steps do the work of 6 to 10 (docs/speed.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.fft import irfft2, rfft2

from pnpladmm.operators.convolution import Size, fast_size

if TYPE_CHECKING:
    from pnpladmm.operators.blur import SpatiallyVaryingBlur

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
        self.filter = (precision * regions.power + (a.unsqueeze(1) if a.ndim else a)).reciprocal_()

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
    total = weights.sum(1, keepdim=True)
    if weights.shape[1] <= MOST_REGIONS and bool((weights >= 0).all()):
        v = torch.where(total > 0, weights / total.clamp_min(TINY), 1 / weights.shape[1])
    else:
        v = torch.ones_like(total)
    size = fast_size(blur.scene)
    return Regions(
        root=blur.on_scene(v).sqrt().to(like.dtype),
        power=mean_power(kernels, weights, v, size).to(like.dtype),
        share=_normalised(blur.on_observed(v)).to(like.dtype),
        fft_size=size,
    )


def mean_power(kernels: Tensor, weights: Tensor, v: Tensor, size: Size) -> Tensor:
    """`S_q(f) = sum_ij mean_q(u_i u_j) conj(k_i(f)) k_j(f)`, (b, Q, c, fft), for regions `v` (b, Q, 1, h, w)."""
    kh, kw = kernels.shape[-2:]
    # Autocorrelations have 2k - 1 pixels: the products are taken at that size and only their sum at the picture's.
    small = fast_size((2 * kh - 1, 2 * kw - 1))
    spectra = rfft2(kernels, small).flatten(-2).movedim(1, -1)  # (b, c, f, P)
    flat = weights.flatten(2)
    power = []
    for share in _normalised(v).flatten(2).unbind(1):
        gram = (share.unsqueeze(1) * flat) @ flat.mT  # (b, P, P)
        power.append(((spectra @ gram.unsqueeze(1).to(spectra.dtype)) * spectra.conj()).sum(-1).real)
    mean = torch.stack(power, 1)
    mean = mean.view(*mean.shape[:-1], small[0], small[1] // 2 + 1)
    correlation = irfft2(mean.to(spectra.dtype), small)
    correlation = correlation.roll((kh - 1, kw - 1), (-2, -1))[..., : 2 * kh - 1, : 2 * kw - 1]
    return rfft2(_wrapped(correlation, size, (kh - 1, kw - 1))).real.clamp_min(0)


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
