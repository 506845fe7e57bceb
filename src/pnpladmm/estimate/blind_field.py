"""A kernel for each of many overlapping windows, brought to one place and joined to a smooth field."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pnpladmm.blur.arrays import Array
from pnpladmm.blur.options import Size
from pnpladmm.estimate.psf_field import relative_l2

WINDOW = 256
"""Pixels: side of a window. It holds enough edges for one kernel, and the blur changes little in it."""
MOST = 5
"""Windows along the longer side."""
ROUNDS = 4
"""Of moving each kernel to where its neighbours lie."""
TRUSTED = 0.3
"""Confidence below which a window takes the kernel of its neighbours."""


@dataclass(frozen=True, eq=False)
class Windows:
    """Overlapping windows on a lattice, y slowest: `x` (nx,) and `y` (ny,) are their centres."""

    x: Array
    y: Array
    side: int

    @property
    def places(self) -> Array:
        """Centres (N, 2) as x, y."""
        return np.stack([np.tile(self.x, len(self.y)), np.repeat(self.y, len(self.x))], 1)

    def box(self, number: int, size: Size) -> tuple[slice, slice]:
        """Rows and columns of a window in a picture of `size`."""
        x, y = self.places[number]
        first = [round(c - (min(self.side, n) - 1) / 2) for c, n in zip((y, x), size, strict=True)]
        rows, columns = (slice(f, f + min(self.side, n)) for f, n in zip(first, size, strict=True))
        return rows, columns

    def nearness(self) -> Array:
        """(N, N): 1 for windows side by side, less for others, 0 for a window and itself."""
        step = max([*np.diff(self.x), *np.diff(self.y), 1.0])
        distance = np.linalg.norm(self.places[:, None] - self.places[None], axis=-1) / step
        result: Array = np.where(distance > 0, np.exp(1 - distance.clip(1) ** 2), 0)
        return result


def windows_of(size: Size) -> Windows | None:
    """The windows of a picture that is large enough for several of them: half a window apart, `MOST` at most."""
    if min(size) < 1.5 * WINDOW:
        return None
    half = (WINDOW - 1) / 2
    height, width = (np.linspace(half, n - 1 - half, min(2 * n // WINDOW - 1, MOST)) for n in size)
    return Windows(width, height, WINDOW)


def aligned(kernels: Array, confidence: Array, nearness: Array) -> Array:
    """Kernels (N, k, k) moved by whole pixels to where their neighbours lie: a blind kernel may lie anywhere.

    From the most trusted window outwards each kernel is moved to the highest correlation with the weighted mean of
    those that are placed; then all again, against all.
    """
    placed, done = kernels.copy(), np.zeros(len(kernels), bool)
    for round_ in range(ROUNDS):
        for number in _outwards(confidence, nearness):
            weights = nearness[number] * (confidence + 1e-6) * (done | (round_ > 0))
            if weights.sum() > 0:
                placed[number] = _moved_to(placed[number], np.tensordot(weights / weights.sum(), placed, 1))
            done[number] = True
    return placed


def _outwards(confidence: Array, nearness: Array) -> list[int]:
    """The windows in turn: the most trusted one, then always the most trusted near those before."""
    order = [int(confidence.argmax())]
    while len(order) < len(confidence):
        near = np.stack([nearness[:, i] for i in order]).max(0) * (confidence + 1e-6)
        near[order] = -1
        order.append(int(near.argmax()))
    return order


def joined(kernels: Array, confidence: Array, nearness: Array) -> Array:
    """Each kernel mixed with its neighbours: the less it is trusted, the more they count."""
    weights = nearness * confidence[None, :] ** 2
    others = np.tensordot(weights / weights.sum(1, keepdims=True).clip(1e-9), kernels, 1)
    own = (confidence**2 / (confidence**2 + 0.25 * TRUSTED))[:, None, None]
    own = np.where(confidence[:, None, None] < TRUSTED, 0, own)
    mixed = own * kernels + (1 - own) * others
    result: Array = mixed / mixed.sum((1, 2), keepdims=True)
    return result


def changes(kernels: Array, differences: Array, nearness: Array) -> tuple[float, bool]:
    """The median relative difference of kernels side by side or farther, and whether it is more than their errors.

    `differences` (N,) are those of the halves of each window.
    """
    n = len(kernels)
    pairs = [(i, j) for i in range(n) for j in range(i) if nearness[i, j] < 0.9]
    between = np.array([relative_l2(kernels[i][None], kernels[j][None])[0] for i, j in pairs])
    errors = np.array([np.hypot(differences[i], differences[j]) for i, j in pairs])
    good = errors <= np.median(errors)
    return float(np.median(between)), bool(np.median(between[good]) > np.median(errors[good]))


def _moved_to(kernel: Array, goal: Array) -> Array:
    """The kernel at the whole-pixel shift of its highest correlation with `goal`, as far as no light leaves it."""
    side = kernel.shape[0]
    shape = (2 * side, 2 * side)
    both = np.fft.irfft2(np.fft.rfft2(goal, shape) * np.fft.rfft2(kernel, shape).conj(), shape)
    reach = [_room(kernel.sum(1 - axis)) for axis in (0, 1)]
    best = max(
        ((dy, dx) for dy in range(reach[0][0], reach[0][1] + 1) for dx in range(reach[1][0], reach[1][1] + 1)),
        key=lambda move: both[move],
    )
    return np.roll(kernel, best, (0, 1))


def _room(light: Array) -> tuple[int, int]:
    """How far a profile can be moved up and down before light leaves it."""
    used = np.flatnonzero(light > 0)
    return -int(used[0]), len(light) - 1 - int(used[-1])
