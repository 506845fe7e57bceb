"""Plug & Play ADMM split at `x = z`: its data step inverts `H^T H + rho`, here by conjugate gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pnpladmm.solvers.certificate import Theorem
from pnpladmm.solvers.conjugate_gradient import DataStep
from pnpladmm.solvers.method import PlugAndPlay, Start, State, start_picture
from pnpladmm.solvers.problem import Problem
from pnpladmm.tensors import InputError, PerPicture, per_picture, squared_norm


@dataclass(frozen=True, kw_only=True)
class ADMMState(State):
    """`x`, its copy `z` that fits the data, the scaled dual `u`, `v` (what was denoised), `g = H^T p (y - Hz)`."""

    z: Tensor
    u: Tensor
    g: Tensor
    v: Tensor | None = None


@dataclass(frozen=True)
class ADMM(PlugAndPlay):
    """Minimise `h(Hx) + lambda f(x)`, `lambda = rho sigma_d^2`, for quadratic `h` of precision `p`:

        x+ = D_{sigma_d}( z - u )
        z+ = argmin_z h(Hz) + rho/2 ||z - x+ - u||^2 :  (H^T p H + rho) z = H^T p y + rho (x+ + u)
        u+ = u + x+ - z+.

    The system is solved by preconditioned conjugate gradient from the last `z`, until `z` is off by about
    `cg_tolerance` of itself or for `cg_iterations`, whichever comes first.
    """

    state_type: ClassVar[type[State]] = ADMMState

    rho: PerPicture
    cg_iterations: int = 10
    cg_tolerance: float = 1e-6

    def __post_init__(self) -> None:
        """Check the inner solve's limits too."""
        super().__post_init__()
        if self.cg_iterations < 1 or not 0 <= self.cg_tolerance < 1:
            raise InputError(
                f"cg_iterations = {self.cg_iterations}, cg_tolerance = {self.cg_tolerance}: "
                "give 1 or more, and at least 0 and below 1"
            )

    @property
    def prior_weight(self) -> PerPicture:
        """`lambda f = rho phi`."""
        return self.rho

    def init(self, problem: Problem, start: Start = None) -> ADMMState:
        """`z0 = x0`, `u0 = 0`."""
        x = start_picture(problem, start)
        return ADMMState(x=x, z=x, u=torch.zeros_like(x), g=self._data_step(problem).gradient(x))

    def step(self, problem: Problem, state: State) -> ADMMState:
        """The equations above."""
        assert isinstance(state, ADMMState)
        s = state
        v = s.z - s.u
        x = self.denoise(v)
        z, g = self._data_step(problem).solve(per_picture(self.rho, s.x), x + s.u, s.z, s.g)
        return ADMMState(x=x, z=z, u=s.u + x - z, v=v, g=g, iteration=s.iteration + 1)

    def lagrangian(self, problem: Problem, state: State) -> Tensor | None:
        """`h(Hz) + lambda f(x) + rho <u, x - z> + rho/2 ||x - z||^2`."""
        assert isinstance(state, ADMMState)
        prior = self.prior_term(state)
        if prior is None:
            return None
        rho = torch.as_tensor(self.rho, dtype=torch.float64, device=prior.device)
        coupling = rho / 2 * (squared_norm(state.x - state.z + state.u) - squared_norm(state.u))
        return problem.data_term.value(problem.operator.forward(state.z), problem.observed) + prior + coupling

    def theorem(self, problem: Problem) -> Theorem:
        """None that could be checked."""
        return Theorem(
            missing="ADMM's theorems need an exact data step (or errors that sum up to something finite); "
            "conjugate gradient to a tolerance gives neither"
        )

    def _data_step(self, problem: Problem) -> DataStep:
        precision = problem.precision_for(self.name)
        return DataStep(
            problem.operator, precision, problem.observed, self.cg_iterations, self.cg_tolerance, kept=problem.kept
        )
