"""The one loop that runs every method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from pnpladmm.solvers.certificate import certify
from pnpladmm.solvers.conjugate_gradient import squared
from pnpladmm.solvers.history import Recorder, changes
from pnpladmm.solvers.method import Method, Start, State, keep_finished
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.result import Result, Status
from pnpladmm.tensors import InputError, squared_norm

# A picture this many times as large as its data has left the rails.
DIVERGED_AT = 100.0
# On a GPU, how many iterations pass between two looks at whether all pictures are done: looking waits.
GPU_LOOK_EVERY = 10


@dataclass(frozen=True)
class Progress:
    """What a callback is shown after each iteration."""

    iteration: int
    state: State
    row: dict[str, Tensor | None]
    """The row of the history, on the device of the pictures."""


Callback: TypeAlias = Callable[[Progress], bool | None]
"""Called after each iteration; returning True stops the run."""


def solve(
    problem: Problem,
    method: Method,
    iterations: int | None = None,
    tolerance: float = 1e-5,
    start: Start | State = None,
    reference: Tensor | None = None,
    callback: Callback | None = None,
    record: bool = True,
) -> Result:
    """Run a method until every picture is done.

    A picture is done when the relative changes of its `x`, `z` and `u` are below `tolerance`, or when it
    diverges; it then stays as it is, whatever its neighbours do. `start` is `x0`, or the state of an earlier
    run, which goes on bit for bit. `iterations` is the most that are done: 100 by default, or the length of a
    method's schedule. `reference` adds PSNR to the history. Without `record` the history holds the changes alone,
    which the loop needs anyway, and no certificate is given that rests on measurements in the run. Ctrl-C returns
    what there is.
    """
    if iterations is None:
        iterations = method.length or 100
    if iterations < 1 or tolerance < 0:
        raise InputError(f"iterations = {iterations}, tolerance = {tolerance}: give at least 1, and at least 0")
    if isinstance(start, State):
        if type(start) is not method.state_type:
            wanted = method.state_type.__name__
            raise InputError(f"start is a {type(start).__name__}: {method.name} goes on from a {wanted}")
        state = start
    else:
        state = method.init(problem, start)
    recorder = Recorder(problem, method, reference, record)
    monitor = _Monitor(problem, state, tolerance)
    stopped = False
    try:
        for k in range(1, iterations + 1):
            took_part = monitor.running
            old, new = state, method.step(problem, state)
            moved = changes(old, new)
            state = monitor.advance(old, new, moved)
            row = recorder.add(new, moved, took_part)
            if callback is not None and callback(Progress(state.iteration, state, row)):
                stopped = True
                break
            if (not state.x.is_cuda or k % GPU_LOOK_EVERY == 0) and monitor.all_done():
                break
    except KeyboardInterrupt:
        stopped = True
    finally:
        problem.kept.clear()
    history = recorder.history()
    statuses = monitor.statuses(_rest(method, state, stopped))
    failed = [status in (Status.DIVERGED, Status.NON_FINITE) for status in statuses]
    return Result(
        image=monitor.image(state),
        statuses=statuses,
        history=history,
        certificates=certify(problem, method, history, failed),
        method=method,
        state=state,
    )


def _rest(method: Method, state: State, stopped: bool) -> Status:
    """The status of pictures that neither converged nor failed."""
    if method.length is not None and state.iteration >= method.length:
        return Status.FINISHED
    return Status.STOPPED if stopped else Status.ITERATION_LIMIT


class _Monitor:
    """Watches each picture of the batch, on the device: running, converged, diverged or non-finite."""

    def __init__(self, problem: Problem, state: State, tolerance: float) -> None:
        self.tolerance = tolerance
        device = state.x.device
        y_size = squared_norm(problem.observed) / problem.observed[0].numel()
        x_size = squared_norm(state.x) / state.x[0].numel()
        self.limit = DIVERGED_AT**2 * torch.maximum(y_size, x_size) * state.x[0].numel()
        flag = torch.zeros(problem.pictures, dtype=torch.bool, device=device)
        self.running, self.converged, self.diverged, self.non_finite = ~flag, flag, flag, flag
        self.calmest = state.x
        # A step half as large as the picture is not calm: then the start is the better picture to return.
        self.least_change = torch.full((problem.pictures,), 0.5, dtype=torch.float64, device=device)

    def advance(self, old: State, new: State, change: dict[str, Tensor | None]) -> State:
        """Take the step for the pictures still running and see how each of them fared."""
        moved = [value for value in change.values() if value is not None]
        size = squared(new.x)
        finite = torch.isfinite(torch.stack([*moved, size])).all(0)
        diverged = finite & (size > self.limit)
        good = self.running & finite & ~diverged
        calmer = good & (moved[0] < self.least_change)
        self.least_change = torch.where(calmer, moved[0], self.least_change)
        self.calmest = torch.where(calmer.view(-1, 1, 1, 1), new.x, self.calmest)
        state = keep_finished(old, new, self.running & finite)

        self.converged = self.converged | (good & (torch.stack(moved).amax(0) < self.tolerance))
        self.diverged = self.diverged | (self.running & diverged)
        self.non_finite = self.non_finite | (self.running & ~finite)
        self.running = good & ~self.converged
        return state

    def all_done(self) -> bool:
        return not bool(self.running.any())

    def image(self, state: State) -> Tensor:
        failed = (self.diverged | self.non_finite).view(-1, 1, 1, 1)
        return torch.where(failed, self.calmest, state.x)

    def statuses(self, rest: Status) -> tuple[Status, ...]:
        flags = torch.stack([self.converged, self.diverged, self.non_finite]).T.tolist()
        names = (Status.CONVERGED, Status.DIVERGED, Status.NON_FINITE)
        return tuple(next((name for name, flag in zip(names, row, strict=True) if flag), rest) for row in flags)
