r"""An approximate inverse of `H^T p H + a` for a blur: a Wiener filter for each region of the picture.

Where one kernel dominates, `H^T p H + a` is nearly the convolution with spectrum `p |k(f)|^2 + a`, which the FFT
inverts. With regions `v_q >= 0`, `sum_q v_q = 1`,

    M^-1 r = sum_q sqrt(v_q) F^-1 [ 1 / (p_q S_q(f) + t_q) ] F ( sqrt(v_q) r ),    t_q = max(a, FLOOR p_q max S_q),

`p_q` is the mean precision of the region and `S_q(f)` the power spectrum of its kernel. Each term is `B^T C B` with
`C` positive definite, and at every pixel some `v_q > 0`. So `M^-1` is symmetric positive definite, as conjugate
gradient needs: a poor fit costs iterations and never changes the solution.

Pixels may weigh more or less in the data than elsewhere, by a factor `c = (H^T H 1)(r) / S(0)`. Where `c > 1` (borders
that are repeated), `v_q / c^2` replaces `v_q`. Where `c < 1` (beyond the border of a crop), `v_q / c` does, as if `c`
scaled `S`, with `c` no less than `MIN_WEIGHT`.

A blur of few segments has its weights as regions, each with its own kernel: an application then costs about as much as
`H^T H`. Other blurs have one region, or tiles if they have enough kernels that tiles add little cost. `S` is then the
mean of `|k_r(f)|^2` over the pixels `r`, where `k_r` is the kernel at `r` (for one region the best circulant matrix, T.
Chan).

Why `t` is not always `a`: near the seams of regions the filters are wrong. A filter that amplifies by `1/a` the
frequencies that the blur has nearly removed (`p S < t`) turns a small error in the data into a large one in the
picture. Those frequencies are left to the start and to later steps (docs/reference/speed.md has the numbers).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fft import irfft2, rfft2

from pnpladmm.operators.division import TINY, partition, precision_of
from pnpladmm.operators.fft import Size, fast_size, is_smooth
from pnpladmm.operators.kernel_order import KernelOrder, add_weighted
from pnpladmm.operators.preconditioning import Preconditioner
from pnpladmm.operators.windows import bounding_boxes

if TYPE_CHECKING:
    from pnpladmm.operators.blur import SpatiallyVaryingBlur

# Relative to its strongest frequency, below this power a filter does not amplify any further.
FLOOR = 0.1
# The largest `c`, a factor without unit: a signed blur with a mean of almost 0 has a tiny `S(0)`.
MAX_WEIGHT = 100.0
# The smallest `c`: with a smaller one the filters would amplify what other pixels determine better.
MIN_WEIGHT = 0.3


@dataclass(frozen=True)
class Patch:
    """Regions that are filtered together, in a window of the scene that contains them."""

    pictures: slice
    window: tuple[slice, slice]
    root: Tensor  # sqrt(v_q), v_q as it stands in the sum, (b, Q, 1, window), in the order of `order`
    power: Tensor  # S_q(f), (b, Q, c, fft), likewise
    fft_size: Size
    order: KernelOrder
    precision: Tensor | None
    """`p_q` where it is known of a larger picture, (b, Q, C, 1, 1), likewise."""

    @classmethod
    def of(
        cls,
        pictures: slice,
        window: tuple[slice, slice],
        root: Tensor,
        power: Tensor,
        fft_size: Size,
        precision: Tensor | None = None,
    ) -> Patch:
        """A patch with its pictures sorted by their numbers of regions."""
        order = KernelOrder.from_weights(root)
        if precision is not None:
            precision = order.reorder_kernels(precision.to(root)[..., None, None])
        root, power = order.reorder_kernels(root), order.reorder_kernels(power)
        return cls(pictures, window, root, power, fft_size, order, precision)

    def filtered(self, r: Tensor, wiener: Tensor) -> Tensor:
        """`sum_q sqrt(v_q) F^-1 w_q F (sqrt(v_q) r)` of what lies in the window, `w_q` with the norm of `F^-1`."""
        h, w = r.shape[-2:]
        r = self.order.reorder(r)
        total: Tensor | None = None
        for served, part in self.order.chunks(r):
            root = self.root[served, part]
            spectrum = rfft2(root * r[served].unsqueeze(1), self.fft_size).mul_(wiener[served, part])
            terms = irfft2(spectrum, self.fft_size, norm="forward")[..., :h, :w]
            total = add_weighted(total, served, root, terms)
        assert total is not None
        return self.order.reorder_back(total)


@dataclass(frozen=True)
class Regions:
    """All regions of a blur, in one dtype and on one device: together on a GPU, box by box on a CPU."""

    patches: tuple[Patch, ...]
    border_widths: tuple[int, int, int, int]
    """Pixels of the scene beyond the observation: left, right, top, bottom."""
    floor: Tensor


class LocalWiener(Preconditioner):
    """`M^-1`, for one `p` and one `a` at a time, on pictures (B, C, H, W) of the scene."""

    recordable = True

    def __init__(self, regions: Regions, precision: Tensor, a: Tensor) -> None:
        """`precision` broadcasts to the observation, `a` is () or (B, 1, 1, 1)."""
        self.regions = regions
        seen = None
        if precision.ndim and precision.shape[-2:] != (1, 1):
            seen = F.pad(torch.ones_like(precision[:1, :1]), regions.border_widths)
            precision = F.pad(precision, regions.border_widths)
        self.filters = [Filter(patch, precision, seen, a, regions.floor) for patch in regions.patches]

    def set(self, a: Tensor) -> None:
        """Use another `a` of the same shape; the filters change in place."""
        for each in self.filters:
            each.set(a)

    def __call__(self, r: Tensor) -> Tensor:
        """`M^-1 r`."""
        first, *others = self.filters
        if not others:  # it is the whole scene
            return first(r)
        total = torch.zeros_like(r)
        for each in self.filters:
            place = (each.patch.pictures, slice(None), *each.patch.window)
            total[place].add_(each(r[place]))
        return total


class Filter:
    """The part of `M^-1` in one patch."""

    def __init__(self, patch: Patch, precision: Tensor, seen: Tensor | None, a: Tensor, floor: Tensor) -> None:
        """`seen`: 1 where a pixel is observed, where precision is a map of the scene."""
        self.patch = patch
        p = self._own(precision)
        if patch.precision is not None:
            p = patch.precision
        elif seen is not None:  # the mean of each region, over its pixels that are observed
            share = patch.root.square() * seen[(..., *patch.window)].unsqueeze(1)
            total = share.sum((-2, -1), keepdim=True).clamp_min(torch.finfo(share.dtype).tiny)
            p = (share * p[(..., *patch.window)]).sum((-2, -1), keepdim=True) / total
        self.precision, self.floor = p, self._own(floor) * p * patch.power.amax((-2, -1), keepdim=True)
        self.wiener = self._made(a)

    def set(self, a: Tensor) -> None:
        """Change the filters to another `a` of the same shape."""
        self._made(a, out=self.wiener)

    def __call__(self, r: Tensor) -> Tensor:
        """Filter the part of `r` that lies in the window."""
        return self.patch.filtered(r, self.wiener)

    def _made(self, a: Tensor, out: Tensor | None = None) -> Tensor:
        """`1 / (p_q S_q + t_q)`, (B, Q, C, fft), over the number of pixels: the inverse transform is not normalised."""
        pixels = self.patch.fft_size[0] * self.patch.fft_size[1]
        t = pixels * torch.maximum(self.floor, self._own(a))
        return torch.addcmul(t, pixels * self.precision, self.patch.power, out=out).reciprocal_()

    def _own(self, numbers: Tensor) -> Tensor:
        """`numbers` of shape (), (1, ...) or (B, ...) for this patch's pictures, with an axis for the regions."""
        if numbers.ndim and len(numbers) > 1:
            numbers = self.patch.order.reorder(numbers[self.patch.pictures])
        return numbers.unsqueeze(1) if numbers.ndim == 4 else numbers


def regions_of(blur: SpatiallyVaryingBlur, like: Tensor) -> Regions:
    """The regions of a blur, as pictures `like` will need them."""
    kernels, weights = (t.to(like.device, torch.float64) for t in (blur.kernels, blur.weights))
    v, gram = partition(weights, blur.division)
    correlation = _correlations(kernels, gram)
    one = torch.ones(len(weights), kernels.shape[2], *blur.scene, dtype=like.dtype, device=like.device)
    usual = (v * correlation.sum((-2, -1), keepdim=True).amax(2, keepdim=True)).sum(1)
    usual = blur.on_scene(usual.clamp_min(TINY))
    c = (blur.adjoint(blur.forward(one)).amax(1, keepdim=True) / usual).clamp(MIN_WEIGHT, MAX_WEIGHT)
    if blur.division is not None:
        c = blur.division[0].continued(c, (kernels.shape[-2], kernels.shape[-1]))
    root = (blur.on_scene(v).sqrt() / torch.where(c < 1, c.sqrt(), c).unsqueeze(1)).to(like.dtype)

    known = precision_of(blur.division, v.shape[1])
    whole = blur.scene if blur.boundary == "circular" and is_smooth(blur.scene) else fast_size(blur.scene)
    if like.is_cuda or v.shape[1] == 1:
        everywhere = (slice(0, blur.scene[0]), slice(0, blur.scene[1]))
        patches = [Patch.of(slice(None), everywhere, root, _power(correlation, whole).to(like.dtype), whole, known)]
    else:
        patches = _boxes(root, correlation, whole, known)
    # One kernel on a torus: then M^-1 is the inverse itself.
    torus = blur.boundary == "circular" and whole == blur.scene
    flat = weights.flatten(2)
    exact = torus & (flat.any(-1).sum(1) == 1) & (flat.amax(-1) == flat.amin(-1)).all(1)
    floor = torch.where(exact, 0.0, FLOOR).to(like.dtype).view(-1, 1, 1, 1, 1)
    return Regions(tuple(patches), blur.border_widths, floor)


def _correlations(kernels: Tensor, gram: Tensor) -> Tensor:
    """`sum_ij gram_ij k_i corr k_j` of each region, (b, Q, c, 2 kh - 1, 2 kw - 1)."""
    kh, kw = kernels.shape[-2:]
    small = fast_size((2 * kh - 1, 2 * kw - 1))
    spectra = rfft2(kernels, small).flatten(-2).movedim(1, -1).unsqueeze(1)  # (b, 1, c, f, P)
    grams = gram.unsqueeze(2).to(spectra.dtype).unbind(1)
    power = [((spectra @ g.unsqueeze(1)) * spectra.conj()).sum(-1) for g in grams]
    stacked = torch.cat(power, 1)
    correlation = irfft2(stacked.view(*stacked.shape[:3], small[0], small[1] // 2 + 1), small)
    return correlation.roll((kh - 1, kw - 1), (-2, -1))[..., : 2 * kh - 1, : 2 * kw - 1]


def _power(correlation: Tensor, size: Size) -> Tensor:
    """Power spectra of transforms of `size`."""
    kh, kw = (n // 2 + 1 for n in correlation.shape[-2:])
    return rfft2(_wrapped(correlation, size, (kh - 1, kw - 1))).real.clamp_min(0)


def _boxes(root: Tensor, correlation: Tensor, whole: Size, known: Tensor | None) -> list[Patch]:
    """A patch for each region, and for each picture that has a blur of its own."""
    patches = []
    kh, kw = (n // 2 + 1 for n in correlation.shape[-2:])
    for b, q, rows, columns in bounding_boxes(root.squeeze(2) != 0):
        pictures = slice(None) if len(root) == 1 else slice(b, b + 1)
        inside = (slice(b, b + 1), slice(q, q + 1), slice(None))
        h, w = rows.stop - rows.start, columns.stop - columns.start
        # Room for most of the filter's tail.
        size = whole if (h, w) == tuple(root.shape[-2:]) else fast_size((h + kh // 2, w + kw // 2))
        power = _power(correlation[inside], size).to(root.dtype)
        own = None if known is None else known[pictures, q : q + 1]
        window = root[(*inside, rows, columns)].contiguous()
        patches.append(Patch.of(pictures, (rows, columns), window, power, size, own))
    return patches


def _wrapped(values: Tensor, size: Size, origin: Size) -> Tensor:
    """`values` (..., m, n) on a torus of `size`, index `origin` at 0; values that wrap round are added."""
    for axis, n, at in zip((-2, -1), size, origin, strict=True):
        index = (torch.arange(values.shape[axis], device=values.device) - at) % n
        shape = list(values.shape)
        shape[axis] = n
        values = values.new_zeros(shape).index_add_(axis, index, values)
    return values
