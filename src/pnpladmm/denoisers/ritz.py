"""The largest eigenvalue of a symmetric operator, for each picture of a batch, from a few products with it.

After k products with `H` from a start `q`, `H` is known on the Krylov space span{q, Hq, ..., H^(k-1) q}. Power
iteration on `H + c` returns one vector of that space; the Rayleigh-Ritz method returns the best one,

    max  <u, Hu> / <u, u>   over the whole space.

The result is at least as large as that of k power iterations with any shift c. It needs no shift, and eigenvalues far
below 0 do not mislead it. Like every Rayleigh quotient it is a lower bound of the largest eigenvalue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pnpladmm.tensors import dot, squared_norm

ALIGNMENT = 4
"""Vectors are padded to a multiple of this many samples. On an H200 the work between products took next to no time for
pictures of 3 x 384 x 384, but two thirds of the time for 3 x 321 x 481, an odd number of samples."""
NOT_FINITE = 1e300
"""The value where products were not finite: larger than any limit that it is compared with."""
SAME_DIRECTION = 100
"""What orthogonalisation leaves is rounding, and dropped, up to this many times the rounding error of the vector."""
SQUARINGS = 20
"""After these the eigenvectors of a small matrix whose eigenvalues agree to six digits are not told apart."""


@dataclass(frozen=True)
class Ritz:
    """The largest Ritz value of each picture, and how good it is."""

    value: Tensor
    """(B,), float64."""
    vector: Tensor
    """(B, C, H, W), of norm 1."""
    residual: Tensor
    """`||Hu - value u||`, (B,), float64: an eigenvalue lies within this of the value."""


def largest_eigenvalue(
    product: Callable[[Tensor], Tensor], start: Tensor, products: int, fresh: Tensor | None = None
) -> Ritz:
    """The best Rayleigh quotient from `products` products, each of a batch (B, C, H, W).

    `fresh` is mixed into the second direction. Without it, a start that is an eigenvector already (that of the last
    iterate, for example) spans a Krylov space of one dimension, in which no larger eigenvalue can be found.
    """
    # The vectors of a picture are one matrix, so that a projection is two products with it.
    size = start[0].numel()
    direction = _unit(_flat(start))
    basis, images = (direction.new_empty(len(start), products, direction.shape[1]) for _ in range(2))
    for step in range(products):
        basis[:, step] = direction
        images[:, step] = _flat(product(direction[:, :size].view(start.shape)))
        if step + 1 < products:
            known, following = basis[:, : step + 1], images[:, step]
            if step == 0 and fresh is not None:
                following = _unit(_orthogonal(following, known)) + _unit(_flat(fresh))
            direction = _unit(_orthogonal(following, known))
    projected = (basis @ images.mT).double()
    projected = (projected + projected.mT) / 2
    finite = torch.isfinite(projected).all(2).all(1)
    projected = torch.where(finite[:, None, None], projected, torch.zeros_like(projected))
    # A direction of 0 (the space is exhausted) must not look like an eigenvalue of 0. Other directions have norm 1.
    spent = torch.linalg.vector_norm(basis, dim=2) < 0.7
    projected = projected + torch.diag_embed(torch.where(spent, projected[:, :1, 0], torch.zeros_like(projected[:, 0])))
    mixture = _top_vector(projected)[:, None].to(basis.dtype)
    vector, image = (mixture @ basis)[:, 0], (mixture @ images)[:, 0]
    # Not from the matrix: its entries are float32 sums over long vectors, and were up to 8e-4 too small.
    value = dot(vector, image) / squared_norm(vector).clamp_min(torch.finfo(torch.float64).tiny)
    residual = squared_norm(image.double() - value[:, None] * vector.double()).sqrt()
    finite &= torch.isfinite(value + residual)
    failed = torch.full_like(value, NOT_FINITE)
    return Ritz(
        torch.where(finite, value, failed),
        torch.where(finite[:, None], vector, basis[:, 0])[:, :size].view(start.shape),
        torch.where(finite, residual, failed),
    )


def _top_vector(matrices: Tensor) -> Tensor:
    """The eigenvector of the largest eigenvalue of small symmetric matrices (B, k, k): (B, k).

    Shifted to be positive and squared 20 times, a matrix is the projection on that vector (or on those whose
    eigenvalues agree to six digits). Unlike those of an eigenvalue solver, these steps do not wait for the GPU.
    """
    shift = 2 * matrices.abs().sum(2).amax(1)
    shift = torch.where(shift > 0, shift, torch.ones_like(shift))
    power = matrices + torch.diag_embed(shift[:, None].expand(matrices.shape[:2]))
    for _ in range(SQUARINGS):
        power = power / power.abs().amax((1, 2), keepdim=True)
        power = power @ power
    largest = power.diagonal(dim1=1, dim2=2).argmax(1)
    column = power.gather(2, largest[:, None, None].expand(-1, power.shape[1], 1))[:, :, 0]
    return column / column.norm(dim=1, keepdim=True)


def _flat(x: Tensor) -> Tensor:
    """Pictures as vectors (B, n), padded with 0."""
    return functional.pad(x.flatten(1), (0, -x[0].numel() % ALIGNMENT))


def _orthogonal(x: Tensor, basis: Tensor) -> Tensor:
    """`x` (B, n) minus its parts along the basis (B, k, n), subtracted twice; 0 where only rounding is left."""
    size = squared_norm(x)
    for _ in range(2):
        x = x - (basis.mT @ (basis @ x[:, :, None]))[:, :, 0]
    left = squared_norm(x) > (SAME_DIRECTION * torch.finfo(x.dtype).eps) ** 2 * size
    return x * left.to(x.dtype)[:, None]


def _unit(x: Tensor) -> Tensor:
    """`x` (B, n) divided by its norm; 0 stays 0."""
    norm = squared_norm(x).sqrt().clamp_min(torch.finfo(torch.float32).tiny)
    return x / norm.to(x.dtype)[:, None]
