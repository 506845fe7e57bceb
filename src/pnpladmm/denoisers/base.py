"""What a denoiser is to the solvers: a callable `d(x, sigma)` and what it promises.

Any callable is a denoiser. What it promises decides which theorem covers a run that uses it
(`solvers/certificate.py`), so a plain callable promises nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol, runtime_checkable

from torch import Tensor

from pnpladmm.tensors import PerPicture


class Promise(Enum):
    """What is known of `D_sigma`, from nothing to the most."""

    NONE = "nothing is known of it"
    MMSE = "trained for squared error: a proximal operator as far as it is an MMSE estimator"
    GRADIENT_STEP = "Id - grad g: a proximal operator where the Hessian of g stays below 1"
    PROX = "the proximal operator of sigma^2 f, f not convex"
    CONVEX = "the proximal operator of sigma^2 f, f convex"


class Denoiser(Protocol):
    """`d(x, sigma)`: x of shape (B, C, H, W), sigma a float or one per picture; returns x's shape."""

    def __call__(self, x: Tensor, sigma: PerPicture, /) -> Tensor:
        """Return `x` with Gaussian noise of standard deviation `sigma` removed."""
        ...


@runtime_checkable
class EvaluablePrior(Protocol):
    """A denoiser that can evaluate the `phi` whose proximal operator it is."""

    def prior(self, x: Tensor, v: Tensor | None, sigma: PerPicture, /) -> Tensor | None:
        """`phi(x)` of each picture, shape (B,), float64, where `x = D_sigma(v) = prox_phi(v)`.

        `v` is None for a picture that the denoiser did not make (a start). Classical priors know
        `phi = sigma^2 f` anyway; gradient steps know `phi` only through `v`, and then return None.
        With `lambda = L_x sigma_d^2` the objective's prior term is `lambda f = L_x phi`.
        """
        ...


@runtime_checkable
class MeasuredCurvature(Protocol):
    """A gradient-step denoiser that can measure how far it is from not being a proximal operator."""

    def curvature(self, v: Tensor, sigma: PerPicture, /) -> Tensor:
        """Estimate of the largest eigenvalue of the Hessian of `g` at `v`, shape (B,); below 1 is good."""
        ...


def curvature_meter(denoiser: MeasuredCurvature) -> Callable[[Tensor, PerPicture], Tensor]:
    """A measuring function for one run: the denoiser's own meter where it has one, else its `curvature`."""
    of_one_run: Callable[[], Callable[[Tensor, PerPicture], Tensor]] | None
    of_one_run = getattr(denoiser, "curvature_meter", None)
    return denoiser.curvature if of_one_run is None else of_one_run()


def promise_of(denoiser: Denoiser) -> Promise:
    """The promise of a denoiser; NONE for a callable that says nothing."""
    promise = getattr(denoiser, "promise", Promise.NONE)
    return promise if isinstance(promise, Promise) else Promise.NONE
