"""Methods by name: from a few numbers, given or tuned for the noise, to a method for a problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pnpladmm import settings
from pnpladmm.denoisers import Denoiser, Promise, promise_of, relaxed
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.solvers import (
    ADMM,
    FISTA,
    ISTA,
    LADMM,
    Annealed,
    LeapingLADMM,
    Method,
    PrimalDual,
    Problem,
    RichardsonLucy,
)
from pnpladmm.tensors import InputError

METHODS = ("fast", "ladmm", "certified", "primal-dual", "ista", "fista", "admm", "richardson-lucy")
DEFAULT_CALLS = 8
# Above `beta ||H||^2` by this: rounding must not break the condition.
MARGIN = 1.001
# Steps of conjugate gradient, in units of the root of the condition number: for blurs, and for operators that are more
# than a blur, which are preconditioned less well.
STEPS, OTHER_STEPS = 0.25, 1.2
# More steps than this change no picture.
MOST_STEPS = 40
# For convex priors `beta` is this share of 1/sigma^2: any converges, this one quickly.
CONVEX_BETA = 0.1


def make_method(
    name: str, denoiser: Denoiser, problem: Problem, sigma: Tensor, strength: float = 1.0, calls: int | None = None
) -> Method:
    """A method with the settings for the noise levels `sigma` (B,): each picture gets its own.

    `strength` scales `sigma_d`, its square the weight of the prior; `calls` is the number of denoiser calls of `fast`.
    """
    if name not in METHODS:
        raise InputError(f"method {name!r}: choose one of {', '.join(METHODS)}")
    if name == "richardson-lucy":
        return RichardsonLucy()
    if promise_of(denoiser) is Promise.CONVEX:
        return _convex_method(name, denoiser, problem, sigma, strength)
    calls = calls or DEFAULT_CALLS
    if name == "fast":
        chosen = settings.tuned_fast(denoiser, calls, sigma)
    else:
        same = {"fista": "ista", "primal-dual": "ladmm"}  # the same fixed points
        chosen = settings.tuned(denoiser, same.get(name, name), sigma)
    chosen["sigma_d"] = strength * chosen["sigma_d"]
    for weight in ("lambda", "mu"):
        if weight in chosen:
            chosen[weight] = strength**2 * chosen[weight]
    return method_from(name, denoiser, problem, chosen, calls)


def method_from(
    name: str,
    denoiser: Denoiser,
    problem: Problem,
    parameters: Mapping[str, Tensor | float],
    calls: int = DEFAULT_CALLS,
) -> Method:
    """A method from its parameters, numbers or (B,), noise levels in [0, 1].

    `sigma_d` for all; `lambda = L_x sigma_d^2` (ADMM: `rho sigma_d^2`) for all but `fast` and `certified`;
    `ratio = L_x / (beta ||H||^2)` for LADMM and the primal-dual method; the other fields of `Annealed` for `fast`;
    `relaxation`, the denoiser's, where `certified` has one.
    ISTA and FISTA keep `sigma_d` where `L_x` must be raised to the largest step that converges.
    """
    if name == "richardson-lucy":
        return RichardsonLucy()
    rest = dict(parameters)
    sigma_d = rest.pop("sigma_d")
    if name == "fast":
        fields: Any = {**rest, "calls": calls}  # by name, so no type to check
        method = Annealed(denoiser, sigma_d, **fields)
        return replace(method, cg_iterations=_data_steps(problem, method))
    if name == "certified":
        # Leaps need the prior that only gradient steps have among networks; convex priors converge without.
        kind = LeapingLADMM if promise_of(denoiser) is Promise.GRADIENT_STEP else LADMM
        relaxation = torch.as_tensor(rest.get("relaxation", 1.0), dtype=torch.float64)
        weaker = denoiser if bool((relaxation == 1).all()) else relaxed(denoiser, relaxation)
        return kind.certified(weaker, problem, sigma_d)
    L_x = torch.as_tensor(rest["lambda"], dtype=torch.float64) / torch.as_tensor(sigma_d) ** 2
    if name == "admm":
        return ADMM(denoiser, sigma_d, rho=L_x)
    norm = _norm_squared(name, problem)
    L_x = L_x.to(norm.device)
    if name in ("ista", "fista"):
        L_x = torch.maximum(L_x, MARGIN * problem.L_h() * norm)
        return (ISTA if name == "ista" else FISTA)(denoiser, sigma_d, L_x=L_x)
    beta = L_x / (torch.as_tensor(rest.get("ratio", MARGIN), device=norm.device) * norm)
    return (PrimalDual if name == "primal-dual" else LADMM)(denoiser, sigma_d, beta=beta, L_x=L_x)


def _convex_method(name: str, denoiser: Denoiser, problem: Problem, sigma: Tensor, strength: float) -> Method:
    """`lambda f = strength^2 TV_WEIGHT TV(x)`, whatever the curvature; `fast` is LADMM, which converges for it."""
    norm = _norm_squared(name, problem)
    lam = torch.full_like(sigma, strength**2 * settings.TV_WEIGHT / getattr(denoiser, "weight", 1.0))
    if name == "certified":  # its L_x is MARGIN^2 L_h ||H||^2
        return method_from(name, denoiser, problem, {"sigma_d": (lam / (problem.L_h() * norm)).sqrt() / MARGIN})
    L_x = MARGIN * CONVEX_BETA * norm / sigma**2
    if name in ("ista", "fista"):
        L_x = torch.maximum(L_x, MARGIN * problem.L_h() * norm)
    name = "ladmm" if name == "fast" else name
    return method_from(name, denoiser, problem, {"sigma_d": (lam / L_x).sqrt(), "lambda": lam, "ratio": MARGIN})


def _data_steps(problem: Problem, method: Annealed) -> Tensor:
    """Steps of conjugate gradient for each picture and call, (B, calls), or (B, calls, C) where it has colour planes.

    They grow like the root of the condition number: `H^T p H + a` has one of up to `L_h / a`, where `a` grows from call
    to call. Early calls get no more than one at the geometric mean of the first noise level and the last: later ones
    make up for it. The factors were measured (docs/speed.md).
    """
    sigma = torch.stack([method.sigma_at(k) for k in range(method.calls)], -1)
    middle = (sigma[..., :1] * sigma[..., -1:]).sqrt()
    scale = (problem.L_h().cpu() / torch.as_tensor(method.mu, dtype=torch.float64)).sqrt().unsqueeze(-1)
    root = scale * torch.minimum(sigma, middle)
    steps = 1 + (STEPS if isinstance(problem.operator, SpatiallyVaryingBlur) else OTHER_STEPS) * root
    steps = steps.ceil().clamp(2, MOST_STEPS).long().expand(problem.pictures, method.calls)
    return steps if problem.colour_planes is None else problem.colour_planes.steps(steps)


def _norm_squared(name: str, problem: Problem) -> Tensor:
    norm = problem.norm_squared.upper.to(problem.observed.device)
    if not bool(torch.isfinite(norm).all()):
        raise InputError(f"||H||^2 has no proven upper bound for this operator: method {name!r} needs one, use fast")
    return norm
