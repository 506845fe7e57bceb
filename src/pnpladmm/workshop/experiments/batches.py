"""Batches of pictures that are solved together, and what a run on one of them needs: no half runs, a clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pnpladmm.solvers import Method, Problem, Result, Status, solve
from pnpladmm.solvers.loop import Callback
from pnpladmm.workshop.experiments.dataset import Sample, stack
from pnpladmm.workshop.experiments.store import digest


@dataclass(frozen=True)
class Batch:
    """Pictures that are solved together. The problem is made when it is first asked for."""

    samples: tuple[Sample, ...]
    device: torch.device

    @property
    def names(self) -> list[str]:
        """The name of each picture."""
        return [sample.name for sample in self.samples]

    @cached_property
    def digest(self) -> str:
        """Of the samples' origins, which decide every bit of the samples."""
        origins = [sample.origin.to_dict() for sample in self.samples]
        return digest([{name: value for name, value in o.items() if name != "folder"} for o in origins])

    @cached_property
    def _stacked(self) -> tuple[Problem, Tensor]:
        return stack(self.samples, self.device)

    def release(self) -> None:
        """Free the memory of the problem; it is made again if asked for."""
        for name in ("_stacked", "start"):
            self.__dict__.pop(name, None)

    @property
    def problem(self) -> Problem:
        """On the device; its norm bound is found once for all methods."""
        return self._stacked[0]

    @property
    def sharp(self) -> Tensor:
        """The sharp pictures, on the device."""
        return self._stacked[1]

    @cached_property
    def start(self) -> Tensor:
        """Where every method starts: the observation, enlarged or with its gaps filled where the task needs that."""
        return self.problem.default_start()


def solve_all(
    batch: Batch,
    method: Method[Any],
    iterations: int,
    tolerance: float = 0.0,
    start: Tensor | None = None,
    callback: Callback | None = None,
    record: bool = False,
) -> Result:
    """`solve`, but Ctrl-C is passed on: half a run must never be stored as a whole one."""
    start = batch.start if start is None else start
    result = solve(batch.problem, method, iterations, tolerance, start, callback=callback, record=record)
    if Status.STOPPED in result.statuses:
        raise KeyboardInterrupt
    return result


def columns(rows: Sequence[Tensor] | Tensor) -> list[list[float | None]]:
    """Values (iterations, pictures) as one list per picture, for JSON: None for NaN and infinity."""
    values = torch.stack(list(rows)).T
    return [
        [v if good else None for v, good in zip(picture.tolist(), torch.isfinite(picture).tolist(), strict=True)]
        for picture in values
    ]


@dataclass
class Clock:
    """Wall time of a run on its device, without the time spent in `pause`."""

    device: torch.device
    began: float = 0.0
    paused: float = 0.0

    def start(self) -> None:
        """Start at 0."""
        self._wait()
        self.began, self.paused = time.perf_counter(), 0.0

    def read(self) -> float:
        """Seconds since the start, when the device has finished its work."""
        self._wait()
        return time.perf_counter() - self.began - self.paused

    def pause(self, work: Callable[[], None]) -> None:
        """Do something that is not counted."""
        self._wait()
        before = time.perf_counter()
        work()
        self._wait()
        self.paused += time.perf_counter() - before

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def warm_up(batch: Batch, method: Method[Any], iterations: int) -> None:
    """Do what is done once and not per picture before the clock starts: choose GPU kernels, plan transforms."""
    operator = batch.problem.operator
    operator.adjoint(operator.forward(batch.start))
    if batch.start.is_cuda:
        solve_all(batch, method, min(2, iterations))
