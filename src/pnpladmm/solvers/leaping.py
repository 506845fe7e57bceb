"""LADMM with leaps: Newton steps in the space of its last iterates, taken where they lower the Lagrangian."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from pnpladmm.denoisers import anchored, relaxed
from pnpladmm.denoisers.base import Denoiser, EvaluablePrior, Promise, name_of, promise_of
from pnpladmm.solvers.certificate import MARGIN, Theorem
from pnpladmm.solvers.ladmm import LADMM, LADMMState
from pnpladmm.solvers.method import Method, Settings
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.registry import METHODS
from pnpladmm.solvers.settings import convex_weight, rows_of, shipped_settings, tuned
from pnpladmm.solvers.state import Start, State, keep_finished
from pnpladmm.tensors import InputError, dot, per_picture, squared_norm

FIRST_REACH, LEAST_REACH, LARGEST_REACH = 128.0, 2.0, 512.0
"""A leap goes at most this many times as far as an iteration along any direction: at first, at least and at most."""
MAX_LEAPS = 60
"""Leaps in a run. Nearly all runs converge with fewer; for the others more leaps make the picture worse."""
LONGER, SHORTER = 2.0, 0.25
"""Factors of `reach` after a leap that was taken, and after one that was not."""
AFTER = "after"
"""Settings of certified iterations after another method: `sigma_d`, `relaxation`, and `anchor`, the `mu` of a picture
that is held (denoisers/anchored.py)."""
INDEPENDENT, ROUNDING = 1e-9, 10.0
"""A direction is left out if its squared length is less than the first number times that of the longest one, or less
than the second times the squared rounding errors of a picture."""


@dataclass(frozen=True, kw_only=True)
class LeapingState(LADMMState):
    """LADMM's state, `phi(x)`, the last arguments of the denoiser with what an iteration added to them, the reach."""

    phi: Tensor | None = None
    """(B,)"""
    points: Tensor
    """`v_i`, (B, every + 1, C, H, W), back to before the last leap, so that the next one knows its direction too.

    Zeros at the front where there were no iterations yet."""
    moves: Tensor
    """`f(v_i)`, of the same shape."""
    reach: Tensor
    """(B,)"""


@dataclass(frozen=True)
class LeapingLADMM(LADMM):
    """LADMM with a leap after every `every` iterations, up to `MAX_LEAPS` times, where it lowers the Lagrangian.

    An iteration `T` changes the argument of the denoiser by `f(v) = T(v) - v`. The last arguments `v_i` determine
    `B = -J_f` on their span: `S = [v_i - v_n]`, `B S = -[f_i - f_n]`. With the eigenvalues `mu` of its symmetric part
    there (`B` is nearly symmetric where `J_D` is near to a multiple of `Id`), a leap is

        v = v_n + f_n,    along an eigenvector    v = v_n + f_n / min(1, max(mu, 1 / reach)),
        x = D(v),    z = Hx,    u = grad h(z) / beta,

    Newton's step to the point where nothing changes any more. Where some `mu` is negative (below `-1 / LARGEST_REACH`,
    as far as rounding allows to tell) changes grow, and the leap is an iteration of ordinary length: a long one would
    lead to lower values of `E` and to worse pictures (12 dB instead of 22 were measured). A leap is a new start, and
    the theorem holds for any start; as no leap raises the Lagrangian, it covers all iterations
    (docs/reference/proof.md, statement 7).

    The denoiser must be able to evaluate its prior, because the Lagrangian decides which leaps are taken. The state
    holds 12 pictures more than LADMM's.

    Parameters
    ----------
    denoiser, sigma_d, beta, L_x, z_start
        As for `LADMM`.
    every : int
        Iterations between leaps, at least 3.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> problem = pl.Problem(torch.rand(1, 1, 8, 8), pl.Mask(torch.ones(8, 8)), pl.Gaussian(0.1))
    >>> method = pl.LeapingLADMM.certified(pl.load_denoiser("tv"), problem, sigma_d=0.05)
    >>> pl.solve(problem, method, iterations=10, tolerance=0).history.denoiser_calls[-1].item()
    12
    """

    state_type: ClassVar[type[State]] = LeapingState

    every: int = 5

    def __post_init__(self) -> None:
        """Check `every` too."""
        super().__post_init__()
        if self.every < 3:
            raise InputError(f"every = {self.every}: give at least 3 iterations, a leap is made from their differences")

    def calls_after(self, iterations: int) -> int:
        """Denoiser calls: one per iteration and one per leap."""
        return iterations + min(iterations // self.every, MAX_LEAPS)

    def init(self, problem: Problem, start: Start = None) -> LeapingState:
        """The first state of LADMM, with an empty memory."""
        return self._with_memory(super().init(problem, start))

    def step(self, problem: Problem, state: LADMMState) -> LeapingState:
        """An iteration of LADMM, and every few iterations a leap."""
        old, s = self._with_memory(state), super().step(problem, state)
        before, v = old.denoised_from, s.denoised_from
        assert v is not None  # every step denoises
        points, moves = old.points, old.moves
        if before is not None:
            points, moves = _followed(points, before), _followed(moves, v - before)
        new = LeapingState(**vars(s), phi=self._phi(s.x, v), points=points, moves=moves, reach=old.reach)
        leaps, rest = divmod(new.iteration, self.every)
        return self._leap(problem, old, new, v) if rest == 0 and leaps <= MAX_LEAPS else new

    def prior_term(self, state: LADMMState) -> Tensor | None:
        """`L_x phi(x)`; every step has evaluated `phi` already."""
        if not isinstance(state, LeapingState):
            return super().prior_term(state)
        phi = state.phi
        return None if phi is None else torch.as_tensor(self.L_x, dtype=phi.dtype, device=phi.device) * phi

    def _with_memory(self, state: LADMMState) -> LeapingState:
        """The state as it is; a state of LADMM at the start gets an empty memory."""
        if isinstance(state, LeapingState):
            return state
        if state.iteration:
            raise InputError(f"{self.name} goes on from a {LeapingState.__name__}: start it with init")
        none = state.x.new_zeros(len(state.x), self.every + 1, *state.x.shape[1:])
        reach = torch.full((len(state.x),), FIRST_REACH, dtype=torch.float64, device=state.x.device)
        return LeapingState(**vars(state), points=none, moves=none, reach=reach)

    def _phi(self, x: Tensor, v: Tensor) -> Tensor:
        phi = self.denoiser.prior(x, v, self.sigma_d) if isinstance(self.denoiser, EvaluablePrior) else None
        if phi is None:
            raise InputError("this denoiser cannot evaluate its prior, which leaps need: use LADMM")
        return phi

    def theorem(self, problem: Problem) -> Theorem:
        """The theorem of LADMM for any `f`. Its statement for convex `f` is about iterations without leaps."""
        statement = "the augmented Lagrangian never rises, the changes of all iterations go to 0, and every limit point"
        statement = f"{statement} of theirs is a critical point of E"
        return replace(super().theorem(problem), convex=None, general_statement=statement)

    def _leap(self, problem: Problem, old: LeapingState, s: LeapingState, now: Tensor) -> LeapingState:
        """The state after a leap from `s`, which an iteration from `old` gave; `now` is its denoiser's argument."""
        H, h, y = problem.operator, problem.data_term, problem.observed
        beta, L_x = per_picture(self.beta, s.x), per_picture(self.L_x, s.x)
        following = s.x - beta / L_x * H.adjoint(s.Hx - s.z + s.u)
        known = min(s.iteration - 1, self.every + 1)
        extra, shrink = _extra_step(s.points[:, -known:], s.moves[:, -known:], now, following - now, s.reach)
        v = following + extra
        x = self.denoise(v)
        z = H.forward(x)
        u = h.gradient(z, y) / beta
        phi = self._phi(x, v)
        leap = replace(s, x=x, z=z, u=u, Hx=z, denoised_from=v, phi=phi)
        last, before, after = (self.lagrangian(problem, state) for state in (old, s, leap))
        assert before is not None  # they follow from `phi`
        assert after is not None
        # Below 0 `phi` is no prior (statement 4): `D` is no proximal operator there.
        taken = (after <= before) & (phi >= 0)
        if last is not None:
            taken = taken & (before <= last)  # a leap must not hide a mistake of the iteration itself
        reach = torch.where(taken, LONGER * s.reach, SHORTER * s.reach).clamp(LEAST_REACH, LARGEST_REACH)
        return replace(keep_finished(s, leap, taken), reach=torch.where(shrink, reach, s.reach))


@METHODS.register("certified")
class Certified(LADMM):
    """The name `certified`: makes `LADMM` or `LeapingLADMM` with constants that satisfy the theorem."""

    needs_full_precision: ClassVar[bool] = True
    settings_key: ClassVar[str | None] = "certified"

    @classmethod
    def from_settings(cls, denoiser: Denoiser, problem: Problem, settings: Settings, calls: int | None = None) -> LADMM:
        """From `sigma_d`, and for denoisers that are used relaxed from their `relaxation`."""
        relaxation = torch.as_tensor(settings.get("relaxation", 1.0), dtype=torch.float64)
        used = denoiser if bool((relaxation == 1).all()) else relaxed(denoiser, relaxation)
        return cls._of(used, problem, settings)

    @classmethod
    def after(
        cls, start: Tensor, denoiser: Denoiser, problem: Problem, sigma: Tensor, strength: float = 1.0
    ) -> Method[Any]:
        """For iterations that begin where another method ended, at `start`; `sigma` (B,) is the noise.

        The prior of denoisers that have settings for it holds the picture near `start` (denoisers/anchored.py).
        """
        levels = rows_of(shipped_settings(), name_of(denoiser), denoiser).get(AFTER)
        if levels is None:
            return cls.for_noise(denoiser, problem, sigma, strength).started_from_blurred()
        settings = tuned(denoiser, AFTER, sigma)
        used = anchored(denoiser, settings["relaxation"], start, settings["anchor"])
        settings["sigma_d"] = strength * settings["sigma_d"]
        return cls._of(used, problem, settings).started_from_blurred()

    @staticmethod
    def prior_in_words(method: Method[Any]) -> str:
        """The prior of a method that `after` made."""
        denoiser = getattr(method, "denoiser", None)
        near = getattr(denoiser, "anchor", None) is not None
        return name_of(denoiser) + (", which also holds the picture near the one it began with" if near else "")

    @staticmethod
    def _of(denoiser: Denoiser, problem: Problem, settings: Settings) -> LADMM:
        # Leaps need a prior that can be evaluated. Convex priors need no leaps.
        leaps = isinstance(denoiser, EvaluablePrior) and promise_of(denoiser) in (Promise.GRADIENT_STEP, Promise.PROX)
        return (LeapingLADMM if leaps else LADMM).certified(denoiser, problem, settings["sigma_d"])

    @classmethod
    def convex_settings(
        cls, denoiser: Denoiser, problem: Problem, sigma: Tensor, strength: float = 1.0
    ) -> dict[str, Tensor]:
        """Settings for the `L_x` that `LADMM.certified` will choose: `MARGIN^2 L_h ||H||^2`."""
        weight = torch.full_like(sigma, strength**2 * convex_weight(denoiser))
        L_x = problem.L_h() * problem.proven_norm_for("certified LADMM")
        return {"sigma_d": (weight / L_x).sqrt() / MARGIN}


def _followed(past: Tensor, now: Tensor) -> Tensor:
    """`past` without its oldest entry and with `now` at its end."""
    return torch.cat([past[:, 1:], now.unsqueeze(1)], 1)


def _extra_step(points: Tensor, moves: Tensor, v: Tensor, f: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """The term that a leap from `v` adds to `v + f(v)`, from earlier points and `f` there, each (B, n, C, H, W).

    Also returns where changes shrink along all known directions, (B,): elsewhere a leap adds nothing.
    """
    # Differences of close numbers are exact.
    S, Y = (points - v.unsqueeze(1)).unbind(1), (moves - f.unsqueeze(1)).unbind(1)
    SS, SY, Sf = _products(S, S), _products(S, Y), _products(S, [f])
    good = torch.isfinite(torch.cat([SS, SY, Sf], 2)).all(2).all(1)[:, None, None]
    SS, SY, Sf = (torch.where(good, product, 0.0) for product in (SS, SY, Sf))  # the loop handles what is not finite
    lengths, vectors = torch.linalg.eigh(SS)
    rounding = ROUNDING * (torch.finfo(v.dtype).eps / 2) ** 2 * squared_norm(v)
    least = torch.maximum(INDEPENDENT * lengths[:, -1], torch.where(good.flatten(), rounding, 0.0))[:, None]
    # The columns of S C are orthonormal, or 0 where only rounding would be left.
    C = vectors * torch.where(lengths > least, lengths.clamp_min(least).rsqrt(), 0.0)[:, None]
    B = -C.mT @ SY @ C
    mu, turn = torch.linalg.eigh((B + B.mT) / 2)
    C = C @ turn
    shrink = (mu > -1 / LARGEST_REACH).all(1)
    gain = 1 / torch.maximum(mu, 1 / reach[:, None]).clamp_max(1)
    weights = C @ (torch.where(shrink[:, None], gain - 1, 0.0).unsqueeze(-1) * (C.mT @ Sf))
    extra = sum((per_picture(weights[:, i, 0], s.double()) * s for i, s in enumerate(S)), torch.zeros_like(v).double())
    return torch.where(good[..., None], extra, 0.0).to(v), shrink


def _products(left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    """Inner products of pictures, summed in float64: (B, n, m)."""
    return torch.stack([torch.stack([dot(a, b) for b in right], 1) for a in left], 1)
