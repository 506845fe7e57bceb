"""What a denoiser is to the solvers: a callable `d(x, sigma)`, and what a solver may ask about it.

Any callable is a denoiser. It may declare more about itself. This is all that solvers, settings and reports ask, always
through the functions and protocols below, which know the default for callables that declare nothing:

===================  =====================  ===========================================================================
attribute or method  read with              meaning; default
===================  =====================  ===========================================================================
`promise`            `promise_of`           what is known of it, decides which theorem covers a run; `Promise.NONE`
`name`               `name_of`              the key of its tuned settings; the name of the function or of the class
`settings`           `settings_of`          tuned settings that came with it, for methods by name; none
`precision`          `precision_of`         the dtype it computes in, which bounds the rounding; None: the picture's own
`weight`             `weight_of`            the factor that its prior `f` carries already; 1
`reach`              `reach_of`             how far away pixels are that a pixel of its result depends on; all of them
`bytes_per_pixel`    `bytes_per_pixel_of`   the memory of a call, per pixel; a few copies of the picture
`prior`              `EvaluablePrior`       evaluates `phi(x)`, for objectives and Lagrangians; unknown
`prior_within`       `prior_within`         what some rows and columns add to `phi(x)`, a sum over pixels; unknown
`curvature`          `MeasuredCurvature`    measures how far it is from not being a proximal operator; unknown
`curvature_meter`    `curvature_meter`      a `curvature` for one run and a limit, which learns from it; `curvature`
`for_any_size`       `for_any_size`         of a denoiser for pictures of one size, what its promise rests on; itself
===================  =====================  ===========================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor, nn

from pnpladmm.tensors import InputError, PerPicture, type_words, version_of

OwnSettings: TypeAlias = dict[str, dict[float, dict[str, float]]]
"""Method -> noise level (of 255) -> parameters, as in solvers/settings.json."""


CLASSICAL_BYTES_PER_PIXEL = 150.0
"""What a denoiser without a network needs: total variation of a picture in colour, measured."""


class Promise(Enum):
    """What is known of a denoiser `D_sigma`, from nothing to the most. The value is a sentence for reports.

    Attributes
    ----------
    NONE
        Nothing is known: no theorem covers a run.
    MMSE
        Trained for squared error: a proximal operator as far as it is an MMSE estimator.
    GRADIENT_STEP
        `D = Id - grad g`: a proximal operator where the largest eigenvalue of the Hessian of `g` is below 1.
    PROX
        `D = prox_{sigma^2 f}`, `f` not convex.
    CONVEX
        `D = prox_{sigma^2 f}`, `f` convex.

    Examples
    --------
    >>> import pnpladmm as pl
    >>> pl.load_denoiser("tv").promise
    <Promise.CONVEX: 'the proximal operator of sigma^2 f, f convex'>
    """

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

        `v` is None for a picture that the denoiser did not make (a start). Classical priors know `phi = sigma^2 f`
        anyway. Gradient steps know `phi` only through `v`, and return None without it.
        With `lambda = L_x sigma_d^2` the objective's prior term is `lambda f = L_x phi`.
        """
        ...


@runtime_checkable
class SplitPrior(Protocol):
    """A prior `f(x) = total(x) = max <K x, p>` over a set of `p` that one can project onto."""

    norm_squared: float
    """A bound of `||K||^2`."""

    def analysis(self, x: Tensor, /) -> Tensor:
        """`K x`, a new tensor whose first axis is the pictures, with one more axis after it."""
        ...

    def synthesis(self, p: Tensor, /) -> Tensor:
        """`K^T p`."""
        ...

    def project(self, p: Tensor, /) -> Tensor:
        """The nearest `p` of the set; it may write into its argument."""
        ...

    def total(self, x: Tensor, /) -> Tensor:
        """`f(x)` of each picture, float64."""
        ...


@runtime_checkable
class MeasuredCurvature(Protocol):
    """A gradient-step denoiser that can measure how far it is from not being a proximal operator."""

    def curvature(self, v: Tensor, sigma: PerPicture, /) -> Tensor:
        """Estimate of the largest eigenvalue of the Hessian of `g` at `v`, shape (B,); below 1 is good."""
        ...


def promise_of(denoiser: object) -> Promise:
    """What is known of a denoiser."""
    promise = getattr(denoiser, "promise", Promise.NONE)
    return promise if isinstance(promise, Promise) else Promise.NONE


def is_on_trust(denoiser: object) -> bool:
    """Is what it promises only said by its user? What this package has itself keeps its promise by construction."""
    inner = getattr(denoiser, "denoiser", None)
    if inner is not None:
        return is_on_trust(inner)
    ours = type(denoiser).__module__.startswith("pnpladmm.")
    return bool(getattr(denoiser, "promise_is_stated", not ours))


def for_any_size(denoiser: Denoiser) -> Denoiser:
    """What the promise of a denoiser rests on that is for pictures of one size: it can be tried on small ones."""
    found: Denoiser = getattr(denoiser, "for_any_size", denoiser)
    return found


def name_of(denoiser: object) -> str:
    """The name of a denoiser, under which its settings are kept and reports list it."""
    name = getattr(denoiser, "name", "") or getattr(denoiser, "__name__", "")
    return str(name or type(denoiser).__name__)


def settings_of(denoiser: object) -> OwnSettings:
    """The tuned settings that came with a denoiser, such as those of a network that was trained in the loop."""
    settings = getattr(denoiser, "settings", None)
    return settings if isinstance(settings, dict) else {}


def precision_of(denoiser: object) -> torch.dtype | None:
    """The dtype a denoiser computes in, such as float16; None where it computes in the dtype of the picture."""
    precision = getattr(denoiser, "precision", None)
    return precision if isinstance(precision, torch.dtype) else None


def weight_of(denoiser: object) -> float:
    """The constant factor of `f` in a classical prior: `TotalVariation(10)` is `f = 10 TV`."""
    return float(getattr(denoiser, "weight", 1.0))


def reach_of(denoiser: object) -> int | None:
    """How far away, in pixels, the pixels are that a pixel of its result depends on; None where that is unknown."""
    reach = getattr(denoiser, "reach", None)
    return reach if isinstance(reach, int) else None


def bytes_per_pixel_of(denoiser: object) -> float:
    """About the memory that a call needs for each pixel of a picture."""
    return float(getattr(denoiser, "bytes_per_pixel", CLASSICAL_BYTES_PER_PIXEL))


def prior_within(
    denoiser: object, x: Tensor, v: Tensor, sigma: PerPicture, rows: slice, columns: slice
) -> Tensor | None:
    """What some rows and columns of pictures add to `phi(x)`, (B,); None where the denoiser cannot say."""
    share: Callable[..., Tensor | None] | None = getattr(denoiser, "prior_within", None)
    return None if share is None else share(x, v, sigma, rows, columns)


def curvature_meter(denoiser: MeasuredCurvature, limit: PerPicture = 1.0) -> Callable[[Tensor, PerPicture], Tensor]:
    """A `curvature(v, sigma)` for one run: the denoiser's own meter where it has one, else its `curvature`.

    `limit` is what the values are compared with: far below it, a meter may measure less closely.
    """
    of_one_run: Callable[[PerPicture], Callable[[Tensor, PerPicture], Tensor]] | None
    of_one_run = getattr(denoiser, "curvature_meter", None)
    return denoiser.curvature if of_one_run is None else of_one_run(limit)


def call_denoiser(denoiser: Callable[..., Any], v: Tensor, sigma: PerPicture, name: str = "") -> Tensor:
    """What a denoiser makes of pictures, in their dtype; an error that names what it does wrong.

    A float16 or float64 result is converted. Everything else that is no picture of the shape of `v` is refused, and so
    is a denoiser that writes into `v`: the method still needs it.
    """
    before = version_of(v)
    if isinstance(denoiser, nn.Module):
        # Modules of others, such as deepinv's, take pictures and noise levels in the dtype of their weights only.
        home = next(denoiser.parameters(), v)
        level = sigma.to(home) if isinstance(sigma, Tensor) else sigma
        x = denoiser(v.to(home), level)
        x = x.to(v) if isinstance(x, Tensor) and x.is_floating_point() else x
    else:
        x = denoiser(v, sigma)
    name = name or name_of(denoiser)
    if version_of(v) != before:
        raise InputError(f"denoiser {name} changed its input: it must return a new tensor (x - n, not x -= n)")
    return checked_output(name, x, v)


def checked_output(name: str, restored: object, v: Tensor) -> Tensor:
    """The result of a denoiser, if it is a picture of the shape of `v`, where `v` lies; in the dtype of `v`."""
    if not isinstance(restored, Tensor):
        raise InputError(f"denoiser {name} returned {type_words(restored)}: it must return a tensor")
    if restored.shape != v.shape:
        raise InputError(
            f"denoiser {name} returned shape {tuple(restored.shape)} for pictures of shape {tuple(v.shape)}: "
            "they must match"
        )
    if not restored.is_floating_point() or restored.layout is not torch.strided:
        kind = restored.dtype if restored.layout is torch.strided else restored.layout
        raise InputError(f"denoiser {name} returned a tensor of {kind}: it must return {v.dtype}, as it was given")
    if restored.device != v.device:
        raise InputError(
            f"denoiser {name} returned a tensor on {restored.device} for pictures on {v.device}: bring it back with .to"
        )
    return restored.to(v.dtype)
