"""Richardson-Lucy: the multiplicative maximum-likelihood iteration for counts. No prior, no denoiser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pnpladmm.data_terms import Poisson
from pnpladmm.solvers.certificate import Theorem
from pnpladmm.solvers.method import Method, Start, State, start_picture
from pnpladmm.solvers.problem import Problem
from pnpladmm.tensors import InputError, per_picture

FLOOR = 1e-6
"""Keeps the start and the denominators positive (pictures in [0, 1])."""


@dataclass(frozen=True, kw_only=True)
class RichardsonLucyState(State):
    """`x >= 0`, `Hx`, and the normalisation `H^T 1`."""

    Hx: Tensor
    normaliser: Tensor


@dataclass(frozen=True)
class RichardsonLucy(Method):
    """`x+ = x / (H^T m) * H^T ( m y / (Hx + b) )`.

    `b` is the background of a Poisson data term, else 0; `m` is 1, or 0 on pixels of precision 0. Dividing by
    `H^T m` matters for blur that changes over the picture, whose columns do not sum to one. Stays
    non-negative; fits the noise if iterated long: stop early.
    """

    state_type: ClassVar[type[State]] = RichardsonLucyState

    denoiser_calls: ClassVar[int] = 0

    def init(self, problem: Problem, start: Start = None) -> RichardsonLucyState:
        """The start, made positive: a pixel at 0 would stay there."""
        if problem.operator.absolute() is not problem.operator:
            raise InputError("RichardsonLucy needs an operator without negative entries; this one has some")
        x = start_picture(problem, start).clamp_min(FLOOR)
        normaliser = problem.operator.adjoint(_valid(problem)).clamp_min(FLOOR)
        return RichardsonLucyState(x=x, Hx=problem.operator.forward(x), normaliser=normaliser)

    def step(self, problem: Problem, state: State) -> RichardsonLucyState:
        """The equation above; negative data count as 0."""
        assert isinstance(state, RichardsonLucyState)
        H, h, y = problem.operator, problem.data_term, problem.observed
        background = per_picture(h.background, y) if isinstance(h, Poisson) else 0.0
        ratio = _valid(problem) * y.clamp_min(0) / (state.Hx + background).clamp_min(FLOOR)
        x = (state.x / state.normaliser * H.adjoint(ratio)).clamp_min(0)
        return RichardsonLucyState(x=x, Hx=H.forward(x), normaliser=state.normaliser, iteration=state.iteration + 1)

    def theorem(self, problem: Problem) -> Theorem:
        """Its limit is the maximum-likelihood picture, which is noise: nothing useful is proved."""
        return Theorem(missing="Richardson-Lucy has no prior: iterated long it fits the noise; stop it early")


def _valid(problem: Problem) -> Tensor:
    """1 where the data count, 0 where their precision is 0."""
    precision = problem.data_term.precision_of(problem.observed)
    ones = torch.ones_like(problem.observed)
    return ones if precision is None else ones * (precision > 0)
