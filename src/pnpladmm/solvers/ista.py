"""Plug & Play ISTA: proximal gradient descent with a denoiser for the prox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from pnpladmm.solvers.certificate import Condition, Theorem
from pnpladmm.solvers.method import PlugAndPlay, Start, State, start_picture
from pnpladmm.solvers.problem import Problem
from pnpladmm.tensors import PerPicture, per_picture


@dataclass(frozen=True, kw_only=True)
class ISTAState(State):
    """`x`, the denoiser's last argument `v`, and `Hx`."""

    Hx: Tensor
    v: Tensor | None = None


@dataclass(frozen=True)
class ISTA(PlugAndPlay):
    """Minimise `h(Hx) + lambda f(x)`, `lambda = L_x sigma_d^2`:

        x+ = D_{sigma_d}( x - (1 / L_x) H^T grad h(Hx) ).

    Converges for `D = prox` if `L_x > L_h ||H||^2`; for convex `f` half of that is enough.
    """

    state_type: ClassVar[type[State]] = ISTAState

    L_x: PerPicture

    @property
    def prior_weight(self) -> PerPicture:
        """`lambda f = L_x phi`."""
        return self.L_x

    def init(self, problem: Problem, start: Start = None) -> ISTAState:
        """`x0`."""
        x = start_picture(problem, start)
        return ISTAState(x=x, Hx=problem.operator.forward(x))

    def step(self, problem: Problem, state: State) -> ISTAState:
        """The equation above."""
        assert isinstance(state, ISTAState)
        H, h, y = problem.operator, problem.data_term, problem.observed
        v = state.x - H.adjoint(h.gradient(state.Hx, y)) / per_picture(self.L_x, state.x)
        x = self.denoise(v)
        return ISTAState(x=x, Hx=H.forward(x), v=v, iteration=state.iteration + 1)

    def theorem(self, problem: Problem) -> Theorem:
        """Descent of `E`."""
        smoothness = problem.L_h() * problem.norm_squared.upper.to(problem.observed.device)
        return Theorem(
            general=(Condition("L_x", self.L_x, "L_h ||H||^2", smoothness),),
            convex=(Condition("L_x", self.L_x, "L_h ||H||^2 / 2", smoothness / 2),),
            general_statement="E falls at every iteration, changes go to 0, every limit point is critical",
            convex_statement="proximal gradient descent on a convex E: it converges to a minimiser",
        )
