"""A camera's offset in pictures of beads and stars: found by a constant rim, and taken off with the noise around.

An offset of a fifth of the peak is most of a kernel's sum: the kernel would hardly be a blur at all. The level is the
mean of the outer part of the array without outliers. After it is taken off, only noise is left far from the centre;
over so many pixels it sums to as much as the bead. What does not rise above it around the peak is set to 0.
"""

from __future__ import annotations

import numpy as np

from pnpladmm.blur.arrays import Array
from pnpladmm.blur.options import is_number, short
from pnpladmm.tensors import InputError

CONSTANT_RIM = 0.75
"""A rim is a camera's offset if this share of its pixels lies within half of its median."""
UNEVEN = 0.15
"""The middle of an offset's sides is no brighter than the whole rim by this share of the level."""
LEAST_SHARE = 0.01
"""Of the peak: a rim below this is no offset."""
SMALLEST = 7
"""A kernel of a few pixels is all rim, which says nothing about an offset."""
LARGEST_CORE = 0.25
"""Where more of the pixels than this lie above half the height over the rim, it is no bead but a box or a disc."""
OUTER = 0.7
"""The outer part begins at this share of half the width and height."""
SIGNIFICANT = 3.0
"""Times the noise of the smoothed kernel: what is below is taken for noise."""


def without_offset(name: str, kernels: Array, background: float | str | None, notes: list[str]) -> Array:
    """Kernels (P, C, k, k) less `background`: a level, `border`, or, if None, an offset where one is seen."""
    if background is None:
        return _without_seen(kernels, notes)
    if isinstance(background, str) and background == "border":
        return _less_border(kernels, np.ones(kernels.shape[:2], bool), notes, "background subtracted")
    if not is_number(background):
        raise InputError(f"{name}: background {short(background)}: give a number or border")
    if background:
        notes.append(f"background subtracted: {float(background):g}")
    return kernels - float(background)


def _without_seen(kernels: Array, notes: list[str]) -> Array:
    seen = np.array([[_has_offset(kernel) for kernel in channels] for channels in kernels])
    if not seen.any():
        return kernels
    return _less_border(kernels, seen, notes, "a camera's offset is subtracted (background: 0 keeps it)")


def _has_offset(kernel: Array) -> bool:
    """Is there a bead on a constant level?"""
    if min(kernel.shape) < SMALLEST:
        return False
    sides = (kernel[0], kernel[-1], kernel[:, 0], kernel[:, -1])
    rim = np.concatenate(sides)
    level, peak = float(np.median(rim)), float(kernel.max())
    if level <= LEAST_SHARE * peak or (np.abs(rim - level) <= 0.5 * level).mean() < CONSTANT_RIM:
        return False
    middle = np.concatenate([side[len(side) // 3 : len(side) - len(side) // 3] for side in sides])
    if middle.mean() > rim.mean() + UNEVEN * level:  # light that falls off towards the corners
        return False
    return bool((kernel >= (level + peak) / 2).mean() < LARGEST_CORE)


def _less_border(kernels: Array, which: Array, notes: list[str], words: str) -> Array:
    result, levels, shares = kernels.copy(), [], []
    for index in zip(*np.nonzero(which), strict=True):
        kernel = kernels[index]
        level, noise = _level_and_noise(kernel)
        levels.append(level)
        shares.append(level * kernel.size / max(abs(float(kernel.sum())), 1e-300))
        result[index] = _without_noise(kernel - level, noise)
    low, high = min(levels), max(levels)
    shown = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
    notes.append(f"{words}: {shown}, {100 * max(shares):.0f} % of the kernel's sum")
    return result


def _level_and_noise(kernel: Array) -> tuple[float, float]:
    """Mean and standard deviation of the outer part, without what lies beyond three of the latter."""
    y, x = (np.abs(np.arange(n) - (n - 1) / 2) / (n / 2) for n in kernel.shape)
    values = kernel[np.maximum(y[:, None], x) > OUTER]
    if values.size == 0:
        values = kernel.ravel()
    for _ in range(10):
        centre = np.median(values)
        spread = 1.4826 * np.median(np.abs(values - centre))
        kept = values[np.abs(values - centre) <= 3 * max(spread, 1e-12 * abs(centre))]
        if len(kept) in (0, len(values)):
            break
        values = kept
    return float(values.mean()), float(values.std())


def _without_noise(kernel: Array, noise: float) -> Array:
    """0 where nothing rises above the noise around the peak."""
    from scipy.ndimage import binary_dilation, gaussian_filter, label

    if noise <= 1e-9 * np.abs(kernel).max():
        return kernel
    smooth = gaussian_filter(kernel, 1.0, mode="constant")
    high = smooth > SIGNIFICANT * noise / (2 * np.sqrt(np.pi))  # smoothing divides white noise by this
    parts, _ = label(high)
    peak = np.unravel_index(int(smooth.argmax()), smooth.shape)
    if not high[peak]:
        return kernel
    kept = binary_dilation(parts == parts[peak], iterations=2)
    return np.where(kept, kernel, 0.0)
