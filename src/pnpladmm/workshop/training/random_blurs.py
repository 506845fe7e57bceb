"""Random blurs to train with: batches of operators with random kernels, regions, seams and borders.

A training asks for one operator per step. Making one takes longer than a GPU should wait, so each is used several
times, with other pictures and other noise: a pool of operators is in use at any time, and after every few steps a new
one replaces the oldest. Which operator a step gets depends on the seed and the number of the step alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fft import irfft2, rfft2

from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.operators.blur import Order
from pnpladmm.tensors import InputError
from pnpladmm.workshop.training.photographs import told_blur
from pnpladmm.workshop.training.random_kernels import LARGEST, KernelBank

REACHES, REACH_SHARES = (4, 8, 12, 16, 20), (0.08, 0.14, 0.16, 0.42, 0.20)
"""The kernels of a batch have at most one of these reaches (9x9 to 41x41 pixels), with these shares."""
COUNT_SHARES = (0.34, 0.15, 0.14, 0.12, 0.13, 0.04, 0.04, 0.04)
"""Shares of the pictures with 1 to 8 kernels. One kernel for the whole picture is what users have most often."""
CIRCULAR_SHARE = 0.55
"""Share of the batches with a circular border; the others have an unknown one."""
WEIGHTS_FIRST_SHARE = 0.2
"""Share of the batches whose weights act before the kernels."""
PADDED_SHARE = 0.1
"""Share of the circular batches with sides that the network must pad."""
SHARP_SHARE, SMOOTHED_SHARE = 0.35, 0.35
"""Shares of the pictures with sharp seams, and with regions smoothed by their own kernels as in the paper. The others
have soft seams."""
NEGLIGIBLE = 1e-4
"""Smaller weights are 0."""


class BlurPair(NamedTuple):
    """The blur that a picture had, and the one that its restoration is told."""

    true: SpatiallyVaryingBlur
    told: SpatiallyVaryingBlur


@dataclass(frozen=True)
class BlurSource:
    """Draws batches of blurs."""

    bank: KernelBank
    pictures: int
    side: int
    """Side of the scene in pixels; some scenes are up to 7 pixels smaller."""
    device: torch.device
    photo: bool = False
    """Whether the restoration is told a blur that is not quite right (photographs.py)."""

    def __post_init__(self) -> None:
        """Kernels must fit into what is observed of a scene with an unknown border."""
        if self.side < _least_side(REACHES[0]):
            raise InputError(f"crop = {self.side}: give at least {_least_side(REACHES[0])}, so that kernels fit")

    def pair(self, seed: int, number: int) -> BlurPair:
        """`blur`, and what is told about it."""
        true = self.blur(seed, number)
        if not self.photo:
            return BlurPair(true, true)
        draw = int(np.random.default_rng((seed, number, 4)).integers(1 << 62))
        return BlurPair(true, told_blur(true, torch.Generator(self.device).manual_seed(draw)))

    def blur(self, seed: int, number: int) -> SpatiallyVaryingBlur:
        """Batch `number` of a training with this seed: a blur for each picture."""
        rng = np.random.default_rng((seed, number))
        generator = torch.Generator(self.device).manual_seed(int(rng.integers(1 << 62)))
        fitting = sum(_least_side(reach) <= self.side for reach in REACHES)
        shares = np.array(REACH_SHARES[:fitting])
        reach = int(rng.choice(REACHES[:fitting], p=shares / shares.sum()))
        circular = rng.random() < CIRCULAR_SHARE
        smaller = not circular or rng.random() < PADDED_SHARE
        side = self.side - int(rng.integers(8)) if smaller else self.side
        weights_first = rng.random() < WEIGHTS_FIRST_SHARE
        counts = torch.from_numpy(1 + rng.choice(len(COUNT_SHARES), self.pictures, p=COUNT_SHARES))
        kernels = self.kernels(reach, int(counts.max()), generator)
        weights = random_weights(kernels, counts.to(self.device), side, int(rng.integers(2, 9)), generator)
        if not circular and not weights_first:  # weights lie on what is observed
            weights = _normalised(weights[..., reach : side - reach, reach : side - reach].contiguous())
        order: Order = "weight-then-convolve" if weights_first else "convolve-then-weight"
        return SpatiallyVaryingBlur(kernels, weights, "circular" if circular else "unknown", order)

    def kernels(self, reach: int, count: int, generator: torch.Generator) -> Tensor:
        """Kernels of at most this reach, (B, count, k, k), each in one of its eight orientations."""
        shape = (self.pictures, count)
        inside = slice(LARGEST - reach, LARGEST + reach + 1)
        index = torch.randint(self.bank.count_up_to(reach), shape, generator=generator, device=self.device)
        kernels = self.bank.kernels[index][..., inside, inside]
        flips = torch.randint(2, (3, *shape, 1, 1), generator=generator, device=self.device, dtype=torch.bool)
        kernels = torch.where(flips[0], kernels.flip(-1), kernels)
        kernels = torch.where(flips[1], kernels.flip(-2), kernels)
        return torch.where(flips[2], kernels.mT, kernels).contiguous()


def _least_side(reach: int) -> int:
    """The side of the smallest scene that kernels of this reach are drawn for."""
    return 4 * reach + 8


def random_weights(kernels: Tensor, counts: Tensor, side: int, detail: int, generator: torch.Generator) -> Tensor:
    """Weights of random regions.

    A region is where one of P smooth random fields is the largest.

    Parameters
    ----------
    kernels : Tensor, (B, P, k, k)
        Those that smooth the regions of some pictures.
    counts : Tensor, (B,)
        Regions of each picture, 1 to P; the other weights of the picture are 0.
    side : int
        Of the picture in pixels.
    detail : int
        Random values along each side from which a field is interpolated.
    generator : torch.Generator
        On the device of the kernels.

    Returns
    -------
    Tensor, (B, P, side, side)
        They sum to one at every pixel.
    """
    device, (b, count) = kernels.device, kernels.shape[:2]

    def normal(*shape: int) -> Tensor:
        return torch.randn(b, *shape, generator=generator, device=device)

    coarse = normal(count, detail, detail)
    field = F.interpolate(coarse, size=(side, side), mode="bicubic", align_corners=True) + 0.6 * normal(count, 1, 1)
    absent = torch.arange(count, device=device) >= counts[:, None]
    field = field.masked_fill(absent[:, :, None, None], -torch.inf)
    contrast = torch.exp(2.2 * torch.rand(b, 1, 1, 1, generator=generator, device=device))
    soft = (contrast * field).softmax(1)
    sharp = F.one_hot(field.argmax(1), count).movedim(-1, 1).to(soft)
    kind = torch.rand(b, 1, 1, 1, generator=generator, device=device)
    seams = torch.where(kind < SHARP_SHARE + SMOOTHED_SHARE, _smoothed_by_kernels(sharp, kernels), soft)
    return _normalised(torch.where(kind < SHARP_SHARE, sharp, seams))


def _smoothed_by_kernels(regions: Tensor, kernels: Tensor) -> Tensor:
    """`k_i * m_i`: light reaches as far beyond the outline of a region as its blur carries it."""
    k, size = kernels.shape[-1], (regions.shape[-2], regions.shape[-1])
    padded = regions.new_zeros(regions.shape)
    padded[..., :k, :k] = kernels
    spectrum = rfft2(padded.roll((-(k // 2), -(k // 2)), (-2, -1)))
    smooth = irfft2(rfft2(regions) * spectrum, size)
    smooth = torch.where(smooth < NEGLIGIBLE, 0.0, smooth)
    enough = smooth.sum(1, keepdim=True) > 1e-3
    return torch.where(enough, smooth, regions)  # kernels with an empty centre may leave nothing


def _normalised(weights: Tensor) -> Tensor:
    """Without negligible weights, and with a sum of one at every pixel."""
    weights = torch.where(weights < NEGLIGIBLE, 0.0, weights)
    return weights / weights.sum(1, keepdim=True)


class BlurPool:
    """The operators in use, each made when it is first asked for.

    Parameters
    ----------
    source : BlurSource
        Draws them.
    seed : int
        Of all random numbers.
    size : int
        Operators in use at a time.
    renew_steps : int
        Steps after which a new one replaces the oldest.
    """

    def __init__(self, source: BlurSource, seed: int, size: int, renew_steps: int) -> None:
        self.source, self.seed, self.size, self.renew_steps = source, seed, size, renew_steps
        self._made: dict[int, BlurPair] = {}

    def at(self, step: int) -> BlurPair:
        """The operators of a step."""
        oldest = step // self.renew_steps
        for number in [n for n in self._made if n < oldest]:
            del self._made[number]
        number = oldest + int(np.random.default_rng((self.seed, step, 1)).integers(self.size))
        if number not in self._made:
            self._made[number] = self.source.pair(self.seed, number)
        return self._made[number]
