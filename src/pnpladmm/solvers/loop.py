"""The one loop that runs every method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pnpladmm.solvers.certificate import certify
from pnpladmm.solvers.contradictions import Seen
from pnpladmm.solvers.history import Recorder, changes
from pnpladmm.solvers.method import Method
from pnpladmm.solvers.monitor import Monitor
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.result import Result, Status
from pnpladmm.solvers.state import Start, State
from pnpladmm.solvers.workspace import Workspace
from pnpladmm.tensors import InputError, tell_of_lost_gradients, type_words

DEFAULT_ITERATIONS = 100
# On a GPU, after how many iterations the loop asks whether all pictures are done: asking waits for the GPU.
GPU_LOOK_EVERY = 10


@dataclass(frozen=True)
class Progress:
    """What a callback gets after each iteration.

    Parameters
    ----------
    iteration : int
        Counted from 1, and on from an earlier run's state.
    state : State
        The state after the iteration.
    row : dict of str to Tensor or None
        The new row of the history, by column, each (B,) on the device of the pictures.
    tile, tiles : int
        Where a picture is restored in tiles: the number of this one, counted from 0, and how many there are.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> problem = pl.Problem(torch.rand(1, 1, 8, 8), pl.Mask(torch.ones(8, 8)), pl.Gaussian(0.1))
    >>> method = pl.LADMM.certified(pl.load_denoiser("tv"), problem, 0.05)
    >>> pl.solve(problem, method, tolerance=0, callback=lambda progress: progress.iteration == 3).status.label
    'stopped'
    """

    iteration: int
    state: State
    row: dict[str, Tensor | None]
    tile: int = 0
    tiles: int = 1


Callback: TypeAlias = Callable[[Progress], bool | None]
"""Called after each iteration; returning True stops the run."""


def solve(
    problem: Problem,
    method: Method[Any],
    iterations: int | None = None,
    tolerance: float = 1e-5,
    start: Start | State = None,
    reference: Tensor | None = None,
    callback: Callback | None = None,
    record: bool = True,
) -> Result:
    """Run a method until every picture is done.

    A picture has converged when the relative changes of its `x`, `z` and `u` are below `tolerance`, and so is its
    optimality residual where the method knows it (`Method.gradient`). It is then done, as it is when it diverges, and
    does not change any more, whatever the other pictures of the batch do. Ctrl-C returns the last iterate.

    No gradients are recorded, and a warning says so where the observation asks for them: `solve_with_gradients` has
    them.

    Parameters
    ----------
    problem : Problem
        What is to be solved.
    method : Method
        Such as `LADMM.certified(...)`.
    iterations : int, optional
        The most iterations: 100 by default, or the length of the method's schedule.
    tolerance : float
        Relative change, and relative optimality residual, below which a picture is done.
    start : Tensor, str or State, optional
        `x0`, "observed" (the default) or "adjoint"; or the state of an earlier run, which goes on bit for bit.
    reference : Tensor, optional
        The sharp picture: adds PSNR to the history.
    callback : callable, optional
        Gets a `Progress` after each iteration; returning True stops the run.
    record : bool
        False leaves only the changes in the history. Then no certificate is given that rests on measurements.

    Returns
    -------
    Result
        The picture, with status, history and certificate.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> problem = pl.Problem(torch.rand(1, 1, 8, 8), pl.Mask(torch.ones(8, 8)), pl.Gaussian(0.1))
    >>> result = pl.solve(problem, pl.LADMM.certified(pl.load_denoiser("tv"), problem, sigma_d=0.05), iterations=500)
    >>> result.status.label, result.certificate.level.value
    ('converged', 'proved')
    """
    if iterations is None:
        iterations = method.length or DEFAULT_ITERATIONS
    if iterations < 1 or tolerance < 0:
        raise InputError(f"iterations = {iterations}, tolerance = {tolerance}: give at least 1, and at least 0")
    tell_of_lost_gradients("solve", problem.observed)
    with torch.no_grad():
        return _run(
            problem, method, iterations, tolerance, start, Recorder(problem, method, reference, record), callback
        )


def _run(
    problem: Problem,
    method: Method[Any],
    iterations: int,
    tolerance: float,
    start: Start | State,
    recorder: Recorder,
    callback: Callback | None,
) -> Result:
    """The run that `solve` describes."""
    state = _first_state(problem, method, start)
    fits = method.start_fits(problem, state) if isinstance(start, State) else None
    monitor = Monitor(problem, method, state, tolerance)
    state, stopped = _iterate(problem, method, state, iterations, recorder, monitor, callback)
    history = recorder.history()
    monitor.judge(history)
    statuses = monitor.statuses(_rest(method, state, stopped))
    return Result(
        image=monitor.image(state),
        statuses=statuses,
        history=history,
        certificates=certify(problem, method, history, _seen(monitor, state, statuses, fits)),
        method=method,
        state=state,
    )


def _seen(monitor: Monitor, state: State, statuses: tuple[Status, ...], fits: Tensor | None) -> Seen:
    """What the run itself showed, for the certificates."""
    return Seen(
        state=state,
        failed=tuple(status.failed for status in statuses),
        denoiser_broke=tuple(monitor.denoiser_broke.tolist()),
        start_fits=None if fits is None else tuple(fits.tolist()),
    )


def _first_state(problem: Problem, method: Method[Any], start: Start | State) -> State:
    """The state that the run begins with."""
    if not isinstance(start, State):
        return method.init(problem, start)
    if type(start) is not method.state_type:
        wanted = method.state_type.__name__
        raise InputError(
            f"start is {type_words(start)}: {method.name} goes on from a {wanted}; "
            "start=state.x begins with its picture"
        )
    return start


def _iterate(
    problem: Problem,
    method: Method[Any],
    state: State,
    iterations: int,
    recorder: Recorder,
    monitor: Monitor,
    callback: Callback | None,
) -> tuple[State, bool]:
    """The last state, and whether the run was stopped from outside."""
    workspace = Workspace()
    try:
        for k in range(1, iterations + 1):
            took_part = monitor.running
            old, new = state, method.step_in(workspace, problem, state)
            moved = changes(old, new)
            state = monitor.advance(old, new, moved)
            row = recorder.add(new, moved, took_part)
            if callback is not None and callback(Progress(state.iteration, state, row)):
                return state, True
            if (not state.x.is_cuda or k % GPU_LOOK_EVERY == 0) and monitor.all_done():
                break
    except KeyboardInterrupt:
        return state, True
    finally:
        workspace.systems.clear()  # the traceback of an error would keep them
    return state, False


def _rest(method: Method[Any], state: State, stopped: bool) -> Status:
    """The status of pictures that neither converged nor failed."""
    if method.length is not None and state.iteration >= method.length:
        return Status.FINISHED
    return Status.STOPPED if stopped else Status.ITERATION_LIMIT
