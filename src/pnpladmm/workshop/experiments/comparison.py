"""The compared methods: how long each runs, which of its parameters are tuned and in which range, and its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pnpladmm.denoisers import Denoiser, Promise, promise_of
from pnpladmm.solvers import METHODS, Method, Problem, make_method, method_class
from pnpladmm.solvers.certificate import MARGIN
from pnpladmm.solvers.settings import FALLBACK, NOISE_LEVELS, Row, Table, at_noise, convex_weight, rows_of
from pnpladmm.tensors import InputError
from pnpladmm.workshop.experiments.samples import Task

SIGMA_MAX = 100.0
"""Noise levels (of 255) are searched below this."""
ITERATIONS, QUICK_ITERATIONS = 100, 10
"""For methods that are not in the paper's comparison."""


@dataclass(frozen=True)
class Range:
    """Where a parameter is searched; noise levels are of 255, and relative to the noise if `of_noise`."""

    low: float
    high: float
    whole: bool = False
    """A whole number."""
    of_noise: bool = False
    linear: bool = False
    """Searched on a linear scale, not on a logarithmic one."""
    default: float | None = None
    """Its value where settings do not have it."""

    def at(self, noise: float) -> tuple[float, float]:
        """Bounds at a noise level (of 255)."""
        if not self.of_noise:
            return self.low, self.high
        # Weak noise needs relatively more smoothing: the range widens towards 1/255.
        return self.low * noise, min(self.high * max(noise, 4.0), SIGMA_MAX)

    def clip(self, value: float, noise: float) -> float:
        """The nearest value in the range."""
        low, high = self.at(noise)
        return min(max(value, low), high)


@dataclass(frozen=True)
class Compared:
    """A method of the comparison; without `space` it has the settings that its class chooses for the noise."""

    name: str
    title: str
    method: str
    """Its name in the registry of methods."""
    iterations: int | None = ITERATIONS
    """None: a parameter of its own."""
    quick_iterations: int = QUICK_ITERATIONS
    space: Mapping[str, Range] = field(default_factory=dict)
    """The parameters that are tuned."""
    schedule: bool = False
    """Its iterations are the steps of a schedule; it does not iterate to a fixed point."""
    looks: tuple[float, ...] = (0.3, 0.6)
    """Shares of a run after which tuning may stop a trial early."""
    first_points: Mapping[float, Row] = field(default_factory=dict)
    """Settings that tuning tries early, by noise level, after the current settings."""
    convex_step: float = 10.0
    """For convex priors: `1 / L_x` in units of `sigma^2 / ||H||^2`."""

    @property
    def uses_denoiser(self) -> bool:
        """Whether its iterations call a denoiser."""
        return method_class(self.method).denoiser_calls > 0

    @property
    def cost_per_iteration(self) -> float:
        """For estimates of the remaining time, in denoiser calls."""
        return 1.0 if self.uses_denoiser else 0.1

    def title_of_run(self, quick: bool = False) -> str:
        """Its title, for a schedule with the calls that are made."""
        return f"{self.title}, {self.length({}, quick)} calls" if self.schedule else self.title

    def completed(self, row: Row) -> Row:
        """With default values for the parameters that settings may leave out."""
        defaults = {name: span.default for name, span in self.space.items() if span.default is not None}
        return {**row, **{name: value for name, value in defaults.items() if name not in row}}

    def length(self, row: Row, quick: bool = False) -> int:
        """The number of iterations."""
        full = round(row["iterations"]) if self.iterations is None else self.iterations
        return min(full, self.quick_iterations) if quick else full

    def make(self, denoiser: Denoiser, problem: Problem, row: Row, quick: bool = False) -> Method[Any]:
        """The method for a problem, with the settings `row`, whose noise levels are of 255."""
        if not self.space:
            return make_method(self.method, denoiser, problem, problem.L_h() ** -0.5)
        numbers = {name: value / 255 if name in NOISE_LEVELS else value for name, value in row.items()}
        return method_class(self.method).from_settings(denoiser, problem, numbers, self.length(row, quick))


def _annealed(calls: int, quick_calls: int) -> Compared:
    space = {
        "sigma_d": _SIGMA_D,
        "mu": Range(0.01, 2.0),
        "sigma_start": Range(30.0, 120.0),
        "bend": Range(0.4, 2.2, default=1.0),
        "extrapolation": Range(0.0, 1.0, linear=True, default=0.0),
    }
    # Where data steps are solved well, extrapolation may not be needed.
    first = {1.0: {"sigma_d": 3.7, "mu": 0.2, "sigma_start": 58.0, "bend": 1.4, "extrapolation": 0.0}}
    # The early pictures of a schedule say little about its last one: a late look, and runs are short anyway.
    return Compared(
        f"fast-{calls}", "Annealed", "fast", calls, quick_calls, space,
        schedule=True, looks=(0.75,), first_points=first,
    )  # fmt: skip


_SIGMA_D = Range(0.4, 5.0, of_noise=True)
_LAMBDA = Range(0.02, 20.0)

COMPARED: tuple[Compared, ...] = (
    Compared(
        "richardson-lucy",
        "Richardson-Lucy",
        "richardson-lucy",
        iterations=None,
        space={"iterations": Range(1, 300, whole=True)},
        looks=(),
    ),
    Compared(
        "ista",
        "PnP-ISTA",
        "ista",
        iterations=200,
        quick_iterations=16,
        space={"sigma_d": Range(0.1, 5.0, of_noise=True), "lambda": _LAMBDA},
        convex_step=1.0,
    ),
    Compared("admm", "PnP-ADMM + CG", "admm", 40, 6, {"sigma_d": _SIGMA_D, "lambda": _LAMBDA}),
    Compared(
        "ladmm",
        "PnP-LADMM",
        "ladmm",
        space={"sigma_d": _SIGMA_D, "lambda": _LAMBDA, "ratio": Range(0.7, 4.0)},
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
        space={"sigma_d": Range(0.05, 5.0, of_noise=True), "relaxation": Range(0.02, 1.0, default=1.0)},
        convex_step=1.0,
    ),
    _annealed(8, 4),
    _annealed(24, 8),
)
"""The rows of our table, in its order. Other registered methods are compared when they are asked for by name."""
BY_NAME: tuple[Compared, ...] = (_annealed(4, 2),)
"""Rows that are compared only when they are asked for."""


def chosen_methods(names: str | Sequence[str] | None = None) -> tuple[Compared, ...]:
    """Methods by name (comma-separated, or a list): the paper's in the table's order, then other registered ones."""
    if names is None:
        return COMPARED
    wanted = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
    rows = (*COMPARED, *(row for row in BY_NAME if row.name in wanted))
    others = []
    for name in dict.fromkeys(wanted):
        if not any(name in (row.name, row.method) for row in rows):
            if name not in METHODS:
                known = dict.fromkeys((*(row.name for row in (*COMPARED, *BY_NAME)), *METHODS.names()))
                raise InputError(f"method {name!r}: choose among {', '.join(known)}")
            others.append(_other(name))
    return (*(row for row in rows if row.name in wanted or row.method in wanted), *others)


def _other(name: str) -> Compared:
    """A registered method that is not in the table; tuned like the one whose settings it has."""
    kind = method_class(name)
    tuned = next((row for row in COMPARED if row.name == kind.settings_key), None)
    if tuned is None:
        return Compared(name, kind.__name__, name)
    return replace(tuned, name=name, title=kind.__name__, method=name)


def iterative(methods: Sequence[Compared]) -> list[Compared]:
    """The methods that iterate to a fixed point: they have no schedule and no tuned number of iterations."""
    return [method for method in methods if not method.schedule and method.iterations is not None]


def settings_of(
    table: Table, name: str, denoiser: Denoiser, method: Compared, noise: float, task: Task = "deblur"
) -> Row:
    """A method's parameters at a noise level (of 255): the table's for the denoiser of this name, interpolated.

    Settings tuned for a task (`ladmm:sr2`) are used before those for deblurring. Networks that are not in the table get
    `drunet`'s settings, convex priors those that their weight asks for.
    """
    if not method.space:
        return {}
    if name not in table and promise_of(denoiser) is Promise.CONVEX:
        return method.completed(_convex_settings(denoiser, method, noise))
    rows = rows_of(table, name, denoiser)
    if not rows:
        raise InputError(f"the settings know neither {name!r} nor {FALLBACK!r}: tune with this denoiser first")
    names = (f"{method.name}:{task}", method.name, method_class(method.method).settings_key)
    levels = next((rows[name] for name in names if name in rows), None)
    if not levels:
        raise InputError(f"the settings have no {method.name} for {name if name in table else FALLBACK}: tune it first")
    row = at_noise({level: method.completed(row) for level, row in levels.items()}, noise)
    if missing := [parameter for parameter in method.space if parameter not in row]:
        raise InputError(f"the settings of {method.name} lack {missing[0]}: tune it again, or add the number")
    return row


def _convex_settings(denoiser: Denoiser, method: Compared, noise: float) -> Row:
    """`lambda f = TV_WEIGHT TV(x)`, with the step size that the comparison gives the method."""
    if not method.uses_denoiser:
        return {"iterations": max(2.0, 60.0 / noise)}
    if method.schedule:
        return {"sigma_d": 1.5 * noise, "mu": 0.25, "sigma_start": max(49.0, 1.5 * noise)}
    weight = convex_weight(denoiser)
    row = {"sigma_d": (method.convex_step * weight) ** 0.5 * noise, "lambda": weight}
    return {**row, "ratio": MARGIN} if "ratio" in method.space else row
