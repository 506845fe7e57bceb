"""Where the filters of a preconditioner fit worst: the places where a kernel is much sharper than the mean one.

The filters of `preconditioner.py` know the mean power `S_q(f)` of a region. Where the kernel `k_r` passes a frequency
that the others remove, `M^-1 H^T H` has an eigenvalue of about

    max_f |k_r(f)|^2 sum_q v_q(r) / (S_q(f) + FLOOR max S_q).

Solvers need their shortest steps for the largest of these. So a sample of a picture, from which steps are found, has to
have these places in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fft import rfft2

from pnpladmm.operators.fft import Size, fast_size
from pnpladmm.operators.preconditioner import FLOOR

EVEN = 1.05
"""Where the largest eigenvalue is less than this times the smallest, no place differs from the others."""

ALIKE = 0.85
"""Places around the worst one with at least this share of its eigenvalue are as bad."""


@dataclass(frozen=True)
class Point:
    """A place in a picture, in shares of its height and width."""

    place: tuple[float, float]
    """Row and column."""
    extent: tuple[float, float]
    """Of the places that are like it, along the column and along the row."""

    def pixel(self, size: Size) -> tuple[int, int]:
        """Row and column in a picture (H, W)."""
        (row, column), (height, width) = self.place, size
        return min(int(row * height), height - 1), min(int(column * width), width - 1)


def misfit(kernels: Tensor, gram: Tensor, weights: Tensor, regions: Tensor) -> Tensor:
    """The eigenvalue at N places, (N,), of a blur with kernels (P, C, kh, kw) and a `Division` with `gram` (Q, P, P).

    `weights` are those of the kernels at each place, (N, P), `regions` the `v_q`, (N, Q).
    """
    kh, kw = kernels.shape[-2:]
    spectra = rfft2(kernels.double(), fast_size((2 * kh - 1, 2 * kw - 1))).flatten(1)
    mean = torch.stack([((g.to(spectra) @ spectra) * spectra.conj()).sum(0).real for g in gram]).clamp_min(0)
    filters = 1 / (mean + FLOOR * mean.amax(1, keepdim=True))
    power = (weights.to(spectra) @ spectra).abs().square()
    return (power * (regions.double() @ filters)).amax(1)


def worst_places(eigenvalues: Tensor) -> list[Point]:
    """Of eigenvalues on a grid (h, w) that begins and ends with the picture: the worst place, and that of the border.

    At a border few pixels see the scene, and errors grow most easily. None where all places are alike.
    """
    if float(eigenvalues.amax()) < EVEN * float(eigenvalues.amin()):
        return []
    inner = torch.zeros_like(eigenvalues, dtype=torch.bool)
    inner[1:-1, 1:-1] = True
    found = [int(values.argmax()) for values in (eigenvalues, eigenvalues.masked_fill(inner, 0))]
    points, (height, width) = [], eigenvalues.shape
    for row, column in dict.fromkeys(divmod(at, width) for at in found):
        alike = eigenvalues >= ALIKE * eigenvalues[row, column]
        extent = float(alike[:, column].double().mean()), float(alike[row].double().mean())
        points.append(Point((row / max(height - 1, 1), column / max(width - 1, 1)), extent))
    return points
