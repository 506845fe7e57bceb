"""How good a denoiser is on a folder of clean pictures: PSNR, behaviour at weak noise, ends of the Hessian's spectrum.

The noise of picture i is drawn with seed i and multiplied by sigma, so that it is the same for all denoisers and
levels. Noisy pictures are not clipped. All noise levels here are on the 0-255 scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.denoisers.gradient_step import GradientStepDenoiser
from pnpladmm.metrics import psnr
from pnpladmm.tensors import InputError
from pnpladmm.workshop.training.data import picture_files, read_tensor

SIGMAS = (5.0, 15.0, 25.0, 50.0)
WEAK_SIGMAS = (0.5, 1.0, 2.0, 5.0)
PRODUCTS = 50
BATCH = 16
"""Most pictures whose eigenvalues are computed together."""
LARGE = 3 << 20
"""A picture with more samples than this is computed alone."""

Pair = tuple[Tensor, Tensor]
"""A clean picture (1, C, H, W) in [0, 1] and noise of standard deviation 1 of the same shape."""


@dataclass(frozen=True)
class PsnrRow:
    """Mean PSNR in dB over the pictures at one noise level, before and after the denoiser."""

    sigma: float
    noisy: float
    psnr: float
    pictures: int


@dataclass(frozen=True)
class WeakNoiseRow:
    """What a denoiser does at one weak noise level, averaged over the pictures."""

    sigma: float
    moved: float
    """Root mean square of D(x) - x on clean pictures, on the 0-255 scale."""
    noisy: float
    """PSNR in dB of x + e."""
    denoised: float
    """PSNR in dB of D(x + e)."""
    worse: int
    """How many pictures the denoiser left worse than it got them."""
    pictures: int

    @property
    def gain(self) -> float:
        """PSNR gained, in dB."""
        return self.denoised - self.noisy


@dataclass(frozen=True)
class CurvatureRow:
    """One end of the spectrum of a gradient step's Hessian at one noise level, over the pictures.

    The values are the largest eigenvalue at noisy pictures, or minus the least eigenvalue at clean ones.
    """

    sigma: float
    most: float
    mean: float
    over: int
    """In how many pictures the value is 1 or more."""
    residual: float
    """The largest `||Hu - lambda u||`; it is small if the products were enough."""
    pictures: int


def psnr_table(
    denoiser: Denoiser, folder: Path, sigmas: Sequence[float] = SIGMAS, channels: int = 3, *, limit: int | None = None
) -> list[PsnrRow]:
    """PSNR at each noise level, averaged over the first `limit` pictures of a folder."""
    before: dict[float, list[float]] = {sigma: [] for sigma in sigmas}
    after: dict[float, list[float]] = {sigma: [] for sigma in sigmas}
    for clean, noise in _pictures(folder, channels, limit):
        for sigma in sigmas:
            noisy = clean + sigma / 255 * noise
            before[sigma].append(float(psnr(noisy, clean)))
            after[sigma].append(float(psnr(denoiser(noisy, sigma / 255), clean)))
    return [PsnrRow(sigma, fmean(before[sigma]), fmean(after[sigma]), len(after[sigma])) for sigma in sigmas]


def weak_noise_table(
    denoiser: Denoiser,
    folder: Path,
    sigmas: Sequence[float] = WEAK_SIGMAS,
    channels: int = 3,
    *,
    limit: int | None = None,
) -> list[WeakNoiseRow]:
    """How far D moves clean pictures, and what it gains on noisy ones, at weak noise levels."""
    rows = []
    for sigma in sigmas:
        moved, noisy, denoised = [], [], []
        for clean, noise in _pictures(folder, channels, limit):
            difference = (denoiser(clean, sigma / 255) - clean).double()
            moved.append(255 * math.sqrt(float(difference.square().mean())))
            observed = clean + sigma / 255 * noise
            noisy.append(float(psnr(observed, clean)))
            denoised.append(float(psnr(denoiser(observed, sigma / 255), clean)))
        worse = sum(after < before for before, after in zip(noisy, denoised, strict=True))
        rows.append(WeakNoiseRow(sigma, fmean(moved), fmean(noisy), fmean(denoised), worse, len(noisy)))
    return rows


def curvature_table(
    denoiser: Denoiser,
    folder: Path,
    sigmas: Sequence[float] = SIGMAS,
    channels: int = 3,
    *,
    products: int = PRODUCTS,
    limit: int | None = None,
    end: Literal[1, -1] = 1,
) -> list[CurvatureRow]:
    """The largest Hessian eigenvalue at the noisy pictures of a folder, by `products` products with the Hessian.

    With `end = -1` minus the least eigenvalue at the clean pictures, because the pictures that solvers give a denoiser
    have little noise.
    """
    if not isinstance(denoiser, GradientStepDenoiser):
        name = getattr(denoiser, "name", "this denoiser")
        raise InputError(f"{name} is no gradient step, and has no Hessian: give a network such as prox-drunet")
    found: dict[float, list[tuple[float, float]]] = {sigma: [] for sigma in sigmas}
    for clean, noise in _same_sizes(_pictures(folder, channels, limit)):
        for sigma in sigmas:
            point = clean + sigma / 255 * noise if end > 0 else clean
            top = denoiser.top_eigenpair(point, sigma / 255, products, end=end)
            found[sigma] += zip(top.value.tolist(), top.residual.tolist(), strict=True)
    rows = []
    for sigma, pairs in found.items():
        values, residuals = zip(*pairs, strict=True)
        over = sum(value >= 1 for value in values)
        rows.append(CurvatureRow(sigma, max(values), fmean(values), over, max(residuals), len(values)))
    return rows


def _pictures(folder: Path, channels: int, limit: int | None) -> Iterator[Pair]:
    for seed, path in enumerate(picture_files(folder)[:limit]):
        clean = read_tensor(path, channels)
        yield clean, torch.randn(clean.shape, generator=torch.Generator().manual_seed(seed))


def _same_sizes(pictures: Iterable[Pair]) -> Iterator[Pair]:
    """Small pictures of one size together, `BATCH` at most: a GPU needs half the time for each."""
    waiting: dict[torch.Size, list[Pair]] = {}
    for pair in pictures:
        shape = pair[0].shape
        waiting.setdefault(shape, []).append(pair)
        if len(waiting[shape]) == BATCH or shape.numel() > LARGE:
            yield _together(waiting.pop(shape))
        elif sum(map(len, waiting.values())) == 4 * BATCH:  # many sizes: a bound on the memory
            yield from map(_together, waiting.values())
            waiting.clear()
    yield from map(_together, waiting.values())


def _together(pairs: Sequence[Pair]) -> Pair:
    clean, noise = zip(*pairs, strict=True)
    return torch.cat(clean), torch.cat(noise)
