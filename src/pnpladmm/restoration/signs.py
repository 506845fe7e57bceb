"""What a restored picture shows of its own quality, measured without the truth.

A PSF or a noise level that does not fit leaves a residual as small as a right one does, because a sharp picture with
ringing explains any blurred one. The ringing shows in the picture itself.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from pnpladmm.solvers import Problem

WINDOW = 9
"""Detail is what differs from the mean over a window of this side, in pixels."""
LARGEST, BAND = 1 << 22, 64
"""Of pictures with more pixels, bands of so many rows are looked at, with about so many pixels together."""


@dataclass(frozen=True)
class Signs:
    """Of each picture of a batch, (B,), float64, root mean squares in the units of the picture."""

    level: Tensor
    """The noise level of the restoration."""
    residual: Tensor
    """`y - Hx`."""
    below: Tensor
    """How far pixels lie below the darkest of the observation."""
    above: Tensor
    """How far pixels lie above the brightest of the observation."""
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
    low = torch.where(counts, y, torch.inf).amin((1, 2, 3), keepdim=True)
    high = torch.where(counts, y, -torch.inf).amax((1, 2, 3), keepdim=True)
    if ends is not None:
        low, high = torch.full_like(low, ends[0]), torch.full_like(high, ends[1])
    bends, inner = _laplacian(x), counts[..., 1:-1, 1:-1]
    return Signs(
        level=level.double(),
        residual=_rms(y - mean, counts),
        below=_rms((low - x).clamp_min(0), counts),
        above=_rms((x - high).clamp_min(0), counts),
        detail=_rms(_detail(x), counts),
        detail_before=_rms(_detail(y), counts),
        curvature=_mean(bends.abs(), inner),
        curvature_before=_mean(_laplacian(y).abs(), inner),
        peaked=_mean(bends**4, inner) / _mean(bends**2, inner).square().clamp_min(torch.finfo(torch.float64).tiny),
    )


def detail_of(problem: Problem) -> Tensor:
    """The detail of each observation, noise included, (B,), float64."""
    y, precision = problem.observed, problem.data_term.precision_of(problem.observed)
    counts = torch.ones_like(y) if precision is None else (precision > 0).expand_as(y)
    return detail_in(_bands(y), _bands(counts) > 0)


def detail_in(y: Tensor, counts: Tensor) -> Tensor:
    """The detail in planes (B, n, h, w), where `counts`."""
    return _rms(_detail(y), counts)


def _bands(x: Tensor) -> Tensor:
    """The picture in float64; of a large one some bands of rows, evenly spaced, side by side as channels."""
    height, width = x.shape[-2:]
    count = LARGEST // (BAND * width)
    if height * width <= LARGEST or count < 1:
        return x[..., : max(3, LARGEST // width), :].double()
    starts = [round(i * (height - BAND) / max(1, count - 1)) for i in range(count)]
    return torch.cat([x[..., start : start + BAND, :] for start in starts], 1).double()


def _detail(x: Tensor) -> Tensor:
    return x - avg_pool2d(x, WINDOW, 1, WINDOW // 2, count_include_pad=False)


def _laplacian(x: Tensor) -> Tensor:
    return 4 * x[..., 1:-1, 1:-1] - x[..., :-2, 1:-1] - x[..., 2:, 1:-1] - x[..., 1:-1, :-2] - x[..., 1:-1, 2:]


def _mean(values: Tensor, counts: Tensor) -> Tensor:
    return (values * counts).flatten(1).sum(1) / counts.flatten(1).sum(1).clamp_min(1)


def _rms(values: Tensor, counts: Tensor) -> Tensor:
    return _mean(values.square(), counts).sqrt()
