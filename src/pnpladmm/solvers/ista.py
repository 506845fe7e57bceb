"""Plug & Play ISTA: proximal gradient descent with a denoiser for the prox."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.solvers.certificate import MARGIN, Condition, Theorem
from pnpladmm.solvers.method import PlugAndPlay, Settings
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.registry import METHODS
from pnpladmm.solvers.state import PlugAndPlayState, Start, start_picture
from pnpladmm.tensors import PerPicture, per_picture


@dataclass(frozen=True, kw_only=True)
class ISTAState(PlugAndPlayState):
    """`x`, `Hx`, and what the denoiser got."""

    Hx: Tensor = field()


@METHODS.register("ista")
@dataclass(frozen=True)
class ISTA(PlugAndPlay[ISTAState]):
    """Proximal gradient descent on `h(Hx) + lambda f(x)`, `lambda = L_x sigma_d^2`:

        x+ = D_{sigma_d}( x - (1 / L_x) H^T grad h(Hx) ).

    Converges for `D = prox` if `L_x > L_h ||H||^2`; for convex `f` half of that is enough.

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
    >>> pl.solve(problem, pl.ISTA(pl.load_denoiser("tv"), 0.05, L_x=110.0), iterations=20).certificate.level.value
    'proved'
    """

    settings_key: ClassVar[str | None] = "ista"

    L_x: PerPicture

    @classmethod
    def convex_L_x(cls, problem: Problem, sigma: Tensor) -> Tensor:
        """`L_x` for convex priors, not below the smallest one that converges."""
        return torch.maximum(super().convex_L_x(problem, sigma), least_L_x(problem, cls.__name__))

    @classmethod
    def from_settings(cls, denoiser: Denoiser, problem: Problem, settings: Settings, calls: int | None = None) -> ISTA:
        """From `sigma_d` and `lambda`."""
        return cls(denoiser, **step_from_settings(problem, settings, cls.__name__))

    @property
    def prior_weight(self) -> PerPicture:
        """`lambda f = L_x phi`."""
        return self.L_x

    def init(self, problem: Problem, start: Start = None) -> ISTAState:
        """`x0`."""
        x = start_picture(problem, start)
        return ISTAState(x=x, Hx=problem.operator.forward(x))

    def step(self, problem: Problem, state: ISTAState) -> ISTAState:
        """The equation above."""
        H, h, y = problem.operator, problem.data_term, problem.observed
        v = state.x - H.adjoint(h.gradient(state.Hx, y)) / per_picture(self.L_x, state.x)
        x = self.denoise(v)
        return ISTAState(x=x, Hx=H.forward(x), denoised_from=v, iteration=state.iteration + 1)

    def theorem(self, problem: Problem) -> Theorem:
        """Descent of `E`."""
        smoothness = problem.L_h() * problem.norm_squared.upper.to(problem.observed.device)
        return Theorem(
            general=(Condition("L_x", self.L_x, "L_h ||H||^2", smoothness),),
            convex=(Condition("L_x", self.L_x, "L_h ||H||^2 / 2", smoothness / 2),),
            general_statement="E falls at every iteration, changes go to 0, every limit point is critical",
            convex_statement="proximal gradient descent on a convex E: it converges to a minimiser",
            falls="objective",
        )


def least_L_x(problem: Problem, method: str) -> Tensor:
    """The smallest `L_x` for which ISTA and FISTA converge."""
    return MARGIN * problem.L_h() * problem.proven_norm_for(method)


def step_from_settings(problem: Problem, settings: Settings, method: str) -> dict[str, Any]:
    """`sigma_d` and `L_x = lambda / sigma_d^2`. If `L_x` must be raised to converge, `sigma_d` does not change."""
    sigma_d, least = settings["sigma_d"], least_L_x(problem, method)
    L_x = torch.as_tensor(settings["lambda"], dtype=torch.float64) / torch.as_tensor(sigma_d) ** 2
    return {"sigma_d": sigma_d, "L_x": torch.maximum(L_x.to(least.device), least)}
