"""Plug & Play ADMM split at `x = z`: its data step inverts `H^T H + rho`, here by conjugate gradient."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.solvers.certificate import Theorem
from pnpladmm.solvers.data_step import DataStep
from pnpladmm.solvers.method import PlugAndPlay, Settings
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.registry import METHODS
from pnpladmm.solvers.state import PlugAndPlayState, Start, start_picture
from pnpladmm.solvers.workspace import Workspace
from pnpladmm.tensors import InputError, PerPicture, per_picture, squared_norm


@dataclass(frozen=True, kw_only=True)
class ADMMState(PlugAndPlayState):
    """`x`, its copy `z` that fits the data, the scaled dual `u`, what the denoiser got, and `g = H^T p (y - Hz)`."""

    z: Tensor = field()
    u: Tensor = field()
    g: Tensor


@METHODS.register("admm")
@dataclass(frozen=True)
class ADMM(PlugAndPlay[ADMMState]):
    """Minimise `h(Hx) + lambda f(x)`, `lambda = rho sigma_d^2`, for quadratic `h` of precision `p`:

        x+ = D_{sigma_d}( z - u )
        z+ = argmin_z h(Hz) + rho/2 ||z - x+ - u||^2 :  (H^T p H + rho) z = H^T p y + rho (x+ + u)
        u+ = u + x+ - z+.

    The system is solved by preconditioned conjugate gradient from the last `z`, until `z` is off by about
    `cg_tolerance` of itself or for `cg_iterations`, whichever comes first.

    Parameters
    ----------
    denoiser : Denoiser
        `D`, any callable `d(x, sigma)`.
    sigma_d : float or Tensor
        The noise level that the denoiser is told, one number or one per picture.
    rho : float or Tensor
        The penalty of the split.
    cg_iterations : int
        The most steps of conjugate gradient per iteration.
    cg_tolerance : float
        The relative error at which conjugate gradient stops.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> problem = pl.Problem(torch.rand(1, 1, 8, 8), pl.Mask(torch.ones(8, 8)), pl.Gaussian(0.1))
    >>> len(pl.solve(problem, pl.ADMM(pl.load_denoiser("tv"), 0.05, rho=100.0), iterations=5, tolerance=0).history)
    5
    """

    needs_quadratic: ClassVar[bool] = True
    settings_key: ClassVar[str | None] = "admm"

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

    @classmethod
    def from_settings(cls, denoiser: Denoiser, problem: Problem, settings: Settings, calls: int | None = None) -> ADMM:
        """From `sigma_d` and `lambda`."""
        sigma_d = settings["sigma_d"]
        rho = torch.as_tensor(settings["lambda"], dtype=torch.float64) / torch.as_tensor(sigma_d) ** 2
        return cls(denoiser, sigma_d, rho=rho)

    @property
    def prior_weight(self) -> PerPicture:
        """`lambda f = rho phi`."""
        return self.rho

    def init(self, problem: Problem, start: Start = None) -> ADMMState:
        """`z0 = x0`, `u0 = 0`."""
        x = start_picture(problem, start)
        return ADMMState(x=x, z=x, u=torch.zeros_like(x), g=self._data_step(problem).gradient(x))

    def step(self, problem: Problem, state: ADMMState) -> ADMMState:
        """The equations above."""
        return self.step_in(None, problem, state)

    def step_in(self, workspace: Workspace | None, problem: Problem, state: ADMMState) -> ADMMState:
        """The equations above; the workspace keeps the system that does not change."""
        s = state
        v = s.z - s.u
        x = self.denoise(v)
        z, g = self._data_step(problem).solve(per_picture(self.rho, s.x), x + s.u, s.z, s.g, workspace)
        return ADMMState(x=x, z=z, u=s.u + x - z, denoised_from=v, g=g, iteration=s.iteration + 1)

    def lagrangian(self, problem: Problem, state: ADMMState) -> Tensor | None:
        """`h(Hz) + lambda f(x) + rho <u, x - z> + rho/2 ||x - z||^2`."""
        prior = self.prior_term(state)
        if prior is None:
            return None
        rho = torch.as_tensor(self.rho, dtype=torch.float64, device=prior.device)
        coupling = rho / 2 * (squared_norm(state.x - state.z + state.u) - squared_norm(state.u))
        return problem.data_term.value(problem.operator.forward(state.z), problem.observed) + prior + coupling

    def theorem(self, problem: Problem) -> Theorem:
        """No theorem with conditions that could be checked."""
        return Theorem(
            missing="ADMM's theorems need an exact data step (or errors that sum up to something finite); "
            "conjugate gradient to a tolerance gives neither"
        )

    def _data_step(self, problem: Problem) -> DataStep:
        precision = problem.precision_for(self.name)
        return DataStep(problem.operator, precision, problem.observed, self.cg_iterations, self.cg_tolerance)
