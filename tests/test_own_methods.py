"""A method of one file: added as CONTRIBUTING describes, it is found, made, run, saved, and its columns are right."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from conftest import small_problem
from pnpladmm.denoisers import SoftThreshold
from pnpladmm.solvers import METHODS, Method, PlugAndPlay, PlugAndPlayState, State, make_method, method_class
from pnpladmm.solvers.certificate import Theorem
from pnpladmm.solvers.state import Start, start_picture
from pnpladmm.solvers.workspace import Workspace
from pnpladmm.tensors import PerPicture, per_picture

SIGMA = 0.05
SOURCE = Path(pl.__file__).parent


@dataclass(frozen=True, kw_only=True)
class DouglasRachfordState(PlugAndPlayState):
    """`v` is the variable that the iteration drives to its limit: not what `x` was denoised from."""

    v: Tensor
    count: float = 0.5


@dataclass(frozen=True)
class DouglasRachford(PlugAndPlay[DouglasRachfordState]):
    """`x+ = D(v)`, `z = prox_h(2 x+ - v)`, `v+ = v + z - x+`, for `H = Id`."""

    needs_quadratic: ClassVar[bool] = True

    gamma: PerPicture = 0.001
    declares: bool = True

    @property
    def prior_weight(self) -> PerPicture:
        return 1 / self.gamma

    def init(self, problem: pl.Problem, start: Start = None) -> DouglasRachfordState:
        x = start_picture(problem, start)
        return DouglasRachfordState(x=x, v=x)

    def step(self, problem: pl.Problem, state: DouglasRachfordState) -> DouglasRachfordState:
        v = state.v
        x = self.denoise(v)
        z = problem.data_term.prox(2 * x - v, self.gamma, problem.observed)
        declared = {"denoised_from": v} if self.declares else {}
        return DouglasRachfordState(x=x, v=v + z - x, count=state.count + 1, iteration=state.iteration + 1, **declared)

    def theorem(self, problem: pl.Problem) -> Theorem:
        return Theorem(missing="nobody has looked")


@dataclass
class GradientStep:
    """`D = (1 - c) Id`, whose `phi` is known only through the argument of the denoiser."""

    c: float = 0.4
    promise = pl.Promise.GRADIENT_STEP

    def __call__(self, v: Tensor, sigma: PerPicture) -> Tensor:
        return (1 - self.c) * v

    def prior(self, x: Tensor, v: Tensor | None, sigma: PerPicture) -> Tensor | None:
        if v is None:
            return None
        return (self.c / 2 * v.square() - 0.5 * (v - x).square()).double().flatten(1).sum(1)


def denoising_problem() -> pl.Problem:
    problem, _ = small_problem(SIGMA)
    return pl.Problem(problem.observed, pl.Mask(torch.ones(24, 24)), pl.Gaussian(SIGMA))


def true_objective(problem: pl.Problem, x: Tensor, c: float, weight: float) -> float:
    """`phi = c / (2 (1 - c)) ||x||^2`, in closed form."""
    fit = (x - problem.observed).square().sum() / (2 * SIGMA**2)
    return float(fit + weight * c / (2 * (1 - c)) * x.square().sum())


def test_the_objective_of_an_added_method_is_right_or_none() -> None:
    """`v` of its own state must not pass for what was denoised."""
    problem, denoiser = denoising_problem(), GradientStep()
    result = pl.solve(problem, DouglasRachford(denoiser, SIGMA), 4, 0)
    expected = true_objective(problem, result.image, denoiser.c, 1000.0)
    assert float(result.history.objective[-1]) == pytest.approx(expected, rel=1e-12)
    silent = pl.solve(problem, DouglasRachford(denoiser, SIGMA, declares=False), 4, 0)
    assert torch.equal(silent.image, result.image)
    assert silent.history.objective is None


def test_a_prior_that_needs_no_argument_is_evaluated_anyway() -> None:
    problem = denoising_problem()
    columns = [
        pl.solve(problem, DouglasRachford(SoftThreshold(), SIGMA, declares=declares), 3, 0).history.objective
        for declares in (True, False)
    ]
    assert torch.equal(columns[0], columns[1])


def test_its_state_is_found_saved_and_resumed(tmp_path: Path) -> None:
    assert DouglasRachford.state_type is DouglasRachfordState
    problem, method = denoising_problem(), DouglasRachford(GradientStep(), SIGMA)
    whole = pl.solve(problem, method, 7, 0)
    pl.save_state(pl.solve(problem, method, 3, 0).state, tmp_path / "state")
    state = pl.load_state(tmp_path / "state")
    assert isinstance(state, DouglasRachfordState)
    assert state.count == 3.5
    assert torch.equal(pl.solve(problem, method, 4, 0, start=state).image, whole.image)


def test_a_state_of_a_method_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    problem, method = denoising_problem(), DouglasRachford(GradientStep(), SIGMA)
    state = pl.solve(problem, method, 1, 0).state
    stranger = type("StrangerState", (State,), {})(x=state.x)
    pl.save_state(stranger, tmp_path / "state")
    with pytest.raises(pl.InputError, match="not a state of a pnpladmm method that is installed"):
        pl.load_state(tmp_path / "state")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS._things, "dr", DouglasRachford)


@pytest.mark.usefixtures("registered")
def test_it_is_made_by_name_with_its_defaults() -> None:
    problem = denoising_problem()
    sigma = torch.tensor([SIGMA], dtype=torch.float64)
    assert "dr" in METHODS.names()
    assert method_class("DR") is DouglasRachford
    made = make_method("dr", GradientStep(), problem, sigma, strength=2.0)
    assert isinstance(made, DouglasRachford)
    assert made.gamma == 0.001
    assert float(per_picture(made.sigma_d, problem.observed)) == pytest.approx(2 * SIGMA)
    convex = make_method("dr", pl.load_denoiser("tv"), problem, sigma)
    assert float(per_picture(convex.sigma_d, problem.observed)) > 0
    assert made.iterations_for(sigma) is None


def test_a_field_without_settings_and_default_is_named() -> None:
    @dataclass(frozen=True)
    class Unset(DouglasRachford):
        penalty: float = 0.0

    Bare = dataclass(frozen=True)(type("Bare", (PlugAndPlay,), {"__annotations__": {"penalty": float}}))
    problem, sigma = denoising_problem(), torch.tensor([SIGMA])
    assert isinstance(Unset.for_noise(GradientStep(), problem, sigma), Unset)
    with pytest.raises(pl.InputError, match="Bare has no settings for penalty: give the field a default value"):
        Bare.for_noise(GradientStep(), problem, sigma)


def test_what_is_no_method_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS._things, "number", 3)
    with pytest.raises(pl.InputError, match="names an int, not a subclass of Method"):
        method_class("number")
    with pytest.raises(pl.InputError, match="method 'nothing': choose one of"):
        method_class("nothing")


def test_what_methods_declare() -> None:
    quadratic = {name for name in METHODS if method_class(name).needs_quadratic}
    assert quadratic == {"fast", "admm", "sources"}
    assert {name for name in METHODS if not method_class(name).uses_data_term} == {"richardson-lucy"}
    assert {name for name in METHODS if method_class(name).needs_full_precision} == {"certified"}
    tuned = {name for name in METHODS if method_class(name).iterations_for(torch.tensor([0.04])) is not None}
    assert tuned == {"richardson-lucy"}


def test_methods_that_need_a_quadratic_term_refuse_others_and_only_they() -> None:
    problem, _ = small_problem(SIGMA)
    counts = pl.Problem(problem.observed.clamp_min(0), problem.operator, pl.Poisson(0.01, 0.1))
    sigma = torch.tensor([SIGMA], dtype=torch.float64)
    for name in METHODS:
        method = make_method(name, SoftThreshold(), counts, sigma)
        if type(method).needs_quadratic:
            with pytest.raises(pl.InputError, match="needs a quadratic data term"):
                pl.solve(counts, method, 1)
        else:
            assert bool(torch.isfinite(pl.solve(counts, method, 1).image).all())


def test_every_registered_method_is_made_and_runs() -> None:
    """With the tuned settings of a network, and with those of a convex prior."""
    problem, _ = small_problem(SIGMA)
    sigma = torch.tensor([SIGMA], dtype=torch.float64)

    def network(x: Tensor, sigma: PerPicture) -> Tensor:
        return x

    for denoiser in (network, pl.load_denoiser("tv")):
        for name in METHODS:
            method: Method[Any] = make_method(name, denoiser, problem, sigma)
            state = pl.solve(problem, method, 2, 0).state
            assert type(state) is method.state_type, name


def test_colour_planes_and_recording_follow_what_an_operator_declares() -> None:
    """No class of operators is asked for by name: another operator that declares the same gets the same."""
    problem, _ = small_problem(SIGMA)
    blur = problem.operator

    class Wrapped(pl.LinearOperator):
        channels_alike = True

        def forward(self, x: Tensor) -> Tensor:
            return blur.forward(x)

        def adjoint(self, y: Tensor) -> Tensor:
            return blur.adjoint(y)

        def output_shape(self, shape: Any) -> Any:
            return blur.output_shape(shape)

        def input_shape(self, shape: Any) -> Any:
            return blur.input_shape(shape)

    observed = problem.observed.repeat(1, 3, 1, 1) * torch.tensor([1.0, 0.7, 0.5]).view(1, 3, 1, 1)
    ours, theirs = (pl.Problem(observed, operator, pl.Gaussian(SIGMA)) for operator in (blur, Wrapped()))
    assert ours.colour_planes is not None
    assert theirs.colour_planes is not None
    torch.testing.assert_close(ours.colour_planes.energy, theirs.colour_planes.energy)
    assert blur.recordable
    assert not theirs.operator.recordable
    assert Workspace().systems == {}


def test_solvers_name_no_class_of_operators_or_denoisers() -> None:
    """They ask for what is declared. Examples in docstrings are not code."""
    concrete = {
        name
        for room in ("operators", "denoisers", "data_terms")
        for path in (SOURCE / room).glob("*.py")
        if path.stem not in ("base", "preconditioning", "norm")
        for name in (node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef))
    }
    assert {"SpatiallyVaryingBlur", "LocalWiener", "TotalVariation", "Poisson"} <= concrete
    for path in (SOURCE / "solvers").glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        named = {node.id for node in nodes if isinstance(node, ast.Name)}
        named |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        named |= {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
        assert not named & concrete, path.name


@pytest.mark.usefixtures("registered")
def test_the_most_used_methods_are_listed_first() -> None:
    names = METHODS.names()
    assert names[:3] == ("fast", "ladmm", "certified")
    assert names[-1] == "dr"
    assert len(set(names)) == len(names)
