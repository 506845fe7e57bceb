"""Annealed half-quadratic splitting: few denoiser calls, each at a lower noise level than the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pnpladmm.solvers.certificate import Theorem
from pnpladmm.solvers.conjugate_gradient import DataStep
from pnpladmm.solvers.method import PlugAndPlay, Start, State, start_picture
from pnpladmm.solvers.problem import Problem
from pnpladmm.tensors import InputError, PerPicture, check_positive, per_picture

SIGMA_START = 49 / 255
"""Where the schedule begins by default: strong enough to forget the blurred start of a photograph."""


@dataclass(frozen=True, kw_only=True)
class AnnealedState(State):
    """`x`, the picture `z` that fits the data, and its gradient `g = H^T p (y - Hz)`."""

    z: Tensor
    g: Tensor


@dataclass(frozen=True)
class Annealed(PlugAndPlay):
    """`calls` times, `sigma_k` falling from `sigma_start` to `sigma_d`, for quadratic `h` of precision `p`:

        z+ = argmin_z h(Hz) + a/2 ||z - x||^2 :  (H^T p H + a) z = H^T p y + a x,  a = mu / sigma_k^2
        x+ = D_{sigma_k}( z+ + extrapolation (z+ - z) ).

    `log sigma_k` falls evenly for `bend` 1, late for more, early for less. The system is solved by preconditioned
    conjugate gradient from the last `z`, until it is off by about `cg_tolerance` of itself or for `cg_iterations`: a
    number, one for each picture and call (B, calls), or for each of its colour planes (B, calls, C).
    Each call sees the picture in another of its eight orientations: a network's errors then differ from call to
    call and do not add up.

    Quick and good, but no minimiser of anything: nothing is proved of it. Run certified iterations after it where
    proof counts.
    """

    state_type: ClassVar[type[State]] = AnnealedState

    mu: PerPicture = 0.25
    calls: int = 8
    sigma_start: PerPicture = SIGMA_START
    bend: PerPicture = 1.0
    extrapolation: PerPicture = 0.0
    cg_iterations: int | Tensor = 10
    cg_tolerance: float = 1e-4

    def __post_init__(self) -> None:
        """Check the schedule."""
        super().__post_init__()
        for name in ("mu", "sigma_start", "bend"):
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

    def init(self, problem: Problem, start: Start = None) -> AnnealedState:
        """`z0 = x0`."""
        x = start_picture(problem, start)
        return AnnealedState(x=x, z=x, g=self._data_step(problem, 0).gradient(x))

    def step(self, problem: Problem, state: State) -> AnnealedState:
        """The two equations above."""
        assert isinstance(state, AnnealedState)
        s, sigma = state, self.sigma_at(state.iteration)
        z, g = self._data_step(problem, s.iteration).solve(per_picture(self.mu / sigma**2, s.x), s.x, s.z, s.g)
        # The first step leads away from the blurred start: there is no trend in it to go on with.
        v = z if s.iteration == 0 else z + per_picture(self.extrapolation, z) * (z - s.z)
        x = turn_back(self.denoise(turn(v, s.iteration), sigma), s.iteration).contiguous()
        return AnnealedState(x=x, z=z, g=g, iteration=s.iteration + 1)

    def theorem(self, problem: Problem) -> Theorem:
        """None."""
        return Theorem(missing="the annealed schedule minimises nothing; run certified iterations after it for a proof")

    def _data_step(self, problem: Problem, iteration: int) -> DataStep:
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
            problem.kept,
        )


def turn(x: Tensor, orientation: int) -> Tensor:
    """Pictures in one of their eight orientations, numbered modulo 8."""
    x = x.flip(-1) if orientation & 4 else x
    return torch.rot90(x, orientation & 3, (-2, -1))


def turn_back(x: Tensor, orientation: int) -> Tensor:
    """Undo `turn`."""
    x = torch.rot90(x, -(orientation & 3), (-2, -1))
    return x.flip(-1) if orientation & 4 else x
