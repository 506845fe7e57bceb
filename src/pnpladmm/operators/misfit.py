"""Where the filters of a preconditioner fit worst: the places where a kernel is much sharper than the mean one.

The filters of `preconditioner.py` know the mean power `S_q(f)` of a region. Where the kernel `k_r` passes a frequency
that the others remove, `M^-1 H^T H` has an eigenvalue of about

    max_f |k_r(f)|^2 sum_q v_q(r) / (S_q(f) + FLOOR max S_q).

Solvers need their shortest steps for the largest of these. So a sample of a picture, from which steps are found, has to
have these places in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.fft import rfft2

from pnpladmm.operators.fft import fast_size
from pnpladmm.operators.preconditioner import FLOOR

EVEN = 1.05
"""Where the largest eigenvalue is less than this times the smallest, no place differs from the others."""

Point = tuple[float, float]
"""Row and column as shares of height and width."""


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


def worst_places(eigenvalues: Tensor) -> Sequence[Point]:
    """Of eigenvalues on a grid (h, w) that begins and ends with the picture: the worst place, and that of the border.

    At a border few pixels see the scene, and errors grow most easily. None where all places are alike.
    """
    if float(eigenvalues.amax()) < EVEN * float(eigenvalues.amin()):
        return []
    inner = torch.zeros_like(eigenvalues, dtype=torch.bool)
    inner[1:-1, 1:-1] = True
    found = [int(values.argmax()) for values in (eigenvalues, eigenvalues.masked_fill(inner, 0))]
    height, width = (max(n - 1, 1) for n in eigenvalues.shape)
    return [(at // eigenvalues.shape[1] / height, at % eigenvalues.shape[1] / width) for at in dict.fromkeys(found)]
