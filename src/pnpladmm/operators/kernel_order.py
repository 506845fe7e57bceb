"""Batches of blurs with different numbers of kernels: no kernel is computed for a picture that does not use it.

A batch has as many kernels per picture as the picture with most of them needs; other pictures have some of weight 0.
Here the pictures are sorted by their numbers of kernels, and the kernels of each picture so that those with a weight
come first. Then kernel `i` is needed for the first `pictures_per_kernel[i]` pictures. These are a slice; an index would
cost a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

GPU_CHUNK_PIXELS = 1 << 25
"""Pixels transformed at once on a GPU: enough to fill it."""
CPU_CHUNK_PIXELS = 0
"""On a CPU: one kernel at a time, so that its data stay in the caches."""


@dataclass(frozen=True)
class KernelOrder:
    """An order of the pictures and of their kernels; `b` blurs, one for each picture or one for all of them."""

    picture_order: tuple[Tensor, Tensor] | None
    """The pictures, those with most kernels first, and the inverse permutation, each (b,); None if nothing moves."""
    kernel_order: Tensor | None
    """The kernels of each picture in the new order, those with a weight first, (b, P'); None if nothing moves."""
    pictures_per_kernel: tuple[int, ...]
    """How many pictures need each of the P' kernels."""
    shared: bool
    """Whether one blur serves all pictures."""

    @classmethod
    def from_weights(cls, weights: Tensor) -> KernelOrder:
        """From weights (b, P, ...); a kernel whose weights are all 0 is not needed."""
        used = weights.flatten(2).any(-1).cpu()
        counts = used.sum(1)
        largest = int(counts.max())
        order = counts.argsort(descending=True, stable=True)
        kernels = used[order].byte().argsort(dim=1, descending=True, stable=True)[:, :largest]
        # The first kernel is applied to all pictures, also to those without any: sums begin with it.
        per_kernel = tuple(len(used) if i == 0 else int((counts > i).sum()) for i in range(largest))
        in_order = bool((order == torch.arange(len(order))).all())
        unchanged = in_order and kernels.shape == used.shape and bool((kernels == torch.arange(largest)).all())
        pictures = None if in_order else (order.to(weights.device), order.argsort().to(weights.device))
        return cls(pictures, None if unchanged else kernels.to(weights.device), per_kernel, shared=len(used) == 1)

    def reorder_kernels(self, maps: Tensor) -> Tensor:
        """Kernels or weights, (b, P, ...), in this order, without kernels that no picture needs."""
        if self.kernel_order is None:
            return maps
        rows = torch.arange(len(maps), device=maps.device) if self.picture_order is None else self.picture_order[0]
        return maps[rows.unsqueeze(1), self.kernel_order]

    def reorder(self, pictures: Tensor) -> Tensor:
        """Pictures, or numbers per picture, (), (1, ...) or (b, ...), in this order."""
        if self.picture_order is None or pictures.ndim == 0 or len(pictures) == 1:
            return pictures
        return pictures[self.picture_order[0]]

    def reorder_back(self, pictures: Tensor) -> Tensor:
        """Pictures in this order back in their own."""
        return pictures if self.picture_order is None else pictures[self.picture_order[1]]

    def chunks(self, v: Tensor) -> list[tuple[slice, slice]]:
        """(pictures, kernels) that are transformed together for pictures `v`: as many as suit the device."""
        pixels = v.numel() if self.shared else v.numel() // len(v)
        at_once = GPU_CHUNK_PIXELS if v.is_cuda else CPU_CHUNK_PIXELS
        result = []
        start = 0
        for count, kernels in groupby(self.pictures_per_kernel):
            stop = start + len(list(kernels))
            step = max(1, at_once // (count * pixels))
            pictures = slice(None) if self.shared else slice(count)
            result += [(pictures, slice(i, min(i + step, stop))) for i in range(start, stop, step)]
            start = stop
        return result


def add_weighted(total: Tensor | None, pictures: slice, weights: Tensor, terms: Tensor) -> Tensor:
    """`total + sum_i weights_i terms_i` for these pictures, in place; without a total, the sum alone."""
    for weight, term in zip(weights.unbind(1), terms.unbind(1), strict=True):
        if total is None:
            total = weight * term
        else:
            total[pictures].addcmul_(weight, term)
    assert total is not None
    return total
