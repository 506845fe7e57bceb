"""What a method is: `init` and `step` on an explicit state, and what it declares about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Generic, Self, TypeAlias, get_args

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Denoiser, EvaluablePrior, Promise, call_denoiser, promise_of
from pnpladmm.solvers import settings as tables
from pnpladmm.solvers.certificate import MARGIN, Theorem
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.state import PlugAndPlayStateT, Start, State, StateT
from pnpladmm.solvers.workspace import Workspace
from pnpladmm.tensors import InputError, PerPicture, check_positive, per_picture, type_words

Settings: TypeAlias = Mapping[str, Tensor | float]
"""Parameters by name, numbers or (B,); noise levels for pictures in [0, 1]."""

CONVEX_BETA = 0.1
"""For convex priors `beta` is this share of 1/sigma^2. Any value converges, this one quickly."""


class Method(ABC, Generic[StateT]):
    """A frozen set of parameters with an iteration.

    A method is one file. It gives `init`, `step` and `theorem`, declares its state as the type parameter, as in
    `class Toy(Method[ToyState])`, and declares what callers may ask in the class variables below. Registered in
    `solvers.registry.METHODS`, or by an entry point of the group `pnpladmm.methods`, it is found by name.
    """

    state_type: ClassVar[type[State]] = State
    """What `init` and `step` return; taken from the type parameter."""
    denoiser_calls: ClassVar[int] = 1
    """Denoiser calls per iteration."""
    needs_quadratic: ClassVar[bool] = False
    """Does it need a quadratic data term? Poisson data are then given to it as weighted Gaussian data."""
    uses_data_term: ClassVar[bool] = True
    """Does it use values and derivatives of the data term? A method with a likelihood of its own takes only the
    background and the pixels of precision 0 from it; any data term with those is right for it."""
    needs_full_precision: ClassVar[bool] = False
    """Should networks compute in float32? The rounding of float16 changes a picture by 1e-4 in each iteration, which is
    too much where a theorem is to hold."""
    models_all_light: ClassVar[bool] = False
    """Is the picture a model of all light, so that the residual of a run shows the noise of each pixel?"""
    fewest_iterations: ClassVar[int] = 1
    """The least number of iterations that makes sense."""
    settings_key: ClassVar[str | None] = None
    """Under which name `settings.json` has its tuned parameters; None if it has none there."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for base in cls.__dict__.get("__orig_bases__", ()):
            for kind in get_args(base):
                if isinstance(kind, type) and issubclass(kind, State):
                    cls.state_type = kind

    @classmethod
    def for_noise(
        cls, denoiser: Denoiser, problem: Problem, sigma: Tensor, strength: float = 1.0, calls: int | None = None
    ) -> Method[Any]:
        """The method with parameters that suit the noise levels `sigma`, (B,); see `registry.make_method`."""
        return cls.from_settings(denoiser, problem, {}, calls)

    @classmethod
    def from_settings(
        cls, denoiser: Denoiser, problem: Problem, settings: Settings, calls: int | None = None
    ) -> Method[Any]:
        """The method from parameters as `settings.json` has them, for a problem."""
        return cls()

    @classmethod
    def iterations_for(cls, sigma: Tensor) -> int | None:
        """How many iterations suit the noise levels `sigma`, (B,); None for methods that run until they converge."""
        return None

    @property
    def name(self) -> str:
        """The name that is printed."""
        return type(self).__name__

    def calls_after(self, iterations: int) -> int:
        """Denoiser calls of the first `iterations` iterations."""
        return iterations * self.denoiser_calls

    @property
    def length(self) -> int | None:
        """Iterations after which a method with a schedule is complete; None for methods without one."""
        return None

    @property
    def promise(self) -> Promise:
        """What is known of the prior."""
        return Promise.NONE

    def started_from_blurred(self) -> Self:
        """The method whose variables in the domain of `y` start at `H x0`, so that they fit any start `x0`.

        Runs that go on from the result of another method use it. Methods without such variables return themselves.
        """
        return self

    def again(self, state: StateT) -> StateT | None:
        """Where a run goes on when the noise of the pixels was set anew; None where it begins again."""
        return None

    @abstractmethod
    def init(self, problem: Problem, start: Start = None) -> StateT:
        """The state before the first iteration."""

    @abstractmethod
    def step(self, problem: Problem, state: StateT) -> StateT:
        """One iteration."""

    def step_in(self, workspace: Workspace, problem: Problem, state: StateT) -> StateT:
        """One iteration of a run, with the workspace of the run, for methods that can use one."""
        return self.step(problem, state)

    @abstractmethod
    def theorem(self, problem: Problem) -> Theorem:
        """The conditions under which something is proved of this method, with this problem's numbers."""

    def blurred(self, problem: Problem, state: StateT) -> Tensor:
        """`Hx`, from the state or computed here."""
        return problem.operator.forward(state.x) if state.Hx is None else state.Hx

    def objective(self, problem: Problem, state: StateT) -> Tensor | None:
        """`E(x) = h(Hx) + lambda f(x)` of each picture, where `f` can be evaluated."""
        return None

    def lagrangian(self, problem: Problem, state: StateT) -> Tensor | None:
        """The augmented Lagrangian of each picture, for methods that have one."""
        return None

    def gradient(self, problem: Problem, state: StateT) -> Tensor | None:
        """What must become 0 where the method has converged, in the units of `grad E`; None where it is unknown."""
        return None

    def start_fits(self, problem: Problem, state: StateT) -> Tensor | None:
        """Is this a start that the theorem is about? (B,) of bool; None where every start is one."""
        return None


@dataclass(frozen=True)
class PlugAndPlay(Method[PlugAndPlayStateT]):
    """A method whose prior enters through a denoiser `D_{sigma_d} = prox_phi`."""

    denoiser: Denoiser
    sigma_d: PerPicture

    def __post_init__(self) -> None:
        """Check the parameters: all numbers of a method are positive."""
        if not callable(self.denoiser):
            raise InputError(f"denoiser is {type_words(self.denoiser)}: give a callable d(x, sigma)")
        for f in fields(self):
            if f.name in ("sigma_d", "beta", "L_x", "rho"):
                check_positive(f.name, getattr(self, f.name))

    @classmethod
    def for_noise(
        cls, denoiser: Denoiser, problem: Problem, sigma: Tensor, strength: float = 1.0, calls: int | None = None
    ) -> Method[Any]:
        """The method with tuned parameters; for convex priors with parameters for the weight of the prior."""
        if promise_of(denoiser) is Promise.CONVEX:
            return cls.from_settings(denoiser, problem, cls.convex_settings(denoiser, problem, sigma, strength), calls)
        powers = {"sigma_d": 1, "lambda": 2, "mu": 2}
        tuned = cls.tuned_settings(denoiser, sigma, calls)
        scaled = {name: strength ** powers.get(name, 0) * value for name, value in tuned.items()}
        return cls.from_settings(denoiser, problem, scaled, calls)

    @classmethod
    def tuned_settings(cls, denoiser: Denoiser, sigma: Tensor, calls: int | None = None) -> dict[str, Tensor]:
        """The parameters of `settings.json`, each (B,). For a method without an entry `sigma_d` is the noise level."""
        return {"sigma_d": sigma} if cls.settings_key is None else tables.tuned(denoiser, cls.settings_key, sigma)

    @classmethod
    def convex_settings(cls, denoiser: Denoiser, problem: Problem, sigma: Tensor, strength: float = 1.0) -> Settings:
        """Settings for convex priors: `lambda f = strength^2 TV_WEIGHT TV(x)`, whatever the step sizes are."""
        weight = torch.full_like(sigma, strength**2 * tables.convex_weight(denoiser))
        L_x = cls.convex_L_x(problem, sigma)
        return {"sigma_d": (weight / L_x).sqrt(), "lambda": weight, "ratio": MARGIN}

    @classmethod
    def convex_L_x(cls, problem: Problem, sigma: Tensor) -> Tensor:
        """`lambda / sigma_d^2` for convex priors, (B,)."""
        return MARGIN * CONVEX_BETA * problem.proven_norm_for(cls.__name__) / sigma**2

    @classmethod
    def from_settings(
        cls, denoiser: Denoiser, problem: Problem, settings: Settings, calls: int | None = None
    ) -> Method[Any]:
        """The parameters that are fields of the method, by their names; all others have their defaults."""
        given: dict[str, Any] = {f.name: settings[f.name] for f in fields(cls) if f.init and f.name in settings}
        optional = {f.name for f in fields(cls) if f.default is not MISSING or f.default_factory is not MISSING}
        missing = [f.name for f in fields(cls) if f.name not in {"denoiser", *optional, *given}]
        if missing:
            raise InputError(f"{cls.__name__} has no settings for {missing[0]}: give the field a default value")
        return cls(denoiser, **given)

    @property
    @abstractmethod
    def prior_weight(self) -> PerPicture:
        """The number that makes `lambda f = prior_weight * phi`: `L_x`, or ADMM's `rho`."""

    @property
    def promise(self) -> Promise:
        """The promise of the denoiser."""
        return promise_of(self.denoiser)

    def denoise(self, v: Tensor, sigma: PerPicture | None = None) -> Tensor:
        """`D_{sigma_d}(v)`, or at another `sigma`."""
        return call_denoiser(self.denoiser, v, self.sigma_d if sigma is None else sigma)

    def prior_term(self, state: PlugAndPlayStateT) -> Tensor | None:
        """`lambda f(x) = prior_weight phi(x)` of each picture; None where the denoiser cannot evaluate it."""
        if not isinstance(self.denoiser, EvaluablePrior):
            return None
        phi = self.denoiser.prior(state.x, state.denoised_from, self.sigma_d)
        if phi is None:
            return None
        return torch.as_tensor(self.prior_weight, dtype=torch.float64, device=phi.device) * phi

    def objective(self, problem: Problem, state: PlugAndPlayStateT) -> Tensor | None:
        """`h(Hx) + lambda f(x)`."""
        prior = self.prior_term(state)
        if prior is None:
            return None
        return problem.data_term.value(self.blurred(problem, state), problem.observed) + prior

    def gradient(self, problem: Problem, state: PlugAndPlayStateT) -> Tensor | None:
        """`H^T grad h(Hx) + prior_weight (v - x)`, in the subdifferential of `E` at `x` if `x = D(v) = prox_phi(v)`.

        This is `grad E(x)` where `phi` is smooth, as for gradient steps. For any denoiser it is 0 exactly at the fixed
        points of the method. None at a start, which no denoiser made.
        """
        v = state.denoised_from
        if v is None:
            return None
        misfit = problem.data_term.gradient(self.blurred(problem, state), problem.observed)
        return problem.operator.adjoint(misfit) + per_picture(self.prior_weight, state.x) * (v - state.x)
