"""The core of the blur: weighted sums of convolutions, `sum_i U_i V_i` or `sum_i V_i U_i`, by FFT.

`V_i` is the valid convolution with kernel `i`, from the extended domain (h + kh - 1, w + kw - 1) to the
observed one (h, w):

    (V x)[q] = sum_d k[d] x[q + (k - 1) - d].

The weights lie on the observed domain (`sum_i U_i V_i`) or on the extended one (`sum_i V_i U_i`). Two ways
to compute it, the same to rounding; `make_bank` takes the cheaper on the device at hand:

- `DenseBank`: all kernels share one transform of the side without weights: 1 + P transforms of a picture with P
  kernels, all pictures of a batch at once, whatever their blurs: a few launches on a GPU;
- `BoxBank`: 2 transforms a kernel, each of the box its weight lives in. Segments make it the faster on a CPU.

Shapes: kernels (b, P, c, kh, kw), weights (b, P, 1, ...), with b = 1 or B and c = 1 or C.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.fft import irfft2, rfft2

from pnpladmm.operators.boundary import Extension
from pnpladmm.operators.kernel_order import KernelOrder, add_weighted

Size: TypeAlias = tuple[int, int]
Domain: TypeAlias = Literal["observed", "extended"]

# What a box costs beside its transforms, in the units of `_transform_cost` (measured: calls, slices). A GPU is kept
# waiting by a dozen launches for as long as it takes to transform some millions of pixels.
BOX_OVERHEAD, GPU_BOX_OVERHEAD = 2e3, 5e7
# Blocks beyond 32 MB are new memory every time, unless it is kept (allocator.py): that costs more than the transform.
# A spectrum takes 4 bytes a sample.
CPU_SAMPLES = 1 << 23
# Numbers of a bank whose conjugates a GPU keeps: making them each time takes it 3 % of a data step's time.
CONJUGATES_KEPT = 1 << 24


@dataclass(frozen=True)
class BankData:
    """Kernels and weights of one blur, with the domain the weights lie on."""

    kernels: Tensor
    weights: Tensor
    weights_on: Domain

    @property
    def kernel_size(self) -> Size:
        """(kh, kw)."""
        return self.kernels.shape[-2], self.kernels.shape[-1]


class DenseBank:
    """Every weight covers the picture: one transform of it serves all kernels."""

    def __init__(self, data: BankData, observed: Size, circular: bool = False) -> None:
        """`circular`: the picture is its own extension, and wraps round without being padded."""
        kh, kw = data.kernel_size
        self.order = KernelOrder.from_weights(data.weights)
        self.weights, self.weights_on = self.order.reorder_kernels(data.weights), data.weights_on
        self.observed = observed
        self.extended = observed if circular else (observed[0] + kh - 1, observed[1] + kw - 1)
        self.fft_size = observed if circular else fast_size(self.extended)
        origin = (kh // 2, kw // 2) if circular else (kh - 1, kw - 1)
        # Inverse transforms are not normalised, so the spectra are: it spares a pass over every result.
        self.spectra = kernel_spectra(self.order.reorder_kernels(data.kernels), self.fft_size, origin)
        self.spectra /= self.fft_size[0] * self.fft_size[1]
        self.conjugate = self.spectra.conj()
        if self.spectra.is_cuda and self.spectra.numel() <= CONJUGATES_KEPT:
            self.conjugate = self.conjugate.resolve_conj()

    def forward(self, x: Tensor) -> Tensor:
        """`sum_i U_i V_i x` or `sum_i V_i U_i x`."""
        weigh = self._weigh_after if self.weights_on == "observed" else self._weigh_before
        return self.order.reorder_back(by_channel(weigh, self.order.reorder(x), self.spectra, self.observed))

    def adjoint(self, y: Tensor) -> Tensor:
        """`sum_i V_i^T U_i y` or `sum_i U_i V_i^T y`: the weights change sides."""
        weigh = self._weigh_before if self.weights_on == "observed" else self._weigh_after
        return self.order.reorder_back(by_channel(weigh, self.order.reorder(y), self.conjugate, self.extended))

    def _weigh_after(self, v: Tensor, spectra: Tensor, size: Size) -> Tensor:
        spectrum = rfft2(v, self.fft_size).unsqueeze(1)
        total: Tensor | None = None
        for served, part in self.order.chunks(v):
            convolved = self._inverse(spectrum[served] * spectra[served, part], size)
            total = add_weighted(total, served, self.weights[served, part], convolved)
        assert total is not None
        return total

    def _weigh_before(self, v: Tensor, spectra: Tensor, size: Size) -> Tensor:
        total: Tensor | None = None
        for served, part in self.order.chunks(v):
            spectrum = rfft2(self.weights[served, part] * v[served].unsqueeze(1), self.fft_size)
            spectrum = spectrum.mul_(spectra[served, part])
            term = spectrum.squeeze(1) if spectrum.shape[1] == 1 else spectrum.sum(1)
            if total is None:
                total = term
            else:
                total[served].add_(term)
        assert total is not None
        return self._inverse(total, size)

    def _inverse(self, spectrum: Tensor, size: Size) -> Tensor:
        return irfft2(spectrum, self.fft_size, norm="forward")[..., : size[0], : size[1]]


def by_channel(weigh: Callable[[Tensor, Tensor, Size], Tensor], v: Tensor, spectra: Tensor, size: Size) -> Tensor:
    """All channels at once, or one after the other where the spectra of all would outgrow what the CPU reuses."""
    channels = v.shape[1]
    if v.is_cuda or channels == 1 or v.numel() <= CPU_SAMPLES:
        return weigh(v, spectra, size)
    own = spectra.expand(-1, -1, channels, -1, -1).unbind(2)
    planes = [weigh(v[:, i : i + 1], own[i].unsqueeze(2), size) for i in range(channels)]
    return torch.cat(planes, 1)


@dataclass(frozen=True)
class Window:
    """Where one kernel works: the pictures it serves, where it reads (extended) and writes (observed)."""

    pictures: slice
    kernel: int
    observed: tuple[slice, slice]
    extended: tuple[slice, slice]

    @property
    def fft_size(self) -> Size:
        """That of the window it reads."""
        rows, columns = self.extended
        return fast_size((rows.stop - rows.start, columns.stop - columns.start))


@dataclass(frozen=True)
class Box:
    """One kernel at work in its window."""

    window: Window
    spectrum: Tensor  # (1, c, fft)
    weight: Tensor  # (1, 1, ...), cropped to the window of its domain

    @property
    def target(self) -> tuple[slice, slice, slice, slice]:
        """The window as an index of observed pictures."""
        return (self.window.pictures, slice(None), *self.window.observed)

    @property
    def source(self) -> tuple[slice, slice, slice, slice]:
        """The window as an index of extended pictures."""
        return (self.window.pictures, slice(None), *self.window.extended)


class BoxBank:
    """Each kernel works only where its weight is not 0, plus its radius."""

    def __init__(self, data: BankData, observed: Size) -> None:
        kh, kw = data.kernel_size
        self.data = data
        self.observed = observed
        self.extended = (observed[0] + kh - 1, observed[1] + kw - 1)
        self.boxes = []
        for window in windows(data, observed):
            one = (window.pictures, window.kernel)
            spectrum = kernel_spectra(data.kernels[one], window.fft_size, (kh - 1, kw - 1))
            place = window.observed if data.weights_on == "observed" else window.extended
            self.boxes.append(Box(window, spectrum, data.weights[(*one, slice(None), *place)].contiguous()))

    def forward(self, x: Tensor) -> Tensor:
        """Add up the windows' outputs on the observed domain."""
        out = x.new_zeros(*x.shape[:2], *self.observed)
        for box in self.boxes:
            self._add(box, x[box.source], out[box.target], transposed=False)
        return out

    def adjoint(self, y: Tensor) -> Tensor:
        """Add up the windows' outputs on the extended domain."""
        out = y.new_zeros(*y.shape[:2], *self.extended)
        for box in self.boxes:
            self._add(box, y[box.target], out[box.source], transposed=True)
        return out

    def _add(self, box: Box, source: Tensor, target: Tensor, transposed: bool) -> None:
        weigh_first = (self.data.weights_on == "observed") == transposed
        if weigh_first:
            source = box.weight * source
        size = box.window.fft_size
        spectrum = rfft2(source, size).mul_(box.spectrum.conj() if transposed else box.spectrum)
        h, w = target.shape[-2:]
        result = irfft2(spectrum, size)[..., :h, :w]
        if weigh_first:
            target.add_(result)
        else:
            target.addcmul_(box.weight, result)


class TransposedBank:
    """The transpose of a bank and of the extension before it: forward and adjoint change places."""

    def __init__(self, bank: Bank, extension: Extension) -> None:
        self.bank, self.extension = bank, extension
        self.observed = self.extended = extension.size

    def forward(self, x: Tensor) -> Tensor:
        """Of a picture as it is."""
        return self.extension.adjoint(self.bank.adjoint(x))

    def adjoint(self, y: Tensor) -> Tensor:
        """To a picture as it is."""
        return self.bank.forward(self.extension.forward(y))


Bank: TypeAlias = DenseBank | BoxBank | TransposedBank


def make_bank(data: BankData, observed: Size, like: Tensor, circular: BankData | None = None) -> DenseBank | BoxBank:
    """The cheaper way for pictures `like`. `circular`: the same blur without padding, where it wraps round."""
    wraps = circular is not None and is_smooth(observed)
    pictures, channels = (like.shape[0], like.shape[1]) if like.ndim == 4 else (len(data.weights), 1)
    dense, boxes = _costs(data, observed, pictures, channels, like.is_cuda, wraps)
    if boxes < dense:
        return BoxBank(data, observed)
    return DenseBank(circular if circular is not None and wraps else data, observed, circular=wraps)


def bank_cost(data: BankData, observed: Size, on_gpu: bool) -> float:
    """What the cheaper way costs for a colour picture (for each of a batch with blurs of their own)."""
    return min(_costs(data, observed, len(data.weights), 3, on_gpu, wraps=False))


def _costs(
    data: BankData, observed: Size, pictures: int, channels: int, on_gpu: bool, wraps: bool
) -> tuple[float, float]:
    kh, kw = data.kernel_size
    full = observed if wraps else fast_size((observed[0] + kh - 1, observed[1] + kw - 1))
    overhead = GPU_BOX_OVERHEAD if on_gpu else BOX_OVERHEAD
    planes = channels * (pictures if len(data.weights) == 1 else 1)
    boxes = [overhead + 2 * planes * _transform_cost(window.fft_size) for window in windows(data, observed)]
    dense = (channels * pictures + planes * len(boxes)) * _transform_cost(full)
    return dense, sum(boxes)


def windows(data: BankData, observed: Size) -> list[Window]:
    """For each kernel that does something the smallest pair of windows outside which it does nothing.

    A blur that all pictures share has a window a kernel; where each picture has its own, each has its own windows.
    """
    result = []
    for b, i, *box in bounding_boxes((data.weights != 0).any(dim=2)):
        pairs = []
        for axis, k in enumerate(data.kernel_size):
            first, last = box[axis].start, box[axis].stop
            if data.weights_on == "extended":
                first, last = max(0, first - k + 1), min(observed[axis], last)
            pairs.append((slice(first, last), slice(first, last + k - 1)))
        rows, columns = pairs
        pictures = slice(None) if len(data.weights) == 1 else slice(b, b + 1)
        result.append(Window(pictures, i, (rows[0], columns[0]), (rows[1], columns[1])))
    return result


def bounding_boxes(used: Tensor) -> list[tuple[int, int, slice, slice]]:
    """(picture, map, rows, columns) of each map of (b, P, h, w) that is not empty."""
    # Of each row, and of each column: is anything there? Looked at on the CPU, all at once.
    hits = [used.any(dim=axis).cpu() for axis in (-1, -2)]
    boxes = []
    for b, i in torch.nonzero(hits[0].any(-1)).tolist():
        lines = [torch.nonzero(hit[b, i]).flatten() for hit in hits]
        rows, columns = (slice(int(line[0]), int(line[-1]) + 1) for line in lines)
        boxes.append((b, i, rows, columns))
    return boxes


def kernel_spectra(kernels: Tensor, fft_size: Size, origin: Size) -> Tensor:
    """Transforms of the kernels (..., kh, kw), rolled so that index `origin` multiplies the pixel itself."""
    padded = kernels.new_zeros(*kernels.shape[:-2], *fft_size)
    padded[..., : kernels.shape[-2], : kernels.shape[-1]] = kernels
    return rfft2(padded.roll((-origin[0], -origin[1]), dims=(-2, -1)))


def fast_size(size: Size) -> Size:
    """The next size that is 4 times a number of small factors: real transforms of odd sizes take twice as long."""
    h, w = (4 * _next_smooth(-(-n // 4)) for n in size)
    return h, w


def is_smooth(size: Size) -> bool:
    """Have both sides small factors only?"""
    return all(_next_smooth(n) == n for n in size)


@cache
def _next_smooth(n: int) -> int:
    while True:
        rest = n
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        if rest == 1:
            return n
        n += 1


def _transform_cost(size: Size) -> float:
    pixels = size[0] * size[1]
    return pixels * math.log2(max(pixels, 2))
