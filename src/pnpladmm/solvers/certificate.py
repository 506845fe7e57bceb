"""Which statement covers a run, with the numbers it rests on. It never claims more than was checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Promise
from pnpladmm.tensors import PerPicture

if TYPE_CHECKING:
    from pnpladmm.solvers.history import History
    from pnpladmm.solvers.method import Method
    from pnpladmm.solvers.problem import Problem


MARGIN = 1.001
"""Constants that must satisfy a condition are chosen larger than its bound by this factor: some conditions are strict,
and rounding must not break the others."""


class Level(Enum):
    """How much is known of a run, from the most to nothing.

    Attributes
    ----------
    PROVED
        The denoiser is a proximal operator by construction, and the constants satisfy the theorem.
    CONVEX
        The prior is convex, and the constants satisfy the weaker conditions that this needs.
    CHECKED
        The constants satisfy the theorem. The denoiser is a gradient step: the largest eigenvalue of its Hessian was
        estimated below 1 at the iterates that were sampled, and the Lagrangian fell at every iteration.
    ASSUMED
        The constants satisfy the theorem. The denoiser is trained for squared error: it is a proximal operator as far
        as it is an MMSE estimator.
    OUTSIDE
        No theorem covers the run. The certificate says which condition fails, and by how much.

    Examples
    --------
    >>> import pnpladmm as pl
    >>> pl.Level.PROVED.rank < pl.Level.OUTSIDE.rank
    True
    """

    PROVED = "proved"
    CONVEX = "convex"
    CHECKED = "checked"
    ASSUMED = "assumed"
    OUTSIDE = "outside"

    @property
    def rank(self) -> int:
        """0 is the strongest."""
        return list(Level).index(self)


@dataclass(frozen=True)
class Condition:
    """`left > right` (or `>=` where not strict), with the numbers, (1,) or (B,)."""

    left_name: str
    left: PerPicture
    right_name: str
    right: PerPicture
    strict: bool = True

    def check(self, picture: int) -> CheckedCondition:
        """The condition for one picture."""
        return CheckedCondition(
            self.left_name,
            _pick(self.left, picture),
            self.right_name,
            _pick(self.right, picture),
            self.strict,
        )


@dataclass(frozen=True)
class CheckedCondition:
    """A condition on one picture: two numbers and whether it holds."""

    left_name: str
    left: float
    right_name: str
    right: float
    strict: bool

    @property
    def holds(self) -> bool:
        """Whether the condition holds; equality, where it is allowed, holds to the rounding of float64."""
        return self.left > self.right if self.strict else self.left >= self.right * (1 - 1e-12)

    def __str__(self) -> str:
        """Both sides with their values, and the ratio."""
        relation = ">" if self.strict else ">="
        ratio = f"{self.left / self.right:.4g} times" if self.right else "any multiple"
        return (
            f"{self.left_name} = {self.left:.6g} {relation} {self.right_name} = {self.right:.6g}"
            f" {'holds' if self.holds else 'fails'} ({ratio})"
        )


@dataclass(frozen=True)
class Theorem:
    """What is proved of a method: for any proximal operator (`general`), and for convex `f` (`convex`)."""

    general: tuple[Condition, ...] | None = None
    convex: tuple[Condition, ...] | None = None
    general_statement: str = ""
    convex_statement: str = ""
    missing: str = ""
    """Why nothing is proved, for methods without a theorem."""


@dataclass(frozen=True)
class Certificate:
    """The statement that covers the run of one picture, with the numbers it rests on.

    Parameters
    ----------
    level : Level
        How much is known.
    statement : str
        What is known, in a sentence.
    conditions : tuple of CheckedCondition
        The conditions of the theorem, each with both sides and whether it holds.
    failures : tuple of str
        What else does not hold, a sentence each.
    advice : str
        What to change, where something can be changed.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> problem = pl.Problem(torch.rand(1, 1, 8, 8), pl.Mask(torch.ones(8, 8)), pl.Gaussian(0.1))
    >>> method = pl.LADMM.certified(pl.load_denoiser("tv"), problem, sigma_d=0.05)
    >>> print(pl.solve(problem, method, iterations=2).certificate.level.value)
    proved
    """

    level: Level
    statement: str
    conditions: tuple[CheckedCondition, ...]
    failures: tuple[str, ...] = ()
    advice: str = ""

    def __str__(self) -> str:
        """A few lines for people."""
        lines = [f"{self.level.value}: {self.statement}", *(f"  {c}" for c in self.conditions)]
        lines += [f"  {failure}" for failure in self.failures]
        return "\n".join([*lines, *([f"  {self.advice}"] if self.advice else [])])


def certify(
    problem: Problem, method: Method[Any], history: History, failed: Sequence[bool] | None = None
) -> tuple[Certificate, ...]:
    """A certificate for each picture of the batch. Pictures that `failed` (diverged) get none based on measurements."""
    theorem = method.theorem(problem)
    if math.isinf(problem.data_term.lowest):
        theorem = Theorem(missing="the data term does not say that it is bounded below, so E might fall for ever")
    advice = problem.data_term.advice(problem.observed)
    failed = failed or [False] * problem.pictures
    return tuple(_certify(theorem, method.promise, history, i, advice, failed[i]) for i in range(problem.pictures))


def weakest(certificates: Sequence[Certificate]) -> Certificate:
    """The certificate that claims least."""
    return max(certificates, key=lambda c: c.level.rank)


def _certify(
    theorem: Theorem, promise: Promise, history: History, picture: int, advice: str, failed: bool
) -> Certificate:
    general = _check(theorem.general, picture)
    convex = _check(theorem.convex, picture)
    if general is not None and all(c.holds for c in general):
        if promise in (Promise.PROX, Promise.CONVEX):
            return Certificate(Level.PROVED, theorem.general_statement, general, advice=advice)
        if promise is Promise.GRADIENT_STEP:
            failures = _gradient_step_failures(history, picture)
            if failed:
                failures = ("the run diverged", *failures)
            if failures:
                statement = "the constants hold, but the denoiser was not shown to be a proximal operator"
                return Certificate(Level.OUTSIDE, statement, general, failures, advice)
            statement = f"measured in this run: the denoiser's Hessian stayed below 1; then {theorem.general_statement}"
            return Certificate(Level.CHECKED, statement, general, advice=advice)
        if promise is Promise.MMSE:
            condition = "as far as the denoiser, trained for squared error, is an MMSE estimator"
            statement = f"{condition}: {theorem.general_statement}"
            return Certificate(Level.ASSUMED, statement, general, advice=advice)
    if promise is Promise.CONVEX and convex is not None and all(c.holds for c in convex):
        return Certificate(Level.CONVEX, theorem.convex_statement, convex, advice=advice)
    return _outside(theorem, promise, general, convex, advice)


def _outside(
    theorem: Theorem,
    promise: Promise,
    general: tuple[CheckedCondition, ...] | None,
    convex: tuple[CheckedCondition, ...] | None,
    advice: str,
) -> Certificate:
    failures = []
    if general is None and convex is None:
        failures.append(theorem.missing)
    elif promise is Promise.NONE:
        failures.append("the denoiser promises nothing: it may be no proximal operator")
    elif general is None and promise is not Promise.CONVEX:
        failures.append(
            f"{theorem.missing or 'what is proved needs a convex prior'}; this one is not known to be convex"
        )
    # A convex prior needs less: where both fail, say what would have been enough.
    needed = convex if promise is Promise.CONVEX and convex is not None else general
    statement = "no theorem covers this run"
    return Certificate(Level.OUTSIDE, statement, needed or (), tuple(failures), advice)


def _gradient_step_failures(history: History, picture: int) -> tuple[str, ...]:
    failures = []
    measured = _column(history.curvature, picture)
    if measured is None or not len(measured):
        failures.append("the largest eigenvalue of the Hessian was not measured in this run")
    elif float(measured.max()) >= 1:
        failures.append(f"the largest eigenvalue of the Hessian reached {float(measured.max()):.4g}, not below 1")
    lagrangian = _column(history.lagrangian, picture)
    if lagrangian is None or not len(lagrangian):
        failures.append("the Lagrangian was not evaluated in this run")
    else:
        rise = lagrangian.diff() - history.rounding * lagrangian[1:].abs()
        if len(rise) and float(rise.max()) > 0:
            failures.append(f"the Lagrangian rose by {float(lagrangian.diff()[rise.argmax()]):.3g} in one iteration")
    return tuple(failures)


def _column(column: Tensor | None, picture: int) -> Tensor | None:
    if column is None:
        return None
    values = column[:, picture]
    return values[torch.isfinite(values)]


def _check(conditions: tuple[Condition, ...] | None, picture: int) -> tuple[CheckedCondition, ...] | None:
    return None if conditions is None else tuple(c.check(picture) for c in conditions)


def _pick(value: PerPicture, picture: int) -> float:
    values = torch.as_tensor(value, dtype=torch.float64).reshape(-1)
    return float(values[picture if len(values) > 1 else 0])
