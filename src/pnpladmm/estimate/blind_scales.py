"""One kernel for a whole picture, from coarse to fine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur.arrays import Array
from pnpladmm.estimate.blind_canvas import canvas_of
from pnpladmm.estimate.blind_edges import sharp_edges
from pnpladmm.estimate.blind_kernel import cleaned, fit_kernel

RATIO = 1 / math.sqrt(2)
"""Of one scale to the next finer one."""
COARSEST = 5
"""Pixels of the kernel at the first scale."""
ROUNDS = 5
"""Edges and kernel in turn, at each scale."""
EDGES, FEWEST_EDGES, DECAY = 4e-3, 1e-4, 1.1
"""The weight of edges at first and at least, and what it is divided by at each round: more and more edges count."""
RIDGE = 0.5


@dataclass(frozen=True, eq=False)
class Step:
    """The kernel that a scale ended with."""

    scale: float
    kernel: Tensor


def coarse_to_fine(
    picture: Array,
    counts: Array,
    side: int,
    tell: Callable[[float], object],
    part: Array | None = None,
    edges: float = EDGES,
    device: torch.device | str = "cpu",
) -> list[Step]:
    """The kernels (k, k) of all scales, the last one of `side` pixels on the picture's own.

    `picture` (H, W) has usual contrast; `counts` (H, W) is False on pixels that say nothing. The kernel is fitted in
    `part` (H, W) alone if it is given. `edges` is the first weight of edges. The kernels
    are computed on `device` and returned on the CPU.
    """
    scales = [RATIO**i for i in range(max(1, 1 + math.floor(math.log(COARSEST / side, RATIO))))][::-1]
    work = np.cumsum([scale**2 for scale in scales])
    kernel, weight, steps = _start().to(device), edges, []
    for number, scale in enumerate(scales):
        here = max(3, 2 * (int(side * scale) // 2) + 1)
        small, usable = shrunk(picture, counts, scale)
        canvas = canvas_of(torch.from_numpy(small).to(device), torch.from_numpy(usable).to(device), here)
        if part is not None:
            canvas = canvas.fitted_in(torch.from_numpy(shrunk(part, part, scale)[1]).to(device))
        kernel = enlarged(kernel, here, 1 / RATIO if number else 1)
        for _ in range(ROUNDS):
            kernel = fit_kernel(canvas, sharp_edges(canvas, kernel, weight), kernel, RIDGE)
            weight = max(weight / DECAY, FEWEST_EDGES)
        steps.append(Step(scale, kernel.cpu()))
        tell(float(work[number] / work[-1]))
    return steps


def _start() -> Tensor:
    """A short line across: with a point as start, no blur explains the picture just as well."""
    kernel = torch.zeros(3, 3)
    kernel[1, :2] = 0.5
    return kernel


def shrunk(picture: Array, counts: Array, scale: float) -> tuple[Array, Array]:
    """The picture and its mask on a coarser grid, after a Gaussian that keeps it from aliasing."""
    from scipy.ndimage import gaussian_filter, map_coordinates

    if scale == 1:
        return picture.astype(np.float32), counts
    smooth = gaussian_filter(picture.astype(np.float64), 0.5 * math.sqrt(scale**-2 - 1), mode="nearest")
    grid = np.meshgrid(*((np.arange(round(n * scale)) + 0.5) / scale - 0.5 for n in picture.shape), indexing="ij")
    small = map_coordinates(smooth, grid, order=3, mode="nearest").astype(np.float32)
    usable = map_coordinates(counts.astype(np.float32), grid, order=1, mode="nearest") > 0.99
    return small, usable


def enlarged(kernel: Tensor, side: int, factor: float) -> Tensor:
    """The kernel on a grid `factor` times as fine."""
    from scipy.ndimage import map_coordinates

    at = (np.arange(side) - side // 2) / factor + kernel.shape[0] // 2
    fine = map_coordinates(kernel.double().cpu().numpy(), np.meshgrid(at, at, indexing="ij"), order=1, mode="constant")
    return cleaned(torch.from_numpy(fine).float().to(kernel.device))
