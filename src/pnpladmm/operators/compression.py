r"""Fewer kernels for the same blur, to a stated error.

The kernel at pixel `r` is `k_r = sum_i u_i(r) k_i`: the field of all kernels is the matrix `F = W^T K`, `W` (P, N) the
weights and `K` (P, k^2) the kernels. A truncated singular value decomposition of `F` is the best blur of R kernels,
orthogonal to each other and signed. It is computed from the two Gram matrices `W W^T` and `K K^T`, P by P, so that the
sizes of picture and kernel matter little.

Errors are `sqrt(E||(H - H_R) x||^2 / E||H x||^2)`, exact except at the border, for two kinds of random pictures `x`:
white noise (then it is the relative Frobenius norm of the difference), and pictures with the spectrum of photographs,
`1/f^2` about their mean. The decomposition minimises the sum of the two squares.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pnpladmm.operators.fft import fast_size

MEAN_POWER = 3.0
"""Squared mean of a typical photograph in [0, 1], divided by its variance."""
ROUNDING = 1e-13
"""Eigenvalues of a Gram matrix below this share of the largest are rounding errors."""


@dataclass(frozen=True)
class Compression:
    """The errors of a compressed blur; those of the worst picture of a batch."""

    before: int
    """Number of kernels before."""
    after: int
    """Number of kernels after."""
    white_error: float
    """Relative error on white noise, root of the mean square."""
    photo_error: float
    """Relative error on pictures with the spectrum of photographs."""


@dataclass(frozen=True)
class Compressed:
    """Kernels (b, R, c, kh, kw) and weights (b, R, 1, H, W), float64, with their errors."""

    kernels: Tensor
    weights: Tensor
    compression: Compression


def compress(kernels: Tensor, weights: Tensor, tolerance: float) -> Compressed:
    """The smallest number of kernels with both errors at most `tolerance` in every picture."""
    kernels, weights = kernels.double(), weights.double()
    pieces = [_decompose(k, w) for k, w in zip(kernels, weights, strict=True)]
    rank = max(piece.rank(tolerance) for piece in pieces)
    errors = torch.stack([piece.errors[:, rank] for piece in pieces]).amax(0).tolist()
    return Compressed(
        torch.stack([piece.to_kernels[:rank] @ k.flatten(1) for piece, k in zip(pieces, kernels, strict=True)]).view(
            len(kernels), rank, *kernels.shape[2:]
        ),
        torch.stack([piece.to_weights[:rank] @ w.flatten(1) for piece, w in zip(pieces, weights, strict=True)]).view(
            len(weights), rank, *weights.shape[2:]
        ),
        Compression(kernels.shape[1], rank, *errors),
    )


@dataclass(frozen=True)
class _Decomposition:
    """How to make the kernels and weights of every rank, and their errors."""

    to_kernels: Tensor  # (P, P): rows make the new kernels from the old ones
    to_weights: Tensor  # (P, P): rows make the new weights from the old ones
    errors: Tensor  # (2, P + 1): white and photo error of each rank

    def rank(self, tolerance: float) -> int:
        """The smallest rank that is accurate enough, at least 1."""
        return max(1, int((self.errors > tolerance).any(0).sum()))


def _decompose(kernels: Tensor, weights: Tensor) -> _Decomposition:
    """Compress the blur of one picture: kernels (P, c, kh, kw), weights (P, 1, H, W)."""
    flat = weights.flatten(1)
    root, inverse = _roots(flat @ flat.mT)
    grams = _kernel_grams(kernels)
    total = torch.stack([(root @ g @ root).trace() for g in grams])
    both = sum(g / t for g, t in zip(grams, total, strict=True))
    values, vectors = torch.linalg.eigh(root @ both @ root)
    vectors = vectors[:, values.argsort(descending=True)]
    # What is left of each norm after each rank: the components are orthogonal in the weights.
    parts = torch.stack([(vectors.mT @ root @ g @ root @ vectors).diagonal() for g in grams]) / total[:, None]
    left = torch.cat([parts, torch.zeros_like(parts[:, :1])], 1).flip(1).cumsum(1).flip(1)
    return _Decomposition(vectors.mT @ root, vectors.mT @ inverse, left.clamp_min(0).sqrt())


def _kernel_grams(kernels: Tensor) -> tuple[Tensor, Tensor]:
    """Inner products of the kernels, (P, P): plain, and of what they make of pictures like photographs."""
    flat = kernels.flatten(1)
    size = fast_size((2 * kernels.shape[-2], 2 * kernels.shape[-1]))
    spectra = torch.fft.fft2(kernels, size).flatten(2)
    rows, columns = (torch.fft.fftfreq(n, dtype=torch.float64, device=kernels.device) for n in size)
    power = 1 / (rows[:, None].square() + columns.square())
    power[0, 0] = 0
    power = power / power.sum()
    power[0, 0] = MEAN_POWER
    seen = (spectra * power.flatten().sqrt()).flatten(1)
    return flat @ flat.mT, (seen @ seen.mH).real


def _roots(gram: Tensor) -> tuple[Tensor, Tensor]:
    """The symmetric root of a Gram matrix and its pseudo-inverse."""
    values, vectors = torch.linalg.eigh(gram)
    good = values > ROUNDING * values.amax()
    root = torch.where(good, values.clamp_min(0).sqrt(), 0.0)
    inverse = torch.where(good, 1 / values.clamp_min(torch.finfo(torch.float64).tiny).sqrt(), 0.0)
    return (vectors * root) @ vectors.mT, (vectors * inverse) @ vectors.mT
