"""Units of work, whose results are stored so that a stopped experiment goes on; most are a run of one method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from pnpladmm.solvers import Method, Result
from pnpladmm.solvers.loop import Callback
from pnpladmm.solvers.settings import Row
from pnpladmm.workshop.experiments.batches import Batch, solve_all
from pnpladmm.workshop.experiments.comparison import Compared
from pnpladmm.workshop.experiments.progress import Progress
from pnpladmm.workshop.experiments.samples import Task
from pnpladmm.workshop.experiments.setup import Setup

Advance: TypeAlias = Callable[[float], None]
"""Is told how much work was just done, in the unit of `Unit.cost`."""


@dataclass(frozen=True)
class Unit:
    """A piece of work with one stored result."""

    key: Mapping[str, Any]
    """Everything that decides the result, except the code."""
    batch: Batch
    cost: float
    """About: denoiser calls times pictures."""
    label: str
    compute: Callable[[Advance], dict[str, Any]]


@dataclass(frozen=True)
class Run:
    """One method on one batch at one noise level (of 255)."""

    setup: Setup
    batch: Batch
    compared: Compared
    noise: float
    task: Task = "deblur"
    given_settings: Row | None = None
    given_iterations: int | None = None

    @cached_property
    def settings(self) -> Row:
        """The method's parameters: those given, or tuned for the noise level and task."""
        return self.given_settings or self.setup.row(self.compared, self.noise, self.task)

    @property
    def iterations(self) -> int:
        """The number of iterations: the one given, or the method's own in the comparison."""
        return self.given_iterations or self.compared.length(self.settings, self.setup.quick)

    def make_method(self) -> Method[Any]:
        """The method for the batch's problem."""
        return self.compared.make(self.setup.denoiser, self.batch.problem, self.settings, self.setup.quick)

    def solve(
        self, method: Method[Any], advance: Advance, callback: Callback | None = None, record: bool = False
    ) -> Result:
        """Run the method to its last iteration; `advance` hears of the work done, `callback` of each iteration."""

        def after(step: Any) -> None:
            if callback is not None:
                callback(step)
            advance(len(self.batch.names))

        return solve_all(self.batch, method, self.iterations, callback=after, record=record)

    def unit(self, experiment: str, compute: Callable[[Advance], dict[str, Any]], **key: Any) -> Unit:
        """The run as a unit of work; `key` is what decides its numbers beside the run itself."""
        decides = {
            "method": self.compared.name,
            "noise": self.noise,
            "task": self.task,
            "parameters": self.settings,
            "iterations": self.iterations,
            **key,
        }
        cost = len(self.batch.names) * self.iterations * self.compared.cost_per_iteration
        label = f"{self.compared.title_of_run(self.setup.quick)}, noise {self.noise:g}"
        return Unit(self.setup.unit_key(experiment, self.batch, **decides), self.batch, cost, label, compute)


def run_units(setup: Setup, name: str, units: Iterable[Unit]) -> Iterator[tuple[Unit, dict[str, Any]]]:
    """The units' results in order; those of an earlier run come from the store."""
    listed = list(units)
    stored = [setup.store.get(unit.key) for unit in listed]
    to_do = sum(unit.cost for unit, values in zip(listed, stored, strict=True) if values is None)
    found = sum(values is not None for values in stored)
    with Progress(name, to_do, setup.quiet) as progress:
        if found:
            progress.say(f"{found} of {len(listed)} parts from an earlier run")
        if setup.store.stale:
            progress.say(f"{setup.store.stale} parts were made by another version of the code and are computed again")
            setup.store.stale = 0
        before: Batch | None = None
        for unit, values in zip(listed, stored, strict=True):
            if before is not None and before is not unit.batch:
                before.release()
            before = unit.batch
            if values is None:
                with progress.part(unit.cost, unit.label) as advance:
                    values = setup.store.put(unit.key, unit.compute(advance))
            yield unit, values
