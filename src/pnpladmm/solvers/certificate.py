"""Which statement covers a run, with the numbers it rests on. It never claims more than was checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch

from pnpladmm.denoisers.base import Promise, is_on_trust
from pnpladmm.solvers.contradictions import Seen, column, rise
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
        The denoiser is a proximal operator by construction, or its user says so, and the constants satisfy the theorem.
        What a user says is tried on small pictures, and the statement says that it rests on it.
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
    falls: str = ""
    """The column of the history that never rises, as the general statement says."""
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
    problem: Problem, method: Method[Any], history: History, seen: Seen | None = None
) -> tuple[Certificate, ...]:
    """A certificate for each picture of the batch. It is withdrawn where the run contradicts it (`seen`, `history`)."""
    theorem = method.theorem(problem)
    if math.isinf(problem.data_term.lowest):
        theorem = Theorem(missing="the data term does not say that it is bounded below, so E might fall for ever")
    advice = problem.data_term.advice(problem.observed)
    seen = seen or Seen()
    claims = [_claim(theorem, method.promise, history, i, advice, seen) for i in range(problem.pictures)]
    if is_on_trust(getattr(method, "denoiser", None)):
        claims = [_on_trust(claim) for claim in claims]
    if all(claim.level is Level.OUTSIDE for claim in claims) or not len(history):
        return tuple(claims)
    broken = seen.of_promise(method)
    return tuple(
        _withdrawn(claim, (broken[i],)) if broken and broken[i] and claim.level is not Level.OUTSIDE else claim
        for i, claim in enumerate(claims)
    )


def _on_trust(claim: Certificate) -> Certificate:
    """The claim with the condition that the denoiser is what its user says. What it shows of itself is tried later."""
    if claim.level not in (Level.PROVED, Level.CONVEX):
        return claim
    return replace(claim, statement=f"if the denoiser is what it promises to be: {claim.statement}")


def weakest(certificates: Sequence[Certificate]) -> Certificate:
    """The certificate that claims least."""
    return max(certificates, key=lambda c: c.level.rank)


def _claim(theorem: Theorem, promise: Promise, history: History, picture: int, advice: str, seen: Seen) -> Certificate:
    """What can be claimed of a run, but for what contradicts it."""
    general, convex = _check(theorem.general, picture), _check(theorem.convex, picture)
    failures = seen.of_run(picture)
    descent = (*failures, *seen.of_start(picture))
    if general is not None and all(c.holds for c in general):
        # For a convex prior the weaker theorem may stand where the stronger one is contradicted.
        claim = _general_claim(theorem, promise, general, advice, history, picture)
        descent = (*descent, *rise(history, theorem.falls, picture, promise))
        if claim is not None and (not descent or promise is not Promise.CONVEX):
            return _withdrawn(claim, descent)
    if promise is Promise.CONVEX and convex is not None and all(c.holds for c in convex):
        return _withdrawn(Certificate(Level.CONVEX, theorem.convex_statement, convex, advice=advice), failures)
    return _outside(theorem, promise, general, convex, advice)


def _general_claim(
    theorem: Theorem,
    promise: Promise,
    conditions: tuple[CheckedCondition, ...],
    advice: str,
    history: History,
    picture: int,
) -> Certificate | None:
    """What the theorem for any proximal operator says of a denoiser with this promise; None if nothing."""
    if promise in (Promise.PROX, Promise.CONVEX):
        return Certificate(Level.PROVED, theorem.general_statement, conditions, advice=advice)
    if promise is Promise.MMSE:
        condition = "as far as the denoiser, trained for squared error, is an MMSE estimator"
        return Certificate(Level.ASSUMED, f"{condition}: {theorem.general_statement}", conditions, advice=advice)
    if promise is not Promise.GRADIENT_STEP:
        return None
    statement = f"measured in this run: the denoiser's Hessian stayed below 1; then {theorem.general_statement}"
    claim = Certificate(Level.CHECKED, statement, conditions, advice=advice)
    return _withdrawn(claim, _unmeasured(history, picture))


def _withdrawn(claim: Certificate, failures: tuple[str, ...]) -> Certificate:
    """The claim as it is, or no claim where something contradicts it."""
    if not failures:
        return claim
    statement = "the constants hold, but the denoiser was not shown to be a proximal operator"
    if not any("denoiser" in f or "eigenvalue" in f or "Lagrangian" in f for f in (*failures, *claim.failures)):
        statement = "the constants hold, but the run contradicts the theorem"
    return replace(claim, level=Level.OUTSIDE, statement=statement, failures=(*claim.failures, *failures))


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


def _unmeasured(history: History, picture: int) -> tuple[str, ...]:
    """What a gradient step must show in its run, and did not."""
    failures = []
    measured = column(history.curvature, picture)
    if measured is None or not len(measured):
        failures.append("the largest eigenvalue of the Hessian was not measured in this run")
    elif float(measured.max()) >= 1:
        failures.append(f"the largest eigenvalue of the Hessian reached {float(measured.max()):.4g}, not below 1")
    lagrangian = column(history.lagrangian, picture)
    if lagrangian is None or not len(lagrangian):
        failures.append("the Lagrangian was not evaluated in this run")
    return tuple(failures)


def _check(conditions: tuple[Condition, ...] | None, picture: int) -> tuple[CheckedCondition, ...] | None:
    return None if conditions is None else tuple(c.check(picture) for c in conditions)


def _pick(value: PerPicture, picture: int) -> float:
    values = torch.as_tensor(value, dtype=torch.float64).reshape(-1)
    return float(values[picture if len(values) > 1 else 0])
