"""The kernel between the derivatives of a sharp picture and those of the blurred one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.fft import rfft2

from pnpladmm.estimate.blind_canvas import Canvas

STEPS = 15
"""Of conjugate gradient."""
ROUNDS = 2
SMALLEST = 0.05
"""Of the largest value: below it, a value of the kernel is noise."""
APART = 0.1
"""Of the light: a part of the kernel that touches no other and has less than this is noise."""


def fit_kernel(canvas: Canvas, slopes: tuple[Tensor, Tensor], start: Tensor, ridge: float) -> Tensor:
    """The kernel (k, k) by least squares on derivatives, as in Cho and Lee, "Fast motion deblurring", 2009:

        min_k sum_d ||M (u_d * k - D_d y)||^2 + ridge ||k||^2,   k >= 0, sum k = 1, in few connected parts.

    `u_d` are the derivatives of the sharp picture, `M` is `canvas.fitted`. Conjugate gradient from `start`, then what
    is negative, small or apart is taken away, then conjugate gradient again on what is left and its neighbours.
    """
    side = start.shape[0]
    spectra = [rfft2(u) for u in slopes]
    right = sum(a.conj() * rfft2(canvas.fitted * d) for a, d in zip(spectra, canvas.slopes, strict=True))
    target = canvas.cut(canvas.back(right), side)

    def normal(k: Tensor) -> Tensor:
        transfer = canvas.transfer(k)
        total = sum(a.conj() * rfft2(canvas.fitted * canvas.back(a * transfer)) for a in spectra)
        return canvas.cut(canvas.back(total), side) + ridge * k

    kernel, support = start, torch.ones_like(start)
    for _ in range(ROUNDS):
        kernel = cleaned(_conjugate_gradient(normal, target, kernel, support))
        support = torch.nn.functional.max_pool2d((kernel > 0).float()[None], 3, 1, 1)[0]
    return centred(kernel)


def _conjugate_gradient(normal: Callable[[Tensor], Tensor], target: Tensor, start: Tensor, support: Tensor) -> Tensor:
    """`STEPS` of conjugate gradient for `normal(k) = target` with `k` zero outside `support`."""
    k = start * support
    r = (target - normal(k)) * support
    p, power, first = r, (r * r).sum(), (target * target).sum()
    for _ in range(STEPS):
        if power <= 1e-6 * first:
            break
        q = normal(p) * support
        step = power / (p * q).sum()
        k, r = k + step * p, r - step * q
        power, last = (r * r).sum(), power
        p = r + power / last * p
    return k


def cleaned(kernel: Tensor, smallest: float = SMALLEST, apart: float = APART) -> Tensor:
    """Without negative and small values and small parts, of sum one. A kernel without any light becomes a point."""
    from scipy.ndimage import label, sum_labels

    k = kernel.clamp_min(0)
    k = k * (k >= smallest * k.max())
    if not bool(k.sum() > 0) or not bool(torch.isfinite(k).all()):
        return point(kernel.shape[0]).to(kernel.device)
    values = k.cpu().numpy()
    parts, count = label(values > 0, structure=np.ones((3, 3)))
    light = np.asarray(sum_labels(values, parts, np.arange(1, count + 1))) / float(k.sum())
    weak = [i + 1 for i, share in enumerate(light) if share < apart and share < light.max()]
    k = k * torch.from_numpy(~np.isin(parts, weak)).to(k.device)
    return k / k.sum()


def centred(kernel: Tensor) -> Tensor:
    """The kernel moved by whole pixels so that its centroid is nearest to `k // 2`; no light leaves it."""
    side = kernel.shape[0]
    at = torch.arange(side, dtype=kernel.dtype, device=kernel.device) - side // 2
    moves = []
    for axis in (0, 1):
        light = kernel.sum(1 - axis)
        used = light.nonzero()
        shift = -round(float((light * at).sum() / light.sum()))
        moves.append(max(-int(used.min()), min(side - 1 - int(used.max()), shift)))
    return kernel.roll(moves, (0, 1))


def point(side: int) -> Tensor:
    """No blur."""
    kernel = torch.zeros(side, side)
    kernel[side // 2, side // 2] = 1
    return kernel
