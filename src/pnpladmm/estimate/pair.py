"""A sharp and a blurred picture of the same scene: shifted onto each other, brightness matched, pixels that count."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur.arrays import Array
from pnpladmm.estimate.scene import Scene
from pnpladmm.restoration.noise import estimate_noise
from pnpladmm.tensors import InputError

FLAT = 1e-4
"""Standard deviation below which a picture is flat."""
SAME_SCENE = 9.0
"""The kernel stands out of its surroundings by this factor where both pictures show the same scene."""
FAINT = 0.04
"""Of the largest value of the first kernel: what still belongs to it."""
ALIGNED = 2
"""Pixels; a smaller shift may be the kernel's own, so it is left in the kernel."""
MARGIN = 2
"""Pixels added to the extent of the first kernel on each side."""
ENOUGH = 0.4
"""Share of the pixels below which white pixels of the sharp picture count too."""
REFINED = 6
"""Pixels over which both pictures are smoothed to compare their brightness once the blur is about known."""
SIDES = (5, 65)
"""Kernel sides that are chosen without being asked for."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Grey pictures (H, W) of mean about 0 with `blurred = K sharp + noise`, and which pixels count."""

    sharp: Array
    blurred: Array
    valid: Array
    """Pixels of `blurred` with data, unsaturated."""
    sharp_valid: Array
    noise: float
    """Standard deviation of the noise of `blurred`."""
    side: int
    """Of the kernels."""
    shift: tuple[int, int]
    """Rows and columns by which the sharp picture was moved."""
    gain: float
    offset: float

    def inner(self) -> Array:
        """Pixels whose light comes from inside the picture."""
        half = self.side // 2
        result = np.zeros(self.sharp.shape, bool)
        result[half:-half, half:-half] = True
        return result

    def usable(self) -> Array:
        """Pixels whose light comes from known pixels of the sharp picture alone."""
        from scipy.ndimage import minimum_filter

        known = minimum_filter(self.sharp_valid, self.side, mode="constant", cval=False)
        result: Array = known & self.valid
        return result


def match(scene: Scene, sharp: Scene, side: int | None) -> Pair:
    """Bring a sharp picture onto the blurred one."""
    if scene.size != sharp.size:
        (h, w), (sh, sw) = scene.size, sharp.size
        raise InputError(f"{sharp.name} is {sh}x{sw}, {scene.name} is {h}x{w}: cut both to the same field")
    y, x = scene.grey, sharp.grey
    valid = scene.valid & ~scene.saturated
    for name, picture, known in ((scene.name, y, valid), (sharp.name, x, sharp.valid)):
        if known.sum() < 256 or picture[known].std() < FLAT:
            raise InputError(f"{name} is flat: it shows nothing that a blur could be seen on")
    sharp_valid = sharp.valid & ~sharp.saturated
    noise = float(estimate_noise(_batch(y), _batch(valid))[0])
    first, contrast = first_kernel(np.where(sharp.valid, x, x[sharp.valid].mean()), np.where(valid, y, y[valid].mean()))
    if contrast < SAME_SCENE:
        raise InputError(
            f"{sharp.name} and {scene.name} do not show the same scene (no kernel stands out, {contrast:.1f} of "
            f"{SAME_SCENE:g}): give two pictures of one scene, turned and scaled alike"
        )
    shift, extent = _middle_and_extent(first, contrast)
    if side is None:
        side = int(np.clip(2 * (extent + MARGIN) + 1, *SIDES))
    most = (min(scene.size) // 2 - 1) | 1
    if side > most:
        raise InputError(
            f"{scene.name}: kernels of {side} pixels do not fit into {scene.size[0]}x{scene.size[1]} pixels: "
            f"give a larger picture, or side = {most} at most"
        )
    x, sharp_valid = _moved(x, shift, 0.0), _moved(sharp_valid, shift, False)
    gain, offset = _brightness(x, y, sharp_valid & valid, side)
    x = gain * x + offset
    middle = float(y[valid].mean())
    pair = Pair(x - middle, y - middle, valid, sharp_valid, noise, side, shift, gain, offset)
    if pair.usable().mean() < ENOUGH:  # where so much of the scene is white, white is what it looks like
        pair = replace(pair, sharp_valid=_moved(sharp.valid, shift, False))
    return pair


def brighter(pair: Pair, shown: Array) -> Pair:
    """The pair with its brightness matched again, `shown` being the sharp picture blurred by what is known so far."""
    usable = pair.usable()
    gain, offset = _brightness(shown, pair.blurred, usable, REFINED)
    sharp = gain * pair.sharp + offset
    return replace(pair, sharp=sharp, gain=gain * pair.gain, offset=gain * pair.offset + offset)


def first_kernel(sharp: Array, blurred: Array) -> tuple[Array, float]:
    """A first kernel as large as the picture, its origin in the middle, and how much it stands out of the rest.

    Regularised division of the spectra under a soft window, `K = conj(X) Y / (|X|^2 + e)`.
    """
    from scipy.ndimage import gaussian_filter

    height, width = sharp.shape
    window = np.outer(np.hanning(height + 2)[1:-1], np.hanning(width + 2)[1:-1])
    fx, fy = (np.fft.rfft2((p - (p * window).sum() / window.sum()) * window) for p in (sharp, blurred))
    power = np.abs(fx) ** 2
    kernel = np.fft.irfft2(np.conj(fx) * fy / (power + 0.05 * np.median(power) + 1e-3 * power.mean()), s=sharp.shape)
    kernel = gaussian_filter(np.fft.fftshift(kernel), 0.7, mode="wrap")
    spread = 1.4826 * np.median(np.abs(kernel - np.median(kernel)))
    return kernel, float(kernel.max() / max(spread, 1e-300))


def _middle_and_extent(kernel: Array, contrast: float) -> tuple[tuple[int, int], int]:
    """Where the light of the first kernel is, from the middle, and how far it reaches."""
    from scipy.ndimage import binary_dilation, label

    light = kernel > max(FAINT, 4 / contrast) * kernel.max()
    parts, _ = label(binary_dilation(light, iterations=2))
    own = light & (parts == parts[np.unravel_index(kernel.argmax(), kernel.shape)])
    rows, columns = np.nonzero(own)
    weights = kernel[own]
    row, column = round(float(rows @ weights / weights.sum())), round(float(columns @ weights / weights.sum()))
    middle = kernel.shape[0] // 2, kernel.shape[1] // 2
    if max(abs(row - middle[0]), abs(column - middle[1])) <= ALIGNED:
        row, column = middle
    extent = int(max(np.abs(rows - row).max(), np.abs(columns - column).max()))
    return (row - middle[0], column - middle[1]), extent


def _moved(picture: Array, shift: tuple[int, int], fill: float | bool) -> Array:
    """Moved by whole pixels."""
    result = np.roll(picture, shift, (0, 1))
    for axis, by in enumerate(shift):
        edge = [slice(None), slice(None)]
        edge[axis] = slice(0, by) if by > 0 else slice(picture.shape[axis] + by, None)
        result[tuple(edge)] = fill
    return result


def _brightness(sharp: Array, blurred: Array, valid: Array, side: int) -> tuple[float, float]:
    """`blurred = gain * sharp + offset` where both are smoothed so much that their blur does not matter."""
    from scipy.ndimage import gaussian_filter

    known = gaussian_filter(valid.astype(float), side)
    x, y = (gaussian_filter(np.where(valid, p, 0), side) / known.clip(1e-6) for p in (sharp, blurred))
    inside = (known > 0.9) & valid
    if inside.sum() < 64:
        inside = valid
    design = np.stack([x[inside], np.ones(int(inside.sum()))], 1)
    (gain, offset), *_ = np.linalg.lstsq(design, y[inside], rcond=1e-6)
    if not 0.02 < gain < 50:
        raise InputError(f"the brightness of both pictures does not fit (ratio {gain:.2g}): do they show one scene?")
    return float(gain), float(offset)


def _batch(array: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))[None, None]
