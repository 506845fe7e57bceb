"""Plug & Play primal-dual splitting (Chambolle-Pock, Condat-Vu): `H` in the dual, so no inner solve."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.solvers.certificate import Condition, Theorem
from pnpladmm.solvers.ladmm import steps_from_settings
from pnpladmm.solvers.method import PlugAndPlay, Settings
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.registry import METHODS
from pnpladmm.solvers.state import PlugAndPlayState, Start, start_picture
from pnpladmm.tensors import InputError, PerPicture, per_picture


@dataclass(frozen=True, kw_only=True)
class PrimalDualState(PlugAndPlayState):
    """`x`, `Hx`, the split `z ~ Hx`, the scaled duals `u` (data) and `u_box`, and what the denoiser got."""

    duals: ClassVar[tuple[str, ...]] = ("u", "u_box")

    Hx: Tensor = field()
    z: Tensor = field()
    u: Tensor = field()
    u_box: Tensor


@METHODS.register("primal-dual")
@dataclass(frozen=True)
class PrimalDual(PlugAndPlay[PrimalDualState]):
    """Minimise `h(Hx) + lambda f(x)`, `lambda = L_x sigma_d^2`, over `low <= x <= high` where `box` is given:

        x+     = D_{sigma_d}( x - (beta / L_x) (H^T u + u_box) )
        z+     = prox_{h / beta}( u + H (2 x+ - x) )
        u+     = u + H (2 x+ - x) - z+
        u_box+ = (Id - P_box)( u_box + 2 x+ - x ).

    With the dual `w = beta u` the two middle lines are `w+ = prox_{beta h*}( w + beta H (2 x+ - x) )` (Moreau).
    The box is a separate term with its own dual, so it is exact: iterates may leave it, their limit does not.
    Converges for convex `f` if `L_x >= beta ||H||^2`, with a box if `L_x >= beta (||H||^2 + 1)`.

    Parameters
    ----------
    denoiser : Denoiser
        `D`, any callable `d(x, sigma)`.
    sigma_d : float or Tensor
        The noise level that the denoiser is told, one number or one per picture.
    beta : float or Tensor
        The step size of the dual.
    L_x : float or Tensor
        1 / the step size of the picture.
    box : tuple of float, optional
        (low, high): the range of the picture.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> problem = pl.Problem(torch.rand(1, 1, 8, 8), pl.Mask(torch.ones(8, 8)), pl.Gaussian(0.1))
    >>> method = pl.PrimalDual(pl.load_denoiser("tv"), 0.05, beta=50.0, L_x=110.0, box=(0, 1))
    >>> pl.solve(problem, method, iterations=20).certificate.level.value
    'convex'
    """

    settings_key: ClassVar[str | None] = "ladmm"  # the same fixed points

    beta: PerPicture
    L_x: PerPicture
    box: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Check the box too."""
        super().__post_init__()
        if self.box is not None and not self.box[0] < self.box[1]:
            raise InputError(f"box {self.box}: give (low, high) with low below high; infinite is allowed")

    @classmethod
    def from_settings(
        cls, denoiser: Denoiser, problem: Problem, settings: Settings, calls: int | None = None
    ) -> PrimalDual:
        """From `sigma_d`, `lambda` and `ratio`."""
        return cls(denoiser, **steps_from_settings(problem, settings, cls.__name__))

    @property
    def prior_weight(self) -> PerPicture:
        """`lambda f = L_x phi`."""
        return self.L_x

    def init(self, problem: Problem, start: Start = None) -> PrimalDualState:
        """`z0 = H x0`, duals 0."""
        x = start_picture(problem, start)
        Hx = problem.operator.forward(x)
        return PrimalDualState(x=x, z=Hx, u=torch.zeros_like(Hx), u_box=torch.zeros_like(x), Hx=Hx)

    def step(self, problem: Problem, state: PrimalDualState) -> PrimalDualState:
        """The equations above; `H (2 x+ - x)` from the two `Hx`."""
        s, H, h, y = state, problem.operator, problem.data_term, problem.observed
        beta, L_x = per_picture(self.beta, s.x), per_picture(self.L_x, s.x)

        v = s.x - beta / L_x * (H.adjoint(s.u) + s.u_box)
        x = self.denoise(v)
        Hx = H.forward(x)
        q = s.u + 2 * Hx - s.Hx
        z = h.prox(q, 1 / beta, y)
        q_box = s.u_box + 2 * x - s.x
        u_box = s.u_box if self.box is None else q_box - q_box.clamp(*self.box)
        return PrimalDualState(x=x, z=z, u=q - z, u_box=u_box, Hx=Hx, denoised_from=v, iteration=s.iteration + 1)

    def gradient(self, problem: Problem, state: PrimalDualState) -> Tensor | None:
        """With what the box adds, `beta u_box`."""
        gradient = super().gradient(problem, state)
        return None if gradient is None else gradient + per_picture(self.beta, state.x) * state.u_box

    def theorem(self, problem: Problem) -> Theorem:
        """Chambolle and Pock's condition on the two steps."""
        norm = problem.norm_squared.upper + (self.box is not None)
        name = "beta (||H||^2 + 1)" if self.box is not None else "beta ||H||^2"
        bound = torch.as_tensor(self.beta, dtype=torch.float64).reshape(-1).to(norm.device) * norm
        return Theorem(
            convex=(Condition("L_x", self.L_x, name, bound, strict=False),),
            convex_statement="a primal-dual method for a convex E: it converges to a minimiser",
            missing="primal-dual splitting is proved for convex priors only",
        )
