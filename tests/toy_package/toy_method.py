"""A method: Plug & Play Douglas-Rachford splitting, in one file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from pnpladmm.solvers.certificate import Theorem
from pnpladmm.solvers.conjugate_gradient import conjugate_gradient
from pnpladmm.solvers.method import PlugAndPlay
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.state import PlugAndPlayState, Start, start_picture
from pnpladmm.tensors import PerPicture, per_picture


@dataclass(frozen=True, kw_only=True)
class DouglasRachfordState(PlugAndPlayState):
    """`x`, the point `s` that is reflected, and what the denoiser got."""

    s: Tensor


@dataclass(frozen=True)
class DouglasRachford(PlugAndPlay[DouglasRachfordState]):
    """For quadratic `h` of precision `p`, with `rho` the weight of the prior:

    z  = argmin_z h(Hz) + rho/2 ||z - s||^2 :  (H^T p H + rho) z = H^T p y + rho s
    x+ = D_{sigma_d}( 2 z - s )
    s+ = s + x+ - z.
    """

    needs_quadratic: ClassVar[bool] = True

    rho: PerPicture = 400.0

    @property
    def prior_weight(self) -> PerPicture:
        """`lambda f = rho phi`."""
        return self.rho

    def init(self, problem: Problem, start: Start = None) -> DouglasRachfordState:
        """`s0 = x0`."""
        x = start_picture(problem, start)
        return DouglasRachfordState(x=x, s=x)

    def step(self, problem: Problem, state: DouglasRachfordState) -> DouglasRachfordState:
        """The equations above."""
        H, p, s = problem.operator, problem.precision_for("Douglas-Rachford"), state.s
        rho = per_picture(self.rho, s)
        b = H.adjoint(p * problem.observed) + rho * s
        z = conjugate_gradient(lambda q: H.adjoint(p * H.forward(q)) + rho * q, b, s, 50, 1e-9)
        v = 2 * z - s
        x = self.denoise(v)
        return DouglasRachfordState(x=x, s=s + x - z, denoised_from=v, iteration=state.iteration + 1)

    def theorem(self, problem: Problem) -> Theorem:
        """None is claimed."""
        return Theorem(missing="no theorem is stated for this toy")
