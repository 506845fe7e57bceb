"""Inner products of pictures, one per picture or one per channel, without copies of the pictures in float64.

Each line is summed in the dtype of the pictures, and the sums of the lines in float64. For float32 pictures this is as
good as float64 throughout.
"""

from __future__ import annotations

import torch
from torch import Tensor


def squared(a: Tensor) -> Tensor:
    """`||a||^2` of each picture, (B,)."""
    return squares(a, by_channel=False).squeeze(1)


def products(a: Tensor, b: Tensor, by_channel: bool) -> Tensor:
    """`<a, b>` of each picture, (B, 1), or of each channel, (B, C)."""
    return _total((a * b).sum(-1), by_channel)


def squares(a: Tensor, by_channel: bool) -> Tensor:
    """`||a||^2`, (B, 1) or (B, C). The norm reads `a` once; a product would be written and read again."""
    return _total(torch.linalg.vector_norm(a, dim=-1).square(), by_channel)


def _total(lines: Tensor, by_channel: bool) -> Tensor:
    return lines.flatten(2 if by_channel else 1).sum(-1, dtype=torch.float64).view(len(lines), -1)
