"""What JPEG compression has done to a picture: its grid of blocks, its steps, and the noise that it hides.

JPEG divides brightness into blocks of 8x8 and rounds each coefficient of their cosine transform to a multiple of the
step `q_uv` of its frequency. The decoded picture still shows this: on its own grid the coefficients lie on combs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pnpladmm.pictures import Picture
from pnpladmm.pictures.arrays import Array

STANDARD = np.array(
    [
        [16, 11, 10, 16, 24, 40, 51, 61],
        [12, 12, 14, 19, 26, 58, 60, 55],
        [14, 13, 16, 24, 40, 57, 69, 56],
        [14, 17, 22, 29, 51, 87, 80, 62],
        [18, 22, 37, 56, 68, 109, 103, 77],
        [24, 35, 55, 64, 81, 104, 113, 92],
        [49, 64, 78, 87, 103, 121, 120, 101],
        [72, 92, 95, 98, 112, 100, 103, 99],
    ]
)
"""The steps for brightness at quality 50 (Annex K of the JPEG standard); other qualities are multiples of them."""
BRIGHTNESS = (0.299, 0.587, 0.114)
"""Shares of red, green and blue."""
PER_CHANNEL = sum(share**2 for share in BRIGHTNESS) ** 0.5
"""Noise of brightness where red, green and blue have independent noise of 1."""
ERRORS, ERRORS_PER_STEP = 1.6, 0.29
"""Level, of 255, for the errors of compression: the first number plus the second times `Compression.step`."""
HARDER, UNSEEN_PER_STEP = 1.35, 0.3
"""Noise before compression counts this many times; and below this share of the step nothing is known of it."""
WINDOW = 384
"""The grid is looked for in the middle of the picture, in a square of this side."""
FREQUENCY = np.add.outer(np.arange(8), np.arange(8))
LOW = [(u, v) for u in range(8) for v in range(8) if 1 <= u + v <= 8]
"""Frequencies with coefficients that may be large enough to show the comb."""
LARGEST_STEP = 60
ON_COMB = 0.55
"""Coefficients lie on a comb where the mean of `cos(2 pi c / q)` is above this; rounding of pixels lowers it."""
FEWEST = 40
"""So many coefficients beyond half a step are needed to see a comb."""
FEWEST_COMBS = 3
"""So many frequencies must show one."""
SMALLEST = 32
"""Pixels of a picture's shorter side that are needed to find the grid."""


@dataclass(frozen=True)
class Compression:
    """The steps of a compressed picture, and where its grid begins."""

    table: Array
    """(8, 8) for brightness, in grey levels of 255."""
    top: int = 0
    left: int = 0

    @property
    def step(self) -> float:
        """The mean of the steps for the nine lowest frequencies."""
        return float(self.table[:3, :3].mean())


def compression_errors(picture: Picture, sensor: Tensor) -> Tensor:
    """The level for the errors of JPEG in each page of a picture, (B,), in [0, 1]; 0 where there was no JPEG.

    A file says its steps itself. In other pictures of 8 bits they are looked for: many PNG files were JPEGs once.
    `sensor` is the noise that was estimated, (B,).
    """
    table = np.array(picture.metadata.jpeg_table, float)
    if picture.pixels.shape[1] not in (1, 3) or not (table.size or is_8_bit(picture)):
        return torch.zeros_like(sensor)
    found = []
    for page, white in zip(picture.pixels, (255 * sensor).tolist(), strict=True):
        levels = brightness(page)
        compression = known_compression(levels, table) if table.size else found_compression(levels)
        if compression is None:
            found.append(0.0)
            continue
        hidden = hidden_noise(levels, compression) / (PER_CHANNEL if len(page) == 3 else 1.0)
        found.append(jpeg_errors(compression, white, hidden) / 255)
    return sensor.new_tensor(found)


def is_8_bit(picture: Picture) -> bool:
    """Whether the samples are those of an 8-bit file, maybe as floats."""
    if picture.dtype == "uint8":
        return True
    levels = 255 * picture.pixels[..., :SMALLEST, :SMALLEST].double()
    return bool((levels - levels.round()).abs().max() < 1e-3) and bool(levels.amax() > 1)


def jpeg_noise(step: float) -> float:
    """The level, in [0, 1], for the errors of compression alone; 0 where there was none. `step`: `Compression.step`."""
    return (ERRORS + ERRORS_PER_STEP * step) / 255 if step else 0.0


def jpeg_errors(compression: Compression, sensor: float, hidden: float) -> float:
    """The level, of 255, that comes to a noise of level `sensor` for what JPEG has done to the picture.

    `sensor` is what `estimate_noise` finds, `hidden` the noise per channel before the compression. Together with
    `sensor` the level restores about best (measured: docs/notes/2026-11-19-jpeg.md). What is left of strong noise is
    no longer white and needs a higher level than white noise does.
    """
    errors = 255 * jpeg_noise(compression.step)
    seen = max(0.0, hidden**2 - (UNSEEN_PER_STEP * compression.step) ** 2) ** 0.5
    return max(errors**2, (HARDER * seen) ** 2 - sensor**2) ** 0.5


def brightness(pixels: Tensor) -> Array:
    """(H, W) in grey levels of 255, from one picture (C, H, W)."""
    levels = 255 * pixels.detach().double().cpu()
    if len(levels) != 3:
        return levels[0].numpy()
    return torch.einsum("c,chw->hw", levels.new_tensor(BRIGHTNESS), levels).numpy()


def found_compression(levels: Array) -> Compression | None:
    """The compression that a picture has gone through, from its pixels alone; None where no comb is seen.

    `levels` (H, W) are 8-bit numbers, or brightness made from such.
    """
    part = _middle(levels)
    if min(part.shape) < SMALLEST:
        return None
    top, left = _grid(part)
    coefficients = _coefficients(part, top, left)
    steps = {place: _comb(coefficients[:, place[0], place[1]]) for place in LOW}
    seen = [step / STANDARD[place] for place, step in steps.items() if step]
    if len(seen) < FEWEST_COMBS:
        return None
    return Compression(np.maximum(1, np.rint(STANDARD * np.median(seen))), top, left)


def known_compression(levels: Array, table: Array) -> Compression:
    """The compression of a file with these steps; its grid is looked for, because the picture may be a crop."""
    part = _middle(levels)
    return Compression(table, *(_grid(part) if min(part.shape) >= SMALLEST else (0, 0)))


def hidden_noise(levels: Array, compression: Compression) -> float:
    """Standard deviation, of 255, of the white noise in `levels` before the compression; 0 where none is seen.

    A coefficient that holds only noise is rounded to 0 with the probability `P(|n| < q / 2)`. The flatter half of
    the blocks, and high frequencies, hold little else in a blurred picture: what is rounded to 0 there tells the noise.
    """
    from scipy.special import ndtri  # slow to import

    coefficients = _coefficients(_middle(levels), compression.top, compression.left)
    if len(coefficients) < 2 * FEWEST:
        return 0.0
    structure = np.abs(coefficients[:, (FREQUENCY >= 1) & (FREQUENCY <= 2)]).sum(1)
    flat = coefficients[structure <= np.median(structure)]
    zeros = (np.abs(flat) < compression.table / 2).mean(0)
    told = (FREQUENCY > 2) & (zeros < 1 - 1.5 / len(flat)) & (zeros > 0.02)
    if told.sum() < 3:
        return 0.0
    noise = compression.table[told] / 2 / ndtri((1 + zeros[told]) / 2)
    # Frequencies with structure left show more than the noise.
    return float(np.quantile(noise, 0.25))


def _coefficients(levels: Array, top: int, left: int) -> Array:
    """Cosine transforms of the blocks of the grid that begins at (top, left): (N, 8, 8)."""
    from scipy.fft import dctn  # slow to import

    high, wide = ((n - start) // 8 for n, start in zip(levels.shape, (top, left), strict=True))
    blocks = levels[top : top + 8 * high, left : left + 8 * wide].reshape(high, 8, wide, 8).swapaxes(1, 2)
    found: Array = dctn(blocks.reshape(-1, 8, 8), axes=(1, 2), norm="ortho")
    return found


def _middle(levels: Array) -> Array:
    """The middle of the picture, from a multiple of 8 on, so that the grid begins at the same place."""
    starts = [max(0, n - WINDOW) // 16 * 8 for n in levels.shape]
    return levels[starts[0] : starts[0] + WINDOW, starts[1] : starts[1] + WINDOW]


def _grid(levels: Array) -> tuple[int, int]:
    """The row and column where the grid of blocks begins."""
    places = [(top, left) for top in range(8) for left in range(8)]
    return max(places, key=lambda place: _quiet(levels, *place))


def _quiet(levels: Array, top: int, left: int) -> float:
    """Minus the mean size of the small coefficients of high frequency: they are 0 on the grid of the compression."""
    high = np.abs(_coefficients(levels, top, left)[:, FREQUENCY >= 5])
    return -float(np.minimum(high, 2.0).mean())


def _comb(values: Array) -> int:
    """The largest step whose multiples the values are, apart from those that are nearly 0; 0 if there is none."""
    steps = np.arange(2, LARGEST_STEP + 1)
    found = 0
    for step in steps:
        far = values[np.abs(values) > step / 2]
        if len(far) < FEWEST:
            break
        # Rounding of the pixels moves coefficients by about 0.3: a blurred comb is still one.
        if np.cos(2 * np.pi * far / step).mean() > ON_COMB * np.exp(-2 * np.pi**2 * 0.3**2 / step**2):
            found = int(step)
    return found
