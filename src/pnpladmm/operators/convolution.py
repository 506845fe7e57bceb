"""The core of the blur: weighted sums of convolutions, `sum_i U_i V_i` or `sum_i V_i U_i`, by FFT.

`V_i` is the valid convolution with kernel `i`, from the extended domain (h + kh - 1, w + kw - 1) to the
observed one (h, w):

    (V x)[q] = sum_d k[d] x[q + (k - 1) - d].

The weights lie on the observed domain (`sum_i U_i V_i`) or on the extended one (`sum_i V_i U_i`). Two ways
to compute it, the same to rounding; `make_bank` takes the cheaper:

- `DenseBank`: all kernels share one transform of the side without weights: 1 + P transforms of the picture;
- `BoxBank`: 2 transforms a kernel, each of the box its weight lives in. Segments make it the faster.

Shapes: kernels (b, P, c, kh, kw), weights (b, P, 1, ...), with b = 1 or B and c = 1 or C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.fft import irfft2, rfft2

Size: TypeAlias = tuple[int, int]
Domain: TypeAlias = Literal["observed", "extended"]

# What a box costs beside its transforms, in pixels' worth of work (measured: calls, slices).
BOX_OVERHEAD = 2_000
# Transforms done at once: on a GPU many, to fill it; on a CPU one, to stay in its caches.
GPU_CHUNK_PIXELS = 1 << 25


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
        self.data = data
        self.observed = observed
        self.extended = observed if circular else (observed[0] + kh - 1, observed[1] + kw - 1)
        self.fft_size = observed if circular else fast_size(self.extended)
        origin = (kh // 2, kw // 2) if circular else (kh - 1, kw - 1)
        self.spectra = kernel_spectra(data.kernels, self.fft_size, origin)

    def forward(self, x: Tensor) -> Tensor:
        """`sum_i U_i V_i x` or `sum_i V_i U_i x`."""
        if self.data.weights_on == "observed":
            return self._weigh_after(x, self.spectra, self.observed)
        return self._weigh_before(x, self.spectra, self.observed)

    def adjoint(self, y: Tensor) -> Tensor:
        """`sum_i V_i^T U_i y` or `sum_i U_i V_i^T y`: the weights change sides."""
        if self.data.weights_on == "observed":
            return self._weigh_before(y, self.spectra.conj(), self.extended)
        return self._weigh_after(y, self.spectra.conj(), self.extended)

    def _weigh_after(self, v: Tensor, spectra: Tensor, size: Size) -> Tensor:
        spectrum = rfft2(v, self.fft_size).unsqueeze(1)
        total = v.new_zeros(*v.shape[:2], *size)
        for part in self._chunks(v):
            convolved = irfft2(spectrum * spectra[:, part], self.fft_size)[..., : size[0], : size[1]]
            total += (self.data.weights[:, part] * convolved).sum(1)
        return total

    def _weigh_before(self, v: Tensor, spectra: Tensor, size: Size) -> Tensor:
        total: Tensor | None = None
        for part in self._chunks(v):
            spectrum = rfft2(self.data.weights[:, part] * v.unsqueeze(1), self.fft_size)
            term = (spectrum * spectra[:, part]).sum(1)
            total = term if total is None else total + term
        assert total is not None
        return irfft2(total, self.fft_size)[..., : size[0], : size[1]]

    def _chunks(self, v: Tensor) -> list[slice]:
        count = self.data.kernels.shape[1]
        step = max(1, GPU_CHUNK_PIXELS // v.numel()) if v.is_cuda else 1
        return [slice(i, i + step) for i in range(0, count, step)]


@dataclass(frozen=True)
class Box:
    """One kernel at work in a window: where it reads (extended) and writes (observed)."""

    observed: tuple[slice, slice]
    extended: tuple[slice, slice]
    fft_size: Size
    spectrum: Tensor  # (b, c, fft)
    weight: Tensor  # (b, 1, ...), cropped to the window of its domain


class BoxBank:
    """Each kernel works only where its weight is not 0, plus its radius."""

    def __init__(self, data: BankData, observed: Size) -> None:
        kh, kw = data.kernel_size
        self.data = data
        self.observed = observed
        self.extended = (observed[0] + kh - 1, observed[1] + kw - 1)
        self.boxes = []
        for i, (obs, ext) in enumerate(windows(data, observed)):
            fft_size = _box_size(ext)
            spectrum = kernel_spectra(data.kernels[:, i], fft_size, (kh - 1, kw - 1))
            window = obs if data.weights_on == "observed" else ext
            self.boxes.append(Box(obs, ext, fft_size, spectrum, data.weights[:, i, :, *window].contiguous()))

    def forward(self, x: Tensor) -> Tensor:
        """Add up the windows' outputs on the observed domain."""
        out = x.new_zeros(*x.shape[:2], *self.observed)
        for box in self.boxes:
            self._add(box, x[..., *box.extended], out[..., *box.observed], transposed=False)
        return out

    def adjoint(self, y: Tensor) -> Tensor:
        """Add up the windows' outputs on the extended domain."""
        out = y.new_zeros(*y.shape[:2], *self.extended)
        for box in self.boxes:
            self._add(box, y[..., *box.observed], out[..., *box.extended], transposed=True)
        return out

    def _add(self, box: Box, source: Tensor, target: Tensor, transposed: bool) -> None:
        weigh_first = (self.data.weights_on == "observed") == transposed
        if weigh_first:
            source = box.weight * source
        spectrum = box.spectrum.conj() if transposed else box.spectrum
        h, w = target.shape[-2:]
        result = irfft2(rfft2(source, box.fft_size) * spectrum, box.fft_size)[..., :h, :w]
        target += result if weigh_first else box.weight * result


def make_bank(data: BankData, observed: Size, circular: BankData | None = None) -> DenseBank | BoxBank:
    """The cheaper of the two ways. `circular`: the same blur without padding, where it wraps round."""
    if circular is not None and fast_size(observed) == observed:
        dense_data, full = circular, observed
    else:
        kh, kw = data.kernel_size
        dense_data, full = data, fast_size((observed[0] + kh - 1, observed[1] + kw - 1))
    dense_cost = (1 + data.kernels.shape[1]) * _transform_cost(full)
    box_cost = sum(BOX_OVERHEAD + 2 * _transform_cost(_box_size(ext)) for _, ext in windows(data, observed))
    if box_cost < dense_cost:
        return BoxBank(data, observed)
    return DenseBank(dense_data, observed, circular=dense_data is circular)


def windows(data: BankData, observed: Size) -> list[tuple[tuple[slice, slice], tuple[slice, slice]]]:
    """For each kernel the smallest (observed, extended) pair of windows outside which it does nothing."""
    used = (data.weights != 0).any(dim=2).any(dim=0)  # (P, h, w)
    result = []
    for i in range(len(used)):
        pairs = []
        for axis, k in enumerate(data.kernel_size):
            hits = torch.nonzero(used[i].any(dim=1 - axis)).flatten()
            first, last = (int(hits[0]), int(hits[-1]) + 1) if len(hits) else (0, 1)
            if data.weights_on == "extended":
                first, last = max(0, first - k + 1), min(observed[axis], last)
            pairs.append((slice(first, last), slice(first, last + k - 1)))
        rows, columns = pairs
        result.append(((rows[0], columns[0]), (rows[1], columns[1])))
    return result


def kernel_spectra(kernels: Tensor, fft_size: Size, origin: Size) -> Tensor:
    """Transforms of the kernels (..., kh, kw), rolled so that index `origin` multiplies the pixel itself."""
    padded = kernels.new_zeros(*kernels.shape[:-2], *fft_size)
    padded[..., : kernels.shape[-2], : kernels.shape[-1]] = kernels
    return rfft2(padded.roll((-origin[0], -origin[1]), dims=(-2, -1)))


def fast_size(size: Size) -> Size:
    """The next size whose factors are small, so that transforms are fast."""
    import scipy.fft  # here, because it is slow to import

    h, w = (int(scipy.fft.next_fast_len(n, real=True)) for n in size)
    return h, w


def _box_size(window: tuple[slice, slice]) -> Size:
    rows, columns = window
    return fast_size((rows.stop - rows.start, columns.stop - columns.start))


def _transform_cost(size: Size) -> float:
    pixels = size[0] * size[1]
    return pixels * math.log2(max(pixels, 2))
