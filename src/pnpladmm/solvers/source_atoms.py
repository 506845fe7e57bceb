"""A picture as a sum of sources: points on half pixels, round spots of several sizes, and a smooth sky."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pnpladmm.operators import Shape

SPLINE = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)
"""The B3 spline. Its variance is the square of the step between its entries."""
SHARED_WIDTH = 0.125
"""The variance of `SHARED` in pixels squared."""
STEPS = (1, 1, 2, 2, 3, 4, 6)
"""Repeated with these steps it makes spots of sigma 1, 1.4, 2.4, 3.2, 4.4, 5.9 and 8.4 pixels. With half as many sizes,
as the starlet transform has, galaxies come out in steps."""
SIGMAS = tuple(math.sqrt(sum(step**2 for step in STEPS[: j + 1])) for j in range(len(STEPS)))
FAR = 3.5
"""Sigma of a Gaussian at which it ends."""
FITS = 6.9
"""A picture is at least so many times as long as sigma."""
BETWEEN = tuple(n / 256 for n in (3, 0, -25, 0, 150, 256, 150, 0, -25, 0, 3))
"""Interpolation of pixels halfway between them: what a point there looks like through a PSF known on pixels."""
NARROWER = 1 / 24
"""In pixels squared: a star between points is made of light on either side, half a pixel apart. That is wider by this
variance in the mean. So points are seen as much narrower, or the flux of such stars would come out too high."""
SEEN = tuple(np.convolve(BETWEEN, (-NARROWER / 2, 0, 1 + NARROWER, 0, -NARROWER / 2)).tolist())
"""What a point looks like."""
SHARED = (0.5, 1.0, 0.5)
"""How the light of a point between pixels is shared out in the picture: nothing is negative, its centre stays."""
SKY_MESH = 64
"""Pixels between the nodes of the sky."""


class SourceAtoms:
    """Coefficients (B, M) <-> pictures (B, C, H, W).

        x = R p + sum_j G_j s_j + S c

    with points `p` on a grid of half pixels, spots `s_j` of `sizes - 1` sizes on the pixels, and nodes `c` of a sky of
    cubic splines. All atoms of `R` and `G_j` have the sum 1. All entries are non-negative.

    Through a blur a point between two pixels is seen by interpolation (`SEEN`), which has negative entries. In
    the picture its light is shared by the pixels around it (`SHARED`). `width` (B,) is the variance that all points of
    a picture have, in pixels squared: 0 for stars.
    """

    def __init__(self, shape: Shape, like: Tensor, width: Tensor | None = None) -> None:
        b, c, h, w = shape
        self.width = torch.zeros(b, dtype=torch.float64) if width is None else width
        self.sizes = 1 + sum(FITS * sigma <= min(h, w) for sigma in SIGMAS)
        self.rows, self.columns = (_sky_basis(n).to(like) for n in (h, w))
        nodes = (self.rows.shape[1], self.columns.shape[1])
        self.shapes: list[Shape] = [(b, c, 2 * h - 1, 2 * w - 1), *((b, c, h, w),) * (self.sizes - 1), (b, c, *nodes)]
        self.counts = [math.prod(part[1:]) for part in self.shapes]
        self.peaks = [_peak(j) for j in range(self.sizes)]
        """The brightest pixel of a spot of light 1."""

    def parts(self, coefficients: Tensor) -> list[Tensor]:
        """Points, spots of each size, and nodes of the sky, as views."""
        split = torch.split(coefficients, self.counts, 1)
        return [part.reshape(shape) for part, shape in zip(split, self.shapes, strict=True)]

    def join(self, parts: list[Tensor]) -> Tensor:
        """The inverse of `parts`."""
        return torch.cat([part.reshape(len(part), -1) for part in parts], 1)

    def seen(self, coefficients: Tensor, bound: bool = False) -> Tensor:
        """The picture whose blur the coefficients predict; with `bound` that of the absolute values of the entries."""
        return self._sum(coefficients, _taps(bound), self.width)

    def seen_adjoint(self, x: Tensor, bound: bool = False) -> Tensor:
        """The adjoint of `seen`."""
        layers = self.spots(x)
        points = widened(_up(x, _taps(bound)), self.width)
        return self.join([points, *layers[1:], self.rows.T @ x @ self.columns])

    def shown(self, coefficients: Tensor) -> Tensor:
        """The picture, without negative light."""
        return self._sum(coefficients, SHARED, self.shown_width)

    @property
    def shown_width(self) -> Tensor:
        """The variance of points in the picture, beyond that of `SHARED`."""
        return (self.width - SHARED_WIDTH).clamp_min(0)

    def spots(self, x: Tensor) -> list[Tensor]:
        """`x` blurred with the spots of each size; the first is `x`."""
        layers = [x]
        for j in range(1, self.sizes):
            layers.append(_smooth(layers[-1], STEPS[j - 1]))
        return layers

    def sky(self, coefficients: Tensor) -> Tensor:
        """The sky alone."""
        return self.rows @ self.parts(coefficients)[-1] @ self.columns.T

    def on_points(self, values: Tensor) -> Tensor:
        """Values on pixels for the grid of half pixels: each from its nearest pixel."""
        return F.interpolate(values, size=self.shapes[0][2:], mode="nearest")

    def _sum(self, coefficients: Tensor, taps: tuple[float, ...], width: Tensor) -> Tensor:
        points, *spots, nodes = self.parts(coefficients)
        layers = [_down(widened(points, width), taps), *spots]
        x = layers[-1]
        for j in range(self.sizes - 1, 0, -1):
            x = _smooth(x, STEPS[j - 1]) + layers[j - 1]
        return x + self.rows @ nodes @ self.columns.T


def shared_points(points: Tensor) -> Tensor:
    """Points as they are shared out in the picture, without their width."""
    return _down(points, SHARED)


def widened(values: Tensor, width: Tensor, per_pixel: int = 2) -> Tensor:
    """Values blurred with Gaussians of the variances `width` (B,) in pixels squared, on a grid of so many per pixel."""
    if not bool((width > 0).any()):
        return values
    b, c = values.shape[:2]
    sigma = per_pixel * width.clamp_min(1e-6).sqrt().to(values).view(-1, 1)
    reach = math.ceil(FAR * float(sigma.max()))
    edges = (torch.arange(-reach, reach + 2, device=values.device) - 0.5) / sigma
    taps = torch.special.ndtr(edges.double()).diff(dim=1).to(values)
    taps = (taps / taps.sum(1, keepdim=True)).repeat_interleave(c, 0)
    flat = values.reshape(1, b * c, *values.shape[-2:])
    flat = F.conv2d(flat, taps[:, None, :, None], padding=(reach, 0), groups=b * c)
    return F.conv2d(flat, taps[:, None, None, :], padding=(0, reach), groups=b * c).reshape(values.shape)


def _taps(bound: bool) -> tuple[float, ...]:
    return tuple(abs(tap) for tap in SEEN) if bound else SEEN


@cache
def _sky_basis(n: int) -> Tensor:
    """Cubic B-splines over `n` pixels, (n, nodes): not negative, their sum is 1."""
    from scipy.interpolate import BSpline  # slow to import

    cells = max(1, math.ceil(n / SKY_MESH))
    knots = np.arange(-3, cells + 4) * (n / cells)
    return torch.from_numpy(BSpline.design_matrix(np.arange(n) + 0.5, knots, 3).toarray())


@cache
def _peak(size: int) -> float:
    """The brightest pixel of a spot, which is the outer product of a row with itself."""
    row = torch.zeros(1, 1, 1, 4 * sum(STEPS) + 1, dtype=torch.float64)
    row[..., row.shape[-1] // 2] = 1
    for step in STEPS[:size]:
        row = _along(row, SPLINE, (1, step), 3)
    return float(row.max()) ** 2


def _smooth(x: Tensor, step: int) -> Tensor:
    """The B3 spline with holes, along rows and columns; dark beyond the border, so that it is its own adjoint."""
    flat = x.reshape(-1, 1, *x.shape[-2:])
    return _along(_along(flat, SPLINE, (step, 1), 2), SPLINE, (1, step), 3).reshape(x.shape)


def _along(flat: Tensor, taps: tuple[float, ...], dilation: tuple[int, int], axis: int) -> Tensor:
    size = (-1, 1) if axis == 2 else (1, -1)
    reach = len(taps) // 2
    padding = (reach * dilation[0], 0) if axis == 2 else (0, reach * dilation[1])
    return F.conv2d(flat, _kernel(taps, size, flat), padding=padding, dilation=dilation)


def _down(points: Tensor, taps: tuple[float, ...]) -> Tensor:
    """From half pixels to pixels: filter, then keep every second."""
    flat, reach = points.reshape(-1, 1, *points.shape[-2:]), len(taps) // 2
    flat = F.conv2d(flat, _kernel(taps, (-1, 1), flat), stride=(2, 1), padding=(reach, 0))
    flat = F.conv2d(flat, _kernel(taps, (1, -1), flat), stride=(1, 2), padding=(0, reach))
    return flat.reshape(*points.shape[:2], *flat.shape[2:])


def _up(x: Tensor, taps: tuple[float, ...]) -> Tensor:
    """The adjoint of `_down`."""
    flat, reach = x.reshape(-1, 1, *x.shape[-2:]), len(taps) // 2
    flat = F.conv_transpose2d(flat, _kernel(taps, (1, -1), flat), stride=(1, 2), padding=(0, reach))
    flat = F.conv_transpose2d(flat, _kernel(taps, (-1, 1), flat), stride=(2, 1), padding=(reach, 0))
    return flat.reshape(*x.shape[:2], *flat.shape[2:])


def _kernel(taps: tuple[float, ...], size: tuple[int, int], like: Tensor) -> Tensor:
    return torch.tensor(taps, dtype=like.dtype, device=like.device).view(1, 1, *size)
