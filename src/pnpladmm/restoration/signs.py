"""What a restored picture shows of its own quality, measured without the truth.

A PSF or a noise level that does not fit leaves a residual as small as a right one does, because a sharp picture with
ringing explains any blurred one. The ringing shows in the picture itself.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, max_pool2d

from pnpladmm.solvers import Problem

WINDOW = 9
"""Detail is what differs from the mean over a window of this side, in pixels."""
NEAR = 19
"""Side of the window in which the range of the observation is the range nearby, in pixels."""
OUTLIER = 5.0
"""Residuals count up to so many times the noise level: a few pixels are not to decide."""
LARGEST, BAND = 1 << 22, 64
"""Of pictures with more pixels, bands of so many rows are looked at, with about so many pixels together."""


@dataclass(frozen=True)
class Signs:
    """Of each picture of a batch, (B,), float64, root mean squares in the units of the picture."""

    level: Tensor
    """The noise level of the restoration."""
    residual: Tensor
    """`y - Hx`, where single pixels count up to `OUTLIER` times the level."""
    below: Tensor
    """How far pixels lie below the darkest of the observation."""
    above: Tensor
    """How far pixels lie above the brightest of the observation."""
    beyond: Tensor
    """How far pixels lie beyond both ends of the range of the observation nearby: at the end where this is less."""
    moved: Tensor
    """The restored picture less the observation."""
    detail: Tensor
    """Detail of the restored picture."""
    detail_before: Tensor
    """Detail of the observation."""
    curvature: Tensor
    """The mean size of the discrete Laplacian of the restored picture."""
    curvature_before: Tensor
    """The same of the observation."""
    peaked: Tensor
    """The kurtosis of that Laplacian: large for few sharp edges, small for waves everywhere."""

    def of(self, picture: int) -> dict[str, float]:
        """The numbers of one picture."""
        return {f.name: float(getattr(self, f.name)[picture]) for f in fields(self)}


def signs_of(problem: Problem, image: Tensor, level: Tensor) -> Signs | None:
    """What `image`, on the problem's own domain, shows; None where there is no observation of the same size."""
    if problem.crop_to_observed(image).shape != problem.observed.shape or min(problem.observed.shape[-2:]) < 3:
        return None
    expected = problem.data_term.mean_and_precision(problem.operator.forward(image), problem.observed)
    if expected is None:
        return None
    y, x, mean = (_bands(v) for v in (problem.observed, problem.crop_to_observed(image), expected[0]))
    counts = _bands((expected[1] > 0).expand_as(problem.observed)) > 0
    return signs_in(y, x, mean, counts, level)


def signs_in(
    y: Tensor, x: Tensor, mean: Tensor, counts: Tensor, level: Tensor, ends: tuple[float, float] | None = None
) -> Signs:
    """The signs in observations, restored pictures and `Hx`, all (B, n, h, w), where `counts`.

    The n planes may be channels, and parts of a large picture; `ends` are then its darkest and its brightest pixel.
    """
    planes = [slice(i, i + 1) for i in range(y.shape[1])]
    if ends is None:
        lows = [torch.where(counts[:, i], y[:, i], torch.inf).amin((1, 2, 3), keepdim=True) for i in planes]
        highs = [torch.where(counts[:, i], y[:, i], -torch.inf).amax((1, 2, 3), keepdim=True) for i in planes]
        low, high = torch.stack(lows).amin(0).double(), torch.stack(highs).amax(0).double()
    else:
        low, high = (torch.full((len(y), 1, 1, 1), end, dtype=torch.float64, device=y.device) for end in ends)
    most = OUTLIER * level.double().view(-1, 1, 1, 1).to(y.device)
    # Plane by plane, in float64: all of them together would need gigabytes.
    sums = torch.stack(
        [
            _sums(y[:, i], x[:, i], (y[:, i].double() - mean[:, i]).clamp(-most, most), counts[:, i], low, high)
            for i in planes
        ]
    ).sum(0)
    number, inner = sums[:2].clamp_min(1)
    squares, bends = sums[2:10] / number, sums[10:] / inner
    residual, below, above, detail, detail_before, moved, under, over = squares.sqrt()
    curvature, curvature_before, square, fourth = bends
    return Signs(
        level=level.double(),
        residual=residual,
        below=below,
        above=above,
        beyond=torch.minimum(under, over),
        moved=moved,
        detail=detail,
        detail_before=detail_before,
        curvature=curvature,
        curvature_before=curvature_before,
        peaked=fourth / square.square().clamp_min(torch.finfo(torch.float64).tiny),
    )


def _sums(y: Tensor, x: Tensor, left: Tensor, counts: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """What the signs are made of, summed over one plane (B, 1, h, w): (14, B)."""
    y, x, left = y.double(), x.double(), left.double()
    bends, inner = _laplacian(x), counts[..., 1:-1, 1:-1]
    outside = ((low - x).clamp_min(0), (x - high).clamp_min(0))
    roots = (left, *outside, _detail(x), _detail(y), x - y, *_beyond(y, x, counts))
    values = [counts.double(), inner.double()]
    values += [root.square() * counts for root in roots]
    values += [value * inner for value in (bends.abs(), _laplacian(y).abs(), bends**2, bends**4)]
    return torch.stack([value.flatten(1).sum(1) for value in values])


def detail_of(problem: Problem) -> Tensor:
    """The detail of each observation, noise included, (B,), float64."""
    y, precision = problem.observed, problem.data_term.precision_of(problem.observed)
    counts = torch.ones_like(y) if precision is None else (precision > 0).expand_as(y)
    return detail_in(_bands(y), _bands(counts) > 0)


def detail_in(y: Tensor, counts: Tensor) -> Tensor:
    """The detail in planes (B, n, h, w), where `counts`."""
    planes = [slice(i, i + 1) for i in range(y.shape[1])]
    squares = [(_detail(y[:, i].double()).square() * counts[:, i]).flatten(1).sum(1) for i in planes]
    return (torch.stack(squares).sum(0) / counts.flatten(1).sum(1).clamp_min(1)).sqrt()


def _bands(x: Tensor) -> Tensor:
    """The picture; of a large one some bands of rows, evenly spaced, side by side as channels."""
    height, width = x.shape[-2:]
    count = LARGEST // (BAND * width)
    if height * width <= LARGEST or count < 1:
        return x[..., : max(3, LARGEST // width), :]
    starts = [round(i * (height - BAND) / max(1, count - 1)) for i in range(count)]
    return torch.cat([x[..., start : start + BAND, :] for start in starts], 1)


def _detail(x: Tensor) -> Tensor:
    return x - avg_pool2d(x, WINDOW, 1, WINDOW // 2, count_include_pad=False)


def _beyond(y: Tensor, x: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """How far pixels lie below and above what is observed within `NEAR` pixels."""
    low = -max_pool2d(torch.where(counts, -y, -torch.inf), NEAR, 1, NEAR // 2)
    high = max_pool2d(torch.where(counts, y, -torch.inf), NEAR, 1, NEAR // 2)
    return (low - x).clamp_min(0), (x - high).clamp_min(0)


def _laplacian(x: Tensor) -> Tensor:
    return 4 * x[..., 1:-1, 1:-1] - x[..., :-2, 1:-1] - x[..., 2:, 1:-1] - x[..., 1:-1, :-2] - x[..., 1:-1, 2:]
