"""Batches of blurs with unequal numbers of kernels, so that nothing is computed for kernels that a picture has not got.

A batch holds as many kernels for each picture as its richest one needs; the others have some of weight 0. With the
pictures sorted by their numbers of kernels, and for each the kernels that do something first, kernel `i` serves the
first `served[i]` pictures: a slice, where an index would cost a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

# Pixels transformed at once: on a GPU many, to fill it; on a CPU one kernel's, to stay in its caches.
GPU_CHUNK_PIXELS, CPU_CHUNK_PIXELS = 1 << 25, 0


@dataclass(frozen=True)
class KernelOrder:
    """Who is served by what: `b` blurs, one for each picture, or one for all of them."""

    picture_order: tuple[Tensor, Tensor] | None
    """Their order, those with most kernels first, and the way back, each (b,); None where they lie so."""
    kernel_order: Tensor | None
    """For each of them its kernels, those that do something first, (b, P'); None where they lie so."""
    pictures_per_kernel: tuple[int, ...]
    """How many pictures each of the P' kernels serves."""
    shared: bool
    """One blur for all pictures."""

    @classmethod
    def from_weights(cls, weights: Tensor) -> KernelOrder:
        """From weights (b, P, ...): a kernel that has none does nothing."""
        used = weights.flatten(2).any(-1).cpu()
        counts = used.sum(1)
        most = int(counts.max())
        order = counts.argsort(descending=True, stable=True)
        kernels = used[order].byte().argsort(dim=1, descending=True, stable=True)[:, :most]
        # The first serves all, even those that have none: sums begin with it.
        served = tuple(len(used) if i == 0 else int((counts > i).sum()) for i in range(most))
        in_order = bool((order == torch.arange(len(order))).all())
        as_is = in_order and kernels.shape == used.shape and bool((kernels == torch.arange(most)).all())
        pictures = None if in_order else (order.to(weights.device), order.argsort().to(weights.device))
        return cls(pictures, None if as_is else kernels.to(weights.device), served, shared=len(used) == 1)

    def reorder_kernels(self, maps: Tensor) -> Tensor:
        """Kernels, weights, ... (b, P, ...) in this order, without those that serve nobody."""
        if self.kernel_order is None:
            return maps
        rows = torch.arange(len(maps), device=maps.device) if self.picture_order is None else self.picture_order[0]
        return maps[rows.unsqueeze(1), self.kernel_order]

    def reorder(self, pictures: Tensor) -> Tensor:
        """Pictures, or numbers of theirs, (), (1, ...) or (b, ...), in this order."""
        if self.picture_order is None or pictures.ndim == 0 or len(pictures) == 1:
            return pictures
        return pictures[self.picture_order[0]]

    def reorder_back(self, pictures: Tensor) -> Tensor:
        """The pictures where they were."""
        return pictures if self.picture_order is None else pictures[self.picture_order[1]]

    def chunks(self, v: Tensor) -> list[tuple[slice, slice]]:
        """(pictures, kernels) that are transformed together, for pictures `v`: as many at once as the device likes."""
        each = v.numel() if self.shared else v.numel() // len(v)
        result = []
        start = 0
        for served, group in groupby(self.pictures_per_kernel):
            stop = start + len(list(group))
            step = max(1, (GPU_CHUNK_PIXELS if v.is_cuda else CPU_CHUNK_PIXELS) // (served * each))
            pictures = slice(None) if self.shared else slice(served)
            result += [(pictures, slice(i, min(i + step, stop))) for i in range(start, stop, step)]
            start = stop
        return result


def add_weighted(total: Tensor | None, served: slice, weights: Tensor, terms: Tensor) -> Tensor:
    """`total + sum_i weights_i terms_i` for the pictures that are served: in place, where there is a total."""
    for weight, term in zip(weights.unbind(1), terms.unbind(1), strict=True):
        if total is None:
            total = weight * term
        else:
            total[served].addcmul_(weight, term)
    assert total is not None
    return total
