"""Annealed half-quadratic splitting: few denoiser calls, each at a lower noise level than the last."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Denoiser, Promise, SplitPrior, promise_of
from pnpladmm.solvers.certificate import Theorem
from pnpladmm.solvers.data_step import DataSolver, DataStep
from pnpladmm.solvers.ladmm import LADMM
from pnpladmm.solvers.method import Method, PlugAndPlay, Settings
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.registry import METHODS
from pnpladmm.solvers.settings import convex_weight, tuned_fast
from pnpladmm.solvers.split_prior import SplitDescent
from pnpladmm.solvers.state import PlugAndPlayState, Start, start_picture
from pnpladmm.solvers.step_lengths import StepLengths
from pnpladmm.solvers.workspace import Workspace
from pnpladmm.tensors import InputError, PerPicture, check_positive, per_picture

SIGMA_START = 49 / 255
"""The first noise level of the schedule by default: strong enough to forget the blurred start of a photograph."""
DEFAULT_CALLS = 8
MOST_STEPS = 40
"""More steps of conjugate gradient than this do not change the picture."""


@dataclass(frozen=True, kw_only=True)
class AnnealedState(PlugAndPlayState):
    """`x`, the picture `z` that fits the data, and its gradient `g = H^T p (y - Hz)`."""

    z: Tensor = field()
    g: Tensor


@METHODS.register("fast")
@dataclass(frozen=True)
class Annealed(PlugAndPlay[AnnealedState]):
    """Half-quadratic splitting: `calls` times, `sigma_k` falling from `sigma_start` to `sigma_d`, for quadratic `h`:

        z+ = argmin_z h(Hz) + a/2 ||z - x||^2 :  (H^T p H + a) z = H^T p y + a x,  a = mu_k / sigma_k^2
        x+ = D_{sigma_k}( z+ + extrapolation (z+ - z) ).

    The system is solved by preconditioned conjugate gradient from the last `z`. Each call sees the picture in another
    of its eight orientations: the errors of a network then differ from call to call and do not add up.

    Fast, with good results. It minimises nothing, so nothing is proved of it: run certified iterations after it where a
    proof counts.

    Parameters
    ----------
    denoiser : Denoiser
        `D`, any callable `d(x, sigma)`.
    sigma_d : float or Tensor
        The last noise level, one number or one per picture.
    mu : float or Tensor
        The weight of the prior in the data step, that of the last call.
    calls : int
        Denoiser calls.
    sigma_start : float or Tensor
        The first noise level.
    bend : float or Tensor
        `log sigma_k` falls evenly for 1, late for more, early for less.
    extrapolation : float or Tensor
        How far `x+` goes beyond `z+`, as a factor of the last change of `z`.
    cg_iterations : int or Tensor
        The most steps of conjugate gradient: a number, one for each picture and call, (B, calls), or one for each
        colour plane, (B, calls, C).
    cg_tolerance : float
        The relative error at which conjugate gradient stops.
    tilt : float or Tensor
        `log mu_k` goes evenly from `log(tilt mu)` at the first call to `log mu` at the last one; 1 keeps `mu_k = mu`.
    step_lengths : StepLengths, optional
        The steps of conjugate gradient that every tile of a picture takes, for each call (`side_by_side.py`).

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> problem = pl.Problem(torch.rand(1, 1, 8, 8), pl.Mask(torch.ones(8, 8)), pl.Gaussian(0.1))
    >>> pl.solve(problem, pl.Annealed(pl.load_denoiser("tv"), 0.05, calls=4)).status.label
    'finished'
    """

    needs_quadratic: ClassVar[bool] = True
    fewest_iterations: ClassVar[int] = 2  # a schedule has two ends
    settings_key: ClassVar[str | None] = "fast"  # with the number of calls: fast-8

    mu: PerPicture = 0.25
    calls: int = DEFAULT_CALLS
    sigma_start: PerPicture = SIGMA_START
    bend: PerPicture = 1.0
    extrapolation: PerPicture = 0.0
    cg_iterations: int | Tensor = 10
    cg_tolerance: float = 1e-4
    tilt: PerPicture = 1.0
    step_lengths: StepLengths | None = None

    def __post_init__(self) -> None:
        """Check the schedule."""
        super().__post_init__()
        for name in ("mu", "sigma_start", "bend", "tilt"):
            check_positive(name, getattr(self, name))
        steps = torch.as_tensor(self.cg_iterations).cpu()
        if self.calls < 2 or steps.numel() == 0 or int(steps.min()) < 1 or not 0 <= self.cg_tolerance < 1:
            raise InputError(
                f"calls = {self.calls}, cg_iterations = {self.cg_iterations}, cg_tolerance = {self.cg_tolerance}: "
                "give at least 2, at least 1, and from 0 to below 1"
            )
        if steps.is_floating_point() or steps.ndim not in (0, 2, 3) or (steps.ndim and steps.shape[1] != self.calls):
            raise InputError(
                f"cg_iterations are {steps.dtype} of shape {tuple(steps.shape)}: "
                f"give a whole number, or whole numbers of shape (B, {self.calls}) or (B, {self.calls}, C)"
            )
        if steps.ndim == 3 and bool((steps.diff(dim=2) > 0).any()):
            raise InputError("cg_iterations grow from one colour plane to the next: the first needs most, give it most")
        if isinstance(self.cg_iterations, Tensor):  # the loop counts on the CPU, and must not wait for a GPU
            object.__setattr__(self, "cg_iterations", steps)

    @classmethod
    def for_noise(
        cls, denoiser: Denoiser, problem: Problem, sigma: Tensor, strength: float = 1.0, calls: int | None = None
    ) -> Method[Any]:
        """The method with tuned parameters; for convex priors one that converges for them and needs no schedule.

        That is LADMM. For blur and a prior that needs no inner iterations it is accelerated descent.
        """
        if promise_of(denoiser) is Promise.CONVEX:
            if problem.operator.blurs and isinstance(denoiser, SplitPrior):
                return SplitDescent(denoiser, torch.full_like(sigma, strength**2 * convex_weight(denoiser)))
            return LADMM.for_noise(denoiser, problem, sigma, strength, calls)
        return super().for_noise(denoiser, problem, sigma, strength, calls)

    @classmethod
    def tuned_settings(cls, denoiser: Denoiser, sigma: Tensor, calls: int | None = None) -> dict[str, Tensor]:
        """Interpolated between the numbers of calls of the table."""
        return tuned_fast(denoiser, calls or DEFAULT_CALLS, sigma)

    @classmethod
    def from_settings(
        cls, denoiser: Denoiser, problem: Problem, settings: Settings, calls: int | None = None
    ) -> Annealed:
        """From the fields that are tuned, with as many steps of conjugate gradient as the problem needs."""
        names = {f.name for f in fields(cls)} - {"denoiser"}
        wrong = next((name for name in settings if name not in names), None)
        if wrong is not None or "sigma_d" not in settings:
            fault = "sigma_d is missing" if wrong is None else f"{wrong} is no parameter of it"
            raise InputError(f"settings of the annealed method: {fault}; they are {', '.join(sorted(names))}")
        given: dict[str, Any] = {**settings, "calls": calls or DEFAULT_CALLS}
        method = cls(denoiser, **given)
        return replace(method, cg_iterations=_data_steps(problem, method))

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
        start = torch.maximum(end, torch.as_tensor(self.sigma_start, dtype=torch.float64))
        share = min(iteration / (self.calls - 1), 1.0) ** torch.as_tensor(self.bend, dtype=torch.float64)
        return start * (end / start) ** share

    def mu_at(self, iteration: int) -> Tensor:
        """`mu_k` of the call number `iteration`, counted from 0; `mu` from the last one on."""
        left = 1 - min(iteration / (self.calls - 1), 1.0)
        return torch.as_tensor(self.mu, dtype=torch.float64) * torch.as_tensor(self.tilt, dtype=torch.float64) ** left

    def init(self, problem: Problem, start: Start = None) -> AnnealedState:
        """`z0 = x0`."""
        x = start_picture(problem, start)
        return AnnealedState(x=x, z=x, g=self.data_step(problem, 0).gradient(x))

    def step(self, problem: Problem, state: AnnealedState) -> AnnealedState:
        """The two equations above."""
        return self.step_in(None, problem, state)

    def step_in(self, workspace: Workspace | None, problem: Problem, state: AnnealedState) -> AnnealedState:
        """The two equations above; the workspace keeps the system, of which only `a` changes."""
        return self.step_by(partial(DataStep.solve, workspace=workspace), problem, state)

    def step_by(self, solved: DataSolver, problem: Problem, state: AnnealedState) -> AnnealedState:
        """The two equations above, with `solved` for the first one."""
        s = state
        return self.denoised(s, *solved(self.data_step(problem, s.iteration), self.prior_share(s), s.x, s.z, s.g))

    def prior_share(self, state: AnnealedState) -> Tensor:
        """`a` of the first equation."""
        return per_picture(self.mu_at(state.iteration) / self.sigma_at(state.iteration) ** 2, state.x)

    def denoised(self, state: AnnealedState, z: Tensor, g: Tensor) -> AnnealedState:
        """The second equation: the state after it, from the one before and the new `z` with its `g`."""
        s, sigma = state, self.sigma_at(state.iteration)
        # The first step leads away from the blurred start and shows no trend to extrapolate.
        v = z if s.iteration == 0 else z + per_picture(self.extrapolation, z) * (z - s.z)
        x = turn_back(self.denoise(turn(v, s.iteration), sigma), s.iteration).contiguous()
        return AnnealedState(x=x, z=z, g=g, iteration=s.iteration + 1)

    def theorem(self, problem: Problem) -> Theorem:
        """No theorem covers this method."""
        return Theorem(missing="the annealed schedule minimises nothing; run certified iterations after it for a proof")

    def data_step(self, problem: Problem, iteration: int) -> DataStep:
        """The system of the call number `iteration`, counted from 0, and how many steps it gets."""
        steps = torch.as_tensor(self.cg_iterations)
        by_plane = steps.ndim == 3
        if steps.ndim and len(steps) not in (1, problem.pictures):
            raise InputError(f"cg_iterations for {len(steps)} pictures, pictures: {problem.pictures}: they must match")
        if by_plane and (problem.colour_planes is None or steps.shape[2] != problem.shape[1]):
            raise InputError(
                f"cg_iterations for {steps.shape[2]} colour planes: this problem has "
                f"{0 if problem.colour_planes is None else problem.shape[1]}; give (B, {self.calls})"
            )
        steps = steps if steps.ndim == 0 else steps[:, min(iteration, self.calls - 1)]
        return DataStep(
            problem.operator,
            problem.precision_for(self.name),
            problem.observed,
            steps,
            self.cg_tolerance,
            problem.colour_planes if by_plane else None,
            None if self.step_lengths is None else self.step_lengths[min(iteration, self.calls - 1)],
        )


def _data_steps(problem: Problem, method: Annealed) -> Tensor:
    """Steps of conjugate gradient for each picture and call, (B, calls), or (B, calls, C) where it has colour planes.

    They grow like the root of the condition number of `H^T p H + a`, which is up to `L_h / a` and falls from call to
    call, because `a` grows. Early calls get no more than one at the geometric mean of the first and the last noise
    level: later ones correct them. The factors were measured (docs/reference/speed.md).
    """
    sigma = torch.stack([method.sigma_at(k) for k in range(method.calls)], -1)
    middle = (sigma[..., :1] * sigma[..., -1:]).sqrt()
    mu = torch.stack([method.mu_at(k) for k in range(method.calls)], -1)
    root = (problem.L_h().cpu().unsqueeze(-1) / mu).sqrt() * torch.minimum(sigma, middle)
    steps = 1 + problem.operator.steps_per_root_condition * root
    steps = steps.ceil().clamp(2, MOST_STEPS).long().expand(problem.pictures, method.calls)
    return steps if problem.colour_planes is None else problem.colour_planes.steps(steps)


def turn(x: Tensor, orientation: int) -> Tensor:
    """Pictures in one of their eight orientations, numbered modulo 8."""
    x = x.flip(-1) if orientation & 4 else x
    return torch.rot90(x, orientation & 3, (-2, -1))


def turn_back(x: Tensor, orientation: int) -> Tensor:
    """Undo `turn`."""
    x = torch.rot90(x, -(orientation & 3), (-2, -1))
    return x.flip(-1) if orientation & 4 else x
