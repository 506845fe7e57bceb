"""The kernel of one window of a picture, and how far it is to be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur.arrays import Array
from pnpladmm.estimate.blind_scales import Step, coarse_to_fine
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
DOUBTFUL = 0.9
"""Relative difference of the kernels of two halves of a picture at which the confidence is 1/2."""


@dataclass(frozen=True, eq=False)
class Found:
    """The kernels of all scales, and the relative difference of the kernels of two halves of the window."""

    steps: list[Step]
    difference: float

    @property
    def kernel(self) -> Tensor:
        """The last kernel, (k, k)."""
        return self.steps[-1].kernel

    @property
    def confidence(self) -> float:
        """1 where both halves say the same, 1/2 where they differ by `DOUBTFUL`."""
        return 1 / (1 + (self.difference / DOUBTFUL) ** 2)

    @property
    def fills(self) -> bool:
        """Does the kernel reach the border of its square?"""
        return bool(self.kernel.sum() > self.kernel[2:-2, 2:-2].sum() + 1e-6)


def find_kernel(
    name: str, picture: Array, counts: Array, sides: tuple[int, ...], tell: Callable[[float], object]
) -> Found:
    """The kernel of a picture (H, W), with the first of `sides` that it does not fill."""
    usual = _of_usual_contrast(name, picture, counts)
    for side in sides:
        found = Found(coarse_to_fine(usual, counts, side, partial(_tell_third, tell, 0)), 0.0)
        if not found.fills:
            break
    return replace(found, difference=_difference_of_halves(usual, counts, side, tell))


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


def _tell_third(tell: Callable[[float], object], number: int, share: float) -> None:
    tell((number + share) / 3)


def _difference_of_halves(usual: Array, counts: Array, side: int, tell: Callable[[float], object]) -> float:
    """The relative difference of two kernels, each found from coarse to fine in one half of a chessboard.

    They are compared at the shift at which they agree best.
    """
    rows, columns = (np.arange(n) * BLOCK // n for n in usual.shape)
    white = (rows[:, None] + columns[None, :]) % 2 == 0
    found = [
        coarse_to_fine(usual, counts, side, partial(_tell_third, tell, number), half)[-1].kernel
        for number, half in ((1, white), (2, ~white))
    ]
    first, second = (np.fft.rfft2(kernel.double().numpy(), (2 * side, 2 * side)) for kernel in found)
    product = float(np.fft.irfft2(first * second.conj(), (2 * side, 2 * side)).max())
    one, other = (float((kernel.double() ** 2).sum()) for kernel in found)
    return float(np.sqrt(max(one + other - 2 * product, 0.0) / np.sqrt(one * other)))
