"""The compared methods: how long each runs, what is tuned in it and where, and how it is made for a problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pnpladmm.denoisers import Denoiser, Promise, promise_of
from pnpladmm.solvers import Method, Problem, method_class
from pnpladmm.solvers.settings import FALLBACK, NOISE_LEVELS, TV_WEIGHT, Row, Table, at_noise, rows_of
from pnpladmm.tensors import InputError
from pnpladmm.workshop.experiments.samples import Task

SIGMA_MOST = 100.0
"""No noise level is looked for above this (of 255)."""


@dataclass(frozen=True)
class Range:
    """Where a parameter is looked for; noise levels (of 255) relative to the noise if `of_noise`."""

    low: float
    high: float
    whole: bool = False
    """A whole number."""
    of_noise: bool = False
    even: bool = False
    """Looked for evenly, not evenly in its logarithm."""
    default: float | None = None
    """What it is where settings do not say."""

    def at(self, noise: float) -> tuple[float, float]:
        """Bounds at a noise level (of 255)."""
        if not self.of_noise:
            return self.low, self.high
        # Weak noise needs relatively more smoothing: the range widens towards 1/255.
        return self.low * noise, min(self.high * max(noise, 4.0), SIGMA_MOST)

    def clip(self, value: float, noise: float) -> float:
        """The nearest value inside."""
        low, high = self.at(noise)
        return min(max(value, low), high)


@dataclass(frozen=True)
class Compared:
    """A method of the comparison."""

    name: str
    title: str
    kind: str
    """Its name in `pnpladmm.solvers.METHODS`."""
    iterations: int | None
    """None: a parameter of its own."""
    space: Mapping[str, Range]
    quick_iterations: int
    calls_per_iteration: int = 1
    looks: tuple[float, ...] = (0.3, 0.6)
    """Shares of the run after which tuning may give a trial up."""
    first_points: Mapping[float, Row] = field(default_factory=dict)
    """Points worth trying first, by noise level, beside the settings there are."""

    @property
    def cost_per_iteration(self) -> float:
        """For estimates of the remaining time: 1 with a denoiser call, little without."""
        return self.calls_per_iteration or 0.1

    def completed(self, row: Row) -> Row:
        """With the parameters that settings may leave out."""
        given = {name: span.default for name, span in self.space.items() if span.default is not None}
        return {**row, **{name: value for name, value in given.items() if name not in row}}

    def length(self, row: Row, quick: bool = False) -> int:
        """Iterations done."""
        full = round(row["iterations"]) if self.iterations is None else self.iterations
        return min(full, self.quick_iterations) if quick else full

    def make(self, denoiser: Denoiser, problem: Problem, row: Row, quick: bool = False) -> Method[Any]:
        """The method for a problem; the noise levels of `row` are of 255. `||H||^2` is the problem's, found once."""
        numbers = {name: value / 255 if name in NOISE_LEVELS else value for name, value in row.items()}
        return method_class(self.kind).from_settings(denoiser, problem, numbers, self.length(row, quick))


_SIGMA_D = Range(0.4, 5.0, of_noise=True)
_LAMBDA = Range(0.02, 20.0)
_FAST = {
    "sigma_d": _SIGMA_D,
    "mu": Range(0.01, 2.0),
    "sigma_start": Range(30.0, 120.0),
    "bend": Range(0.4, 2.2, default=1.0),
    "extrapolation": Range(0.0, 1.0, even=True, default=0.0),
}

# Where data steps are solved well, extrapolation may not be needed.
_FAST_FIRST = {1.0: {"sigma_d": 3.7, "mu": 0.2, "sigma_start": 58.0, "bend": 1.4, "extrapolation": 0.0}}

METHODS: tuple[Compared, ...] = (
    Compared(
        "richardson-lucy",
        "Richardson-Lucy",
        "richardson-lucy",
        None,
        {"iterations": Range(1, 300, whole=True)},
        quick_iterations=10,
        calls_per_iteration=0,
        looks=(),
    ),
    Compared("ista", "PnP-ISTA", "ista", 200, {"sigma_d": Range(0.1, 5.0, of_noise=True), "lambda": _LAMBDA}, 16),
    Compared("admm", "PnP-ADMM + CG", "admm", 40, {"sigma_d": _SIGMA_D, "lambda": _LAMBDA}, 6),
    Compared(
        "ladmm",
        "PnP-LADMM",
        "ladmm",
        100,
        {"sigma_d": _SIGMA_D, "lambda": _LAMBDA, "ratio": Range(0.7, 4.0)},
        quick_iterations=10,
        first_points={
            1: {"sigma_d": 5, "lambda": 1.0, "ratio": 1.001},
            10: {"sigma_d": 20, "lambda": 0.5, "ratio": 1.001},
            20: {"sigma_d": 40, "lambda": 0.5, "ratio": 1.001},
            40: {"sigma_d": 40, "lambda": 0.5, "ratio": 2.5},
        },
    ),
    Compared(
        "certified",
        "PnP-LADMM, certified",
        "certified",
        100,
        {"sigma_d": Range(0.05, 5.0, of_noise=True), "relaxation": Range(0.02, 1.0, default=1.0)},
        quick_iterations=10,
    ),
    # The schedule's early pictures say little of its last: looked at late, and cheap anyway.
    Compared("fast-8", "Annealed, 8 calls", "fast", 8, _FAST, 4, looks=(0.75,), first_points=_FAST_FIRST),
    Compared("fast-24", "Annealed, 24 calls", "fast", 24, _FAST, 8, looks=(0.75,), first_points=_FAST_FIRST),
)

_BY_NAME = {method.name: method for method in METHODS}


def chosen_methods(names: str | Sequence[str] | None = None) -> tuple[Compared, ...]:
    """Methods by name (comma-separated, or a list), in the table's order; all of them by default."""
    if names is None:
        return METHODS
    wanted = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in _BY_NAME:
            raise InputError(f"method {name!r}: choose among {', '.join(_BY_NAME)}")
    return tuple(method for method in METHODS if method.name in wanted)


def iterative(methods: Sequence[Compared]) -> list[Compared]:
    """Those that iterate to a fixed point."""
    return [method for method in methods if method.kind != "fast" and method.iterations is not None]


def settings_of(
    table: Table, name: str, denoiser: Denoiser, method: Compared, noise: float, task: Task = "deblur"
) -> Row:
    """A method's parameters at a noise level (of 255): the table's for the denoiser of this name, interpolated.

    Settings tuned for a task (`ladmm:sr2`) come before those for deblurring. Networks that the table does not know
    get `drunet`'s; convex priors what their weight asks for.
    """
    if name not in table and promise_of(denoiser) is Promise.CONVEX:
        return method.completed(_convex_settings(denoiser, method, noise))
    rows = rows_of(table, name, denoiser)
    if not rows:
        raise InputError(f"the settings know neither {name!r} nor {FALLBACK!r}: tune with this denoiser first")
    levels = rows.get(f"{method.name}:{task}") or rows.get(method.name)
    if not levels:
        raise InputError(f"the settings have no {method.name} for {name if name in table else FALLBACK}: tune it first")
    row = at_noise({level: method.completed(row) for level, row in levels.items()}, noise)
    if missing := [parameter for parameter in method.space if parameter not in row]:
        raise InputError(f"the settings of {method.name} lack {missing[0]}: tune it again, or add the number")
    return row


def _convex_settings(denoiser: Denoiser, method: Compared, noise: float) -> Row:
    """`lambda f = TV_WEIGHT TV(x)`, with a `beta` of a tenth of 1/sigma^2 where the method has one."""
    lam = TV_WEIGHT / float(getattr(denoiser, "weight", 1.0))
    if method.kind == "richardson-lucy":
        return {"iterations": max(2.0, 60.0 / noise)}
    if method.kind == "fast":
        return {"sigma_d": 1.5 * noise, "mu": 0.25, "sigma_start": max(49.0, 1.5 * noise)}
    if method.kind in ("ista", "certified"):  # L_x = ||H||^2 / sigma^2
        return {"sigma_d": lam**0.5 * noise, "lambda": lam}
    return {"sigma_d": (10 * lam) ** 0.5 * noise, "lambda": lam, "ratio": 1.001}
