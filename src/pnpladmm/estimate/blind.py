"""A blur from one shaken photograph and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur import Blur, Estimate
from pnpladmm.blur.arrays import Array
from pnpladmm.estimate.blind_canvas import Canvas, canvas_of
from pnpladmm.estimate.blind_edges import sharp_edges
from pnpladmm.estimate.blind_kernel import fit_kernel
from pnpladmm.estimate.blind_scales import FEWEST_EDGES, RIDGE, Step, coarse_to_fine
from pnpladmm.estimate.drawings import tiles
from pnpladmm.estimate.psf_field import relative_l2, uniform_blur
from pnpladmm.estimate.scene import Scene, check_side
from pnpladmm.estimate.way import WAYS, Tell, Way
from pnpladmm.restoration.noise import estimate_noise
from pnpladmm.tensors import InputError

SIDES = (31, 47, 71)
"""Sides of the kernel that are tried, until it does not fill the last one."""
SHARE = 3
"""The kernel may be at most this part of the shorter side."""
CONTRAST = 0.2
"""Standard deviation that pictures are brought to: that of a usual photograph, which the weights are made for."""
NOTHING = 1.5
"""Standard deviation of the derivatives, over that of noise alone, below which a picture shows no edges."""
BLOCK = 4
"""Fields along each side of the chessboard that splits the picture in two halves."""
POINT = 0.8
"""Of the light within a pixel of the centre: the kernel is a point."""
DOUBTFUL = 0.4
"""Relative difference of the kernels of two halves of a picture above which the estimate is reported as doubtful."""


@WAYS.register("blind")
@dataclass(frozen=True)
class Blind(Way):
    """From the shaken picture alone: sharp edges and the kernel between them and the picture, from coarse to fine.

    Parameters
    ----------
    side : int, optional
        Side of the kernel, odd; found if not given.

    Examples
    --------
    >>> Blind(side=31).side
    31
    """

    side: int | None = None

    switch: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        check_side("side", self.side, least=5)

    def estimate(self, scene: Scene, tell: Tell) -> Blur:
        """One kernel for the whole picture."""
        most = (min(scene.size) // SHARE - 1) // 2 * 2 + 1
        if self.side is not None and self.side > most:
            raise InputError(f"side = {self.side}: at most {most} in a picture of {min(scene.size)} pixels")
        picture, counts = prepared(scene)
        sides = (self.side,) if self.side is not None else tuple(dict.fromkeys(min(s, most) for s in SIDES))
        for side in sides:
            steps = coarse_to_fine(picture, counts, side, partial(_tell_scale, tell, side))
            if not _fills(steps[-1].kernel):
                break
        tell("two halves", 0.95)
        kernel = steps[-1].kernel
        canvas = canvas_of(torch.from_numpy(picture), torch.from_numpy(counts), side)
        return _blur(scene, steps, _difference_of_halves(canvas, kernel))


def prepared(scene: Scene) -> tuple[Array, Array]:
    """The grey picture of usual contrast, and which of its pixels count; refused where it shows no edges."""
    counts = scene.valid & ~scene.saturated
    if counts.mean() < 0.3:
        raise InputError(f"{scene.name}: only {counts.mean():.0%} of the pixels have data below saturation")
    grey = np.where(counts, scene.grey, np.median(scene.grey[counts]))
    contrast = float(grey[counts].std())
    slopes = np.diff(grey, axis=1)[counts[:, 1:] & counts[:, :-1]]
    if contrast < 1e-6 or not slopes.any():
        raise InputError(f"{scene.name} is flat: it shows no edges to find a blur from")
    try:
        noise = float(estimate_noise(torch.from_numpy(grey)[None, None], torch.from_numpy(counts)[None, None])[0])
    except InputError:  # without any noise
        noise = 0.0
    if slopes.std() < NOTHING * np.sqrt(2) * noise:
        raise InputError(f"{scene.name} shows no edges above its noise: there is nothing to find a blur from")
    return ((grey - grey[counts].mean()) * CONTRAST / contrast).astype(np.float32), counts


def _tell_scale(tell: Tell, side: int, share: float) -> None:
    tell(f"kernel of {side} pixels", 0.9 * share)


def _fills(kernel: Tensor) -> bool:
    """Does the kernel reach the border of its square?"""
    rim = kernel.clone()
    rim[2:-2, 2:-2] = 0
    return bool(rim.sum() > 0)


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


def _blur(scene: Scene, steps: list[Step], difference: float) -> Blur:
    kernel = steps[-1].kernel.double()
    side = kernel.shape[0]
    inner = float(kernel[side // 2 - 1 : side // 2 + 2, side // 2 - 1 : side // 2 + 2].sum())
    warnings = []
    if inner > POINT:
        warnings.append("the kernel is a point: the picture is sharp, or nothing in it shows how it was blurred")
    if difference > DOUBTFUL:
        warnings.append(
            f"two halves of the picture give kernels that differ by {100 * difference:.0f} %: "
            "it shows few edges, or its blur changes from place to place"
        )
    if _fills(steps[-1].kernel):
        warnings.append(f"the kernel fills its {side} pixels: give a larger side")
    centre = np.array([[(scene.size[1] - 1) / 2, (scene.size[0] - 1) / 2]])
    estimate = Estimate(
        "blind",
        agreement=difference,
        places=centre,
        confidence=np.array([1 / (1 + (difference / DOUBTFUL) ** 2)]),
        warnings=tuple(warnings),
        figures={"The kernel from coarse to fine": _drawn(steps)},
    )
    blur = uniform_blur(kernel.numpy(), scene.size, "the picture alone")
    note = f"kernel of {side}x{side} pixels, found in {len(steps)} scales"
    return blur.noted(note, uncertainty=difference / 2, estimate=estimate)


def _drawn(steps: list[Step]) -> bytes:
    """The kernels of all scales, each as large as the last one."""
    side = steps[-1].kernel.shape[0]
    at = [((torch.arange(side) + 0.5) * step.kernel.shape[0] / side).long() for step in steps]
    shown = [step.kernel[i][:, i] / step.kernel.max() for step, i in zip(steps, at, strict=True)]
    return tiles(np.stack([np.repeat(image.numpy()[..., None], 3, -1) for image in shown])[None])
