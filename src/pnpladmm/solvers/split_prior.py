"""Accelerated primal-dual descent for priors such as total variation: no denoiser, so no inner iterations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Promise, SplitPrior
from pnpladmm.solvers.certificate import Condition, Theorem
from pnpladmm.solvers.method import Method
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.state import Start, State, start_picture
from pnpladmm.tensors import PerPicture, check_positive, per_picture

RATIO = 20.0
"""`r`: steps of the dual are this much longer than those of the picture; measured for pictures in [0, 1]."""
ITERATIONS = 150
BOX = 10.0
"""The rate is proved for bounded pictures: within so many times the range of the start around it. None gets there."""


@dataclass(frozen=True, kw_only=True)
class SplitPriorState(State):
    """The means `x`, `Hx`, `u` of all iterates so far, and the last iterates."""

    Hx: Tensor = field()
    u: Tensor = field()
    last: Tensor
    before: Tensor
    H_last: Tensor
    p: Tensor
    low: Tensor
    high: Tensor


@dataclass(frozen=True)
class SplitDescent(Method[SplitPriorState]):
    """Minimise `h(Hx) + w ||K x||_1` for a prior with `||K x||_1 = max <Kx, p>` over `|p| <= 1`:

        p+    = project( p + s w K (z + (k-1)/k (z - z-)) )
        z+    = z - t_k (H^T grad h(H q) + w K^T p+),       q = (1 - 2/(k+1)) x + 2/(k+1) z
        x+, u+ = (1 - 2/(k+1)) (x, u) + 2/(k+1) (z+, p+).

    One `H` and one `H^T` per iteration. `s = r / (w ||K||)` and `1/t_k = 2 L / k + r w ||K||`, `L = L_h ||H||^2`. Chen,
    Lan and Ouyang (2014): `E - min E` falls as `L / k^2 + w ||K|| / k`. A prox of total variation needs tens to
    hundreds of inner iterations; here each iteration makes one.

    Parameters
    ----------
    prior : SplitPrior
        Such as total variation.
    weight : float or Tensor
        `w`, one number or one per picture.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> blur = pl.SpatiallyVaryingBlur(torch.full((1, 3, 3), 1 / 9), torch.ones(1, 8, 8))
    >>> problem = pl.Problem(torch.rand(1, 1, 8, 8), blur, pl.Gaussian(0.1))
    >>> pl.solve(problem, SplitDescent(pl.load_denoiser("tv"), 6.0)).certificate.level.value
    'convex'
    """

    denoiser_calls: ClassVar[int] = 0

    prior: SplitPrior
    weight: PerPicture

    def __post_init__(self) -> None:
        """Check the weight."""
        check_positive("weight", self.weight)

    @classmethod
    def iterations_for(cls, sigma: Tensor) -> int:
        """Enough for an objective within a few ten-thousandths of its minimum."""
        return ITERATIONS

    @property
    def promise(self) -> Promise:
        """`||K x||_1` is convex."""
        return Promise.CONVEX

    def init(self, problem: Problem, start: Start = None) -> SplitPriorState:
        """`z0 = x0`, duals 0."""
        x = start_picture(problem, start)
        Hx, p = problem.operator.forward(x), torch.zeros_like(self.prior.analysis(x))
        low, high = (end.view(-1, 1, 1, 1) for end in (x.flatten(1).amin(1), x.flatten(1).amax(1)))
        room = BOX * (high - low) + BOX * torch.finfo(x.dtype).eps
        return SplitPriorState(
            x=x, Hx=Hx, u=p, last=x, before=x, H_last=Hx, p=p, low=low - room, high=high + room
        )  # fmt: skip

    def step(self, problem: Problem, state: SplitPriorState) -> SplitPriorState:
        """The equations above."""
        s, H, h, y, prior = state, problem.operator, problem.data_term, problem.observed, self.prior
        k = s.iteration + 1
        new, old = 2 / (k + 1), 1 - 2 / (k + 1)
        weight = per_picture(self.weight, s.x)
        size = weight * prior.norm_squared**0.5
        smooth = per_picture(self._smoothness(problem), s.x)

        ahead = s.last + (k - 1) / k * (s.last - s.before)
        p = prior.project(prior.analysis(ahead).mul_((RATIO * weight / size).reshape(-1, 1, 1, 1, 1)).add_(s.p))
        slope = H.adjoint(h.gradient(old * s.Hx + new * s.H_last, y)) + weight * prior.synthesis(p)
        last = (s.last - slope / (2 * smooth / k + RATIO * size)).clamp(s.low, s.high)
        H_last = H.forward(last)
        return SplitPriorState(
            x=old * s.x + new * last, Hx=old * s.Hx + new * H_last, u=old * s.u + new * p,
            last=last, before=s.last, H_last=H_last, p=p, low=s.low, high=s.high, iteration=k,
        )  # fmt: skip

    def objective(self, problem: Problem, state: SplitPriorState) -> Tensor:
        """`h(Hx) + w ||K x||_1`."""
        weight = torch.as_tensor(self.weight, dtype=torch.float64, device=state.x.device)
        return problem.data_term.value(state.Hx, problem.observed) + weight * self.prior.total(state.x)

    def gradient(self, problem: Problem, state: SplitPriorState) -> Tensor:
        """`H^T grad h(Hx) + w K^T u`, which is 0 at the minimiser."""
        misfit = problem.data_term.gradient(state.Hx, problem.observed)
        return problem.operator.adjoint(misfit) + per_picture(self.weight, state.x) * self.prior.synthesis(state.u)

    def theorem(self, problem: Problem) -> Theorem:
        """The rate of Chen, Lan and Ouyang; the steps satisfy its conditions for any bound of the norm."""
        bound = self._smoothness(problem)
        return Theorem(
            convex=(Condition("L", bound, "L_h ||H||^2", bound, strict=False),),
            convex_statement="accelerated primal-dual descent on a convex E: E - min E falls as L / k^2 + w ||K|| / k",
        )

    def _smoothness(self, problem: Problem) -> Tensor:
        """`L = L_h ||H||^2`."""
        norm = problem.proven_norm_for("SplitDescent")
        return problem.L_h().to(norm.device) * norm
