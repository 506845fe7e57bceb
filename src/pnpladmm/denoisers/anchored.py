"""A prior that holds the picture near one that is known (docs/reference/anchored.md).

    D(v) = gamma D_0(v) + (1 - gamma - mu) v + mu a,    0 < gamma,    0 <= mu,    gamma + mu <= 1

`a` is the picture. If `D_0 = prox_phi0`, then `D = prox_phi` with

    phi(D(v)) = gamma (phi0(D_0(v)) + 1/2 ||D_0(v) - v||^2) + mu/2 ||v - a||^2 - 1/2 ||v - D(v)||^2.

Certified iterations after another method have it: without it they leave a good picture for a critical point of an
objective that knows less than the method did.
"""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Denoiser, EvaluablePrior, MeasuredCurvature, call_denoiser
from pnpladmm.denoisers.relaxed import Relaxed, RelaxedGradientStep
from pnpladmm.tensors import InputError, PerPicture, per_picture, squared_norm, version_of


class Anchored(Relaxed):
    """`D` of a denoiser and a picture; `gamma` and `mu` are numbers or one per picture. It keeps the promise."""

    def __init__(self, denoiser: Denoiser, gamma: PerPicture, anchor: Tensor, mu: PerPicture) -> None:
        """Check `mu` too."""
        super().__init__(denoiser, gamma)
        weights = torch.as_tensor(mu, dtype=torch.float64)
        total = weights + torch.as_tensor(gamma, dtype=torch.float64).to(weights.device)
        if not bool(((weights >= 0) & (total <= 1 + 1e-12)).all()):
            raise InputError(
                f"anchor = {weights.tolist()}: give numbers of at least 0, with the relaxation at most 1 "
                f"(together {total.tolist()})"
            )
        self.anchor, self.mu = anchor, mu

    @property
    def for_any_size(self) -> Denoiser:
        """`D_0`: if it is a proximal operator, so is `D`."""
        return self.denoiser

    def __call__(self, v: Tensor, sigma: PerPicture, /) -> Tensor:
        """`gamma D_0(v) + (1 - gamma - mu) v + mu a`."""
        if v.shape != self.anchor.shape:
            raise InputError(f"pictures of shape {tuple(v.shape)}: this prior knows one of {tuple(self.anchor.shape)}")
        denoised = call_denoiser(self.denoiser, v, sigma)
        x = torch.lerp(v, denoised, per_picture(self.gamma, v))
        x += per_picture(self.mu, v) * (self.anchor.to(v) - v)
        self._made = (weakref.ref(x), version_of(x), denoised)
        return x

    def prior(self, x: Tensor, v: Tensor | None, sigma: PerPicture, /) -> Tensor | None:
        """`phi(x)` for `x = D(v)`, (B,) float64; None without a `v`, and where `D_0` has no prior."""
        if v is None or not isinstance(self.denoiser, EvaluablePrior):
            return None
        made, version, denoised = self._made or (None, 0, v)
        if made is None or made() is not x or version != version_of(x):
            denoised = call_denoiser(self.denoiser, v, sigma)
        phi = self.denoiser.prior(denoised, v, sigma)
        if phi is None:
            return None
        exact = v.double()
        gamma, mu = (torch.as_tensor(one, dtype=torch.float64, device=phi.device) for one in (self.gamma, self.mu))
        envelope = phi + squared_norm(denoised.double() - exact) / 2
        near = squared_norm(exact - self.anchor.to(exact)) / 2
        return gamma * envelope + mu * near - squared_norm(exact - x.double()) / 2

    def prior_within(self, x: Tensor, v: Tensor, sigma: PerPicture, /, rows: slice, columns: slice) -> Tensor | None:
        """Not known: pictures in parts have no such prior."""
        return None

    def __repr__(self) -> str:
        """The denoiser, gamma and mu."""
        mu = torch.as_tensor(self.mu).tolist()
        return f"{type(self).__name__}({self.denoiser!r}, gamma={torch.as_tensor(self.gamma).tolist()}, mu={mu})"


class AnchoredGradientStep(Anchored, RelaxedGradientStep):
    """Of a gradient step `Id - grad g`: the Hessian is `gamma` times that of `g`, plus `mu`."""

    @property
    def added(self) -> PerPicture:
        """`mu`."""
        return self.mu


def anchored(denoiser: Denoiser, gamma: PerPicture, anchor: Tensor, mu: PerPicture) -> Anchored:
    """A denoiser whose prior holds pictures near `anchor`: `gamma D_0(v) + (1 - gamma - mu) v + mu a`.

    Parameters
    ----------
    denoiser : Denoiser
        `D_0`, any callable `d(x, sigma)`.
    gamma : float or Tensor of shape (B,)
        Its relaxation, above 0.
    anchor : Tensor, (B, C, H, W)
        `a`, of the shape of the pictures that are to be denoised.
    mu : float or Tensor of shape (B,)
        The weight of the anchor, at least 0, with `gamma` at most 1.

    Returns
    -------
    Anchored
        A denoiser with the same promise. It can evaluate its prior and measure its curvature where `denoiser` can.

    Raises
    ------
    InputError
        If the weights are out of range.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> zero = pl.as_denoiser(lambda x, sigma: 0 * x)
    >>> near = pl.anchored(zero, 0.25, torch.ones(1, 1, 1, 2), 0.5)
    >>> near(torch.full((1, 1, 1, 2), 4.0), 0.1)
    tensor([[[[1.5000, 1.5000]]]])
    """
    kind = AnchoredGradientStep if isinstance(denoiser, MeasuredCurvature) else Anchored
    return kind(denoiser, gamma, anchor, mu)
