"""The core of the blur: weighted sums of convolutions, `sum_i U_i V_i` or `sum_i V_i U_i`, by FFT.

`V_i` is the valid convolution with kernel `i`, from the extended domain (h + kh - 1, w + kw - 1) to the observed one
(h, w):

    (V x)[q] = sum_d k[d] x[q + (k - 1) - d].

The weights lie on the observed domain (`sum_i U_i V_i`) or on the extended one (`sum_i V_i U_i`). There are two ways to
compute it, which agree to rounding; `make_bank` takes the cheaper one on the device at hand:

- `DenseBank`: all kernels share one transform of the side without weights: 1 + P transforms per picture for P kernels,
  for all pictures of a batch at once, each with its own blur. That takes few launches on a GPU.
- `BoxBank`: 2 transforms per kernel, each of the window in which the kernel has a weight. Faster for segments on a CPU.

Shapes: kernels (b, P, c, kh, kw), weights (b, P, 1, ...), with b = 1 or B and c = 1 or C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.fft import irfft2, rfft2

from pnpladmm.operators.boundary import Extension
from pnpladmm.operators.fft import Size, fast_size, is_smooth, kernel_spectra, transform_cost
from pnpladmm.operators.kernel_order import KernelOrder, add_weighted
from pnpladmm.operators.windows import BankData, Window, windows

BOX_OVERHEAD, GPU_BOX_OVERHEAD = 2e3, 5e7
"""The cost of a window besides its transforms (calls, slices), in the units of `transform_cost`; measured. A GPU spends
on a dozen launches the time in which it could transform millions of pixels."""
CPU_SAMPLES = 1 << 23
"""The most samples for which a CPU transforms all channels at once. A spectrum takes 4 bytes per sample, and blocks
beyond 32 MB are new memory at every call, unless it is reused (allocator.py): that costs more than the transform."""
STORED_CONJUGATES = 1 << 24
"""The most entries of a bank whose conjugates a GPU stores. To compute them at every call takes 3 % of a data step."""


class DenseBank:
    """Every kernel is applied to the whole picture: one transform of it is enough for all kernels."""

    def __init__(self, data: BankData, observed: Size, circular: bool = False) -> None:
        """`circular`: the picture wraps round without padding, and is its own extension."""
        kh, kw = data.kernel_size
        self.order = KernelOrder.from_weights(data.weights)
        self.weights, self.weights_on = self.order.reorder_kernels(data.weights), data.weights_on
        self.observed = observed
        self.extended = observed if circular else (observed[0] + kh - 1, observed[1] + kw - 1)
        self.fft_size = observed if circular else fast_size(self.extended)
        origin = (kh // 2, kw // 2) if circular else (kh - 1, kw - 1)
        # The spectra are divided by the number of pixels, and not every result of an inverse transform.
        self.spectra = kernel_spectra(self.order.reorder_kernels(data.kernels), self.fft_size, origin)
        self.spectra /= self.fft_size[0] * self.fft_size[1]
        self.conjugate = self.spectra.conj()
        if self.spectra.is_cuda and self.spectra.numel() <= STORED_CONJUGATES:
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
        """Convolve, then weight."""
        spectrum = rfft2(v, self.fft_size).unsqueeze(1)
        total: Tensor | None = None
        for pictures, part in self.order.chunks(v):
            convolved = self._inverse(spectrum[pictures] * spectra[pictures, part], size)
            total = add_weighted(total, pictures, self.weights[pictures, part], convolved)
        assert total is not None
        return total

    def _weigh_before(self, v: Tensor, spectra: Tensor, size: Size) -> Tensor:
        """Weight, then convolve."""
        total: Tensor | None = None
        for pictures, part in self.order.chunks(v):
            spectrum = rfft2(self.weights[pictures, part] * v[pictures].unsqueeze(1), self.fft_size)
            spectrum = spectrum.mul_(spectra[pictures, part])
            term = spectrum.squeeze(1) if spectrum.shape[1] == 1 else spectrum.sum(1)
            if total is None:
                total = term
            else:
                total[pictures].add_(term)
        assert total is not None
        return self._inverse(total, size)

    def _inverse(self, spectrum: Tensor, size: Size) -> Tensor:
        """The inverse transform, not normalised, cropped to `size`."""
        return irfft2(spectrum, self.fft_size, norm="forward")[..., : size[0], : size[1]]


def by_channel(weigh: Callable[[Tensor, Tensor, Size], Tensor], v: Tensor, spectra: Tensor, size: Size) -> Tensor:
    """All channels at once, or one after the other where the spectra of all are too large for a CPU to reuse memory."""
    channels = v.shape[1]
    if v.is_cuda or channels == 1 or v.numel() <= CPU_SAMPLES:
        return weigh(v, spectra, size)
    own = spectra.expand(-1, -1, channels, -1, -1).unbind(2)
    planes = [weigh(v[:, i : i + 1], own[i].unsqueeze(2), size) for i in range(channels)]
    return torch.cat(planes, 1)


@dataclass(frozen=True)
class Box:
    """A kernel that is applied in its window only."""

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
    """Each kernel is applied only where its weight is not 0."""

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
        """Add what one window makes of `source` to `target`, in place."""
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
    """The transpose `E^T A^T` of a bank `A` with the extension `E` before it: forward and adjoint change places."""

    def __init__(self, bank: Bank, extension: Extension) -> None:
        self.bank, self.extension = bank, extension
        self.observed = self.extended = extension.size

    def forward(self, x: Tensor) -> Tensor:
        """`E^T A^T x` for pictures of the observed size."""
        return self.extension.adjoint(self.bank.adjoint(x))

    def adjoint(self, y: Tensor) -> Tensor:
        """`A E y`, its transpose."""
        return self.bank.forward(self.extension.forward(y))


Bank: TypeAlias = DenseBank | BoxBank | TransposedBank


def make_bank(data: BankData, observed: Size, like: Tensor, circular: BankData | None = None) -> DenseBank | BoxBank:
    """The cheaper bank for pictures `like`. `circular`: data of the same blur without padding, if it wraps round."""
    wraps = circular is not None and is_smooth(observed)
    pictures, channels = (like.shape[0], like.shape[1]) if like.ndim == 4 else (len(data.weights), 1)
    dense, boxes = _costs(data, observed, pictures, channels, like.is_cuda, wraps)
    if boxes < dense:
        return BoxBank(data, observed)
    return DenseBank(circular if circular is not None and wraps else data, observed, circular=wraps)


def bank_cost(data: BankData, observed: Size, on_gpu: bool) -> float:
    """The cost of the cheaper bank for a colour picture per blur, in the units of `transform_cost`."""
    return min(_costs(data, observed, len(data.weights), 3, on_gpu, wraps=False))


def _costs(
    data: BankData, observed: Size, pictures: int, channels: int, on_gpu: bool, wraps: bool
) -> tuple[float, float]:
    """Costs of the dense bank and of the box bank."""
    kh, kw = data.kernel_size
    full = observed if wraps else fast_size((observed[0] + kh - 1, observed[1] + kw - 1))
    overhead = GPU_BOX_OVERHEAD if on_gpu else BOX_OVERHEAD
    planes = channels * (pictures if len(data.weights) == 1 else 1)
    boxes = [overhead + 2 * planes * transform_cost(window.fft_size) for window in windows(data, observed)]
    dense = (channels * pictures + planes * len(boxes)) * transform_cost(full)
    return dense, sum(boxes)
