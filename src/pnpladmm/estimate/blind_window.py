"""The kernel of one window of a picture, and how far it is to be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur.arrays import Array
from pnpladmm.estimate.blind_canvas import canvas_of
from pnpladmm.estimate.blind_check import sharpens
from pnpladmm.estimate.blind_refine import refined
from pnpladmm.estimate.blind_scales import EDGES, Step, coarse_to_fine
from pnpladmm.restoration.noise import estimate_noise
from pnpladmm.tensors import InputError

CONTRAST = 0.2
"""Standard deviation that pictures are brought to: that of a usual photograph, which the weights are made for."""
NOTHING = 1.5
"""Standard deviation of the derivatives, over that of noise alone, below which a picture shows no edges."""
FEWEST = 0.3
"""Share of the pixels that must have data below saturation."""
BLOCK = 4
"""Fields along each side of the chessboard that splits the picture in two halves."""
AT_THE_RIM = 0.01
"""Share of the light in the outer two pixels of a kernel from which it is cut off."""
DOUBTFUL = 0.9
"""Relative difference of kernels found apart at which the confidence is 1/2."""


COMMON = 0.3
"""The relative error of a blind kernel whose halves agree: restorations of real shake are best with it."""


@dataclass(frozen=True, eq=False)
class Found:
    """The kernels of all scales, and how much the last one differs from others that were found apart (relative l2)."""

    steps: list[Step]
    difference: float
    sharpens: bool = True
    """The picture restored with the kernel looks better than it was."""

    @property
    def kernel(self) -> Tensor:
        """The last kernel, (k, k)."""
        return self.steps[-1].kernel

    @property
    def confidence(self) -> float:
        """1 where all say the same, 1/2 where they differ by `DOUBTFUL`; 0 where the kernel does not help."""
        return 1 / (1 + (self.difference / DOUBTFUL) ** 2) if self.sharpens else 0.0

    @property
    def fills(self) -> bool:
        """Does the kernel reach the border of its square?"""
        return bool(self.kernel[2:-2, 2:-2].sum() < (1 - AT_THE_RIM) * self.kernel.sum())


def find_kernel(
    name: str,
    picture: Array,
    counts: Array,
    sides: tuple[int, ...],
    tell: Callable[[float], object],
    device: torch.device | str = "cpu",
) -> Found:
    """The kernel of a picture (H, W), with the first of `sides` that it does not fill."""
    usual = _of_usual_contrast(name, picture, counts)
    for side in sides:
        found = Found(coarse_to_fine(usual, counts, side, partial(_tell_quarter, tell, 0), device=device), 0.0)
        if not found.fills:
            break
    return Found(*_most_agreed(usual, counts, found.steps, tell, device))


def finished(name: str, picture: Array, counts: Array, found: Found, device: torch.device | str = "cpu") -> Found:
    """The kernel refined, and tried: does it sharpen the picture?"""
    usual = _of_usual_contrast(name, picture, counts)
    side = found.kernel.shape[0]
    canvas = canvas_of(torch.from_numpy(usual).to(device), torch.from_numpy(counts).to(device), side)
    last = refined(canvas, found.kernel.to(device)).cpu()
    better = sharpens(picture, counts, last.double().numpy(), expected_error(found.difference), device)
    return Found([*found.steps[:-1], Step(1.0, last)], found.difference, better)


def expected_error(difference: float) -> float:
    """The expected relative error of a kernel: that of those found apart, and what all have in common."""
    return float(np.hypot(difference / 3, COMMON))


def _of_usual_contrast(name: str, picture: Array, counts: Array) -> Array:
    if counts.mean() < FEWEST:
        raise InputError(f"{name}: only {counts.mean():.0%} of the pixels have data below saturation")
    mean, contrast = float(picture[counts].mean()), float(picture[counts].std())
    filled = np.where(counts, picture, mean)
    slopes = np.diff(filled, axis=1)[counts[:, 1:] & counts[:, :-1]]
    if contrast < 1e-6 or not slopes.any():
        raise InputError(f"{name} is flat: it shows no edges to find a blur from")
    try:
        noise = float(estimate_noise(torch.from_numpy(filled)[None, None], torch.from_numpy(counts)[None, None])[0])
    except InputError:  # it has none
        noise = 0.0
    if slopes.std() < NOTHING * np.sqrt(2) * noise:
        raise InputError(f"{name} shows no edges above its noise: there is nothing to find a blur from")
    return ((filled - mean) * CONTRAST / contrast).astype(np.float32)


def _tell_quarter(tell: Callable[[float], object], number: int, share: float) -> None:
    tell((number + share) / 4)


def _most_agreed(
    usual: Array,
    counts: Array,
    first: list[Step],
    tell: Callable[[float], object],
    device: torch.device | str,
) -> tuple[list[Step], float]:
    """The kernel that agrees best with the others, and its median relative difference from them.

    Coarse to fine can end in a wrong kernel. Three more are found apart from the start: in each half of a chessboard,
    and with fewer edges. Wrong ones seldom agree.
    """
    side = first[-1].kernel.shape[0]
    rows, columns = (np.arange(n) * BLOCK // n for n in usual.shape)
    white = (rows[:, None] + columns[None, :]) % 2 == 0
    runs = [first]
    for part, edges in ((white, EDGES), (~white, EDGES), (None, 2 * EDGES)):
        runs.append(coarse_to_fine(usual, counts, side, partial(_tell_quarter, tell, len(runs)), part, edges, device))
    apart = np.array([[_difference(a[-1].kernel, b[-1].kernel) for b in runs] for a in runs])
    best = int(apart.sum(1).argmin())
    return runs[best], float(np.median(np.delete(apart[best], best)))


def _difference(first: Tensor, second: Tensor) -> float:
    """The relative difference of two kernels at the shift at which they agree best."""
    double = (2 * first.shape[0], 2 * first.shape[0])
    a, b = (np.fft.rfft2(kernel.double().numpy(), double) for kernel in (first, second))
    product = float(np.fft.irfft2(a * b.conj(), double).max())
    one, other = (float((kernel.double() ** 2).sum()) for kernel in (first, second))
    return float(np.sqrt(max(one + other - 2 * product, 0.0) / np.sqrt(one * other)))
