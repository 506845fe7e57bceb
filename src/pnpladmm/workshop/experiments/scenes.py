"""A scene (a sharp colour picture and masks of the things in it), a usable crop of it, and weights from masks."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

MIN_PIXELS = 400
"""A region is used if it has more pixels than this inside the crop."""
MAX_MASKS = 4
"""Masks in a crop; with the background this makes P = 5 kernels."""
ATTEMPTS = 50
"""Number of random crops that are tried before crops centred on each mask."""

MIN_WEIGHT = 1e-6
"""Smoothed masks below this are set to 0: rounding, and tails that nobody sees."""
MIN_TOTAL = 1e-3
"""Where the smoothed masks add up to less, the masks themselves are the weights."""


class Unusable(Exception):
    """This picture or mask cannot be used; its text is the reason, for counting."""


@dataclass(frozen=True)
class Scene:
    """A picture that has not been read yet."""

    key: str
    """With the seed it decides all random numbers of the scene."""
    name: str
    read: Callable[[Counter[str]], tuple[Array, tuple[tuple[str, Array], ...], str]] = field(repr=False)
    """Pixels (H, W, 3) uint8; (name, mask (H, W) bool) of each thing; SHA-256 of the picture's file.

    Raises `Unusable`; counts masks that are left out, by reason.
    """
    credit: str = ""
    """Licence and origin."""


@dataclass(frozen=True)
class Crop:
    """A square of a scene and the masks that are used in it."""

    top: int
    left: int
    pixels: Array
    """(side, side, 3) uint8."""
    names: tuple[str, ...]
    masks: Array
    """(n, side, side) bool, 1 <= n <= MAX_MASKS. They may overlap."""


def generator(seed: int, *key: object) -> np.random.Generator:
    """Random numbers that depend on the seed and the key only."""
    text = "/".join(map(str, (seed, *key)))
    return np.random.default_rng(np.frombuffer(hashlib.sha256(text.encode()).digest(), dtype="<u4"))


def find_crop(
    pixels: Array, things: tuple[tuple[str, Array], ...], size: int, trim: int, rng: np.random.Generator
) -> Crop:
    """The first usable crop: random ones as in the paper, then one centred on each mask. Raises `Unusable`.

    `trim` rows and columns are cut off at the end where the task needs a smaller side than `size`.
    """
    height, width = pixels.shape[:2]
    if min(height, width) < size:
        raise Unusable(f"picture smaller than {size}x{size}")
    large = tuple((name, mask) for name, mask in things if mask.sum() > MIN_PIXELS)
    if not large:
        raise Unusable(f"no mask of more than {MIN_PIXELS} pixels")
    rows, columns = height - size + 1, width - size + 1
    places = [(int(rng.integers(rows)), int(rng.integers(columns))) for _ in range(ATTEMPTS)]
    for _, mask in large:
        middle = [round(float(axis.mean())) for axis in np.nonzero(mask)]
        places.append((min(max(middle[0] - size // 2, 0), rows - 1), min(max(middle[1] - size // 2, 0), columns - 1)))
    for top, left in places:
        crop = cut(pixels, large, size - trim, top, left)
        if crop is not None:
            return crop
    raise Unusable(f"no crop with two regions of more than {MIN_PIXELS} pixels")


def cut(pixels: Array, things: tuple[tuple[str, Array], ...], side: int, top: int, left: int) -> Crop | None:
    """The crop with its masks: the first `MAX_MASKS`, in the file's order, that are large enough in it.

    None unless two regions are large enough: a crop with one region would be blurred uniformly. A region is the set of
    pixels with the same masks, so two equal masks make one region.
    """
    window = (slice(top, top + side), slice(left, left + side))
    kept = [(name, mask[window]) for name, mask in things]
    kept = [(name, mask) for name, mask in kept if mask.sum() > MIN_PIXELS][:MAX_MASKS]
    if not kept:
        return None
    masks = np.stack([mask for _, mask in kept])
    patterns = np.tensordot(1 << np.arange(len(kept)), masks, axes=1)
    if (np.bincount(patterns.ravel()) > MIN_PIXELS).sum() < 2:
        return None
    return Crop(top, left, np.ascontiguousarray(pixels[window]), tuple(name for name, _ in kept), masks)


def with_background(masks: Array) -> Array:
    """The masks, and the background that none of them covers, if there is any: (P, H, W) bool."""
    background: Array = np.logical_not(masks.any(0))
    return np.concatenate([masks, background[None]]) if background.any() else masks


def soft_weights(regions: Array, kernels: Array) -> Array:
    """Each region smoothed by its own kernel, then normalised: (P, H, W) float32, sum 1 at every pixel.

    `u_i = (k_i * m_i) / sum_j (k_j * m_j)`, circular, as in the paper: the light of a moving thing reaches as far
    beyond its outline as its blur carries it. Overlapping masks share a pixel. Smoothed masks below a millionth are 0.
    Where nothing is left, which happens with kernels that have an empty centre, the regions themselves are used.
    """
    side = regions.shape[1:]
    padded = np.zeros((len(kernels), *side))
    kh, kw = kernels.shape[1:]
    padded[:, :kh, :kw] = kernels
    padded = np.roll(padded, (-(kh // 2), -(kw // 2)), axis=(1, 2))
    smooth = np.fft.irfft2(np.fft.rfft2(regions.astype(np.float64)) * np.fft.rfft2(padded), s=side)
    smooth[smooth < MIN_WEIGHT] = 0
    total = smooth.sum(0)
    smooth = np.where(total >= MIN_TOTAL, smooth, regions)
    weights: Array = (smooth / smooth.sum(0)).astype(np.float32)
    return weights
