"""The kernel of one window of a picture, and how far it is to be trusted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur.arrays import Array
from pnpladmm.blur.spectrum import Spectrum, spectrum_of
from pnpladmm.estimate.blind_canvas import canvas_of
from pnpladmm.estimate.blind_check import sharpens
from pnpladmm.estimate.blind_refine import refined
from pnpladmm.estimate.blind_scales import LOOKS, USUAL, Look, Step, coarse_to_fine
from pnpladmm.estimate.blind_spectrum import Witness
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
BEST = 3
"""Kernels that are refined."""
COMMON = 0.3
"""The relative error of a blind kernel whose halves agree: restorations of real shake are best with it."""


@dataclass(frozen=True, eq=False)
class Found:
    """The kernels of all scales, and how much the last one differs from others that were found apart (relative l2)."""

    steps: list[Step]
    look: Look
    difference: float = 0.0
    unlikeliness: float = 0.0
    """Of the last kernel, by the spectrum of the picture."""
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


@dataclass(frozen=True, eq=False)
class Window:
    """A picture or a part of it, of usual contrast, and what judges kernels for it."""

    picture: Array
    counts: Array
    spectrum: Spectrum
    device: torch.device | str

    @classmethod
    def of(cls, name: str, picture: Array, counts: Array, device: torch.device | str) -> Window:
        """The window of grey values (H, W), of which those that `counts` tells are used."""
        usual = _of_usual_contrast(name, picture, counts)
        canvas = canvas_of(torch.from_numpy(usual), torch.from_numpy(counts), 1, USUAL.width)
        filled = canvas.y[: usual.shape[0], : usual.shape[1]].double().numpy()
        return cls(usual, counts, spectrum_of(filled), device)

    def unlikeliness(self, kernel: Tensor) -> float:
        """Of a kernel (k, k), by the spectrum."""
        return Witness(self.spectrum, kernel.shape[0]).unlikeliness(kernel)

    def found(
        self,
        side: int,
        look: Look,
        tell: Callable[[float], object],
        part: Array | None = None,
        start: Step | None = None,
    ) -> Found:
        """From coarse to fine."""
        steps = coarse_to_fine(self.picture, self.counts, side, tell, part, look, self.device, start)
        return Found(steps, look, unlikeliness=self.unlikeliness(steps[-1].kernel))

    def refined(self, found: Found) -> Found:
        """The last kernel refined."""
        side = found.kernel.shape[0]
        picture, counts = (torch.from_numpy(a).to(self.device) for a in (self.picture, self.counts))
        canvas = canvas_of(picture, counts, side, found.look.width)
        kernel = refined(canvas, found.kernel.to(self.device), Witness(self.spectrum, side)).cpu()
        steps = [*found.steps[:-1], Step(1.0, kernel)]
        return replace(found, steps=steps, unlikeliness=self.unlikeliness(kernel))

    def difference_of_halves(self, found: Found, tells: Sequence[Callable[[float], object]]) -> float:
        """The mean difference of a kernel from those of the halves of a chessboard."""
        rows, columns = (np.arange(n) * BLOCK // n for n in self.picture.shape)
        white = (rows[:, None] + columns[None, :]) % 2 == 0
        side = found.kernel.shape[0]
        halves = [self.found(side, found.look, tell, part) for part, tell in zip((white, ~white), tells, strict=True)]
        return float(np.mean([difference(found.kernel, half.kernel) for half in halves]))


def find_kernel(
    name: str,
    picture: Array,
    counts: Array,
    sides: tuple[int, ...],
    tell: Callable[[float], object],
    device: torch.device | str = "cpu",
) -> Found:
    """The kernel of a picture (H, W), with the first of `sides` that it does not fill.

    Coarse to fine runs once for each of `LOOKS`. The likeliest kernels are refined, and the likeliest of them is taken.
    How much it is to be trusted is told by the halves of a chessboard, in which kernels are found apart.
    """
    window = Window.of(name, picture, counts, device)
    total = len(LOOKS) + 2 + BEST
    steps = [partial(_tell_part, tell, number, total) for number in range(total)]
    for side in sides:
        first = window.found(side, USUAL, steps[0])
        if not first.fills:
            break
    runs = [first, *(window.found(side, look, steps[1 + i]) for i, look in enumerate(LOOKS) if look != USUAL)]
    best = sorted(runs, key=lambda run: run.unlikeliness)[:BEST]
    refined = [window.refined(run) for run in best]
    number = min(range(len(best)), key=lambda i: refined[i].unlikeliness)
    tell(1 - 2 / total)
    difference = window.difference_of_halves(best[number], steps[-2:])
    return replace(refined[number], difference=difference)


def tried(name: str, picture: Array, counts: Array, found: Found, device: torch.device | str = "cpu") -> Found:
    """The kernel tried: does it sharpen the picture?"""
    kernel = found.kernel.double().numpy()
    return replace(found, sharpens=sharpens(picture, counts, kernel, expected_error(found.difference), device))


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


def _tell_part(tell: Callable[[float], object], number: int, total: int, share: float) -> None:
    tell((number + share) / total)


def difference(first: Tensor, second: Tensor) -> float:
    """The relative difference of two kernels at the shift at which they agree best."""
    double = (2 * first.shape[0], 2 * first.shape[0])
    a, b = (np.fft.rfft2(kernel.double().numpy(), double) for kernel in (first, second))
    product = float(np.fft.irfft2(a * b.conj(), double).max())
    one, other = (float((kernel.double() ** 2).sum()) for kernel in (first, second))
    return float(np.sqrt(max(one + other - 2 * product, 0.0) / np.sqrt(one * other)))
