"""A kernel from pairs of pixels, sharp and blurred: least squares, non-negative, of sum one, smooth and sparse.

    min_k  1/2 sum_n (y_n - sum_j k_j x_{n-j})^2 / sigma^2 + 1/2 ||k||_P^2,     k >= 0,  sum k = 1

The sums over pixels are computed once for the largest kernel; those of smaller kernels are parts of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pnpladmm.blur.arrays import Array

CHUNK = 8192
"""Pixels that are gathered at a time."""
SWAPS = 60
"""The most exchanges between kernel pixels that are 0 and those that are not."""
ROUNDS = 3
"""How often the prior is adapted to the kernel: pixels that look empty are held to 0 more strongly."""


@dataclass(frozen=True)
class Prior:
    """How kernels look.

    Neighbouring pixels of a kernel differ by about `width` times the kernel's size there, which is its mean over
    `reach` pixels; nowhere less than `empty` times its largest value.
    """

    width: float
    reach: float
    empty: float


PRIORS = (Prior(1.0, 0.7, 0.003), Prior(0.3, 1.0, 0.02), Prior(0.15, 1.5, 0.01), Prior(0.1, 2.0, 0.01))
"""From thin lines (camera shake) to smooth spots (lenses, air)."""


@dataclass(frozen=True, eq=False)
class Sums:
    """`A^T A`, `A^T y` and `y^T y` over `count` pixels, for kernels of `side`."""

    matrix: Array
    right: Array
    power: float
    count: int
    side: int

    def smaller(self, side: int) -> Sums:
        """The sums for kernels of a smaller side."""
        if side == self.side:
            return self
        offset = (self.side - side) // 2
        inside = np.zeros((self.side, self.side), bool)
        inside[offset : offset + side, offset : offset + side] = True
        kept = np.flatnonzero(inside)
        return Sums(self.matrix[np.ix_(kept, kept)], self.right[kept], self.power, self.count, side)

    def plus(self, other: Sums) -> Sums:
        """Over the pixels of both."""
        return Sums(
            self.matrix + other.matrix,
            self.right + other.right,
            self.power + other.power,
            self.count + other.count,
            self.side,
        )

    def residual(self, kernel: Array) -> float:
        """`||y - A k||^2` over the pixels, per pixel."""
        k = kernel.ravel()
        return float(self.power - 2 * k @ self.right + k @ (self.matrix @ k)) / max(self.count, 1)


def sums_over(sharp: Array, blurred: Array, pixels: Array, side: int, weight: Array | None = None) -> Sums:
    """The sums over some pixels (flat indices), all at least `side // 2` from the border. (H, W) pictures of mean 0.

    With a `weight` (H, W) the model is `y_n = u_n sum_j k_j x_{n-j}`.
    """
    half = side // 2
    windows = np.lib.stride_tricks.sliding_window_view(sharp.astype(np.float32), (side, side))
    rows, columns = np.divmod(pixels, sharp.shape[1])
    matrix, right = np.zeros((side * side, side * side)), np.zeros(side * side)
    values = blurred.ravel()[pixels]
    for start in range(0, len(pixels), CHUNK):
        part = slice(start, start + CHUNK)
        # True convolution: kernel entry j meets x at n - j.
        patches = windows[rows[part] - half, columns[part] - half][:, ::-1, ::-1].reshape(-1, side * side)
        if weight is not None:
            patches = patches * weight.ravel()[pixels[part], None].astype(np.float32)
        matrix += patches.T @ patches
        right += patches.T @ values[part].astype(np.float32)
    return Sums(matrix, right, float((values**2).sum()), len(pixels), side)


def fit_kernel(sums: Sums, noise: float, prior: Prior, near: Array | None = None, apart: float = 1.0) -> Array:
    """The kernel (k, k).

    Parameters
    ----------
    sums : Sums
        Of the pixels.
    noise : float
        Standard deviation of what is not explained.
    prior : Prior
        How kernels look.
    near : array (k, k), optional
        A kernel that this one resembles: it differs by `apart` times the size of `near` at each place.
    """
    side = sums.side
    rough = _roughness(side)
    data, right = sums.matrix / noise**2, sums.right / noise**2
    kernel = near
    if near is not None:
        pull = 1 / (apart * _local_size(near, prior).ravel()) ** 2
        data = data + np.diag(pull)
        right = right + pull * near.ravel()
    for _ in range(ROUNDS if near is None else 1):
        scale = np.full(side * side, 1 / 30) if kernel is None else _local_size(kernel, prior).ravel()
        inverse = 1 / (prior.width * scale)
        matrix = data + inverse[:, None] * rough * inverse[None, :]
        kernel = _nonnegative(matrix, right, None if kernel is None else kernel.ravel() > 0).reshape(side, side)
    assert kernel is not None  # ROUNDS is not 0
    return kernel


def _local_size(kernel: Array, prior: Prior) -> Array:
    """How large the kernel is around each pixel, and nowhere nothing."""
    from scipy.ndimage import gaussian_filter

    near = gaussian_filter(kernel, prior.reach, mode="constant")
    result: Array = near + prior.empty * near.max()
    return result


def _roughness(side: int) -> Array:
    """Squared differences of neighbours plus a little of the values: a prior that is smooth over a few pixels."""
    one = 2 * np.eye(side) - np.eye(side, k=1) - np.eye(side, k=-1)
    result: Array = 0.25 * (np.kron(one, np.eye(side)) + np.kron(np.eye(side), one)) + 0.25 * np.eye(side * side)
    return result


def _nonnegative(matrix: Array, right: Array, start: Array | None = None) -> Array:
    """`min 1/2 k^T M k - r^T k` over `k >= 0`, `sum k = 1`, by block principal pivoting (Judice and Pires)."""
    from scipy.linalg import cho_factor, cho_solve  # slow to import

    weight = 10 * float(np.diag(matrix).max())
    matrix = matrix + weight
    right = right + weight
    free = np.ones(len(right), bool) if start is None else start.copy()
    fewest, patience = len(right) + 1, 5
    values = np.zeros(len(right))
    for _ in range(SWAPS):
        values = np.zeros(len(right))
        values[free] = cho_solve(
            cho_factor(matrix[np.ix_(free, free)], overwrite_a=True, check_finite=False), right[free]
        )
        slope = matrix[:, free] @ values[free] - right
        wrong = np.where(free, values < 0, slope < -1e-9 * weight)
        count = int(wrong.sum())
        if not count:
            break
        if count < fewest:
            fewest, patience = count, 5
        elif patience:
            patience -= 1
        else:  # one at a time cannot cycle
            last = int(np.flatnonzero(wrong)[-1])
            wrong = np.zeros(len(right), bool)
            wrong[last] = True
        free = free ^ wrong
    values = values.clip(0)
    return values / values.sum()
