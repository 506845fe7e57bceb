"""The regions that a preconditioner divides a picture into, and how kernels mix in each of them.

The regions of a part of a picture are those of the whole picture, if it is told which these are (`Division`). Parts
that are solved by themselves then have the filters of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpladmm.operators.fft import Size

# More regions than this cost more time than they save.
MOST_REGIONS = 16
# A region leaves pixels of which it has less than this share to the others, so that its box is smaller.
LEAST_SHARE = 0.02
# The weights are segments if the largest weight of a pixel (of weights that sum to 1) is at least this on average.
# Where kernels mix more, no kernel stands for a region.
MIN_MEAN_LARGEST_WEIGHT = 0.5
# Pixels from which the means over tiles are computed.
SAMPLES = 1 << 14
TINY = torch.finfo(torch.float64).tiny

Span = tuple[int, int]


@dataclass(frozen=True)
class Division:
    """The regions of one picture, for it and for its parts."""

    tiles: int
    """Hat functions along each axis; 0 where the weights themselves are segments."""
    gram: Tensor
    """(Q, P, P): the mean of `u_i u_j` over each region."""
    rows: Span = (0, 1)
    columns: Span = (0, 1)
    """The part, in a picture of this `size`; hat functions depend on them."""
    size: Size = (1, 1)
    round_trip: bool = False
    """Does the picture go on at its other side?"""
    precision: Tensor | None = None
    """Of a part: the mean precision over each region of the whole, (B, Q, C) or (B, Q, 1), for its filters; None where
    its own pixels decide. So tiles with many saturated pixels have the same filters as those with few."""

    @classmethod
    def of(cls, weights: Tensor) -> Division:
        """The division of a picture by its weights (P, h, w), or by a sample of them on a regular grid."""
        weights = weights.double()
        total = weights.sum(0)
        used = weights.flatten(1).any(-1)
        if int(used.sum()) <= MOST_REGIONS and bool((weights >= 0).all()):
            v = _segments(weights, used)
            if float(v.amax(0).mean()) >= MIN_MEAN_LARGEST_WEIGHT:
                # Its own kernel stands for a region, not the mean of what mixes with it at the seams: measured.
                mean = (v * total.square()).sum((-2, -1)) / v.sum((-2, -1)).clamp_min(TINY)
                return cls(0, torch.diag_embed(torch.diag_embed(mean)))
        tiles = next((n for n in (4, 3) if 2 * n * n <= int(used.sum())), 1)
        h, w = weights.shape[-2:]
        v = _hat_functions(tiles, (0, h), (0, w), (h, w)).to(weights)
        step = max(1, math.isqrt(h * w // SAMPLES))
        sampled = weights[..., ::step, ::step].flatten(1)
        grams = []
        for share in v[..., ::step, ::step].flatten(1):
            share = share / share.sum().clamp_min(TINY)
            grams.append((share * sampled) @ sampled.mT)
        return cls(tiles, torch.stack(grams), (0, h), (0, w), (h, w))

    def part(self, rows: Span, columns: Span, size: Size, kernels: Tensor, round_trip: bool = False) -> Division:
        """The same for a part of a picture of this size that has only some of the kernels."""
        kernels = kernels.to(self.gram.device)
        gram, precision = self.gram[:, kernels][:, :, kernels], self.precision
        if not self.tiles:  # each kernel is a region
            gram = gram[kernels]
            precision = None if precision is None else precision[:, kernels.to(precision.device)]
        return Division(self.tiles, gram, rows, columns, size, round_trip, precision)

    def continued(self, maps: Tensor, kernel: Size) -> Tensor:
        """Maps (..., h, w) of the part's scene, where the part ends inside the picture continued from further inside.

        A kernel reaches beyond such an end: what was computed of the part alone is not that of the whole picture there.
        """
        widths = []
        for span, length, k, n in zip((self.rows, self.columns), self.size, kernel, maps.shape[-2:], strict=True):
            whole = span == (0, length)
            ends = [
                not whole and (self.round_trip or end != border) for end, border in zip(span, (0, length), strict=True)
            ]
            widths.append([min(k - 1, (n - 1) // 2) if end else 0 for end in ends])
        (top, bottom), (left, right) = widths
        inner = maps[..., top : maps.shape[-2] - bottom, left : maps.shape[-1] - right]
        return F.pad(inner, (left, right, top, bottom), mode="replicate")

    def regions(self, weights: Tensor) -> Tensor:
        """`v_q` (Q, h, w), of sum 1, on the weights (P, h, w) of the part."""
        if self.tiles:
            return _hat_functions(self.tiles, self.rows, self.columns, self.size).to(weights)
        return _segments(weights, self.gram.flatten(1).any(-1).to(weights.device))


def partition(weights: Tensor, known: tuple[Division, ...] | None = None) -> tuple[Tensor, Tensor]:
    """`v` (b, Q, 1, h, w) and the mean of `u_i u_j` over each region (b, Q, P, P), for weights (b, P, 1, h, w).

    Each picture is divided by itself, whatever its neighbours are; those with fewer regions get empty ones. Parts of
    pictures are divided as it is `known` of the whole ones.
    """
    weights = weights.squeeze(2)
    divisions = known or tuple(Division.of(one) for one in weights)
    parts = [(found.regions(one), found.gram) for found, one in zip(divisions, weights, strict=True)]
    most = max(len(v) for v, _ in parts)
    padded = [
        (F.pad(v, (0, 0, 0, 0, 0, most - len(v))), F.pad(gram.to(v), (0, 0, 0, 0, 0, most - len(gram))))
        for v, gram in parts
    ]
    return torch.stack([v for v, _ in padded]).unsqueeze(2), torch.stack([gram for _, gram in padded])


def precision_of(known: tuple[Division, ...] | None, regions: int) -> Tensor | None:
    """The precision that is known of whole pictures, for so many regions, (B, Q, C); None where none is."""
    given = [one.precision for one in known or () if one.precision is not None]
    padded = [F.pad(one, (0, 0, 0, regions - one.shape[1])) for one in given]
    return torch.cat(padded) if padded else None


def mean_precision(regions: Sequence[Tensor], precisions: Sequence[Tensor], shares: Sequence[Tensor]) -> Tensor:
    """The mean precision over each region, (B, Q, C), or (B, Q, 1) where all channels have the same.

    It is that of parts of a picture, each with its regions (Q, h, w), its precision (B, C, h, w) and what its pixels
    stand for, (h, w). Regions without any pixel get the mean over all of them. The result lies on the CPU.
    """
    alike = all(bool((p == p[:, :1]).all()) for p in precisions)
    sums, sizes = torch.zeros(()), torch.zeros(())
    for v, p, share in zip(regions, precisions, shares, strict=True):
        own = (v * share.to(v)).double().cpu()
        sums = sums + torch.einsum("qhw,bchw->bqc", own, (p[:, :1] if alike else p).double().cpu())
        sizes = sizes + own.sum((-2, -1))[:, None]
    overall = sums.sum(1, keepdim=True) / sizes.sum()
    return torch.where(sizes > 0, sums / sizes.clamp_min(TINY), overall)


def _segments(weights: Tensor, used: Tensor) -> Tensor:
    """The weights (P, h, w) as shares; where all are 0, the kernels that are `used` share the pixel."""
    total = weights.sum(0)
    v = weights / total.clamp_min(TINY)
    v = torch.where(v < LEAST_SHARE, 0.0, v)
    equal = used.to(v).view(-1, 1, 1) / used.sum().clamp_min(1)
    return torch.where(total > 0, v / v.sum(0).clamp_min(TINY), equal)


def _hat_functions(count: int, rows: Span, columns: Span, size: Size) -> Tensor:
    """`count` squared products of hat functions on a part of a picture, of sum 1."""
    down, across = (_hats(count, span, length) for span, length in zip((rows, columns), size, strict=True))
    return (down[:, None, :, None] * across[None, :, None, :]).flatten(0, 1)


def _hats(count: int, span: Span, length: int) -> Tensor:
    """`count` hat functions of an axis of this length, on the pixels of a span: (count, pixels)."""
    at = torch.arange(*span) % length  # where a picture goes round, a part may reach beyond its ends
    if count == 1:
        return torch.ones(1, len(at), dtype=torch.float64)
    position = torch.linspace(0, count - 1, length, dtype=torch.float64)[at]
    return (1 - (position - torch.arange(count).unsqueeze(1)).abs()).clamp_min(0)
