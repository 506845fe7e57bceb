"""A problem, a denoiser, a method with parameters at their edges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import pnpladmm as pl
from conftest import picture, positive_blur
from lies.denoisers import Drawn, Rng, draw
from pnpladmm.denoisers import TotalVariation
from pnpladmm.denoisers.base import promise_of

SIZE = 12


@dataclass(frozen=True)
class Case:
    """One run."""

    words: str
    problem: pl.Problem
    drawn: Drawn
    method: Any
    iterations: int
    tolerance: float
    start: Any
    record: bool


def case(seed: int) -> Case:
    """The run of a seed. Raises the library's InputError where parameters are refused."""
    rng = np.random.default_rng([77, seed])
    torch.manual_seed(seed)
    drawn = draw(rng)
    problem, what = _problem(rng)
    method = _method(rng, problem, drawn.denoiser)
    iterations = int(rng.choice([1, 2, 5, 20, 60]))
    tolerance = float(rng.choice([0.0, 1e-6, 1e-4, 1e-2, 0.3]))
    start, how = _start(rng, problem, method)
    words = f"seed {seed}: {drawn.name} ({promise_of(drawn.denoiser).name}), {what}, {_words(method)}, {how}"
    return Case(words, problem, drawn, method, iterations, tolerance, start, bool(rng.random() < 0.9))


def _problem(rng: Rng) -> tuple[pl.Problem, str]:
    operator: Any = positive_blur((SIZE, SIZE), seed=int(rng.integers(100)))
    kind = str(rng.choice(["blur", "blur", "signed", "mask", "dim", "decimated"]))
    if kind == "signed":
        kernels = torch.from_numpy(rng.normal(0.04, 0.1, (2, 5, 5)))
        weights = torch.from_numpy(rng.random((2, SIZE, SIZE)))
        operator = pl.SpatiallyVaryingBlur(kernels, weights)
    elif kind == "dim":
        operator = pl.SpatiallyVaryingBlur(operator.kernels.squeeze(2)[0] * 0.01, operator.weights[0, :, 0])
    elif kind == "mask":
        operator = pl.Mask((torch.rand(SIZE, SIZE) > 0.3).double()) @ operator
    elif kind == "decimated":
        operator = pl.Decimation(2) @ operator
    sharp = picture(SIZE) * float(rng.choice([1.0, 1.0, 0.05, 200.0]))
    blurred = operator.forward(sharp)
    level = float(10 ** rng.uniform(-4, 0)) * float(sharp.max())
    noise = torch.from_numpy(rng.standard_normal(blurred.shape))
    term = str(rng.choice(["Gaussian", "Gaussian", "weights", "counts"]))
    if term == "counts" and kind != "signed":
        gain = float(rng.choice([0.02, 1e-3, 1.0]))
        y = gain * torch.from_numpy(rng.poisson((blurred / gain).clamp(0, 1e9).numpy())).double()
        return pl.Problem(y, operator, pl.Poisson(gain, float(rng.choice([1e-3, 0.1])))), f"{kind}, {term}"
    y = blurred + level * noise
    if term == "weights":
        precision = torch.from_numpy(rng.random(y.shape)) / level**2
        return pl.Problem(y, operator, pl.WeightedGaussian(precision * (precision > 0.1 / level**2))), f"{kind}, {term}"
    return pl.Problem(y, operator, pl.Gaussian(level)), f"{kind}, Gaussian {level:.2g}"


def _method(rng: Rng, problem: pl.Problem, denoiser: Any) -> Any:
    L_h, norm = float(problem.L_h().max()), float(problem.norm_squared.upper.max())
    sigma_d = float(rng.choice([1e-6, 1e-3, 0.02, 0.1, 1.0, 1e3]))
    if isinstance(denoiser, TotalVariation):
        sigma_d = min(sigma_d, 0.1)  # far more than the picture itself takes it seconds
    near = float(rng.choice([0.3, 0.5, 0.999, 1.0, 1.001, 1.5, 1e3, 1e9]))
    ratio = float(rng.choice([1e-3, 0.5, 0.999, 1.0, 1.001, 10.0]))
    kind = str(rng.choice(["certified", "certified", "LADMM", "LADMM", "ISTA", "FISTA", "ADMM", "PrimalDual", "fast"]))
    if kind == "certified":
        return pl.LADMM.certified(denoiser, problem, sigma_d)
    if kind == "LADMM":
        return pl.LADMM(denoiser, sigma_d, beta=ratio * L_h, L_x=near * ratio * L_h * norm)
    if kind == "ISTA":
        return pl.ISTA(denoiser, sigma_d, L_x=near * L_h * norm)
    if kind == "FISTA":
        return pl.FISTA(denoiser, sigma_d, L_x=near * L_h * norm)
    if kind == "ADMM":
        return pl.ADMM(denoiser, sigma_d, rho=near * L_h * norm)
    if kind == "PrimalDual":
        box = (0.0, 1.0) if rng.random() < 0.5 else None
        return pl.PrimalDual(denoiser, sigma_d, beta=ratio * L_h, L_x=near * ratio * L_h * norm, box=box)
    return pl.Annealed(denoiser, min(sigma_d, 0.1), mu=near, calls=int(rng.integers(2, 9)))


def _start(rng: Rng, problem: pl.Problem, method: Any) -> tuple[Tensor | Any, str]:
    kind = rng.random()
    if kind < 0.7:
        return None, "usual start"
    if kind < 0.85:
        shape = problem.operator.input_shape(problem.observed.shape)
        return torch.from_numpy(rng.standard_normal(shape)) * float(rng.choice([0.0, 1.0, 1e4])), "random start"
    state = method.init(problem)
    if getattr(state, "u", None) is None:
        return None, "usual start"
    return replace(state, u=state.u + float(10 ** rng.uniform(-3, 3)) * state.u.std() + 0.01), "another dual"


def _words(method: Any) -> str:
    numbers = {name: getattr(method, name, None) for name in ("sigma_d", "beta", "L_x", "rho", "mu")}
    return method.name + "".join(f" {k}={float(v):.3g}" for k, v in numbers.items() if v is not None)
