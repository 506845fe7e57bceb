"""Tasks of a distributed run: one iteration on one tile, and one power iteration for the norm of the blur.

A tile reads the last iterates of its neighbours as far as an iteration of its own pixels depends on them. So each
iteration is the method's own `step` on a part of the picture, and equal to that of the whole picture but for rounding.
What concerns the whole picture are sums and maxima over the cores of the tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pnpladmm.data_terms import DataTerm, WeightedGaussian
from pnpladmm.denoisers import Denoiser, load_denoiser, relaxed
from pnpladmm.denoisers.base import MeasuredCurvature, Promise, prior_within, promise_of
from pnpladmm.operators import Mask
from pnpladmm.operators.norm import next_vector
from pnpladmm.pictures.arrays import Array
from pnpladmm.scale.decisions import Decisions
from pnpladmm.scale.field import Field, Sums
from pnpladmm.scale.source import open_source
from pnpladmm.scale.task import Settings, check_folder, operator_part, prepared_part
from pnpladmm.solvers import LADMM, Problem, method_class
from pnpladmm.solvers.inner_products import squared
from pnpladmm.solvers.ladmm import LADMMState
from pnpladmm.solvers.optimality import residual_sums
from pnpladmm.tiling.geometry import Tile

PRODUCTS = 20
"""Products with the Hessian for the curvature at a tile; each starts from a random picture."""


@dataclass(frozen=True)
class Constants:
    """The parameters of LADMM, one for the whole picture."""

    sigma_d: float
    beta: float
    L_x: float
    relaxation: float

    def method(self, settings: Settings) -> LADMM:
        """The method with its denoiser."""
        denoiser = exact_denoiser(settings)
        if self.relaxation != 1:
            denoiser = relaxed(denoiser, self.relaxation)
        return LADMM(denoiser, self.sigma_d, beta=self.beta, L_x=self.L_x)


def exact_denoiser(settings: Settings) -> Denoiser:
    """The denoiser in the precision that the method needs."""
    precise = torch.float32 if method_class(settings.method).needs_full_precision else None
    return load_denoiser(settings.denoiser, settings.device, precise)


def begin(field: Field, number: int, settings: Settings, decisions: Decisions, constants: Constants, tile: Tile) -> int:
    """One task: the state before the first iteration."""
    check_folder(field.store)
    problem = problem_of(settings, decisions, tile)
    state = constants.method(settings).init(problem)
    field.write(0, number, _packed(state, problem, tile), {})
    return number


def iterate(
    field: Field,
    number: int,
    settings: Settings,
    decisions: Decisions,
    constants: Constants,
    tile: Tile,
    step: int,
    with_curvature: bool,
) -> int:
    """One task: an iteration of the method on a tile."""
    check_folder(field.store)
    problem, method = problem_of(settings, decisions, tile), constants.method(settings)
    old = _unpacked(field.read(step - 1, *tile.extent), problem, step - 1)
    new = method.step(problem, old)
    sums = _sums(problem, method, old, new, tile)
    if with_curvature and isinstance(method.denoiser, MeasuredCurvature) and new.denoised_from is not None:
        sums["curvature"] = float(method.denoiser.curvature(new.denoised_from, method.sigma_d))
    field.write(step, number, _packed(new, problem, tile), sums)
    return number


def power(
    field: Field, number: int, settings: Settings, decisions: Decisions, tile: Tile, step: int, top: float
) -> int:
    """One task: a power iteration with the blur, or with its absolute value where it is signed, on a tile."""
    check_folder(field.store)
    operator, _ = operator_part(settings, decisions, *tile.extent)
    absolute = operator.absolute()
    channels, device = operator.domain[1], settings.device or "cpu"
    size = tuple(last - first for first, last in tile.extent)
    if step == 1:
        p = torch.ones(1, channels, *size, dtype=torch.float64, device=device)
    else:
        before = torch.from_numpy(field.read(step - 1, *tile.extent)).to(device)
        p = next_vector(before, torch.tensor([top], dtype=torch.float64, device=device))
    mp = absolute.adjoint(absolute.forward(p))
    here, there = mp[(..., *tile.inside)], p[(..., *tile.inside)]
    sums = {
        "products": (there * here).flatten(2).sum(2)[0].tolist(),
        "squares": there.square().flatten(2).sum(2)[0].tolist(),
        "ratio": float((here / there).amax()),
        "top": float(here.amax()),
        "signed": absolute is not operator,
    }
    field.write(step, number, here.cpu().numpy(), sums)
    return number


def problem_of(settings: Settings, decisions: Decisions, tile: Tile) -> Problem:
    """The problem of a tile with its halo, on the scale of the method."""
    with open_source(settings.picture) as source:
        prepared, blank = prepared_part(settings, decisions, source, *tile.extent)
    problem = decisions.units.problem(prepared.problem)
    if blank:  # no pixel counts: infinite noise
        nothing = torch.full_like(problem.observed, torch.finfo(problem.observed.dtype).tiny)
        problem = Problem(problem.observed, problem.operator, WeightedGaussian(nothing))
    return problem


def _sums(problem: Problem, method: LADMM, old: LADMMState, new: LADMMState, tile: Tile) -> Sums:
    """What the core of a tile adds to the sums of the history and of the stopping rule."""
    own, seen = tile.inside, _observed_core(problem, tile)
    y = problem.observed[(..., *seen)]
    # The same equations as for a whole picture, on the core; the share of the prior is known.
    core = Problem(y.contiguous(), Mask(torch.ones(y.shape[-2:], dtype=y.dtype)), _term_on(problem, seen))
    before, after = (
        LADMMState(
            x=s.x[(..., *own)], Hx=s.Hx[(..., *seen)], z=s.z[(..., *seen)], u=s.u[(..., *seen)],
            denoised_from=None if s.denoised_from is None else s.denoised_from[(..., *own)],
        )
        for s in (old, new)
    )  # fmt: skip
    assert new.denoised_from is not None
    phi = prior_within(method.denoiser, new.x, new.denoised_from, method.sigma_d, *own)
    known = replace(method, denoiser=_KnownPrior(phi, promise_of(method.denoiser)))
    gradient = method.gradient(problem, new)
    assert gradient is not None
    residual = residual_sums(core, known, after, gradient[(..., *own)])
    squares = {
        "dx": after.x - before.x, "x": after.x, "dz": after.z - before.z, "z": after.z, "du": after.u - before.u,
    }  # fmt: skip
    return {
        **{name: float(squared(value)) for name, value in squares.items()},
        "data_fit": float(core.data_term.value(after.Hx, core.observed)),
        "objective": _number(known.objective(core, after)),
        "lagrangian": _number(known.lagrangian(core, after)),
        "residual": residual[:, 0].tolist(),
        "curvature": None,
    }


@dataclass(frozen=True)
class _KnownPrior:
    """Stands for a denoiser whose share of `phi` was computed where the whole tile was at hand."""

    phi: Tensor | None
    promise: Promise

    def __call__(self, x: Tensor, sigma: Any, /) -> Tensor:
        """Never called: nothing is denoised to evaluate an objective."""
        raise NotImplementedError

    def prior(self, x: Tensor, v: Tensor | None, sigma: Any, /) -> Tensor | None:
        """The share."""
        return self.phi


def _number(value: Tensor | None) -> float | None:
    return None if value is None else float(value)


def _term_on(problem: Problem, seen: tuple[slice, slice]) -> DataTerm:
    term = problem.data_term
    if not isinstance(term, WeightedGaussian):
        return term
    precision = term.precision_of(problem.observed).expand_as(problem.observed)[(..., *seen)]
    return WeightedGaussian(precision if bool(precision.any()) else precision + torch.finfo(precision.dtype).tiny)


def _offset(problem: Problem) -> tuple[int, int]:
    """Where the observation begins in the scene."""
    offset = problem.operator.crop_offset
    assert offset is not None  # an unknown border
    return offset


def _observed_core(problem: Problem, tile: Tile) -> tuple[slice, slice]:
    """The core of a tile as an index of its own observation; at the borders of the picture it is smaller."""
    spans = []
    for inside, offset, length in zip(tile.inside, _offset(problem), problem.observed.shape[-2:], strict=True):
        spans.append(slice(max(0, inside.start - offset), min(length, inside.stop - offset)))
    return spans[0], spans[1]


def _packed(state: LADMMState, problem: Problem, tile: Tile) -> Array:
    """x, v, Hx, z, u on the core of a tile, (5, C, h, w); where nothing is observed, 0."""
    top, left = _offset(problem)
    height, width = problem.observed.shape[-2:]
    planes = state.x.new_zeros(5, *state.x.shape[1:])
    planes[0] = state.x[0]
    if state.denoised_from is not None:
        planes[1] = state.denoised_from[0]
    for plane, value in zip(planes[2:], (state.Hx, state.z, state.u), strict=True):
        plane[..., top : top + height, left : left + width] = value[0]
    return planes[(..., *tile.inside)].cpu().numpy()


def _unpacked(planes: Array, problem: Problem, iteration: int) -> LADMMState:
    """The state on a tile with its halo."""
    top, left = _offset(problem)
    height, width = problem.observed.shape[-2:]
    x, v, *others = torch.from_numpy(planes).to(problem.observed).unsqueeze(1)
    Hx, z, u = (value[..., top : top + height, left : left + width].contiguous() for value in others)
    return LADMMState(
        x=x.contiguous(), Hx=Hx, z=z, u=u, denoised_from=v.contiguous() if iteration else None, iteration=iteration
    )
