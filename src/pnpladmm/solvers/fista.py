"""Plug & Play FISTA: ISTA with Nesterov's extrapolation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from pnpladmm.solvers.certificate import Condition, Theorem
from pnpladmm.solvers.method import PlugAndPlay, Start, State, start_picture
from pnpladmm.solvers.problem import Problem
from pnpladmm.tensors import PerPicture, per_picture


@dataclass(frozen=True, kw_only=True)
class FISTAState(State):
    """`x`, the extrapolated `q` with `Hq`, `Hx`, the denoiser's last argument `v`, and Nesterov's `t`."""

    q: Tensor
    Hq: Tensor
    Hx: Tensor
    v: Tensor | None = None
    t: float = 1.0


@dataclass(frozen=True)
class FISTA(PlugAndPlay):
    """Minimise `h(Hx) + lambda f(x)`, `lambda = L_x sigma_d^2`:

        x+ = D_{sigma_d}( q - (1 / L_x) H^T grad h(Hq) )
        t+ = (1 + sqrt(1 + 4 t^2)) / 2
        q+ = x+ + (t - 1) / t+ (x+ - x).

    `Hq+` follows from `Hx+` and `Hx`: one `H` an iteration. Proved for convex `f` and `L_x >= L_h ||H||^2`.
    """

    state_type: ClassVar[type[State]] = FISTAState

    L_x: PerPicture

    @property
    def prior_weight(self) -> PerPicture:
        """`lambda f = L_x phi`."""
        return self.L_x

    def init(self, problem: Problem, start: Start = None) -> FISTAState:
        """`q0 = x0`."""
        x = start_picture(problem, start)
        Hx = problem.operator.forward(x)
        return FISTAState(x=x, q=x, Hx=Hx, Hq=Hx)

    def step(self, problem: Problem, state: State) -> FISTAState:
        """The equations above."""
        assert isinstance(state, FISTAState)
        s, H, h, y = state, problem.operator, problem.data_term, problem.observed
        v = s.q - H.adjoint(h.gradient(s.Hq, y)) / per_picture(self.L_x, s.x)
        x = self.denoise(v)
        Hx = H.forward(x)
        t = (1 + math.sqrt(1 + 4 * s.t**2)) / 2
        momentum = (s.t - 1) / t
        q, Hq = x + momentum * (x - s.x), Hx + momentum * (Hx - s.Hx)
        return FISTAState(x=x, q=q, Hx=Hx, Hq=Hq, v=v, t=t, iteration=s.iteration + 1)

    def theorem(self, problem: Problem) -> Theorem:
        """The rate of FISTA."""
        smoothness = problem.L_h() * problem.norm_squared.upper.to(problem.observed.device)
        return Theorem(
            convex=(Condition("L_x", self.L_x, "L_h ||H||^2", smoothness, strict=False),),
            convex_statement="accelerated descent on a convex E: E - min E falls as 1 / iterations^2",
            missing="the extrapolation of FISTA is proved for convex priors only",
        )
