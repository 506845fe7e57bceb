"""Instruments: seconds in the denoiser and the blur during a run, operations counted, the speed of the machine."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.operators import LinearOperator
from pnpladmm.operators.preconditioning import Preconditioner
from pnpladmm.solvers import Method, Problem, Result, solve
from pnpladmm.tensors import PerPicture
from pnpladmm.workshop.bench.timing import synchronise, take_turns

Value = TypeVar("Value")

DENOISER, BLUR, PRECONDITIONER = "denoiser", "blur", "preconditioner"


def run_bare(
    problem: Problem, method: Method[Any], iterations: int | None = None, start: Tensor | None = None
) -> Result:
    """A run without history and without a tolerance that could end it early."""
    return solve(problem, method, iterations, 0.0, start, record=False)


class Spans:
    """Seconds spent in named parts. On a GPU, events in its queue mark them, and nothing waits before the end."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.calls: dict[str, int] = {}
        self._marks: dict[str, list[tuple[Any, Any]]] = {}
        self._inside = False

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Count the time inside as `name`, unless another span is open already."""
        if self._inside:
            yield
            return
        self._inside = True
        start = self._mark()
        try:
            yield
        finally:
            self._inside = False
            self._marks.setdefault(name, []).append((start, self._mark()))
            self.calls[name] = self.calls.get(name, 0) + 1

    def seconds(self) -> dict[str, float]:
        """Seconds of each part; waits for the GPU."""
        synchronise(self.device)
        if self.device.type == "cuda":
            return {name: sum(a.elapsed_time(b) for a, b in marks) / 1e3 for name, marks in self._marks.items()}
        return {name: sum(b - a for a, b in marks) for name, marks in self._marks.items()}

    def wrap(self, name: str, function: Callable[..., Value]) -> Callable[..., Value]:
        """`function`, with its time counted as `name`."""

        def call(*arguments: Any, **options: Any) -> Value:
            with self.span(name):
                return function(*arguments, **options)

        return call

    def _mark(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event


class TimedDenoiser:
    """A denoiser whose calls are timed; everything else is passed on to the one inside."""

    def __init__(self, denoiser: Denoiser, spans: Spans) -> None:
        self._denoiser = denoiser
        self._call = spans.wrap(DENOISER, denoiser)

    def __call__(self, x: Tensor, sigma: PerPicture, /) -> Tensor:
        """Denoise."""
        return self._call(x, sigma)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._denoiser, name)


class TimedPreconditioner(Preconditioner):
    """A preconditioner whose applications are timed. It is not recordable, so that the clock runs at each of them."""

    def __init__(self, inner: Preconditioner, spans: Spans) -> None:
        self._inner = inner
        self._call = spans.wrap(PRECONDITIONER, inner)

    def __call__(self, r: Tensor) -> Tensor:
        """`M^-1 r`."""
        return self._call(r)

    def set(self, a: Tensor) -> None:
        """Use another `a`."""
        self._inner.set(a)


def timed_operator(operator: LinearOperator, spans: Spans) -> LinearOperator:
    """A copy of the operator with the same data and caches, whose maps and preconditioner are timed."""
    timed: Any = copy.copy(operator)
    for name in ("forward", "adjoint"):
        setattr(timed, name, spans.wrap(BLUR, getattr(operator, name)))

    def preconditioner(precision: Tensor, a: Tensor) -> Preconditioner | None:
        with spans.span(PRECONDITIONER):
            made = operator.preconditioner(precision, a)
        return None if made is None else TimedPreconditioner(made, spans)

    timed.preconditioner = preconditioner
    return timed


@dataclass(frozen=True)
class TimedRun:
    """Seconds of a run, in total and of its parts."""

    total: float
    seconds: dict[str, float]
    calls: dict[str, int]

    @property
    def outside(self) -> float:
        """Seconds outside the denoiser."""
        return self.total - self.seconds.get(DENOISER, 0.0)


def timed_run(problem: Problem, method: Any, denoiser_only: bool = False) -> TimedRun:
    """One run of a Plug & Play method, with the denoiser timed, and the operator unless `denoiser_only`.

    With a timed operator, the steps of the conjugate gradient are not recorded on a GPU, and take longer.
    """
    device = problem.observed.device
    spans = Spans(device)
    operator = problem.operator if denoiser_only else timed_operator(problem.operator, spans)
    instrumented = replace(problem, operator=operator)
    vars(instrumented)["colour_planes"] = problem.colour_planes  # prepared before, as in a run without instruments
    timed = replace(method, denoiser=TimedDenoiser(method.denoiser, spans))
    synchronise(device)
    start = time.perf_counter()
    run_bare(instrumented, timed)
    synchronise(device)
    total = time.perf_counter() - start
    return TimedRun(total, spans.seconds(), spans.calls)


def operations_per_pixel(denoiser: Denoiser, channels: int, device: torch.device, side: int = 64) -> float | None:
    """Floating-point operations per pixel of one call (a multiply-add is 2); None if none are counted.

    torch counts convolutions and matrix products, here on a small picture.
    """
    x = torch.rand(1, channels, side, side, device=device)
    with FlopCounterMode(display=False) as counter:
        denoiser(x, 0.1)
    return counter.get_total_flops() / side**2 or None


def matrix_rate(device: torch.device, side: int) -> float:
    """Operations per second of a square matrix product, in half precision on a GPU and single precision on a CPU."""
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    timing = take_turns({"product": lambda: torch.mm(a, b, out=out)}, device, samples=10, least=5, budget=2.0)
    return 2 * side**3 / timing["product"].best
