"""What a solver may ask of a data term."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from pnpladmm.tensors import PerPicture


class DataTerm(ABC):
    """`h(z)`: convex and `L_h`-smooth, with value, gradient and proximal operator in closed form.

    `z`, `v` and `y` have the shape of the observation, (B, C, H, W). `step` is a number, or (B,). Values and `L_h` are
    one number per picture, float64. Solvers ask for these, and never for the class:

    =========================== ======================================================================================
    `precision_of(y)`           `p` of a quadratic term, `h(z) = 1/2 sum p (z - y)^2`; None: the term is not quadratic
    `one_precision`             quadratic with one number `p` per picture
    `background_of(y)`          the mean level in `y` that the operator does not touch
    `mean_and_precision(Hx, y)` the mean of `y` given `Hx`, and 1 / its variance, to check residuals
    `L_h(y)`                    the smoothness, for the conditions of the theorems
    `lowest`                    what `h` never falls below, for the theorems too
    `check(y)`                  whether the term describes this observation
    `advice(y)`                 a sentence on certified runs
    =========================== ======================================================================================
    """

    one_precision: ClassVar[bool] = False
    """Whether `h(z) = p/2 ||z - y||^2` with one number `p` per picture: then LADMM with `beta = p` is ISTA."""
    lowest: ClassVar[float] = -math.inf
    """A number that `h` never falls below, at any `z` and `y`. Without one nothing is proved: a method could lower `E`
    for ever."""

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
        """Refuse an observation that this term does not describe."""

    def precision_of(self, y: Tensor) -> Tensor | None:
        """`p` of a quadratic term `h(z) = 1/2 sum p (z - y)^2`, which broadcasts to `y`; None for all other terms.

        Methods with a data step by conjugate gradient need it (`Problem.precision_for`).
        """
        return None

    def background_of(self, y: Tensor) -> Tensor | float:
        """The mean level in `y` that the operator does not touch, as a number or a factor of pictures, (B, 1, 1, 1)."""
        return 0.0

    def mean_and_precision(self, Hx: Tensor, y: Tensor) -> tuple[Tensor, Tensor] | None:
        """The mean of the observation `y` given `Hx`, and the precision (1 / variance) of its pixels.

        The precision broadcasts to `y` and is 0 at pixels that do not count. None for terms that do not know them: the
        residual of a restoration is then not checked.
        """
        precision = self.precision_of(y)
        return None if precision is None else (Hx, precision)

    def advice(self, y: Tensor) -> str:
        """A sentence on certified runs with this term; empty if there is nothing to say."""
        return ""
