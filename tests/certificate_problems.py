"""Random small problems whose certificates are compared with dense matrices: `python tests/certificate_problems.py`.

Each problem has an operator, a data term, a denoiser and a method with parameters at and around the edges of its
theorem. A certificate is false if one of the facts that it rests on or claims does not hold:

- the norm of the dense matrix is above the bound, or the adjoint is not its transpose;
- the data term's gradient is steeper than `L_h` somewhere;
- with the true numbers the conditions of the theorem fail;
- the Jacobian of the denoiser, where the run was, is not symmetric or has eigenvalues that its promise excludes;
- an iteration violates the inequality that the theorem states, with all terms computed from the dense matrix; for the
  level `convex`, and priors and data that are quadratic, the distance from the dense solution grows in the norm of the
  proof.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import pnpladmm as pl
from certificate_cases import Case, case, dense
from pnpladmm.denoisers.base import EvaluablePrior, promise_of
from pnpladmm.denoisers.gradient_step import GradientStepDenoiser
from pnpladmm.denoisers.relaxed import Relaxed
from pnpladmm.solvers import Problem
from pnpladmm.solvers.history import CURVATURE_EVERY
from pnpladmm.solvers.ladmm import LADMMState

ITERATIONS = 25
ROUNDING = 1e-10
"""Relative to the largest term of an inequality."""
JACOBIAN_SIDE = 6
"""Larger pictures have their Jacobian tested along random directions only."""
CONVEX, PROX = (pl.Promise.CONVEX,), (pl.Promise.CONVEX, pl.Promise.PROX)


def verdict(one: Case) -> tuple[str, list[str]]:
    """The level of the run's certificate, and what is false about it."""
    states = [one.method.init(one.problem)]
    result = pl.solve(one.problem, one.method, ITERATIONS, tolerance=0, callback=lambda step: states.append(step.state))
    one.states = states
    level = result.certificate.level
    wrong = _facts(one)  # the operator's and the data term's own claims hold whatever the level is
    if level is not pl.Level.OUTSIDE:
        wrong += _conditions(one, level) + _promise(one, level)
        wrong += _closer(one) if level is pl.Level.CONVEX else _descent(one)
    return level.value, wrong


def _facts(one: Case) -> list[str]:
    wrong = []
    adjoint = dense(one.problem.operator.adjoint, tuple(one.problem.observed.shape))
    if float((adjoint - one.H.T).abs().max()) > 1e-12 * max(1.0, float(one.H.abs().max())):
        wrong.append("the adjoint is not the transpose")
    norm = float(torch.linalg.matrix_norm(one.H, 2)) ** 2
    if norm > float(one.problem.norm_squared.upper[0]) * (1 + 1e-12) + 1e-300:
        wrong.append(f"the norm {norm} is above its bound {float(one.problem.norm_squared.upper[0])}")
    if (steep := steepest(one.problem)) > float(one.problem.L_h()[0]) * (1 + 1e-6):
        wrong.append(f"the data term has slope {steep}, above L_h = {float(one.problem.L_h()[0])}")
    return wrong


def steepest(problem: Problem) -> float:
    """The largest slope of the data term's gradient, by differences at many points of each pixel."""
    y, found = problem.observed, 0.0
    for place in (-3.0, -0.5, -1e-3, 0.0, 1e-3, 0.1, 0.5, 1.0, 3.0):
        z = torch.full_like(y, place)
        step = 1e-6
        change = (problem.data_term.gradient(z + step, y) - problem.data_term.gradient(z, y)) / step
        found = max(found, float(change.max()))
    return found


def _conditions(one: Case, level: pl.Level) -> list[str]:
    """With the true norm and the true `L_h`; a hair more is allowed where it is rounding."""
    method, L_h = one.method, float(one.problem.L_h()[0])
    norm = float(torch.linalg.matrix_norm(one.H, 2)) ** 2
    L_x, beta = float(getattr(method, "L_x")), getattr(method, "beta", None)  # noqa: B009
    if beta is None:
        bound = L_h * norm * (1.0 if level is pl.Level.PROVED or isinstance(method, pl.FISTA) else 0.5)
    else:
        bound = float(beta) * norm
        least = L_h * (1 - 1e-12 * one.problem.data_term.one_precision)
        if level is pl.Level.PROVED and float(beta) < least:
            return [f"beta = {float(beta)} is below L_h = {L_h}"]
    return [f"L_x = {L_x} is below {bound}"] if L_x < bound * (1 - 1e-12) else []


def _promise(one: Case, level: pl.Level) -> list[str]:
    """The Jacobian of the denoiser at the last point, dense or along random directions, by differences."""
    v = one.states[-1].denoised_from
    method, wrong = one.method, []
    denoiser = method.denoiser
    if level is pl.Level.CHECKED:
        measured = [state for k, state in enumerate(one.states) if k == 1 or (k and k % CURVATURE_EVERY == 0)]
        return [w for state in measured for w in _curved(one, state.denoised_from)]
    if promise_of(denoiser) not in (CONVEX if level is pl.Level.CONVEX else PROX):
        return ["the denoiser promised too little for this level"]
    size, step = v[0].numel(), 1e-5 * max(1e-3, float(v.std()) if v.numel() > 1 else 1e-3)
    if one.words["denoiser"] in ("tv", "hard"):  # no derivative, or only to the accuracy of a solver: monotonicity
        return _monotone(one, v)
    if size <= JACOBIAN_SIDE**2:
        J = dense(lambda d: (method.denoise(v + step * d) - method.denoise(v - step * d)) / (2 * step), v.shape)
        apart = float((J - J.T).abs().max())
        values = torch.linalg.eigvalsh((J + J.T) / 2)
        low, high = float(values[0]), float(values[-1])
        kinked = one.words["denoiser"] in ("soft", "ridge")  # a difference across a kink is a mean of Jacobians
        if apart > (1e-3 if kinked else 1e-5):
            wrong.append(f"the Jacobian is not symmetric by {apart}")
        if low < -1e-5:
            wrong.append(f"the Jacobian has the eigenvalue {low}")
        if promise_of(denoiser) is pl.Promise.CONVEX and high > 1 + 1e-5:
            wrong.append(f"the Jacobian of a convex prior's denoiser has the eigenvalue {high}")
    return wrong + _monotone(one, v)


def _curved(one: Case, v: Tensor) -> list[str]:
    """A gradient step whose Hessian has an eigenvalue of 1 or more, at a point where the run measured it."""
    denoiser = one.method.denoiser
    gamma, inner = (float(denoiser.gamma), denoiser.denoiser) if isinstance(denoiser, Relaxed) else (1.0, denoiser)
    assert isinstance(inner, GradientStepDenoiser)
    J = dense(lambda u: inner.jacobian_product(v, one.method.sigma_d, u), tuple(v.shape), together=False)
    top = gamma * float(torch.linalg.eigvalsh(torch.eye(len(J), dtype=J.dtype) - (J + J.T) / 2)[-1])
    return [f"the Hessian has the eigenvalue {top}"] if top >= 1 else []


def _monotone(one: Case, v: Tensor) -> list[str]:
    generator = torch.Generator().manual_seed(int(one.words["seed"]))
    sharp = promise_of(one.method.denoiser) is pl.Promise.CONVEX
    for scale in (1e-3, 0.1, 1.0):
        d = scale * torch.randn(v.shape, generator=generator, dtype=v.dtype)
        change = one.method.denoise(v + d) - one.method.denoise(v)
        product, length = float((change * d).sum()), float(change.square().sum())
        least = length if sharp else 0.0
        if product < least - 1e-6 * float(d.norm()) * max(float(change.norm()), 1e-3 * float(d.norm())):
            return [f"the denoiser is not monotone enough: {product} is below {least}"]
    return []


def _descent(one: Case) -> list[str]:
    """The inequality of the theorem at every iteration but the first, whose start no denoiser made."""
    if isinstance(one.method, pl.ISTA):
        return _descent_of_ista(one)
    if not isinstance(one.states[-1], LADMMState):
        return ["a level that this method has no theorem for"]
    problem, method, term = one.problem, one.method, one.problem.data_term
    norm, L_h = float(torch.linalg.matrix_norm(one.H, 2)) ** 2, float(problem.L_h()[0])
    beta, L_x = float(method.beta), float(method.L_x)  # type: ignore[attr-defined]
    leaps = isinstance(method, pl.LeapingLADMM)
    values = [_lagrangian(one, state) for state in one.states]
    for k in range(1, len(one.states) - 1):
        old, new = one.states[k], one.states[k + 1]
        fall = values[k] - values[k + 1]
        dx, dz = (float((getattr(new, n) - getattr(old, n)).square().sum()) for n in ("x", "z"))
        dw = beta**2 * float((new.u - old.u).square().sum())
        least = (L_x - beta * norm) / 2 * dx + beta / 2 * dz + (1 / (2 * L_h) - 1 / beta) * dw
        # At beta = L_h, and for leaps, which are no iterations, only the fall itself is claimed.
        least = 0.0 if leaps or beta <= L_h else least
        # The terms that nearly cancel, and the accuracy of a solver inside.
        size = abs(values[k]) + float(term.value(new.z, problem.observed)[0])
        exact = 1e-7 if one.words["denoiser"] == "tv" else ROUNDING
        size += L_x * float(new.x.square().sum() + old.x.square().sum()) + beta * float(new.z.square().sum())
        if fall < least - exact * max(size, 1e-12):
            return [f"iteration {k + 1} lowers the Lagrangian by {fall}, the theorem says {least} (size {size})"]
    return []


def _lagrangian(one: Case, state: LADMMState) -> float:
    """From the dense matrix and the prior; NaN for the start of gradient steps, which nothing compares."""
    problem, method = one.problem, one.method
    denoiser = method.denoiser
    assert isinstance(denoiser, EvaluablePrior)
    phi = denoiser.prior(state.x, state.denoised_from, method.sigma_d)
    prior = float("nan") if phi is None else float(phi[0]) * float(method.prior_weight)
    rest = one.H @ state.x.flatten() - state.z.flatten()
    beta = float(method.beta)  # type: ignore[attr-defined]
    return (
        float(problem.data_term.value(state.z, problem.observed)[0])
        + prior
        + beta * float(state.u.flatten() @ rest + rest @ rest / 2)
    )


def _descent_of_ista(one: Case) -> list[str]:
    """`E` falls by at least `(L_x - L_h ||H||^2) / 2 ||dx||^2`."""
    problem, method = one.problem, one.method
    norm, L_h = float(torch.linalg.matrix_norm(one.H, 2)) ** 2, float(problem.L_h()[0])
    L_x = float(method.L_x)  # type: ignore[attr-defined]
    values = []
    for state in one.states:
        z = (one.H @ state.x.flatten()).reshape(problem.observed.shape)
        phi = method.denoiser.prior(state.x, state.denoised_from, method.sigma_d)  # type: ignore[attr-defined]
        prior = float("nan") if phi is None else float(phi[0]) * L_x
        values.append(float(problem.data_term.value(z, problem.observed)[0]) + prior)
    for k in range(1, len(values) - 1):
        dx = float((one.states[k + 1].x - one.states[k].x).square().sum())
        least, fall = (L_x - L_h * norm) / 2 * dx, values[k] - values[k + 1]
        size = abs(values[k]) + L_x * float(one.states[k].x.square().sum())
        if fall < least - (1e-7 if one.words["denoiser"] == "tv" else ROUNDING) * max(size, 1e-12):
            return [f"iteration {k + 1} lowers E by {fall}, the theorem says {least}"]
    return []


def _closer(one: Case) -> list[str]:
    """LADMM at the level `convex`: the pair `(w_k, x_{k+1})` never moves away from the solution.

    In the norm `||w||^2 / beta + 2 <w, Hx> + L_x ||x||^2` of the primal-dual method (He and Yuan, 2012).
    """
    method, problem = one.method, one.problem
    if one.smooth is None or type(method) is not pl.LADMM or problem.data_term.precision_of(problem.observed) is None:
        return []
    H, Q = one.H, torch.linalg.inv(one.smooth) - torch.eye(len(one.smooth), dtype=one.smooth.dtype)
    p, y = problem.data_term.precision_of(problem.observed), problem.observed.flatten()
    assert p is not None
    p = p.expand_as(problem.observed).flatten() if p.ndim else p.expand(len(y))
    L_x, beta = float(method.L_x), float(method.beta)
    A = H.T @ (p[:, None] * H) + L_x * Q
    solution = torch.linalg.lstsq(A, H.T @ (p * y), driver="gelsd").solution
    dual = p * (H @ solution - y)
    apart = []
    for old, new in zip(one.states[1:], one.states[2:], strict=False):
        w, x = beta * old.u.flatten() - dual, new.x.flatten() - solution
        apart.append(float(w @ w / beta + 2 * w @ (H @ x) + L_x * x @ x))
    size = max(apart[0], L_x * float(solution @ solution) * 1e-10, float(dual @ dual) / beta * 1e-10)
    rises = [b - a for a, b in pairwise(apart)]
    if max(rises) > 1e-9 * size:
        return [f"the distance from the dense solution grows by {max(rises)} of {size}"]
    return []


def examined(seed: int) -> tuple[dict[str, Any], str, list[str]]:
    """Words, level and what is false, for a seed."""
    torch.set_num_threads(1)
    try:
        one = case(seed)
    except pl.InputError as error:
        return {"seed": seed, "method": "none", "denoiser": str(error)}, "refused", []
    level, wrong = verdict(one)
    return one.words, level, wrong


def main() -> None:
    """Print how many certificates of each level there were, and all that are false."""
    parser = argparse.ArgumentParser(description="Certificates of random small problems against dense matrices.")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--start", type=int, default=0, help="The first seed.")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, help="A JSON file with the result.")
    options = parser.parse_args()
    levels: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    false: list[dict[str, Any]] = []
    seeds = range(options.start, options.start + options.count)
    with ProcessPoolExecutor(options.processes) as pool:
        for done, (words, level, wrong) in enumerate(pool.map(examined, seeds, chunksize=20), 1):
            levels[level] += 1
            kinds[f"{words['method']}, {words['denoiser']}: {level}"] += 1
            if wrong:
                false.append({**words, "level": level, "wrong": wrong})
                print(json.dumps(false[-1]), flush=True)
            if options.out and (done % 500 == 0 or done == options.count):
                found = {"first seed": options.start, "problems": done, "levels": dict(levels), "false": false}
                options.out.write_text(json.dumps({**found, "kinds": dict(sorted(kinds.items()))}, indent=1) + "\n")
    print(f"{options.count} problems: {dict(levels)}; {len(false)} false certificates")


if __name__ == "__main__":
    main()
