"""Plug & Play linearized ADMM, the paper's method (Laroche et al., Algorithm 1, its dual step corrected)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.solvers.certificate import MARGIN, Condition, Theorem
from pnpladmm.solvers.method import PlugAndPlay, Settings
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.registry import METHODS
from pnpladmm.solvers.state import PlugAndPlayState, Start, start_picture
from pnpladmm.tensors import InputError, PerPicture, dot, per_picture, squared_norm

DUAL_MISMATCH = 1e-3
"""How far `beta u` of a given start may be from `grad h(z)`, relative to it."""


@dataclass(frozen=True, kw_only=True)
class LADMMState(PlugAndPlayState):
    """`x`, `Hx`, the split `z ~ Hx`, the scaled dual `u = w / beta`, and what the denoiser got."""

    Hx: Tensor = field()
    z: Tensor = field()
    u: Tensor = field()


@METHODS.register("ladmm")
@dataclass(frozen=True)
class LADMM(PlugAndPlay[LADMMState]):
    """Minimise `h(Hx) + lambda f(x)`, `lambda = L_x sigma_d^2`, `H` never inverted:

        x+ = D_{sigma_d}( x - (beta / L_x) H^T (Hx - z + u) )
        z+ = prox_{h / beta}( Hx+ + u )
        u+ = u + Hx+ - z+

    One `H`, one `H^T`, one denoiser call per iteration. Fixed points depend on `sigma_d` and `L_x`; `beta` sets
    speed and stability. Converges for `D = prox` if `beta > L_h` and `L_x > beta ||H||^2`; for convex `f`, any
    `beta` with `L_x >= beta ||H||^2` (docs/reference/theory.md).

    Parameters
    ----------
    denoiser : Denoiser
        `D`, any callable `d(x, sigma)`.
    sigma_d : float or Tensor
        The noise level that the denoiser is told, one number or one per picture.
    beta, L_x : float or Tensor
        The penalty of the split, and 1 / the step size of the picture. `LADMM.certified` chooses both.
    z_start : str or Tensor
        `z0`: the observation ("observed"), `H x0` ("blurred"), or a tensor. The dual starts at `u0 = grad h(z0) /
        beta`, because the theorem is about starts that satisfy this.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> problem = pl.Problem(torch.rand(1, 1, 8, 8), pl.Mask(torch.ones(8, 8)), pl.Gaussian(0.1))
    >>> method = pl.LADMM(pl.load_denoiser("tv"), sigma_d=0.05, beta=50.0, L_x=60.0)
    >>> result = pl.solve(problem, method, iterations=20, tolerance=0)
    >>> len(result.history), result.certificate.level.value
    (20, 'convex')
    """

    settings_key: ClassVar[str | None] = "ladmm"

    beta: PerPicture
    L_x: PerPicture
    z_start: Literal["observed", "blurred"] | Tensor = "observed"

    @classmethod
    def certified(cls, denoiser: Denoiser, problem: Problem, sigma_d: PerPicture, **options: Any) -> LADMM:
        """The method with the smallest `beta` and `L_x` that the theorem allows, and a margin of 0.1 %.

        Parameters
        ----------
        denoiser : Denoiser
            `D`.
        problem : Problem
            The problem that the constants are for.
        sigma_d : float or Tensor
            The noise level that the denoiser is told.
        **options
            Other fields of the method.

        Returns
        -------
        LADMM
            Or the subclass that it is called on.
        """
        beta = MARGIN * problem.L_h()
        upper = problem.norm_squared.upper.to(beta.device)
        if not bool(torch.isfinite(upper).all()):
            raise InputError("||H||^2 has no proven upper bound for this operator: choose beta and L_x yourself")
        return cls(denoiser, sigma_d, beta=beta, L_x=MARGIN * beta * upper, **options)

    @classmethod
    def from_settings(cls, denoiser: Denoiser, problem: Problem, settings: Settings, calls: int | None = None) -> LADMM:
        """From `sigma_d`, `lambda` and `ratio`."""
        return cls(denoiser, **steps_from_settings(problem, settings, cls.__name__))

    @property
    def prior_weight(self) -> PerPicture:
        """`lambda f = L_x phi`."""
        return self.L_x

    def started_from_blurred(self) -> Self:
        """The method with `z0 = H x0`: the theorem holds from any `x0` with the dual that belongs to this `z0`."""
        return replace(self, z_start="blurred")

    def init(self, problem: Problem, start: Start = None) -> LADMMState:
        """The state of `x0`, `z0`, and the dual that belongs to `z0`."""
        x = start_picture(problem, start)
        Hx = problem.operator.forward(x)
        z = self._z0(problem, Hx)
        u = problem.data_term.gradient(z, problem.observed) / per_picture(self.beta, z)
        return LADMMState(x=x, z=z, u=u, Hx=Hx)

    def step(self, problem: Problem, state: LADMMState) -> LADMMState:
        """The equations above, in their order."""
        s, H, h, y = state, problem.operator, problem.data_term, problem.observed
        beta, L_x = per_picture(self.beta, s.x), per_picture(self.L_x, s.x)

        v = s.x - beta / L_x * H.adjoint(s.Hx - s.z + s.u)
        x = self.denoise(v)
        Hx = H.forward(x)
        z = h.prox(Hx + s.u, 1 / beta, y)
        u = s.u + Hx - z
        return LADMMState(x=x, z=z, u=u, Hx=Hx, denoised_from=v, iteration=s.iteration + 1)

    def lagrangian(self, problem: Problem, state: LADMMState) -> Tensor | None:
        """`h(z) + lambda f(x) + <w, Hx - z> + beta/2 ||Hx - z||^2`, `w = beta u`."""
        prior = self.prior_term(state)
        if prior is None:
            return None
        residual = state.Hx.double() - state.z.double()
        beta = torch.as_tensor(self.beta, dtype=torch.float64, device=residual.device)
        coupling = beta * (dot(state.u, residual) + squared_norm(residual) / 2)
        return problem.data_term.value(state.z, problem.observed) + prior + coupling

    def start_fits(self, problem: Problem, state: LADMMState) -> Tensor:
        """Does the dual belong to `z`, `beta u = grad h(z)`? It does after every iteration."""
        slope = problem.data_term.gradient(state.z, problem.observed)
        dual = per_picture(self.beta, state.u) * state.u
        # `u` is a difference of numbers as large as `Hx` and `z`, which are rounded.
        rounding = 100 * torch.finfo(state.u.dtype).eps * (squared_norm(state.z) + squared_norm(state.Hx)).sqrt()
        allowed = DUAL_MISMATCH * squared_norm(slope).sqrt() + rounding * torch.maximum(
            torch.as_tensor(self.beta, dtype=torch.float64, device=rounding.device), problem.L_h().to(rounding.device)
        )
        return squared_norm(slope - dual).sqrt() <= allowed

    def theorem(self, problem: Problem) -> Theorem:
        """Descent of the Lagrangian for any `f`, convergence to a minimiser for convex `f`."""
        norm = problem.norm_squared.upper
        # For one precision per picture LADMM with beta = L_h is ISTA, and ISTA descends: equality is allowed there.
        strict = not problem.data_term.one_precision
        step = Condition("L_x", self.L_x, "beta ||H||^2", _product(self.beta, norm), strict=True)
        return Theorem(
            general=(Condition("beta", self.beta, "L_h", problem.L_h(), strict=strict), step),
            convex=(Condition("L_x", self.L_x, "beta ||H||^2", _product(self.beta, norm), strict=False),),
            general_statement="the augmented Lagrangian falls at every iteration, all changes go to 0, "
            "and every limit point is a critical point of E",
            convex_statement="a primal-dual method for a convex E: it converges to a minimiser",
            falls="lagrangian",
        )

    def _z0(self, problem: Problem, Hx: Tensor) -> Tensor:
        if isinstance(self.z_start, Tensor):
            if self.z_start.shape != Hx.shape:
                raise InputError(
                    f"z_start has shape {tuple(self.z_start.shape)}: the observation has {tuple(Hx.shape)}"
                )
            return self.z_start.to(Hx)
        if self.z_start not in ("observed", "blurred"):
            raise InputError(f"z_start {self.z_start!r}: give 'observed', 'blurred' or a tensor")
        return problem.observed.clone() if self.z_start == "observed" else Hx


def _product(a: PerPicture, b: Tensor) -> Tensor:
    return torch.as_tensor(a, dtype=torch.float64).reshape(-1).to(b.device) * b


def steps_from_settings(problem: Problem, settings: Settings, method: str) -> dict[str, Any]:
    """`sigma_d`, `L_x = lambda / sigma_d^2`, and `beta` from `ratio = L_x / (beta ||H||^2)`."""
    norm = problem.proven_norm_for(method)
    L_x = torch.as_tensor(settings["lambda"], dtype=torch.float64) / torch.as_tensor(settings["sigma_d"]) ** 2
    L_x = L_x.to(norm.device)
    beta = L_x / (torch.as_tensor(settings.get("ratio", MARGIN), device=norm.device) * norm)
    return {"sigma_d": settings["sigma_d"], "beta": beta, "L_x": L_x}
