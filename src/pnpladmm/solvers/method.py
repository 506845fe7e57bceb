"""What a method is: `init` and `step` on an explicit state. A checkpoint is a state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Denoiser, EvaluablePrior, Promise, promise_of
from pnpladmm.solvers.certificate import Theorem
from pnpladmm.solvers.problem import Problem
from pnpladmm.tensors import InputError, PerPicture, check_pictures, check_positive

Start: TypeAlias = Tensor | Literal["observed", "adjoint"] | None
"""Where `x` starts: a given picture, the observation made to fit, `H^T y`; None is `observed`."""


@dataclass(frozen=True, kw_only=True)
class State:
    """All that a method carries from one iteration to the next."""

    duals: ClassVar[tuple[str, ...]] = ("u",)
    """Names of the scaled dual variables, where the method has some."""

    x: Tensor
    """The picture, (B, C, H, W)."""
    iteration: int = 0


StateT = TypeVar("StateT", bound=State)


def keep_finished(old: StateT, new: StateT, running: Tensor) -> StateT:
    """`new` for the pictures still running, `old` for those that are done; on the device, without a wait."""
    kept: dict[str, Any] = {}
    for f in fields(new):
        before, after = getattr(old, f.name), getattr(new, f.name)
        if isinstance(before, Tensor) and isinstance(after, Tensor):
            mask = running.view(-1, *(1,) * (after.ndim - 1))
            kept[f.name] = torch.where(mask, after, before)
    return replace(new, **kept)


class Method(ABC):
    """A frozen set of parameters with an iteration."""

    denoiser_calls: ClassVar[int] = 1
    """Denoiser calls an iteration."""
    state_type: ClassVar[type[State]]
    """What `init` and `step` return."""

    @property
    def name(self) -> str:
        """As it is printed."""
        return type(self).__name__

    def calls_after(self, iterations: int) -> int:
        """Denoiser calls of the first so many iterations."""
        return iterations * self.denoiser_calls

    @property
    def length(self) -> int | None:
        """Iterations after which a method with a schedule is complete; None for those that go on."""
        return None

    @property
    def promise(self) -> Promise:
        """What is known of the prior."""
        return Promise.NONE

    @abstractmethod
    def init(self, problem: Problem, start: Start = None) -> State:
        """The state before the first iteration."""

    @abstractmethod
    def step(self, problem: Problem, state: State) -> State:
        """One iteration."""

    @abstractmethod
    def theorem(self, problem: Problem) -> Theorem:
        """The conditions under which something is proved of this method, with this problem's numbers."""

    def blurred(self, problem: Problem, state: State) -> Tensor:
        """`Hx`, kept by most methods."""
        kept = getattr(state, "Hx", None)
        return kept if isinstance(kept, Tensor) else problem.operator.forward(state.x)

    def objective(self, problem: Problem, state: State) -> Tensor | None:
        """`E(x) = h(Hx) + lambda f(x)` of each picture, where `f` can be evaluated."""
        return None

    def lagrangian(self, problem: Problem, state: State) -> Tensor | None:
        """The augmented Lagrangian of each picture, for methods that have one."""
        return None


@dataclass(frozen=True)
class PlugAndPlay(Method):
    """A method whose prior enters through a denoiser `D_{sigma_d} = prox_phi`."""

    denoiser: Denoiser
    sigma_d: PerPicture

    def __post_init__(self) -> None:
        """Check the parameters: all numbers of a method are positive."""
        if not callable(self.denoiser):
            raise InputError(f"denoiser is a {type(self.denoiser).__name__}: give a callable d(x, sigma)")
        for f in fields(self):
            if f.name in ("sigma_d", "beta", "L_x", "rho"):
                check_positive(f.name, getattr(self, f.name))

    @property
    @abstractmethod
    def prior_weight(self) -> PerPicture:
        """The number that makes `lambda f = prior_weight * phi`: `L_x`, or ADMM's `rho`."""

    @property
    def promise(self) -> Promise:
        """The denoiser's."""
        return promise_of(self.denoiser)

    def denoise(self, v: Tensor, sigma: PerPicture | None = None) -> Tensor:
        """`D_{sigma_d}(v)`, or at another `sigma`."""
        x = self.denoiser(v, self.sigma_d if sigma is None else sigma)
        if x.shape != v.shape:
            raise InputError(f"the denoiser returned shape {tuple(x.shape)} for {tuple(v.shape)}: they must match")
        return x

    def prior_term(self, state: State) -> Tensor | None:
        """`lambda f(x) = prior_weight phi(x)` of each picture; None where the denoiser cannot tell."""
        if not isinstance(self.denoiser, EvaluablePrior):
            return None
        phi = self.denoiser.prior(state.x, getattr(state, "v", None), self.sigma_d)
        if phi is None:
            return None
        return torch.as_tensor(self.prior_weight, dtype=torch.float64, device=phi.device) * phi

    def objective(self, problem: Problem, state: State) -> Tensor | None:
        """`h(Hx) + lambda f(x)`."""
        prior = self.prior_term(state)
        if prior is None:
            return None
        return problem.data_term.value(self.blurred(problem, state), problem.observed) + prior


def start_picture(problem: Problem, start: Start) -> Tensor:
    """`x0` as a tensor of its own."""
    if start is None or isinstance(start, str):
        if start not in (None, "observed", "adjoint"):
            raise InputError(f"start {start!r}: give a picture, 'observed' or 'adjoint'")
        return problem.operator.adjoint(problem.observed) if start == "adjoint" else problem.default_start()
    check_pictures("start", start)
    if tuple(start.shape) != problem.shape:
        raise InputError(f"start has shape {tuple(start.shape)}: the picture to be found has {problem.shape}")
    return start.to(problem.observed).clone()
