"""Instruments on a run: seconds inside the denoiser and the blur, operations counted, the machine's own speed."""

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
    """Seconds spent in named parts. On a GPU events mark them in its own queue, and nothing waits until the end."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.calls: dict[str, int] = {}
        self._marks: dict[str, list[tuple[Any, Any]]] = {}
        self._inside = False

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Count what happens inside as `name`, unless it is inside another span already."""
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
        """`function`, its time counted as `name`."""

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


class WatchedDenoiser:
    """A denoiser whose calls are counted; all else is that of the one inside."""

    def __init__(self, denoiser: Denoiser, spans: Spans) -> None:
        self._denoiser = denoiser
        self._call = spans.wrap(DENOISER, denoiser)

    def __call__(self, x: Tensor, sigma: PerPicture, /) -> Tensor:
        """The denoiser's result."""
        return self._call(x, sigma)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._denoiser, name)


def watched_operator(operator: LinearOperator, spans: Spans) -> LinearOperator:
    """A copy of the operator that shares its data and caches, with its maps and its preconditioner watched."""
    watched: Any = copy.copy(operator)
    for name in ("forward", "adjoint"):
        setattr(watched, name, spans.wrap(BLUR, getattr(operator, name)))

    def preconditioner(precision: Tensor, a: Tensor) -> Callable[[Tensor], Tensor] | None:
        with spans.span(PRECONDITIONER):
            made = operator.preconditioner(precision, a)
        return None if made is None else spans.wrap(PRECONDITIONER, made)

    watched.preconditioner = preconditioner
    return watched


@dataclass(frozen=True)
class Watched:
    """A run with instruments."""

    total: float
    seconds: dict[str, float]
    calls: dict[str, int]

    @property
    def outside(self) -> float:
        """Seconds outside the denoiser."""
        return self.total - self.seconds.get(DENOISER, 0.0)


def watched_run(problem: Problem, method: Any, denoiser_only: bool = False) -> Watched:
    """One run of a Plug & Play method with instruments on the denoiser, and on the operator unless `denoiser_only`.

    A GPU does not record steps of conjugate gradient with instruments in them: they take longer then.
    """
    device = problem.observed.device
    spans = Spans(device)
    operator = problem.operator if denoiser_only else watched_operator(problem.operator, spans)
    instrumented = replace(problem, operator=operator)
    vars(instrumented)["colour_planes"] = problem.colour_planes  # made before, as in a bare run
    watched = replace(method, denoiser=WatchedDenoiser(method.denoiser, spans))
    synchronise(device)
    start = time.perf_counter()
    run_bare(instrumented, watched)
    synchronise(device)
    total = time.perf_counter() - start
    return Watched(total, spans.seconds(), spans.calls)


def operations_per_pixel(denoiser: Denoiser, channels: int, device: torch.device, side: int = 64) -> float | None:
    """Floating-point operations (2 a multiply-add) of one call, for each pixel; None where none are counted.

    Convolutions and matrix products are counted, on a small picture whose side suits the networks' strides.
    """
    x = torch.rand(1, channels, side, side, device=device)
    with FlopCounterMode(display=False) as counter:
        denoiser(x, 0.1)
    return counter.get_total_flops() / side**2 or None


def matrix_rate(device: torch.device, side: int) -> float:
    """Operations a second of a square matrix product: half precision on a GPU, single on a CPU. The best of several."""
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    timing = take_turns({"product": lambda: torch.mm(a, b, out=out)}, device, samples=10, least=5, budget=2.0)
    return 2 * side**3 / timing["product"].best
