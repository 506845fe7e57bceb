"""A scene: a sharp colour picture and masks of the things in it, whatever they came from; and a crop of it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

SMALLEST = 400
"""A region counts if it has more pixels than this inside the crop."""
MOST_MASKS = 4
"""Masks in a crop; with the background P = 5 kernels."""
ATTEMPTS = 50
"""Random crops that are tried before crops centred on each mask."""

FAINT = 1e-6
"""Smoothed masks below this are 0: rounding, and tails that no picture shows."""
LOST = 1e-3
"""Where the smoothed masks add up to less, the masks themselves decide."""


class Unusable(Exception):
    """This picture cannot be used; the reason, in words that are the same for all pictures it applies to."""


@dataclass(frozen=True)
class Scene:
    """A picture that has not been read yet."""

    key: str
    """What its random numbers are drawn from, with the seed: nothing else decides them."""
    name: str
    read: Callable[[Counter[str]], tuple[Array, tuple[tuple[str, Array], ...], str]] = field(repr=False)
    """Pixels (H, W, 3) uint8; (name, mask (H, W) bool) of each thing; SHA-256 of the picture's file.

    Raises `Unusable`; counts things left out, by reason.
    """
    credit: str = ""
    """Licence and origin."""


@dataclass(frozen=True)
class Crop:
    """A square of a scene and the masks that count in it."""

    top: int
    left: int
    pixels: Array
    """(side, side, 3) uint8."""
    names: tuple[str, ...]
    masks: Array
    """(n, side, side) bool, 1 <= n <= MOST_MASKS. They may overlap."""


def generator(seed: int, *key: object) -> np.random.Generator:
    """Random numbers that depend on the seed and the key alone, whatever was drawn before."""
    text = "/".join(map(str, (seed, *key)))
    return np.random.default_rng(np.frombuffer(hashlib.sha256(text.encode()).digest(), dtype="<u4"))


def find_crop(
    pixels: Array, things: tuple[tuple[str, Array], ...], size: int, trim: int, rng: np.random.Generator
) -> Crop:
    """The first usable crop: random ones, as the paper's, then one centred on each mask. Raises `Unusable`.

    `trim` rows and columns are cut off at the end, where a side of `size` does not fit the task.
    """
    height, width = pixels.shape[:2]
    if min(height, width) < size:
        raise Unusable(f"picture smaller than {size}x{size}")
    large = tuple((name, mask) for name, mask in things if mask.sum() > SMALLEST)
    if not large:
        raise Unusable(f"no mask of more than {SMALLEST} pixels")
    rows, columns = height - size + 1, width - size + 1
    places = [(int(rng.integers(rows)), int(rng.integers(columns))) for _ in range(ATTEMPTS)]
    for _, mask in large:
        middle = [round(float(axis.mean())) for axis in np.nonzero(mask)]
        places.append((min(max(middle[0] - size // 2, 0), rows - 1), min(max(middle[1] - size // 2, 0), columns - 1)))
    for top, left in places:
        crop = cut(pixels, large, size - trim, top, left)
        if crop is not None:
            return crop
    raise Unusable(f"no crop with two regions of more than {SMALLEST} pixels")


def cut(pixels: Array, things: tuple[tuple[str, Array], ...], side: int, top: int, left: int) -> Crop | None:
    """The crop with its masks: the first `MOST_MASKS`, in the file's order, that are large enough in it.

    None unless two regions are: a crop that one mask fills, or that has none, would be blurred uniformly. Regions are
    told apart by which masks lie there, so two masks of the same pixels are one.
    """
    window = (slice(top, top + side), slice(left, left + side))
    kept = [(name, mask[window]) for name, mask in things]
    kept = [(name, mask) for name, mask in kept if mask.sum() > SMALLEST][:MOST_MASKS]
    if not kept:
        return None
    masks = np.stack([mask for _, mask in kept])
    patterns = np.tensordot(1 << np.arange(len(kept)), masks, axes=1)
    if (np.bincount(patterns.ravel()) > SMALLEST).sum() < 2:
        return None
    return Crop(top, left, np.ascontiguousarray(pixels[window]), tuple(name for name, _ in kept), masks)


def with_background(masks: Array) -> Array:
    """The masks, and what none of them covers, if there is any: (P, H, W) bool."""
    background: Array = np.logical_not(masks.any(0))
    return np.concatenate([masks, background[None]]) if background.any() else masks


def soft_weights(regions: Array, kernels: Array) -> Array:
    """Each region smoothed by its own kernel, all normalised: (P, H, W) float32, sum 1 at every pixel.

    `u_i = (k_i * m_i) / sum_j (k_j * m_j)`, circular, as the paper does: light of a thing that moves lies as far
    beyond its outline as its blur carries it. Where masks overlap they share. Weights below a millionth are 0. Where
    kernels with an empty centre carry everything elsewhere and nothing is left, the regions themselves decide.
    """
    side = regions.shape[1:]
    padded = np.zeros((len(kernels), *side))
    kh, kw = kernels.shape[1:]
    padded[:, :kh, :kw] = kernels
    padded = np.roll(padded, (-(kh // 2), -(kw // 2)), axis=(1, 2))
    smooth = np.fft.irfft2(np.fft.rfft2(regions.astype(np.float64)) * np.fft.rfft2(padded), s=side)
    smooth[smooth < FAINT] = 0
    total = smooth.sum(0)
    smooth = np.where(total >= LOST, smooth, regions)
    weights: Array = (smooth / smooth.sum(0)).astype(np.float32)
    return weights
