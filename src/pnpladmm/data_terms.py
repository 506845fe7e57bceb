"""The data term `h(z)`: minus the log-likelihood of the observed `y` given the blurred picture `z = Hx`.

Each is convex and `L_h`-smooth, with value, gradient and proximal operator

    prox(v, step, y) = argmin_z h(z) + 1/(2 step) ||z - v||^2

in closed form. Values and `L_h` are one number a picture, float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pnpladmm.tensors import InputError, PerPicture, check_positive, per_picture


class DataTerm(ABC):
    """`h`. `z`, `v` and `y` have the shape of the observation, `step` is a number (one a picture)."""

    one_precision: ClassVar[bool] = False
    """`h(z) = p/2 ||z - y||^2` with one number `p` per picture: then LADMM with `beta = p` is ISTA."""

    @abstractmethod
    def value(self, z: Tensor, y: Tensor) -> Tensor:
        """`h(z)`, shape (B,)."""

    @abstractmethod
    def gradient(self, z: Tensor, y: Tensor) -> Tensor:
        """`grad h(z)`."""

    @abstractmethod
    def prox(self, v: Tensor, step: PerPicture, y: Tensor) -> Tensor:
        """`argmin_z h(z) + 1/(2 step) ||z - v||^2`."""

    @abstractmethod
    def L_h(self, y: Tensor) -> Tensor:
        """Lipschitz constant of the gradient, shape (1,) or (B,)."""

    @abstractmethod
    def check(self, y: Tensor) -> None:
        """Refuse an observation that this term cannot explain."""

    def precision_of(self, y: Tensor) -> Tensor | None:
        """`p` with `h(z) = 1/2 sum p (z - y)^2` where the term is quadratic, else None."""
        return None

    def background_of(self, y: Tensor) -> Tensor | float:
        """The mean level in `y` that the operator does not touch, as a factor of pictures."""
        return 0.0

    def advice(self, y: Tensor) -> str:
        """What to know about certified runs with this term; empty if nothing."""
        return ""


@dataclass(frozen=True)
class Gaussian(DataTerm):
    """`h(z) = ||z - y||^2 / (2 sigma^2)`: white noise of standard deviation `sigma` (pictures in [0, 1])."""

    one_precision: ClassVar[bool] = True

    sigma: PerPicture

    def __post_init__(self) -> None:
        """Check sigma."""
        check_positive("sigma", self.sigma)

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        """`||z - y||^2 / (2 sigma^2)`."""
        return _quadratic(z, y, self._precision(y))

    def gradient(self, z: Tensor, y: Tensor) -> Tensor:
        """`(z - y) / sigma^2`."""
        return (z - y) * self._precision(y)

    def prox(self, v: Tensor, step: PerPicture, y: Tensor) -> Tensor:
        """`(y + sigma^2 beta v) / (1 + sigma^2 beta)` with `beta = 1 / step`."""
        weight = per_picture(self.sigma, y) ** 2 / per_picture(step, y)
        return (y + weight * v) / (1 + weight)

    def L_h(self, y: Tensor) -> Tensor:
        """`1 / sigma^2`."""
        return 1 / torch.as_tensor(self.sigma, dtype=torch.float64, device=y.device).reshape(-1) ** 2

    def check(self, y: Tensor) -> None:
        """One sigma, or one for each picture."""
        per_picture(self.sigma, y)

    def precision_of(self, y: Tensor) -> Tensor:
        """`1 / sigma^2`."""
        return self._precision(y)

    def _precision(self, y: Tensor) -> Tensor:
        return per_picture(self.sigma, y) ** -2


class WeightedGaussian(DataTerm):
    """`h(z) = 1/2 sum p (z - y)^2`: noise of precision `p = 1/sigma^2` that differs from pixel to pixel.

    `precision` is broadcast to the observation, (H, W) or (C, H, W) or (B, C, H, W). Saturated, dead or
    missing pixels have precision 0: whatever `y` is there, it does not count.
    """

    def __init__(self, precision: Any) -> None:
        precision = torch.as_tensor(precision)
        if not precision.is_floating_point():
            precision = precision.float()
        if not bool(torch.isfinite(precision).all()) or bool((precision < 0).any()):
            raise InputError("precision has negative, NaN or infinite values: give 1/sigma^2, 0 for dead pixels")
        if not bool(precision.any()):
            raise InputError("precision is 0 everywhere: no pixel counts")
        self.precision = precision
        self._there = precision

    def check(self, y: Tensor) -> None:
        """The precision must broadcast to the observation."""
        shape = (1,) * (y.ndim - self.precision.ndim) + tuple(self.precision.shape)
        if len(shape) != y.ndim or any(have not in (1, wanted) for have, wanted in zip(shape, y.shape, strict=True)):
            raise InputError(f"precision has shape {tuple(self.precision.shape)}, the picture {tuple(y.shape)}")

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        """`1/2 sum p (z - y)^2`."""
        return _quadratic(z, y, self.precision_of(y))

    def gradient(self, z: Tensor, y: Tensor) -> Tensor:
        """`p (z - y)`."""
        return self.precision_of(y) * (z - y)

    def prox(self, v: Tensor, step: PerPicture, y: Tensor) -> Tensor:
        """`(v + step p y) / (1 + step p)`."""
        weight = per_picture(step, y) * self.precision_of(y)
        return (v + weight * y) / (1 + weight)

    def L_h(self, y: Tensor) -> Tensor:
        """`max p` of each picture."""
        return self.precision_of(y).double().expand_as(y).flatten(1).amax(1)

    def precision_of(self, y: Tensor) -> Tensor:
        """`p`, as given; where it has to be moved to the pictures' device, that is done once."""
        if (self._there.device, self._there.dtype) != (y.device, y.dtype):
            self._there = self.precision.to(y.device, y.dtype)
        return self._there


@dataclass(frozen=True)
class Poisson(DataTerm):
    """Counts: `y / gain ~ Poisson((z + background) / gain)`; generalised Kullback-Leibler divergence.

        h(z) = 1/gain sum (z + b) - y + y log(y / (z + b))      for z >= 0,

    continued below 0 by its second-order expansion at 0, so that `L_h = max y / (gain b^2)` exists. `gain`
    is what one count adds to a picture's value, `background` the mean level that no blur touches; both in
    the units of the picture.
    """

    gain: PerPicture = 1.0
    background: PerPicture = 0.0

    def __post_init__(self) -> None:
        """Check the two numbers."""
        check_positive("gain", self.gain)
        try:
            check_positive("background", self.background)
        except InputError as error:
            raise InputError(f"{error}; with no dark level, 1 % of the brightest pixel will do") from None

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
        extended = (1 - y / b) * below + 0.5 * y / b**2 * below**2
        return ((divergence + extended) / gain).flatten(1).sum(1)

    def gradient(self, z: Tensor, y: Tensor) -> Tensor:
        """`(1 - y / (z + b)) / gain`, linear below 0."""
        gain, b = self._numbers(y)
        return (1 - y / (z.clamp_min(0) + b) + y / b**2 * z.clamp_max(0)) / gain

    def prox(self, v: Tensor, step: PerPicture, y: Tensor) -> Tensor:
        """The root of a quadratic where it is not below 0, else that of the linear gradient."""
        gain, b = self._numbers(y)
        s = per_picture(step, y) / gain
        half = (v + b - s) / 2
        root = (half.square() + s * y).sqrt()
        # Of the two forms of the positive root, the one that does not cancel.
        t = torch.where(half >= 0, half + root, s * y / (root - half).clamp_min(torch.finfo(y.dtype).tiny))
        below = (v - s * (1 - y / b)) / (1 + s * y / b**2)
        return torch.where(t >= b, t - b, below)

    def L_h(self, y: Tensor) -> Tensor:
        """`max y / (gain b^2)` of each picture."""
        gain, b = self._numbers(y.double())
        return (y.double() / (gain * b**2)).flatten(1).amax(1)

    def background_of(self, y: Tensor) -> Tensor:
        """`b`."""
        return per_picture(self.background, y)

    def advice(self, y: Tensor) -> str:
        """Certified steps are as small as `L_h` is large."""
        worst = float(self.L_h(y).max())
        return (
            f"L_h = max y / (gain background^2) = {worst:.3g}: with a small background certified steps are tiny; "
            "a larger background, or a convex prior with beta below L_h, is faster"
        )

    def _numbers(self, like: Tensor) -> tuple[Tensor, Tensor]:
        return per_picture(self.gain, like), per_picture(self.background, like)


def _quadratic(z: Tensor, y: Tensor, precision: Tensor) -> Tensor:
    return 0.5 * (precision.double() * (z.double() - y.double()).square()).flatten(1).sum(1)
