"""LADMM that leaps: Newton steps in the space of its last iterates, where they lower the Lagrangian."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from pnpladmm.solvers.ladmm import LADMM, LADMMState
from pnpladmm.solvers.method import Start, State, keep_finished
from pnpladmm.solvers.problem import Problem
from pnpladmm.tensors import InputError, PerPicture, per_picture, squared_norm

REACH, REACH_LEAST, REACH_MOST = 128.0, 2.0, 512.0
"""A leap goes so much farther than an iteration along any direction: at first, at least and at most."""
LONGER, SHORTER = 2.0, 0.25
"""What `reach` is multiplied by after a leap that was taken, and after one that was not."""
INDEPENDENT = 1e-9
"""Directions whose squared length, beside the others, is less are left out."""
ROUNDING = 10.0
"""And those shorter than the root of this, in units of a picture's rounding errors."""


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
    """LADMM, and after each `every` iterations a leap, taken by those pictures whose Lagrangian it lowers.

    What the denoiser gets changes by `f(v) = T(v) - v`, `T` an iteration. From the last arguments `v_i` one knows
    `B = -J_f` on their span: `S = [v_i - v_n]`, `B S = -[f_i - f_n]`. With the eigenvalues `mu` of `B` there,

        v = v_n + f_n    but along an eigenvector    v = v_n + f_n / max(mu, 1 / reach),
        x = D(v),    z = Hx,    u = grad h(z) / beta.

    that is Newton's step to where nothing changes any more. Where some `mu < 0`, changes grow, `E` is concave along the
    vector, and no leap is made: it would lead far from where the iterations go, to lower values of `E` and to worse
    pictures (12 dB instead of 22 was seen). A leap is a start, and the theorem is about any; since none raises the
    Lagrangian, it is about all iterations (docs/proof.md, statement 7).

    The denoiser must know its prior: without a Lagrangian there is no telling which leaps are good.
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
        return iterations + iterations // self.every

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
        return self._leap(problem, new) if new.iteration % self.every == 0 else new

    def prior_term(self, state: State) -> Tensor | None:
        """`L_x phi(x)`, which every step has asked the denoiser for already."""
        assert isinstance(state, LeapingState)
        return None if state.phi is None else _as(self.L_x, state.phi) * state.phi

    def _phi(self, x: Tensor, v: Tensor) -> Tensor:
        phi = getattr(self.denoiser, "prior", lambda *_: None)(x, v, self.sigma_d)
        if phi is None:
            raise InputError("this denoiser cannot tell its prior: leaps need it; use LADMM")
        assert isinstance(phi, Tensor)
        return phi

    def _leap(self, problem: Problem, s: LeapingState) -> LeapingState:
        H, h, y = problem.operator, problem.data_term, problem.observed
        beta, L_x = per_picture(self.beta, s.x), per_picture(self.L_x, s.x)
        following = s.x - beta / L_x * H.adjoint(s.Hx - s.z + s.u)
        assert s.v is not None
        known = min(s.iteration - 1, self.every + 1)
        v = following + _farther(s.points[:, -known:], s.moves[:, -known:], s.v, following - s.v, s.reach)
        x = self.denoise(v)
        z = H.forward(x)
        u = h.gradient(z, y) / beta
        leap = replace(s, x=x, z=z, u=u, Hx=z, v=v, phi=self._phi(x, v))
        before, after = self.lagrangian(problem, s), self.lagrangian(problem, leap)
        assert before is not None
        assert after is not None
        taken = after <= before  # not where it is no number
        reach = torch.where(taken, LONGER * s.reach, SHORTER * s.reach).clamp(REACH_LEAST, REACH_MOST)
        return replace(keep_finished(s, leap, taken), reach=reach)


def _followed(past: Tensor, now: Tensor) -> Tensor:
    """The oldest gives way."""
    return torch.cat([past[:, 1:], now.unsqueeze(1)], 1)


def _farther(points: Tensor, moves: Tensor, v: Tensor, f: Tensor, reach: Tensor) -> Tensor:
    """What a leap from `v` adds to `v + f(v)`, from earlier points and `f` there: (B, n, C, H, W)."""
    # Differences of close numbers are exact; their products are summed in float64.
    S = (points - v.unsqueeze(1)).flatten(2).double()
    Y = (moves - f.unsqueeze(1)).flatten(2).double()
    good = torch.isfinite(S + Y).all(2).all(1)[:, None, None]  # where not, the loop sees to it
    S, Y = torch.where(good, S, 0.0), torch.where(good, Y, 0.0)
    lengths, vectors = torch.linalg.eigh(S @ S.mT)
    rounding = ROUNDING * torch.finfo(v.dtype).eps ** 2 / 4 * squared_norm(torch.where(good[..., None], v, 0))
    least = torch.maximum(INDEPENDENT * lengths[:, -1], rounding)[:, None]
    # Columns of S^T C are orthonormal, or 0 where nothing but rounding would be left.
    C = vectors * torch.where(lengths > least, lengths.clamp_min(least).rsqrt(), 0.0)[:, None]
    B = -C.mT @ (S @ Y.mT) @ C
    mu, turn = torch.linalg.eigh((B + B.mT) / 2)
    C = C @ turn
    along = C.mT @ (S @ torch.where(good, f.flatten(1).unsqueeze(-1), 0).double())
    gain = 1 / torch.maximum(mu, 1 / reach[:, None]).clamp_max(1)
    gain = torch.where((mu > -1 / REACH_MOST).all(1, keepdim=True), gain, 1.0)
    weights = C @ ((gain - 1).unsqueeze(-1) * along)
    return (weights.mT @ S).reshape(v.shape).to(v)


def _as(value: PerPicture, like: Tensor) -> Tensor:
    return torch.as_tensor(value, dtype=like.dtype, device=like.device)
