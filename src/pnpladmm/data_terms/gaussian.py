"""Gaussian noise: quadratic data terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pnpladmm.data_terms.base import DataTerm
from pnpladmm.tensors import InputError, PerPicture, check_positive, per_picture


@dataclass(frozen=True)
class Gaussian(DataTerm):
    """White Gaussian noise: `h(z) = ||z - y||^2 / (2 sigma^2)`. Quadratic.

    Parameters
    ----------
    sigma : float or Tensor of shape (B,)
        Standard deviation of the noise, in the units of the picture (nominally [0, 1]); one for all pictures, or one
        per picture.

    Raises
    ------
    InputError
        If sigma is not a finite number above 0.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> h, y = pl.Gaussian(sigma=0.1), torch.zeros(1, 1, 4, 4)
    >>> h.value(y + 0.1, y)
    tensor([8.0000], dtype=torch.float64)
    >>> h.L_h(y)
    tensor([100.0000], dtype=torch.float64)
    """

    sigma: PerPicture

    one_precision: ClassVar[bool] = True
    lowest: ClassVar[float] = 0.0

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
        """One sigma, or one per picture."""
        per_picture(self.sigma, y)

    def precision_of(self, y: Tensor) -> Tensor:
        """`1 / sigma^2`."""
        return self._precision(y)

    def _precision(self, y: Tensor) -> Tensor:
        """`1 / sigma^2` as a factor of pictures."""
        return per_picture(self.sigma, y) ** -2


class WeightedGaussian(DataTerm):
    """Gaussian noise that differs from pixel to pixel: `h(z) = 1/2 sum p (z - y)^2`, `p = 1/sigma^2`. Quadratic.

    Parameters
    ----------
    precision : array or Tensor
        `p`, of shape (H, W), (C, H, W) or (B, C, H, W). Saturated, dead or missing pixels have precision 0:
        the value of `y` there does not count.

    Raises
    ------
    InputError
        If a value is negative or not finite, or all are 0.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> precision = torch.full((4, 4), 100.0)
    >>> precision[0] = 0  # a dead row
    >>> h, y = pl.WeightedGaussian(precision), torch.zeros(1, 1, 4, 4)
    >>> h.value(y + 0.1, y)
    tensor([6.0000], dtype=torch.float64)
    """

    lowest: ClassVar[float] = 0.0

    def __init__(self, precision: Any) -> None:
        precision = torch.as_tensor(precision)
        if not precision.is_floating_point():
            precision = precision.float()
        # The ends alone: large maps are not copied.
        low, high = precision.detach().aminmax() if precision.numel() else (precision.new_zeros(()),) * 2
        if not bool(torch.isfinite(low) & torch.isfinite(high)) or bool(low < 0):
            raise InputError("precision has negative, NaN or infinite values: give 1/sigma^2, 0 for dead pixels")
        if not bool(high > 0):
            raise InputError("precision is 0 everywhere: no pixel counts")
        self.precision = precision
        self._moved = precision

    def check(self, y: Tensor) -> None:
        """The precision must broadcast to the observation."""
        shape = (1,) * (y.ndim - self.precision.ndim) + tuple(self.precision.shape)
        if len(shape) != y.ndim or any(have not in (1, wanted) for have, wanted in zip(shape, y.shape, strict=True)):
            raise InputError(
                f"precision has shape {tuple(self.precision.shape)}, the picture {tuple(y.shape)}: they must match"
            )

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
        return self.precision_of(y).expand_as(y).flatten(1).amax(1).double()

    def precision_of(self, y: Tensor) -> Tensor:
        """`p` in the dtype and on the device of `y`; moved there once, not at every call."""
        if (self._moved.device, self._moved.dtype) != (y.device, y.dtype):
            self._moved = self.precision.to(y.device, y.dtype)
        return self._moved


def _quadratic(z: Tensor, y: Tensor, precision: Tensor) -> Tensor:
    """`1/2 sum p (z - y)^2` of each picture, in float64."""
    return 0.5 * (precision.double() * (z.double() - y.double()).square()).flatten(1).sum(1)
