"""Photographs as files hold them: clipped, 8 bits, often JPEG, and a PSF and a noise level that are not quite right.

A network that has seen only white noise and exact PSFs takes the errors of real files for detail. Here the training
pictures get these errors, and the restoration is told what a user could tell it: another PSF, another noise level.
"""

from __future__ import annotations

import io
import math
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from pnpladmm.data_terms import DataTerm, Gaussian, WeightedGaussian
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.restoration.jpeg import jpeg_noise
from pnpladmm.restoration.policy import MOST_SATURATED

QUALITIES = (60, 100)
"""JPEG qualities, the last one included."""
LOSSLESS_SHARE = 0.25
"""Share of the steps whose pictures are not compressed."""
HALF_CHROMA_SHARE = 0.7
"""Share of the compressed pictures whose colour has half the resolution."""
LARGEST_NOISE_ERROR = 0.4
"""The noise level that is told is off by up to this factor, in both directions."""
LARGEST_KNOWN_SHARE = 1.2
"""Up to this share of what the wrong PSF does is in the noise level that is told: `restore` finds some of it."""
RIGHT_SHARE = 0.3
"""Share of the pictures whose PSF is right."""
LARGEST_STRETCH, LARGEST_TURN, LARGEST_SHIFT = 0.15, math.radians(8), 0.25
"""How far the PSFs of the others are off: in length and width, in angle, and in position (pixels).

A PSF that is further off its place shifts the picture, and the network could answer that by smoothing only.
"""
MASKED_SHARE = 0.3
"""Share of the steps in which clipped pixels do not count, as in `restore`."""

MIDDLE = 128 / 255
"""The brightness that JPEG counts from."""
TO_YCBCR = (
    (0.299, 0.587, 0.114),
    (-0.168736, -0.331264, 0.5),
    (0.5, -0.418688, -0.081312),
)


def told_blur(true: SpatiallyVaryingBlur, generator: torch.Generator) -> SpatiallyVaryingBlur:
    """The blur with kernels that are a little too long, too wide, turned or shifted, each picture's in its own way."""
    kernels = true.kernels[:, :, 0]  # (B, P, k, k): all channels have the same
    pictures, count, side = kernels.shape[0], kernels.shape[1], kernels.shape[-1]

    def within(limit: float) -> Tensor:
        """One number for each picture; 0 where the PSF is right."""
        return limit * (2 * torch.rand(pictures, generator=generator, device=kernels.device) - 1) * wrong

    wrong = (torch.rand(pictures, generator=generator, device=kernels.device) > RIGHT_SHARE).to(kernels)
    turn = within(LARGEST_TURN)
    wide, high = within(LARGEST_STRETCH).exp(), within(LARGEST_STRETCH).exp()
    pixel = 2.0 / side  # grid_sample counts in halves of the side
    # Maps places of the told kernel to places of the true one.
    rows = [
        torch.stack([turn.cos() / wide, -turn.sin() / wide, pixel * within(LARGEST_SHIFT)], -1),
        torch.stack([turn.sin() / high, turn.cos() / high, pixel * within(LARGEST_SHIFT)], -1),
    ]
    places = F.affine_grid(torch.stack(rows, 1), [pictures, count, side, side], align_corners=False)
    moved = F.grid_sample(kernels, places.to(kernels), align_corners=False).clamp_min(0)
    total = moved.sum((-2, -1), keepdim=True)
    moved = torch.where(total > 0, moved / total, kernels)
    # Kernels that are right stay so to the last bit.
    moved = torch.where(wrong.view(-1, 1, 1, 1) > 0, moved, kernels)
    return SpatiallyVaryingBlur(moved, true.weights[:, :, 0], true.boundary, true.order)


def recorded(noisy: Tensor, noise: float, wrong: Tensor, seed: tuple[int, ...]) -> tuple[Tensor, DataTerm, Tensor]:
    """What the file holds of a noisy picture, and what the restoration is told about it.

    Parameters
    ----------
    noisy : Tensor, (B, C, H, W)
        Blurred pictures with white noise, not clipped.
    noise : float
        Standard deviation of that noise, of 255.
    wrong : Tensor, (B,)
        Standard deviation of what the wrong PSF adds, of 255; float64, on the CPU.
    seed : tuple of int
        Decides the quality, which all pictures share, and the told noise levels.

    Returns
    -------
    Tensor, DataTerm, Tensor
        The pictures of the file, their data term, and the told noise levels of 255, (B,), float64, on the CPU. They
        include that of JPEG, and some of `wrong`.
    """
    rng = np.random.default_rng(seed)
    stored = quantised(noisy.clamp(0, 1))
    step = 0.0
    if rng.random() >= LOSSLESS_SHARE:
        quality = int(rng.integers(QUALITIES[0], QUALITIES[1] + 1))
        half = bool(rng.random() < HALF_CHROMA_SHARE)
        stored = compressed(stored, quality, half)
        step = float(quantisation_tables(quality)[0][:3, :3].mean())
    known = LARGEST_KNOWN_SHARE * torch.from_numpy(rng.random(len(noisy))) * wrong
    off = (1 + LARGEST_NOISE_ERROR) ** torch.from_numpy(rng.uniform(-1, 1, len(noisy)))
    told = (known.square() + noise**2 + (255 * jpeg_noise(step)) ** 2).sqrt() * off
    term: DataTerm = Gaussian(told / 255)
    if rng.random() < MASKED_SHARE:
        clipped = stored >= 1 - 0.5 / 255
        clipped = clipped & (clipped.float().mean((1, 2, 3), keepdim=True) <= MOST_SATURATED)
        if bool(clipped.any()):
            precision = (255 / told).square().to(stored).view(-1, 1, 1, 1)
            term = WeightedGaussian((~clipped).to(stored) * precision)
    return stored, term, told


def quantised(pictures: Tensor) -> Tensor:
    """The nearest of the levels of 8-bit files."""
    return (255 * pictures).round() / 255


def compressed(pictures: Tensor, quality: int, half_chroma: bool) -> Tensor:
    """JPEG without its file: pictures (B, 1 or 3, H, W) in [0, 1], their 8x8 blocks transformed and rounded.

    Tables are those that Pillow writes at this quality. Sides that are no multiples of 8, or 16 for colour at half
    the resolution, are continued by their last pixels.
    """
    height, width = pictures.shape[-2:]
    block = 16 if half_chroma and pictures.shape[1] == 3 else 8
    padded = F.pad(pictures, (0, -width % block, 0, -height % block), mode="replicate")
    luma_table, chroma_table = (torch.from_numpy(table).to(pictures) / 255 for table in quantisation_tables(quality))
    if pictures.shape[1] == 1:
        return quantised(_rounded_blocks(padded - MIDDLE, luma_table) + MIDDLE)[..., :height, :width].clamp(0, 1)
    matrix = pictures.new_tensor(TO_YCBCR)
    # Files are made from, and read into, 8-bit planes.
    planes = quantised(torch.einsum("ij,bjhw->bihw", matrix, padded))
    luma, chroma = quantised(_rounded_blocks(planes[:, :1] - MIDDLE, luma_table) + MIDDLE).clamp(0, 1), planes[:, 1:]
    if half_chroma:
        small = quantised(_rounded_blocks(quantised(F.avg_pool2d(chroma, 2)), chroma_table))
        chroma = F.interpolate(small, scale_factor=2, mode="bilinear", align_corners=False)
    else:
        chroma = _rounded_blocks(chroma, chroma_table)
    restored = torch.einsum("ij,bjhw->bihw", torch.linalg.inv(matrix), torch.cat([luma, quantised(chroma)], 1))
    return quantised(restored[..., :height, :width]).clamp(0, 1)


@cache
def quantisation_tables(quality: int) -> tuple[np.ndarray, np.ndarray]:
    """The steps for brightness and for colour at a quality, each (8, 8), of 255."""
    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, "JPEG", quality=quality)
    tables = Image.open(file).quantization  # type: ignore[attr-defined]
    return tuple(np.reshape(tables[i], (8, 8)).astype(np.float64) for i in (0, 1))  # type: ignore[return-value]


def _rounded_blocks(planes: Tensor, table: Tensor) -> Tensor:
    """8x8 blocks of planes (B, C, H, W) after the transform, rounded to multiples of the table's steps."""
    b, c, h, w = planes.shape
    basis = _cosines(planes)
    blocks = planes.reshape(b, c, h // 8, 8, w // 8, 8)
    numbers = torch.einsum("ui,bcyixj,vj->bcyuxv", basis, blocks, basis)
    steps = table.view(8, 1, 8)
    rounded = (numbers / steps).round() * steps
    return torch.einsum("ui,bcyuxv,vj->bcyixj", basis, rounded, basis).reshape(b, c, h, w)


def _cosines(like: Tensor) -> Tensor:
    """The orthonormal cosine transform of 8 samples: (frequency, sample)."""
    places = torch.arange(8, dtype=like.dtype, device=like.device)
    basis = torch.cos(math.pi / 8 * (places + 0.5) * places[:, None]) / 2
    basis[0] /= math.sqrt(2)
    return basis
