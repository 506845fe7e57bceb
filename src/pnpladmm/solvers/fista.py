"""Plug & Play FISTA: ISTA with Nesterov's extrapolation."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.solvers.certificate import Condition, Theorem
from pnpladmm.solvers.ista import least_L_x, step_from_settings
from pnpladmm.solvers.method import PlugAndPlay, Settings
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.registry import METHODS
from pnpladmm.solvers.state import PlugAndPlayState, Start, start_picture
from pnpladmm.tensors import PerPicture, per_picture


@dataclass(frozen=True, kw_only=True)
class FISTAState(PlugAndPlayState):
    """`x`, `Hx`, the extrapolated `q` with `Hq`, what the denoiser got, and Nesterov's `t`."""

    Hx: Tensor = field()
    q: Tensor
    Hq: Tensor
    t: float = 1.0


@METHODS.register("fista")
@dataclass(frozen=True)
class FISTA(PlugAndPlay[FISTAState]):
    """Accelerated proximal gradient descent on `h(Hx) + lambda f(x)`, `lambda = L_x sigma_d^2`:

        x+ = D_{sigma_d}( q - (1 / L_x) H^T grad h(Hq) )
        t+ = (1 + sqrt(1 + 4 t^2)) / 2
        q+ = x+ + (t - 1) / t+ (x+ - x).

    `Hq+` follows from `Hx+` and `Hx`: one `H` per iteration. Proved for convex `f` and `L_x >= L_h ||H||^2`.

    Parameters
    ----------
    denoiser : Denoiser
        `D`, any callable `d(x, sigma)`.
    sigma_d : float or Tensor
        The noise level that the denoiser is told, one number or one per picture.
    L_x : float or Tensor
        1 / the step size.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> problem = pl.Problem(torch.rand(1, 1, 8, 8), pl.Mask(torch.ones(8, 8)), pl.Gaussian(0.1))
    >>> pl.solve(problem, pl.FISTA(pl.load_denoiser("tv"), 0.05, L_x=110.0), iterations=20).certificate.level.value
    'convex'
    """

    settings_key: ClassVar[str | None] = "ista"  # the same fixed points

    L_x: PerPicture

    @classmethod
    def convex_L_x(cls, problem: Problem, sigma: Tensor) -> Tensor:
        """`L_x` for convex priors, not below the smallest one that converges."""
        return torch.maximum(super().convex_L_x(problem, sigma), least_L_x(problem, cls.__name__))

    @classmethod
    def from_settings(cls, denoiser: Denoiser, problem: Problem, settings: Settings, calls: int | None = None) -> FISTA:
        """From `sigma_d` and `lambda`."""
        return cls(denoiser, **step_from_settings(problem, settings, cls.__name__))

    @property
    def prior_weight(self) -> PerPicture:
        """`lambda f = L_x phi`."""
        return self.L_x

    def init(self, problem: Problem, start: Start = None) -> FISTAState:
        """`q0 = x0`."""
        x = start_picture(problem, start)
        Hx = problem.operator.forward(x)
        return FISTAState(x=x, q=x, Hx=Hx, Hq=Hx)

    def step(self, problem: Problem, state: FISTAState) -> FISTAState:
        """The equations above."""
        s, H, h, y = state, problem.operator, problem.data_term, problem.observed
        v = s.q - H.adjoint(h.gradient(s.Hq, y)) / per_picture(self.L_x, s.x)
        x = self.denoise(v)
        Hx = H.forward(x)
        t = (1 + math.sqrt(1 + 4 * s.t**2)) / 2
        momentum = (s.t - 1) / t
        q, Hq = x + momentum * (x - s.x), Hx + momentum * (Hx - s.Hx)
        return FISTAState(x=x, q=q, Hx=Hx, Hq=Hq, denoised_from=v, t=t, iteration=s.iteration + 1)

    def theorem(self, problem: Problem) -> Theorem:
        """The rate of FISTA."""
        smoothness = problem.L_h() * problem.norm_squared.upper.to(problem.observed.device)
        return Theorem(
            convex=(Condition("L_x", self.L_x, "L_h ||H||^2", smoothness, strict=False),),
            convex_statement="accelerated descent on a convex E: E - min E falls as 1 / iterations^2",
            missing="the extrapolation of FISTA is proved for convex priors only",
        )
