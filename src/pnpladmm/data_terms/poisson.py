"""Poisson counts: the generalised Kullback-Leibler divergence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pnpladmm.data_terms.base import DataTerm
from pnpladmm.tensors import InputError, PerPicture, check_positive, per_picture


@dataclass(frozen=True)
class Poisson(DataTerm):
    """Counts, `y / gain ~ Poisson((z + background) / gain)`: the generalised Kullback-Leibler divergence.

        h(z) = 1/gain sum (z + b) - y + y log(y / (z + b))      for z >= 0,

    continued below 0 by a parabola with the same value and slope at 0 and the curvature `max(y, b) / (gain b^2)`. For
    `y >= b` this is the second-order expansion. For `y < b` the lowest point is where `z + b = y`, as it is for all
    other counts. So `h` is convex, never below 0, and `L_h`-smooth with `L_h = max(y, b) / (gain b^2)` of the brightest
    pixel. Not quadratic.

    Parameters
    ----------
    gain : float or Tensor of shape (B,)
        What one count adds to the picture's value, in the units of the picture.
    background : float or Tensor of shape (B,)
        `b`, the mean level that no blur touches, in the units of the picture; above 0.

    Raises
    ------
    InputError
        If a number is not finite and above 0.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> h, y = pl.Poisson(gain=1.0, background=2.0), torch.full((1, 1, 2, 2), 5.0)
    >>> h.gradient(y - 2.0, y)  # z + b = y: the most likely value
    tensor([[[[0., 0.],
              [0., 0.]]]])
    >>> h.L_h(y)
    tensor([1.2500], dtype=torch.float64)
    """

    gain: PerPicture = 1.0
    background: PerPicture = 0.0

    lowest: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        """Check the two numbers."""
        check_positive("gain", self.gain)
        try:
            check_positive("background", self.background)
        except InputError as error:
            raise InputError(f"{error}; without a dark level, give 1 % of the brightest pixel") from None

    def check(self, y: Tensor) -> None:
        """Counts are not negative."""
        self._numbers(y)
        lowest = float(y.min())
        if lowest < 0:
            raise InputError(
                f"Poisson data must not be negative, the lowest pixel is {lowest:.4g}: clip or use Gaussian"
            )

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        """The divergence, 0 where `z + b = y`."""
        gain, b = self._numbers(y.double())
        z, y = z.double(), y.double()
        t = z.clamp_min(0) + b
        below = z.clamp_max(0)
        divergence = t - y + torch.xlogy(y, y) - torch.xlogy(y, t)
        extended = (1 - y / b) * below + 0.5 * y.maximum(b) / b**2 * below**2
        return ((divergence + extended) / gain).flatten(1).sum(1)

    def gradient(self, z: Tensor, y: Tensor) -> Tensor:
        """`(1 - y / (z + b)) / gain`, linear below 0."""
        gain, b = self._numbers(y)
        return (1 - y / (z.clamp_min(0) + b) + y.maximum(b) / b**2 * z.clamp_max(0)) / gain

    def prox(self, v: Tensor, step: PerPicture, y: Tensor) -> Tensor:
        """The root of a quadratic where it is not below 0, else that of the linear gradient."""
        gain, b = self._numbers(y)
        s = per_picture(step, y) / gain
        half = (v + b - s) / 2
        root = (half.square() + s * y).sqrt()
        # There are two forms of the positive root; this is the one without cancellation.
        t = torch.where(half >= 0, half + root, s * y / (root - half).clamp_min(torch.finfo(y.dtype).tiny))
        below = (v - s * (1 - y / b)) / (1 + s * y.maximum(b) / b**2)
        return torch.where(t >= b, t - b, below)

    def L_h(self, y: Tensor) -> Tensor:
        """`max(y, b) / (gain b^2)` of the brightest pixel of each picture."""
        gain, b = self._numbers(y.double())
        return (y.double().maximum(b) / (gain * b**2)).flatten(1).amax(1)

    def background_of(self, y: Tensor) -> Tensor:
        """`b`."""
        return per_picture(self.background, y)

    def mean_and_precision(self, Hx: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """`max(Hx, 0) + b`, and `1 / (gain (max(Hx, 0) + b))`."""
        gain, b = self._numbers(y)
        mean = Hx.clamp_min(0) + b
        return mean, 1 / (gain * mean)

    def advice(self, y: Tensor) -> str:
        """Certified steps are as small as `L_h` is large."""
        worst = float(self.L_h(y).max())
        return (
            f"L_h = max(y, b) / (gain b^2) = {worst:.3g}, b the background: if small, certified steps are tiny; "
            "a larger background, or a convex prior with beta below L_h, is faster"
        )

    def _numbers(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Gain and background as factors of pictures."""
        return per_picture(self.gain, like), per_picture(self.background, like)
