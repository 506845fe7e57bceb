"""Richardson-Lucy: the multiplicative maximum-likelihood iteration for counts. No prior, no denoiser."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from pnpladmm.solvers.certificate import Theorem
from pnpladmm.solvers.method import Method
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.registry import METHODS
from pnpladmm.solvers.settings import tuned
from pnpladmm.solvers.state import Start, State, start_picture
from pnpladmm.tensors import InputError

FLOOR = 1e-6
"""Keeps the start and the denominators positive (pictures in [0, 1])."""


MOST_NEGATIVE = 0.1
"""The largest share of negative entries that it works with."""
SMALLEST = 1e-3


@dataclass(frozen=True, kw_only=True)
class RichardsonLucyState(State):
    """`x >= 0`, `Hx`, and the normalisation `H^T 1`."""

    Hx: Tensor = field()
    normaliser: Tensor


@METHODS.register("richardson-lucy")
@dataclass(frozen=True)
class RichardsonLucy(Method[RichardsonLucyState]):
    """Maximum likelihood for counts, without a prior:

        x+ = x / (H^T m) * H^T ( m y / (Hx + b) ).

    `b` is the background of a Poisson data term, else 0; `m` is 1, or 0 on pixels of precision 0. Dividing by
    `H^T m` matters for blur that changes over the picture, whose columns do not sum to one. The picture stays
    non-negative. Iterated long it fits the noise: stop early.

    Operators may have a few negative entries, as in the wings of PSFEx models. `Hx + b` is then taken for at least a
    thousandth of `y`.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> blur = pl.SpatiallyVaryingBlur(torch.full((1, 3, 3), 1 / 9), torch.ones(1, 16, 16))
    >>> problem = pl.Problem(torch.rand(1, 1, 16, 16), blur, pl.Poisson(gain=0.01, background=0.01))
    >>> bool((pl.solve(problem, pl.RichardsonLucy(), iterations=5).image >= 0).all())
    True
    """

    denoiser_calls: ClassVar[int] = 0
    uses_data_term: ClassVar[bool] = False
    settings_key: ClassVar[str | None] = "richardson-lucy"

    @staticmethod
    def suits(problem: Problem) -> bool:
        """Whether the operator has no negative entries, or few."""
        share = _negative_share(problem)
        return share is not None and share <= MOST_NEGATIVE

    @classmethod
    def iterations_for(cls, sigma: Tensor) -> int:
        """The tuned number for the noisiest picture of the batch, which must stop first."""
        return round(float(tuned(None, "richardson-lucy", sigma)["iterations"].min()))

    def init(self, problem: Problem, start: Start = None) -> RichardsonLucyState:
        """The start, made positive: a pixel at 0 would stay there."""
        if not self.suits(problem):
            raise InputError(
                "RichardsonLucy needs an operator without negative entries, or with few; this one has more"
            )
        x = start_picture(problem, start).clamp_min(FLOOR)
        normaliser = problem.operator.adjoint(_valid(problem)).clamp_min(FLOOR)
        return RichardsonLucyState(x=x, Hx=problem.operator.forward(x), normaliser=normaliser)

    def step(self, problem: Problem, state: RichardsonLucyState) -> RichardsonLucyState:
        """The equation above; negative data count as 0."""
        H, y = problem.operator, problem.observed
        background = problem.data_term.background_of(y)
        least = (SMALLEST * y).clamp_min(FLOOR) if H.absolute() is not H else torch.full_like(y, FLOOR)
        ratio = _valid(problem) * y.clamp_min(0) / torch.maximum(state.Hx + background, least)
        x = (state.x / state.normaliser * H.adjoint(ratio)).clamp_min(0)
        return RichardsonLucyState(x=x, Hx=H.forward(x), normaliser=state.normaliser, iteration=state.iteration + 1)

    def theorem(self, problem: Problem) -> Theorem:
        """Its limit is the maximum-likelihood picture, which is noise: nothing useful is proved."""
        return Theorem(missing="Richardson-Lucy has no prior: iterated long it fits the noise; stop it early")


def _negative_share(problem: Problem) -> float | None:
    """The negative entries of the operator as a share of all, by what they make of a flat picture; None if unknown."""
    H = problem.operator
    size = H.absolute()
    if size is None or size is H:
        return None if size is None else 0.0
    one = torch.ones(problem.shape, dtype=problem.observed.dtype, device=problem.observed.device)
    whole, total = size.forward(one).sum(), H.forward(one).sum()
    return float((whole - total) / (2 * whole))


def _valid(problem: Problem) -> Tensor:
    """1 where the data count, 0 where their precision is 0."""
    precision = problem.data_term.precision_of(problem.observed)
    ones = torch.ones_like(problem.observed)
    return ones if precision is None else ones * (precision > 0)
