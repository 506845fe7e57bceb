"""Hot pixels: single pixels that stand out further than the PSF lets any light stand out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pnpladmm.operators import LinearOperator
from pnpladmm.restoration.noise import estimate_noise
from pnpladmm.tensors import InputError, is_out_of_memory

FAR = 20.0
"""Times the noise: pixels that stand out less do little harm."""
SHARE = 0.3
"""The neighbours of a hot pixel show less than this share of what the PSF would spread to them from light there."""
NARROW = 0.2
"""Where the PSF spreads less than this to the next pixel, a single bright pixel may be light."""
RING = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (2, 2))
"""The eight neighbours of a pixel, in pictures with one pixel more on each side."""
MOST = 0.01
"""With a larger share of such pixels, they are what the picture looks like."""


@dataclass(frozen=True)
class HotRule:
    """What is hot in a picture: pixels that stand out by more than `level` where the PSF has this `spread`."""

    level: Tensor
    """(B, 1, 1, 1), in the numbers of the picture."""
    spread: float
    """The brightest neighbour of a point, as a share of its peak."""

    def marks(self, pixels: Tensor) -> Tensor:
        """True on the pixels of (B, C, H, W), or of a part of such pictures, that are hot or dead."""
        around = functional.pad(pixels, (1, 1, 1, 1), mode="replicate")
        excess = (pixels - _mean_of_four(around)).abs()
        places = ((excess > self.level.to(pixels)) & (excess > 0)).nonzero(as_tuple=True)
        picture, channel, row, column = places
        near = torch.stack([around[picture, channel, row + i, column + j] for i, j in RING])
        middle = near.median(0).values
        d = (pixels[places] - middle).abs()
        alone = (near - middle).abs().amax(0) < SHARE * self.spread * d
        found = torch.zeros_like(pixels, dtype=torch.bool)
        found[places] = alone & (d > self.level.flatten().to(pixels)[picture])
        return found


def hot_rule(pixels: Tensor, operator: LinearOperator, valid: Tensor | None = None) -> HotRule | None:
    """What is hot in pictures (B, C, H, W); None where single bright pixels may be light."""
    if min(pixels.shape[-2:]) < 8:
        return None
    return rule_of(noise_without_hot(pixels, valid), spread_of(operator, pixels))


def rule_of(noise: Tensor, spread: float) -> HotRule | None:
    """The rule for pictures with noise (B,) and a PSF of this spread."""
    return None if spread < NARROW else HotRule(FAR * noise.view(-1, 1, 1, 1), spread)


def hot_pixels(pixels: Tensor, operator: LinearOperator, valid: Tensor | None = None) -> Tensor | None:
    """True on hot and on dead pixels of (B, C, H, W); None where there are none.

    Light in one pixel reaches its neighbours through the PSF, the brightest of them with the share `spread` of its
    peak. A pixel that differs by `d` from the median of its eight neighbours is hot where none of these differs from
    the median by more than `SHARE spread d`. A PSF may be off by a factor of three before stars are taken for hot.
    """
    rule = hot_rule(pixels, operator, valid)
    if rule is None:
        return None
    found = rule.marks(pixels)
    share = found.flatten(1).double().mean(1).view(-1, 1, 1, 1)
    found &= share < MOST
    return found if bool(found.any()) else None


def _mean_of_four(around: Tensor) -> Tensor:
    """The mean of the neighbours above, below, left and right, from pictures with one pixel more on each side."""
    rows, columns = around[..., 1:-1], around[..., 1:-1, :]
    return (rows[..., :-2, :] + rows[..., 2:, :] + columns[..., :-2] + columns[..., 2:]) / 4


def noise_without_hot(pixels: Tensor, valid: Tensor | None) -> Tensor:
    """The noise of each picture, (B,), found without the pixels that stand out most; 0 where it cannot be found."""
    excess = (pixels - _mean_of_four(functional.pad(pixels, (1, 1, 1, 1), mode="replicate"))).abs()
    usual = excess <= 1e3 * excess.flatten(1).mean(1).view(-1, 1, 1, 1).clamp_min(1e-30)
    filled = torch.where(usual, pixels, pixels.flatten(1).median(1).values.view(-1, 1, 1, 1))
    counts = usual if valid is None else usual & valid
    return torch.cat([_noise_of_one(filled[i : i + 1], counts[i : i + 1]) for i in range(len(pixels))]).to(pixels)


def _noise_of_one(picture: Tensor, counts: Tensor) -> Tensor:
    try:
        return estimate_noise(picture, counts)
    except InputError:
        return torch.zeros(1, dtype=torch.float64, device=picture.device)


def spread_of(operator: LinearOperator, pixels: Tensor) -> float:
    """The brightest neighbour of a point in the middle of the picture, as a share of its peak; 0 where none is seen."""
    try:
        shape = operator.input_shape((1, *pixels.shape[1:]))
        point = torch.zeros(shape, dtype=pixels.dtype, device=pixels.device)
        point[..., shape[-2] // 2, shape[-1] // 2] = 1
        seen = operator.forward(point)
    except (InputError, RuntimeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        return 0.0
    if seen.shape[1:] != pixels.shape[1:]:
        return 0.0
    seen = seen.abs().mean((0, 1))
    row, column = divmod(int(seen.argmax()), seen.shape[-1])
    near = seen[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2].flatten().sort(descending=True).values
    return float(near[1] / near[0]) if len(near) > 1 and float(near[0]) > 0 else 0.0
