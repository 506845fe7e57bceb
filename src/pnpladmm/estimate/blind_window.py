"""The kernel of one window of a picture, and how far it is to be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur.arrays import Array
from pnpladmm.estimate.blind_canvas import Canvas, canvas_of
from pnpladmm.estimate.blind_edges import sharp_edges
from pnpladmm.estimate.blind_kernel import fit_kernel
from pnpladmm.estimate.blind_scales import FEWEST_EDGES, RIDGE, Step, coarse_to_fine
from pnpladmm.estimate.psf_field import relative_l2
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
DOUBTFUL = 0.4
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
        found = Found(coarse_to_fine(usual, counts, side, tell), 0.0)
        if not found.fills:
            break
    canvas = canvas_of(torch.from_numpy(usual), torch.from_numpy(counts), side)
    return replace(found, difference=_difference_of_halves(canvas, found.kernel))


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


def _difference_of_halves(canvas: Canvas, kernel: Tensor) -> float:
    """The relative difference of the kernels of the two halves of a chessboard over the picture."""
    height, width = canvas.size
    rows, columns = torch.arange(height) * BLOCK // height, torch.arange(width) * BLOCK // width
    white = ((rows[:, None] + columns[None, :]) % 2).float()
    edges = sharp_edges(canvas, kernel, FEWEST_EDGES)
    first, second = (
        fit_kernel(replace(canvas, fitted=canvas.fitted * half), edges, kernel, RIDGE / 2).double().numpy()
        for half in (white, 1 - white)
    )
    return float(relative_l2(first[None], second[None])[0])
