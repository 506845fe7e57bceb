"""Annealed half-quadratic splitting: few denoiser calls, each at a lower noise level than the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pnpladmm.solvers.certificate import Theorem
from pnpladmm.solvers.conjugate_gradient import conjugate_gradient
from pnpladmm.solvers.method import PlugAndPlay, Start, State, start_picture
from pnpladmm.solvers.problem import Problem
from pnpladmm.tensors import InputError, PerPicture, check_positive, per_picture

SIGMA_START = 49 / 255
"""Where the schedule begins by default: strong enough to forget the blurred start of a photograph."""


@dataclass(frozen=True, kw_only=True)
class AnnealedState(State):
    """`x` and the picture `z` that fits the data, the denoiser's last argument."""

    z: Tensor


@dataclass(frozen=True)
class Annealed(PlugAndPlay):
    """`calls` times, `sigma_k` falling log-evenly from `sigma_start` to `sigma_d`, for quadratic `h` of precision `p`:

        z  = argmin_z h(Hz) + mu / (2 sigma_k^2) ||z - x||^2 :  (H^T p H + a) z = H^T p y + a x,  a = mu / sigma_k^2
        x+ = D_{sigma_k}( z ).

    The system is solved by conjugate gradient from `x`, to the relative tolerance or `cg_iterations`. Quick and
    good, but no minimiser of anything: nothing is proved of it. Run certified iterations after it where proof counts.
    """

    state_type: ClassVar[type[State]] = AnnealedState

    mu: PerPicture = 0.25
    calls: int = 8
    sigma_start: PerPicture = SIGMA_START
    cg_iterations: int = 10
    cg_tolerance: float = 1e-4

    def __post_init__(self) -> None:
        """Check the schedule."""
        super().__post_init__()
        check_positive("mu", self.mu)
        check_positive("sigma_start", self.sigma_start)
        if self.calls < 2 or self.cg_iterations < 1 or not 0 <= self.cg_tolerance < 1:
            raise InputError(
                f"calls = {self.calls}, cg_iterations = {self.cg_iterations}, cg_tolerance = {self.cg_tolerance}: "
                "give at least 2, at least 1, and from 0 to below 1"
            )

    @property
    def length(self) -> int:
        """Iterations after which the schedule is complete."""
        return self.calls

    @property
    def prior_weight(self) -> PerPicture:
        """At the end of the schedule `lambda f = (mu / sigma_d^2) phi`."""
        return self.mu / torch.as_tensor(self.sigma_d, dtype=torch.float64) ** 2

    def sigma_at(self, iteration: int) -> Tensor:
        """`sigma_k` of the call number `iteration`, counted from 0; `sigma_d` from the last one on."""
        end = torch.as_tensor(self.sigma_d, dtype=torch.float64)
        share = min(iteration / (self.calls - 1), 1.0)
        start = torch.maximum(end, torch.as_tensor(self.sigma_start, dtype=torch.float64))
        return start * (end / start) ** share

    def init(self, problem: Problem, start: Start = None) -> AnnealedState:
        """`z0 = x0`."""
        problem.precision_for(self.name)
        x = start_picture(problem, start)
        return AnnealedState(x=x, z=x)

    def step(self, problem: Problem, state: State) -> AnnealedState:
        """The two equations above."""
        assert isinstance(state, AnnealedState)
        H, y = problem.operator, problem.observed
        precision = problem.precision_for(self.name)
        sigma = self.sigma_at(state.iteration)
        a = per_picture(self.mu / sigma**2, state.x)
        z = conjugate_gradient(
            lambda q: H.adjoint(precision * H.forward(q)) + a * q,
            H.adjoint(precision * y) + a * state.x,
            state.x,
            self.cg_iterations,
            self.cg_tolerance,
        )
        return AnnealedState(x=self.denoise(z, sigma), z=z, iteration=state.iteration + 1)

    def theorem(self, problem: Problem) -> Theorem:
        """None."""
        return Theorem(missing="the annealed schedule minimises nothing; run certified iterations after it for a proof")
