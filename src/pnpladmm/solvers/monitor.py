"""Follows each picture of a run: running, converged, diverged or non-finite."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pnpladmm.solvers.history import History
from pnpladmm.solvers.inner_products import squared
from pnpladmm.solvers.method import Method
from pnpladmm.solvers.optimality import relative_residual
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.result import Status
from pnpladmm.solvers.state import PlugAndPlayState, State, keep_finished
from pnpladmm.tensors import InputError, squared_norm, version_of

# A picture has diverged if its root mean square is this many times that of the start, of the observation, and of the
# observation divided by the gain of the operator.
DIVERGED_AT = 100.0
# So large it has to stay for so many iterations, and to grow: the first steps of a run that converges may overshoot.
STAYS_LARGE = 5
# It has diverged, too, if its objective and its data fit have grown by this factor since the first iteration.
GROWN = 100.0
# And if its changes, which were small once, were larger by this factor at the end, were no small ones, and still grew.
RISEN, LARGE_CHANGE, STILL = 8.0, 0.01, 1.5
# An operator that removes nearly all of the start says nothing of the size of the picture.
LEAST_GAIN = 1e-6


class Monitor:
    """Follows the pictures of a batch, on their device."""

    def __init__(self, problem: Problem, method: Method[Any], state: State, tolerance: float) -> None:
        self.problem, self.method, self.tolerance = problem, method, tolerance
        device = state.x.device
        self.limit = DIVERGED_AT**2 * _natural_size(problem, method, state) * state.x[0].numel()
        flag = torch.zeros(problem.pictures, dtype=torch.bool, device=device)
        self.running, self.converged, self.diverged, self.non_finite = ~flag, flag, flag, flag
        self.large = torch.zeros(problem.pictures, dtype=torch.int64, device=device)
        """For how many iterations has the picture been too large?"""
        self.first_large = torch.full((problem.pictures,), torch.inf, dtype=torch.float64, device=device)
        self.denoiser_broke = flag
        """Did the denoiser return NaN or infinity for a finite picture? Not asked on a GPU, where it costs a wait."""
        self.calmest = state.x
        # After a step half as large as the picture, the start is the better picture to return.
        self.least_change = torch.full((problem.pictures,), 0.5, dtype=torch.float64, device=device)
        self._seen = version_of(state.x)

    def advance(self, old: State, new: State, change: dict[str, Tensor | None]) -> State:
        """Take the step for the pictures that are still running, and find out which of them are done or failed."""
        self._check_own(old, new)
        moved = [value for value in change.values() if value is not None]
        size = squared(new.x)
        finite = torch.isfinite(torch.stack([*moved, size])).all(0)
        diverged = self._has_diverged(size, finite)
        good = self.running & finite & (self.large == 0)
        calmer = good & (moved[0] < self.least_change)
        self.least_change = torch.where(calmer, moved[0], self.least_change)
        on_cpu = not new.x.is_cuda
        if on_cpu and bool(calmer.all()):  # no copies of pictures where nothing is to be chosen
            self.calmest = new.x
        elif not on_cpu or bool(calmer.any()):
            self.calmest = torch.where(calmer.view(-1, 1, 1, 1), new.x, self.calmest)
        if on_cpu and not bool(finite.all()):
            self._blame(new)
        go_on = self.running & finite
        state = new if on_cpu and bool(go_on.all()) else keep_finished(old, new, go_on)

        self.converged = self.converged | (good & self._settled(state, torch.stack(moved).amax(0)))
        self.diverged = self.diverged | (self.running & diverged)
        self.non_finite = self.non_finite | (self.running & ~finite)
        self.running = self.running & finite & ~diverged & ~self.converged
        self._seen = version_of(state.x)
        return state

    def all_done(self) -> bool:
        """Is no picture running any more? Waits for a GPU."""
        return not bool(self.running.any())

    def judge(self, history: History) -> None:
        """Call pictures diverged that are too large, or whose changes, or objective and fit, grow without bound."""
        self.diverged = self.diverged | (((self.large > 0) | self._rising(history)) & ~self.non_finite)
        grown = [self._grown(history, name) for name in ("objective", "data_fit")]
        if grown[0] is None or grown[1] is None:
            return
        self.diverged = self.diverged | (grown[0] & grown[1] & ~self.non_finite)
        self.converged = self.converged & ~self.diverged

    def _has_diverged(self, size: Tensor, finite: Tensor) -> Tensor:
        """Has the picture been too large for some iterations, and grown?"""
        large = self.running & finite & (size > self.limit)
        # Pictures that are done keep what was found of them.
        self.large = torch.where(self.running, torch.where(large, self.large + 1, 0), self.large)
        self.first_large = torch.where(large & (self.large == 1), size, self.first_large)
        return large & (self.large >= STAYS_LARGE) & (size >= self.first_large)

    def _grown(self, history: History, name: str) -> Tensor | None:
        """Has a column grown without bound since the first iteration?"""
        values: Tensor | None = getattr(history, name)
        last = history.last(name)
        if values is None or last is None:
            return None
        least = self.problem.observed[0].numel()  # about twice the data fit of the true picture
        return (last > GROWN * values[0].clamp_min(least)).to(self.diverged.device)

    def _rising(self, history: History) -> Tensor:
        """Have the changes grown again, after the picture was calm, and do they still grow?

        A network that is no proximal operator may hold a picture for many iterations, and then drift away with it.
        Where the objective is known, it says more than the changes do.
        """
        changes, last, known = history.x_change, history.last("x_change"), history.objective is not None
        if changes is None or last is None or known or self.method.length is not None or len(changes) < 4:
            return torch.zeros_like(self.diverged)
        later = torch.nan_to_num(changes[3 * len(changes) // 4])
        rising = (last > LARGE_CHANGE) & (last > STILL * later)
        return rising.to(self.diverged.device) & (last.to(self.least_change) > RISEN * self.least_change)

    def image(self, state: State) -> Tensor:
        """The pictures to be returned."""
        failed = self.diverged | self.non_finite
        if not failed.is_cuda and not bool(failed.any()):
            return state.x
        return torch.where(failed.view(-1, 1, 1, 1), self.calmest, state.x)

    def statuses(self, rest: Status) -> tuple[Status, ...]:
        """How each picture ended; `rest` for those that neither converged nor failed."""
        flags = torch.stack([self.converged, self.diverged, self.non_finite]).T.tolist()
        names = (Status.CONVERGED, Status.DIVERGED, Status.NON_FINITE)
        return tuple(next((name for name, flag in zip(names, row, strict=True) if flag), rest) for row in flags)

    def _settled(self, state: State, change: Tensor) -> Tensor:
        """Are the changes and, where it is known, the optimality residual below the tolerance?

        Changes alone are small for tiny steps, too. A method with a schedule is done at its end and not before.
        """
        calm = change < self.tolerance
        if self.method.length is not None or self.tolerance == 0:
            return torch.zeros_like(calm)
        if not state.x.is_cuda and not bool((calm & self.running).any()):
            return calm
        residual = relative_residual(self.problem, self.method, state)
        return calm if residual is None else calm & (residual < self.tolerance)

    def _blame(self, new: State) -> None:
        """Which pictures were finite before the denoiser?"""
        if isinstance(new, PlugAndPlayState) and new.denoised_from is not None:
            before = torch.isfinite(squared(new.denoised_from))
            self.denoiser_broke = self.denoiser_broke | (before & ~torch.isfinite(squared(new.x)))

    def _check_own(self, old: State, new: State) -> None:
        """Refuse a step that wrote into the picture before it: changes would then be 0."""
        shared = new.x.untyped_storage().data_ptr() == old.x.untyped_storage().data_ptr()
        if shared or version_of(old.x) != self._seen:
            raise InputError(
                "the denoiser returned a tensor that it returned before and writes into: it must return a new one"
            )


def _natural_size(problem: Problem, method: Method[Any], state: State) -> Tensor:
    """The largest mean square that a picture of this problem may have, up to a factor, (B,).

    A PSF with a sum of 0.01 makes a picture 100 times as large as the observation.
    """
    y_size = squared_norm(problem.observed) / problem.observed[0].numel()
    x_size = squared_norm(state.x) / state.x[0].numel()
    Hx = method.blurred(problem, state)
    gain = squared_norm(Hx) / Hx[0].numel() / x_size.clamp_min(torch.finfo(torch.float64).tiny)
    if not bool(x_size.min() > 0):  # a start of nothing says nothing
        gain = torch.where(x_size > 0, gain, problem.norm_squared.lower.to(gain.device))
    return torch.maximum(x_size, y_size / gain.clamp(LEAST_GAIN**2, 1))
