"""The largest eigenvalue of a symmetric operator, for each picture of a batch, from a few products with it.

After k products with `H` from a start `q` one knows `H` on the Krylov space span{q, Hq, ..., H^(k-1) q}. Power
iteration on `H + c` returns one vector of that space; the Rayleigh-Ritz method returns the best one,

    max  <u, Hu> / <u, u>   over the whole space,

so it is at least as large as what k power iterations with any shift c give, needs no shift, and is not misled by
eigenvalues far below 0. Like every Rayleigh quotient it is a bound from below of the largest eigenvalue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pnpladmm.tensors import dot, per_picture, squared_norm

FAILED = 1e300
"""The value where products were not finite: larger than any limit it may be held against."""


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

    `fresh` is mixed into the second direction. A start that is an eigenvector already (of the last iterate, say) spans
    a Krylov space of its own only, in which no larger eigenvalue could ever be found.
    """
    basis: list[Tensor] = []
    images: list[Tensor] = []
    direction = _unit(start)
    for step in range(products):
        basis.append(direction)
        images.append(product(direction))
        if step + 1 < products:
            following = images[-1]
            if step == 0 and fresh is not None:
                following = _unit(_orthogonal(following, basis)) + _unit(fresh)
            direction = _unit(_orthogonal(following, basis))
    zero = torch.zeros(len(start), dtype=torch.float64, device=start.device)
    rows = [[dot(q, image) if i <= j else zero for j, image in enumerate(images)] for i, q in enumerate(basis)]
    upper = torch.stack([torch.stack(row, 1) for row in rows], 1)
    projected = upper + upper.triu(1).mT
    finite = torch.isfinite(projected).all(2).all(1)
    projected = torch.where(finite[:, None, None], projected, torch.zeros_like(projected))
    # A direction of 0 (the space is exhausted) must not look like an eigenvalue of 0.
    spent = torch.stack([squared_norm(q) for q in basis], 1) < 0.5
    projected = projected + torch.diag_embed(torch.where(spent, projected[:, :1, 0], torch.zeros_like(projected[:, 0])))
    weights = _top_vector(projected)
    value = (weights * (projected @ weights[:, :, None])[:, :, 0]).sum(1)
    vector = _combine(weights, basis)
    residual = squared_norm(_combine(weights, images) - per_picture(value, start) * vector).sqrt()
    finite &= torch.isfinite(value + residual)
    failed = torch.full_like(value, FAILED)
    return Ritz(
        torch.where(finite, value, failed),
        torch.where(finite.view(-1, 1, 1, 1), vector, basis[0]),
        torch.where(finite, residual, failed),
    )


def _top_vector(matrices: Tensor) -> Tensor:
    """The eigenvector of the largest eigenvalue of small symmetric matrices (B, k, k): (B, k).

    Shifted to be positive and squared 20 times, a matrix is the projection on that vector (or on those whose
    eigenvalues agree to six digits). Unlike a solver's, these steps need no word from the GPU.
    """
    shift = 2 * matrices.abs().sum(2).amax(1)
    shift = torch.where(shift > 0, shift, torch.ones_like(shift))
    power = matrices + torch.diag_embed(shift[:, None].expand(matrices.shape[:2]))
    for _ in range(20):
        power = power / power.abs().amax((1, 2), keepdim=True)
        power = power @ power
    largest = power.diagonal(dim1=1, dim2=2).argmax(1)
    column = power.gather(2, largest[:, None, None].expand(-1, power.shape[1], 1))[:, :, 0]
    return column / column.norm(dim=1, keepdim=True)


def _orthogonal(x: Tensor, basis: list[Tensor]) -> Tensor:
    """`x` without its parts along the basis, taken twice against rounding; 0 where nothing but rounding is left."""
    size = squared_norm(x)
    for _ in range(2):
        for q in basis:
            x = x - dot(q, x).to(x.dtype).view(-1, 1, 1, 1) * q
    left = squared_norm(x) > (100 * torch.finfo(x.dtype).eps) ** 2 * size
    return x * left.to(x.dtype).view(-1, 1, 1, 1)


def _unit(x: Tensor) -> Tensor:
    norm = squared_norm(x).sqrt().clamp_min(torch.finfo(torch.float32).tiny)
    return x / norm.to(x.dtype).view(-1, 1, 1, 1)


def _combine(weights: Tensor, vectors: list[Tensor]) -> Tensor:
    total = torch.zeros_like(vectors[0])
    for column, vector in enumerate(vectors):
        total = total + weights[:, column].to(vector.dtype).view(-1, 1, 1, 1) * vector
    return total
