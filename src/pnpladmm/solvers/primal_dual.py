"""Plug & Play primal-dual splitting (Chambolle-Pock, Condat-Vu): `H` in the dual, so no inner solve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pnpladmm.solvers.certificate import Condition, Theorem
from pnpladmm.solvers.method import PlugAndPlay, Start, State, start_picture
from pnpladmm.solvers.problem import Problem
from pnpladmm.tensors import InputError, PerPicture, per_picture


@dataclass(frozen=True, kw_only=True)
class PrimalDualState(State):
    """`x`, the split `z ~ Hx`, the scaled duals `u` (data) and `u_box`, `Hx`, the denoiser's last argument `v`."""

    duals: ClassVar[tuple[str, ...]] = ("u", "u_box")

    z: Tensor
    u: Tensor
    u_box: Tensor
    Hx: Tensor
    v: Tensor | None = None


@dataclass(frozen=True)
class PrimalDual(PlugAndPlay):
    """Minimise `h(Hx) + lambda f(x)`, `lambda = L_x sigma_d^2`, over `low <= x <= high` where `box` is given:

        x+     = D_{sigma_d}( x - (beta / L_x) (H^T u + u_box) )
        z+     = prox_{h / beta}( u + H (2 x+ - x) )
        u+     = u + H (2 x+ - x) - z+
        u_box+ = (Id - P_box)( u_box + 2 x+ - x ).

    With the dual `w = beta u` the two middle lines are `w+ = prox_{beta h*}( w + beta H (2 x+ - x) )` (Moreau).
    The box is a term of its own with its own dual, so it is exact; iterates may leave it, their limit does not.
    Converges for convex `f` if `L_x >= beta ||H||^2`, with a box if `L_x >= beta (||H||^2 + 1)`.
    """

    state_type: ClassVar[type[State]] = PrimalDualState

    beta: PerPicture
    L_x: PerPicture
    box: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Check the box too."""
        super().__post_init__()
        if self.box is not None and not self.box[0] < self.box[1]:
            raise InputError(f"box {self.box}: give (low, high) with low below high; infinite is allowed")

    @property
    def prior_weight(self) -> PerPicture:
        """`lambda f = L_x phi`."""
        return self.L_x

    def init(self, problem: Problem, start: Start = None) -> PrimalDualState:
        """`z0 = H x0`, duals 0."""
        x = start_picture(problem, start)
        Hx = problem.operator.forward(x)
        return PrimalDualState(x=x, z=Hx, u=torch.zeros_like(Hx), u_box=torch.zeros_like(x), Hx=Hx)

    def step(self, problem: Problem, state: State) -> PrimalDualState:
        """The equations above; `H (2 x+ - x)` from the two `Hx`."""
        assert isinstance(state, PrimalDualState)
        s, H, h, y = state, problem.operator, problem.data_term, problem.observed
        beta, L_x = per_picture(self.beta, s.x), per_picture(self.L_x, s.x)

        v = s.x - beta / L_x * (H.adjoint(s.u) + s.u_box)
        x = self.denoise(v)
        Hx = H.forward(x)
        q = s.u + 2 * Hx - s.Hx
        z = h.prox(q, 1 / beta, y)
        q_box = s.u_box + 2 * x - s.x
        u_box = s.u_box if self.box is None else q_box - q_box.clamp(*self.box)
        return PrimalDualState(x=x, z=z, u=q - z, u_box=u_box, Hx=Hx, v=v, iteration=s.iteration + 1)

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
