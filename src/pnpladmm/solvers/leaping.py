"""LADMM that leaps: Newton steps in the space of its last iterates, where they lower the Lagrangian."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from pnpladmm.denoisers.base import EvaluablePrior
from pnpladmm.solvers.certificate import Theorem
from pnpladmm.solvers.ladmm import LADMM, LADMMState
from pnpladmm.solvers.method import Start, State, keep_finished
from pnpladmm.solvers.problem import Problem
from pnpladmm.tensors import InputError, dot, per_picture, squared_norm

REACH, REACH_LEAST, REACH_MOST = 128.0, 2.0, 512.0
"""A leap goes so much farther than an iteration along any direction: at first, at least and at most."""
MOST = 60
"""Leaps of a run: nearly all converge with fewer, and those that do not are led astray by more."""
LONGER, SHORTER = 2.0, 0.25
"""What `reach` is multiplied by after a leap that was taken, and after one that was not."""
INDEPENDENT, ROUNDING = 1e-9, 10.0
"""Directions are left out if their squared length is less than the first times the largest one's, or than the second
times the square of a picture's rounding errors."""


@dataclass(frozen=True, kw_only=True)
class LeapingState(LADMMState):
    """LADMM's state, `phi(x)`, the last arguments before `v` with what an iteration added to them, and the reach."""

    phi: Tensor | None = None
    """(B,)"""
    points: Tensor
    """`v_i`, (B, every + 1, C, H, W), back to before the last leap: Newton steps remember the direction they took.

    Zeros at the front for what has not been yet."""
    moves: Tensor
    """`f(v_i)`, alike."""
    reach: Tensor
    """(B,)"""


@dataclass(frozen=True)
class LeapingLADMM(LADMM):
    """LADMM, and after each `every` iterations (`MOST` times) a leap, taken by those whose Lagrangian it lowers.

    What the denoiser gets changes by `f(v) = T(v) - v`, `T` an iteration. From the last arguments `v_i` one knows
    `B = -J_f` on their span: `S = [v_i - v_n]`, `B S = -[f_i - f_n]`. With the eigenvalues `mu` of its symmetric part
    there (`B` is nearly symmetric where `J_D` is near to a multiple of `Id`), a leap is

        v = v_n + f_n,    along an eigenvector    v = v_n + f_n / min(1, max(mu, 1 / reach)),
        x = D(v),    z = Hx,    u = grad h(z) / beta,

    Newton's step to where nothing changes any more. With a `mu < 0` among them (below `-1 / REACH_MOST`: nearer to 0
    one cannot tell) changes grow, and the leap is just one more iteration: a long one would lead far from where the
    iterations go, to lower values of `E` and to worse pictures (12 dB instead of 22 was seen). A leap is a start, and
    the theorem is about any; since none raises the Lagrangian, it is about all iterations (docs/proof.md, statement 7).

    The denoiser must know its prior: without a Lagrangian there is no telling which leaps are good. The state holds 12
    pictures more than LADMM's.
    """

    state_type: ClassVar[type[State]] = LeapingState

    every: int = 5

    def __post_init__(self) -> None:
        """A leap needs two differences."""
        super().__post_init__()
        if self.every < 3:
            raise InputError(f"every = {self.every}: give at least 3 iterations, a leap is made from their differences")

    def calls_after(self, iterations: int) -> int:
        """One an iteration and one a leap."""
        return iterations + min(iterations // self.every, MOST)

    def init(self, problem: Problem, start: Start = None) -> LeapingState:
        """LADMM's, with nothing behind it."""
        s = super().init(problem, start)
        none = s.x.new_zeros(len(s.x), self.every + 1, *s.x.shape[1:])
        reach = torch.full((len(s.x),), REACH, dtype=torch.float64, device=s.x.device)
        return LeapingState(**vars(s), points=none, moves=none, reach=reach)

    def step(self, problem: Problem, state: State) -> LeapingState:
        """LADMM's, and a leap where one is due."""
        assert isinstance(state, LeapingState)
        s = super().step(problem, state)
        assert s.v is not None
        points, moves = state.points, state.moves
        if state.v is not None:
            points, moves = _followed(points, state.v), _followed(moves, s.v - state.v)
        new = LeapingState(**vars(s), phi=self._phi(s.x, s.v), points=points, moves=moves, reach=state.reach)
        leaps, rest = divmod(new.iteration, self.every)
        return self._leap(problem, state, new) if rest == 0 and leaps <= MOST else new

    def prior_term(self, state: State) -> Tensor | None:
        """`L_x phi(x)`, which every step has asked the denoiser for already."""
        assert isinstance(state, LeapingState)
        phi = state.phi
        return None if phi is None else torch.as_tensor(self.L_x, dtype=phi.dtype, device=phi.device) * phi

    def _phi(self, x: Tensor, v: Tensor) -> Tensor:
        phi = self.denoiser.prior(x, v, self.sigma_d) if isinstance(self.denoiser, EvaluablePrior) else None
        if phi is None:
            raise InputError("this denoiser cannot tell its prior: leaps need it; use LADMM")
        return phi

    def theorem(self, problem: Problem) -> Theorem:
        """LADMM's for any `f`. What more is known for convex `f` is about iterations that nothing interrupts."""
        statement = "the augmented Lagrangian never rises, the changes of all iterations go to 0, and every limit point"
        statement = f"{statement} of theirs is a critical point of E"
        return replace(super().theorem(problem), convex=None, general_statement=statement)

    def _leap(self, problem: Problem, old: LeapingState, s: LeapingState) -> LeapingState:
        H, h, y = problem.operator, problem.data_term, problem.observed
        beta, L_x = per_picture(self.beta, s.x), per_picture(self.L_x, s.x)
        following = s.x - beta / L_x * H.adjoint(s.Hx - s.z + s.u)
        assert s.v is not None
        known = min(s.iteration - 1, self.every + 1)
        extra, shrink = _farther(s.points[:, -known:], s.moves[:, -known:], s.v, following - s.v, s.reach)
        v = following + extra
        x = self.denoise(v)
        z = H.forward(x)
        u = h.gradient(z, y) / beta
        leap = replace(s, x=x, z=z, u=u, Hx=z, v=v, phi=self._phi(x, v))
        last, before, after = (self.lagrangian(problem, state) for state in (old, s, leap))
        assert before is not None
        assert after is not None
        assert leap.phi is not None
        # Below 0 `phi` is no prior (statement 4): `D` is no proximal operator there.
        taken = (after <= before) & (leap.phi >= 0)
        if last is not None:
            taken = taken & (before <= last)  # what the iteration itself did wrong a leap must not hide
        reach = torch.where(taken, LONGER * s.reach, SHORTER * s.reach).clamp(REACH_LEAST, REACH_MOST)
        return replace(keep_finished(s, leap, taken), reach=torch.where(shrink, reach, s.reach))


def _followed(past: Tensor, now: Tensor) -> Tensor:
    """The oldest gives way."""
    return torch.cat([past[:, 1:], now.unsqueeze(1)], 1)


def _farther(points: Tensor, moves: Tensor, v: Tensor, f: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """What a leap from `v` adds to `v + f(v)`, from earlier points and `f` there: (B, n, C, H, W).

    And where changes shrink along all that is known, (B,): elsewhere a leap adds nothing.
    """
    # Differences of close numbers are exact.
    S, Y = (points - v.unsqueeze(1)).unbind(1), (moves - f.unsqueeze(1)).unbind(1)
    SS, SY, Sf = _products(S, S), _products(S, Y), _products(S, [f])
    good = torch.isfinite(torch.cat([SS, SY, Sf], 2)).all(2).all(1)[:, None, None]
    SS, SY, Sf = (torch.where(good, product, 0.0) for product in (SS, SY, Sf))  # the loop sees to what is not finite
    lengths, vectors = torch.linalg.eigh(SS)
    rounding = ROUNDING * (torch.finfo(v.dtype).eps / 2) ** 2 * squared_norm(v)
    least = torch.maximum(INDEPENDENT * lengths[:, -1], torch.where(good.flatten(), rounding, 0.0))[:, None]
    # The columns of S C are orthonormal, or 0 where nothing but rounding would be left.
    C = vectors * torch.where(lengths > least, lengths.clamp_min(least).rsqrt(), 0.0)[:, None]
    B = -C.mT @ SY @ C
    mu, turn = torch.linalg.eigh((B + B.mT) / 2)
    C = C @ turn
    shrink = (mu > -1 / REACH_MOST).all(1)
    gain = 1 / torch.maximum(mu, 1 / reach[:, None]).clamp_max(1)
    weights = C @ (torch.where(shrink[:, None], gain - 1, 0.0).unsqueeze(-1) * (C.mT @ Sf))
    extra = sum((per_picture(weights[:, i, 0], s.double()) * s for i, s in enumerate(S)), torch.zeros_like(v).double())
    return torch.where(good[..., None], extra, 0.0).to(v), shrink


def _products(left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    """Inner products of pictures, summed in float64: (B, n, m)."""
    return torch.stack([torch.stack([dot(a, b) for b in right], 1) for a in left], 1)
