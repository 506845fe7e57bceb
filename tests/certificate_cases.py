"""Random small problems with methods at and around the edges of their theorems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

import pnpladmm as pl
from gradient_step_cases import denoiser as denoiser_of
from gradient_step_cases import network
from pnpladmm.data_terms import DataTerm
from pnpladmm.denoisers import RidgeDenoiser, RidgeNet, TotalVariation, relaxed
from pnpladmm.denoisers.base import Denoiser, promise_of
from pnpladmm.denoisers.gradient_step import GradientStepDenoiser
from pnpladmm.solvers import Problem
from pnpladmm.solvers.method import PlugAndPlay

EDGES = (0.3, 0.5, 0.9, 0.999, 1 - 1e-9, 1.0, 1 + 1e-9, 1.001, 1.1, 2.0, 8.0)
"""Factors of the true bound, and of the one that the program knows."""
SHARES = {
    "linear": 0.2, "linear as prox": 0.12, "ridge": 0.23, "soft": 0.1, "hard": 0.1, "tikhonov": 0.1, "identity": 0.05,
    "none": 0.06, "tv": 0.02, "gradient step": 0.02,
}  # fmt: skip
CURVATURES = (0.5, 0.9, 0.99, 1.02, 1.5)
"""Of gradient steps, at a first picture."""


@dataclass
class Case:
    """A problem with its dense matrix, a method, and words that say what they are."""

    words: dict[str, Any]
    problem: Problem
    H: Tensor
    method: PlugAndPlay[Any]
    smooth: Tensor | None = None
    """The matrix of a linear denoiser."""
    states: list[Any] = field(default_factory=list)


class Linear:
    """`D(x) = S x` for a symmetric S with eigenvalues in (0, 1]: the proximal operator of a convex quadratic."""

    name = "linear"

    def __init__(self, S: Tensor, promise: pl.Promise) -> None:
        self.S, self.promise = S, promise
        self.Q = torch.linalg.inv(S) - torch.eye(len(S), dtype=S.dtype)

    def __call__(self, x: Tensor, sigma: Any) -> Tensor:
        return (x.flatten(1) @ self.S).reshape(x.shape)

    def prior(self, x: Tensor, v: Tensor | None, sigma: Any) -> Tensor:
        flat = x.flatten(1)
        return ((flat @ self.Q) * flat).sum(1) / 2


def case(seed: int) -> Case:
    """The random problem of a seed."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    words: dict[str, Any] = {"seed": seed}
    operator, x = _operator(rng, words)
    clean = operator.forward(x)
    term, y = _data(clean, rng, words)
    problem = Problem(y, operator, term)
    H = dense(operator.forward, problem.shape)
    denoiser = _denoiser(problem.shape, rng, words)
    method = _method(problem, H, denoiser, rng, words)
    linear = denoiser.S if isinstance(denoiser, Linear) else None
    return Case(words, problem, H, method, linear)


def dense(map_: Callable[[Tensor], Tensor], shape: tuple[int, ...], together: bool = True) -> Tensor:
    """The matrix of a linear map of pictures (1, C, H, W); `together` if it takes batches."""
    size = int(np.prod(shape[1:]))
    units = torch.eye(size, dtype=torch.float64).reshape(size, *shape[1:])
    images = map_(units) if together else torch.cat([map_(unit[None]) for unit in units])
    return images.flatten(1).T


def _operator(rng: np.random.Generator, words: dict[str, Any]) -> tuple[pl.LinearOperator, Tensor]:
    """An operator, and a picture that it can be applied to."""
    channels = int(rng.choice([1, 1, 2, 3]))
    height, width = (int(n) for n in rng.integers(1, 8, 2))
    k = tuple(int(min(n, side)) for n, side in zip(rng.integers(1, 5, 2), (height, width), strict=True))
    boundary = str(rng.choice(["circular", "replicate", "reflect", "zero", "unknown"]))
    if boundary == "reflect":  # the extension must be smaller than the picture
        height, width = height + 3, width + 3
    count = int(rng.integers(1, 4))
    signed = rng.random() < 0.3
    kernels = torch.from_numpy(rng.normal(size=(count, *k)) if signed else rng.uniform(size=(count, *k)))
    kernels = kernels / kernels.abs().sum((1, 2), keepdim=True)
    order = str(rng.choice(["convolve-then-weight", "weight-then-convolve"]))
    weights = torch.from_numpy(rng.uniform(-0.3 if signed else 0.0, 1, (count, height, width)))
    blur = pl.SpatiallyVaryingBlur(kernels, weights, boundary, order)  # type: ignore[arg-type]
    scene = blur.scene
    operator: pl.LinearOperator = blur
    kind = str(rng.choice(["blur", "blur", "mask", "mask of a blur"]))
    if kind == "mask":
        operator = pl.Mask(torch.from_numpy((rng.random(scene) < 0.7).astype(float)))
    elif kind == "mask of a blur":
        seen = blur.output_shape((1, channels, *scene))[2:]
        operator = pl.Mask(torch.from_numpy((rng.random(seen) < 0.7).astype(float))) @ blur
    words |= {"operator": kind, "border": boundary, "order": order, "signed": signed, "channels": channels}
    words |= {"size": f"{scene[0]}x{scene[1]}", "kernel": f"{k[0]}x{k[1]}"}
    return operator, torch.from_numpy(rng.uniform(size=(1, channels, *scene)))


def _data(clean: Tensor, rng: np.random.Generator, words: dict[str, Any]) -> tuple[DataTerm, Tensor]:
    sigma = float(rng.choice([1, 10, 40, 200])) / 255
    kind = str(rng.choice(["gaussian", "gaussian", "weighted", "poisson"]))
    words |= {"data": kind, "noise": sigma}
    noisy = clean + sigma * torch.from_numpy(rng.normal(size=tuple(clean.shape)))
    if kind == "gaussian":
        return pl.Gaussian(sigma), noisy
    if kind == "weighted":
        precision = torch.from_numpy(rng.uniform(0.1, 1, tuple(clean.shape))) / sigma**2
        return pl.WeightedGaussian(precision * torch.from_numpy((rng.random(tuple(clean.shape)) < 0.8) * 1.0)), noisy
    return pl.Poisson(gain=sigma, background=float(rng.uniform(0.05, 1))), noisy.clamp_min(0)


def _denoiser(shape: tuple[int, ...], rng: np.random.Generator, words: dict[str, Any]) -> Denoiser:
    kind = str(rng.choice(list(SHARES), p=list(SHARES.values())))
    words["denoiser"] = kind
    denoiser: Denoiser
    if kind.startswith("linear"):
        size = int(np.prod(shape[1:]))
        turn = torch.linalg.qr(torch.from_numpy(rng.normal(size=(size, size))))[0]
        values = torch.from_numpy(rng.choice([0.02, 0.3, 0.8, 0.999, 1.0], size))
        S = turn * values @ turn.T
        return Linear((S + S.T) / 2, pl.Promise.CONVEX if kind == "linear" else pl.Promise.PROX)
    if kind == "ridge":
        denoiser = RidgeDenoiser({shape[1]: random_ridge(shape[1], int(rng.integers(1 << 30)))})
    elif kind == "gradient step":
        denoiser = _gradient_step(shape, rng, words)
    elif kind == "tv":
        denoiser = TotalVariation(accuracy=1e-6, iterations=5000)
    elif kind == "none":
        denoiser = pl.as_denoiser(lambda x, sigma: 0.9 * x)
    else:
        denoiser = pl.load_denoiser(kind)
    if rng.random() < 0.3:
        gamma = float(rng.choice([0.05, 0.5, 0.99]))
        words["relaxation"] = gamma
        denoiser = relaxed(denoiser, gamma)
    return denoiser


def _gradient_step(shape: tuple[int, ...], rng: np.random.Generator, words: dict[str, Any]) -> GradientStepDenoiser:
    """A random network whose largest Hessian eigenvalue, at some picture, is below or above 1."""
    net = network(1, None, seed=int(rng.integers(1 << 30)))
    v = torch.from_numpy(rng.uniform(size=shape))
    found = float(denoiser_of(net).curvature(v, 0.05, 40))
    words["curvature"] = float(rng.choice(CURVATURES))
    net.exit.weight.data *= (words["curvature"] / found) ** 0.5
    return denoiser_of(net)


def random_ridge(channels: int, seed: int, orbits: int = 2, side: int = 3) -> RidgeNet:
    """A ridge regulariser with random weights, whose bound is just below 1."""
    torch.manual_seed(seed)
    net = RidgeNet(channels, orbits, side)
    net.initialise()
    with torch.no_grad():
        net.values += 1.5 * torch.randn_like(net.values)
        net.scales += 0.5 * torch.randn_like(net.scales)
        net.shares *= 4 * torch.rand_like(net.shares)
    net.load_state_dict(net.finished())
    return net


def _method(
    problem: Problem, H: Tensor, denoiser: Denoiser, rng: np.random.Generator, words: dict[str, Any]
) -> PlugAndPlay[Any]:
    """A method with parameters at and around the edges."""
    norms = [float(torch.linalg.matrix_norm(H, 2)) ** 2, float(problem.norm_squared.upper[0])]
    norm = max(norms[int(rng.integers(2))], 1e-12)
    L_h = float(problem.L_h()[0])
    at, step = (float(rng.choice(EDGES)) for _ in range(2))
    if rng.random() < 0.5:  # well inside, or the theorems would cover few of the runs
        at, step = max(at, 1.001), max(step, 1.001)
    sigma_d = float(rng.choice([1e-3, 0.05, 0.5]))
    kind = str(rng.choice(["ladmm", "ladmm", "ladmm", "leaping", "ista", "primal-dual", "fista"]))
    if promise_of(denoiser) is not pl.Promise.CONVEX and kind in ("fista", "primal-dual") and rng.random() < 0.8:
        kind = "ladmm"  # nothing is proved of the others without a convex prior
    words |= {"method": kind, "beta / L_h": at, "L_x / bound": step, "sigma_d": sigma_d}
    if kind in ("ista", "fista"):
        scale = float(rng.choice([1.0, 0.5]))  # the edge for any prior, and that for a convex one
        L_x = scale * step * L_h * norm
        return (pl.ISTA if kind == "ista" else pl.FISTA)(denoiser, sigma_d, L_x=L_x)
    beta = at * L_h
    if kind == "primal-dual":
        return pl.PrimalDual(denoiser, sigma_d, beta=beta, L_x=step * beta * norm)
    leaps = kind == "leaping" and words["denoiser"] != "none"  # they need a prior that can be evaluated
    words["method"] = "leaping" if leaps else "ladmm"
    kind_of = pl.LeapingLADMM if leaps else pl.LADMM
    z_start = str(rng.choice(["observed", "blurred"]))
    return kind_of(denoiser, sigma_d, beta=beta, L_x=step * beta * norm, z_start=z_start)  # type: ignore[arg-type]
