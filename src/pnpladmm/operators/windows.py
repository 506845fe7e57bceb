"""Where each kernel of a blur works: the smallest windows outside which it does nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from pnpladmm.operators.fft import Size, fast_size

Domain: TypeAlias = Literal["observed", "extended"]


@dataclass(frozen=True)
class BankData:
    """Kernels (b, P, c, kh, kw) and weights (b, P, 1, ...) of a blur, with the domain that the weights lie on."""

    kernels: Tensor
    weights: Tensor
    weights_on: Domain

    @property
    def kernel_size(self) -> Size:
        """(kh, kw)."""
        return self.kernels.shape[-2], self.kernels.shape[-1]


@dataclass(frozen=True)
class Window:
    """Where one kernel works: on which pictures, where it reads (extended) and where it writes (observed)."""

    pictures: slice
    kernel: int
    observed: tuple[slice, slice]
    extended: tuple[slice, slice]

    @property
    def fft_size(self) -> Size:
        """The size of a fast FFT for the window that is read."""
        rows, columns = self.extended
        return fast_size((rows.stop - rows.start, columns.stop - columns.start))


def windows(data: BankData, observed: Size) -> list[Window]:
    """The windows of all kernels that have a weight somewhere.

    A blur that all pictures share has one window per kernel. Where each picture has its own blur, each has its own
    windows.
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
    # Which rows and which columns have an entry; copied to the CPU at once.
    hits = [used.any(dim=axis).cpu() for axis in (-1, -2)]
    boxes = []
    for b, i in torch.nonzero(hits[0].any(-1)).tolist():
        lines = [torch.nonzero(hit[b, i]).flatten() for hit in hits]
        rows, columns = (slice(int(line[0]), int(line[-1]) + 1) for line in lines)
        boxes.append((b, i, rows, columns))
    return boxes
