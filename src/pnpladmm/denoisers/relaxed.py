"""Relaxation: any denoiser as a weaker prior (docs/reference/proof.md, statement 6).

    D_gamma(v) = gamma D(v) + (1 - gamma) v,    0 < gamma <= 1

If `D = prox_phi`, that is the gradient of a convex `psi`, then `D_gamma` is the gradient of `gamma psi + (1 - gamma)/2
||.||^2`, which is convex too: `D_gamma = prox_{phi_gamma}` with

    phi_gamma(D_gamma(v)) = gamma phi(D(v)) + gamma (1 - gamma)/2 ||D(v) - v||^2.

The theorem on LADMM needs a large `L_x`. Then the prior `L_x phi` is weak enough only for a small `sigma_d`, where
networks denoise worst. A small `gamma` makes it as weak at a larger `sigma_d`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from pnpladmm.denoisers.base import (
    Denoiser,
    EvaluablePrior,
    MeasuredCurvature,
    call_denoiser,
    curvature_meter,
    name_of,
    precision_of,
    promise_of,
)
from pnpladmm.tensors import InputError, PerPicture, per_picture, squared_norm, version_of


class Relaxed:
    """`D_gamma` of a denoiser, `gamma` in (0, 1] a number or one per picture. It promises what `D` promises."""

    def __init__(self, denoiser: Denoiser, gamma: PerPicture) -> None:
        """Check `gamma`."""
        values = torch.as_tensor(gamma, dtype=torch.float64)
        if not bool(((values > 0) & (values <= 1)).all()):
            raise InputError(f"relaxation = {values.tolist()}: give numbers above 0 and up to 1")
        self.denoiser, self.gamma = denoiser, gamma
        self.promise = promise_of(denoiser)
        self.name = name_of(denoiser)
        self.precision = precision_of(denoiser)
        self._made: tuple[weakref.ref[Tensor], int, Tensor] | None = None

    def __call__(self, v: Tensor, sigma: PerPicture, /) -> Tensor:
        """`gamma D(v) + (1 - gamma) v`."""
        denoised = call_denoiser(self.denoiser, v, sigma)
        x = torch.lerp(v, denoised, per_picture(self.gamma, v))
        self._made = (weakref.ref(x), version_of(x), denoised)
        return x

    def prior(self, x: Tensor, v: Tensor | None, sigma: PerPicture, /) -> Tensor | None:
        """`phi_gamma(x)` for `x = D_gamma(v)`, (B,) float64; None without a `v`, and where `D` has no prior."""
        if v is None or not isinstance(self.denoiser, EvaluablePrior):
            return None
        made, version, denoised = self._made or (None, 0, v)
        if made is None or made() is not x or version != version_of(x):
            denoised = self.denoiser(v, sigma)
        phi = self.denoiser.prior(denoised, v, sigma)
        if phi is None:
            return None
        gamma = torch.as_tensor(self.gamma, dtype=torch.float64, device=phi.device)
        return gamma * (phi + (1 - gamma) / 2 * squared_norm(denoised.double() - v.double()))

    def prior_within(self, x: Tensor, v: Tensor, sigma: PerPicture, /, rows: slice, columns: slice) -> Tensor | None:
        """What some rows and columns add to `phi_gamma(x)` for `x = D_gamma(v)`: (B,); None where `D` cannot say."""
        inner = getattr(self.denoiser, "prior_within", None)
        if inner is None:
            return None
        gamma = torch.as_tensor(self.gamma, dtype=torch.float64, device=x.device)
        made, version, denoised = self._made or (None, 0, v)
        if made is None or made() is not x or version != version_of(x):
            denoised = self.denoiser(v, sigma)
        moved = (denoised[..., rows, columns].double() - v[..., rows, columns].double()).flatten(1)
        phi: Tensor = inner(denoised, v, sigma, rows, columns)
        return gamma * (phi + (1 - gamma) / 2 * moved.square().sum(1))

    def __repr__(self) -> str:
        """The denoiser and gamma."""
        return f"{type(self).__name__}({self.denoiser!r}, gamma={torch.as_tensor(self.gamma).tolist()})"


class RelaxedGradientStep(Relaxed):
    """`D_gamma` of a gradient step `Id - grad g`: `Id - gamma grad g`, whose curvature is `gamma` times as large."""

    @property
    def added(self) -> PerPicture:
        """What the curvature has besides `gamma` times that of `g`."""
        return 0.0

    def curvature(self, v: Tensor, sigma: PerPicture, /) -> Tensor:
        """The largest eigenvalue of `gamma` times the Hessian of `g`, (B,)."""
        assert isinstance(self.denoiser, MeasuredCurvature)
        return self._scaled(self.denoiser.curvature(v, sigma))

    def curvature_meter(self, limit: PerPicture = 1.0) -> Callable[[Tensor, PerPicture], Tensor]:
        """The denoiser's meter for one run, scaled, with the limit that belongs to it."""
        assert isinstance(self.denoiser, MeasuredCurvature)
        gamma = torch.as_tensor(self.gamma, dtype=torch.float64)
        left = [torch.as_tensor(one, dtype=torch.float64).to(gamma.device) for one in (limit, self.added)]
        measure = curvature_meter(self.denoiser, (left[0] - left[1]) / gamma)
        return lambda v, sigma: self._scaled(measure(v, sigma))

    def _scaled(self, value: Tensor) -> Tensor:
        """`gamma` times a number per picture, and what is added."""
        gamma, added = (torch.as_tensor(n, dtype=value.dtype, device=value.device) for n in (self.gamma, self.added))
        return gamma * value + added


def relaxed(denoiser: Denoiser, gamma: PerPicture) -> Relaxed:
    """Relax a denoiser: `D_gamma(v) = gamma D(v) + (1 - gamma) v`.

    Parameters
    ----------
    denoiser : Denoiser
        Any callable `d(x, sigma)`.
    gamma : float or Tensor of shape (B,)
        Above 0 and up to 1; 1 is the denoiser itself.

    Returns
    -------
    Relaxed
        A denoiser with the same promise. It can evaluate its prior and measure its curvature (`gamma` times as large)
        where `denoiser` can.

    Raises
    ------
    InputError
        If `gamma` is not in (0, 1].

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> zero = pl.as_denoiser(lambda x, sigma: 0 * x)
    >>> pl.relaxed(zero, 0.25)(torch.ones(1, 1, 1, 2), 0.1)
    tensor([[[[0.7500, 0.7500]]]])
    """
    return (RelaxedGradientStep if isinstance(denoiser, MeasuredCurvature) else Relaxed)(denoiser, gamma)
