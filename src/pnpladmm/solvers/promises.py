"""Does a denoiser keep its promise? Tried on a few small pictures; a breach is certain, a pass proves nothing.

If `x_i = D(v_i)` with `D = prox_phi`, then `v` lies in the subdifferential of a convex function at `x`, so for every
cycle of points (Rockafellar)

    sum_i <x_i, v_i - v_{i+1}> >= 0,      and for convex phi also      sum_i <v_i - x_i, x_i - x_{i+1}> >= 0.

For cycles of two points the first says that `D` is monotone, the second that it is firmly non-expansive.
"""

from __future__ import annotations

from itertools import permutations

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Denoiser, Promise, call_denoiser
from pnpladmm.tensors import InputError, PerPicture, per_picture, squared_norm

SIDE = 16
"""Rows and columns of the pictures on which it is tried, cut out of the last picture that the denoiser got."""
SLACK = 1e-2
"""How far a sum may be below 0, relative to the lengths of its factors: classical denoisers stop at an accuracy."""
FLOOR = 0.05
"""Distances of results below this share of what the denoiser changed in a picture count as this share: where strong
denoising leaves nearly nothing, the rest is the accuracy of its solver, or rounding, and says nothing."""
REPEATABLE = 1e-3
"""How far two calls with the same picture may be apart, relative to what the denoiser changed."""
NEAR = 0.05
"""Noise of a second group of pictures, relative to the picture: with a `sigma_d` far from it the first says little."""
FAR = 1e3
"""How much brighter the pictures are that show whether the prior is bounded below."""
GROWS = 1.01
"""A proximal operator of a prior that is bounded below does not make pictures so much brighter, however bright."""
SEED = 0


def broken_promise(denoiser: Denoiser, promise: Promise, v: Tensor, sigma: PerPicture) -> tuple[str, ...]:
    """For each picture of `v` what contradicts the promise of a proximal operator; empty strings where nothing does."""
    kept = ("",) * len(v)
    if promise not in (Promise.PROX, Promise.CONVEX):
        return kept
    top, left = (max(0, (n - SIDE) // 2) for n in v.shape[-2:])
    crop = v[..., top : top + SIDE, left : left + SIDE].contiguous()
    groups = [_points(crop, sigma), _points(crop, NEAR * squared_norm(crop).div(crop[0].numel()).sqrt())]
    far = [FAR * crop, FAR * (groups[1][2] - crop)]
    try:
        made = [[call_denoiser(denoiser, point.clone(), sigma) for point in points] for points in (*groups, far)]
        again = call_denoiser(denoiser, crop.clone(), sigma)
    except InputError:
        raise
    except Exception:  # whatever a denoiser for one size of pictures raises; it is no breach of its promise
        return kept

    def of(parts: list[Tensor], i: int) -> Tensor:
        return torch.stack([part[i].flatten() for part in parts]).double()

    found = []
    for i in range(len(v)):
        breaches = [
            _breach(of(points, i), of(x, i), of([again], i)[0], promise)
            for points, x in zip(groups, made[:2], strict=True)
        ]
        found.append(next((words for words in (*breaches, _growth(of(far, i), of(made[-1], i))) if words), ""))
    return tuple(found)


def _points(v: Tensor, level: PerPicture) -> list[Tensor]:
    """The picture, a darker one, two noisy ones and a mirrored one."""
    noise = torch.randn(v.shape, generator=torch.Generator().manual_seed(SEED), dtype=v.dtype).to(v.device)
    noise = per_picture(level, v) * noise
    return [v, 0.8 * v, v + noise, v - 2 * noise.roll(1, -1), v.flip(-1)]


def _breach(V: Tensor, X: Tensor, again: Tensor, promise: Promise) -> str:
    """What the results `X` of the points `V` contradict, one row each; `again` is the result of the first once more."""
    if not bool(torch.isfinite(X).all() and torch.isfinite(again).all()):
        return "the denoiser returned NaN or infinity"
    scale = float((X - V).norm()) + 1e-6 * float(V.norm())
    if float((again - X[0]).norm()) > REPEATABLE * scale:
        return "the denoiser returned different pictures for one picture: it keeps a state or draws random numbers"
    if (worst := _worst_cycle(X, V, V, X)) < -SLACK:
        return f"the denoiser is no proximal operator: it is not monotone along a cycle of pictures ({worst:.2g})"
    if promise is Promise.CONVEX and (worst := _worst_cycle(V - X, X, V, X)) < -SLACK:
        return f"the denoiser is no proximal operator of a convex prior: it does not contract ({worst:.2g})"
    return ""


def _growth(V: Tensor, X: Tensor) -> str:
    """Is the prior bounded below, as far as very bright pictures show?"""
    if not bool(torch.isfinite(X).all()):
        return "the denoiser returned NaN or infinity"
    factor = float((X.norm(dim=1) / V.norm(dim=1).clamp_min(torch.finfo(torch.float64).tiny)).max())
    if factor > GROWS:
        return f"the denoiser makes pictures {factor:.3g} times as bright, however bright: its prior has no least value"
    return ""


def _worst_cycle(P: Tensor, Q: Tensor, V: Tensor, X: Tensor) -> float:
    """The least `sum_i <p_i, q_i - q_{i+1}>` over cycles of two and three points, over `sum ||dv|| ||dx||` along it."""
    products = (P @ Q.T).tolist()
    floor = FLOOR * float((V - X).norm()) / len(V) ** 0.5
    lengths = (torch.cdist(V, V) * torch.cdist(X, X).clamp_min(floor)).tolist()
    worst = 0.0
    for count in (2, 3):
        for cycle in permutations(range(len(P)), count):
            if cycle[0] != min(cycle):  # the same cycle, begun elsewhere
                continue
            pairs = list(zip(cycle, (*cycle[1:], cycle[0]), strict=True))
            length = sum(lengths[i][j] for i, j in pairs)
            if length > 0:
                worst = min(worst, sum(products[i][i] - products[i][j] for i, j in pairs) / length)
    return worst
