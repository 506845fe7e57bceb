"""Is what was said of a run true? Found out by dense matrices, by going on, and by what is known of the denoiser."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

import pnpladmm as pl
from conftest import dense
from lies.cases import Case
from pnpladmm.denoisers.base import call_denoiser
from pnpladmm.tensors import LONGEST

LARGE = 1e3
"""A picture so many times as large as it should be has diverged, whatever it is called."""
FURTHER = 300
"""Iterations after the end."""
STRONGER = {
    pl.Level.PROVED: (pl.Promise.PROX, pl.Promise.CONVEX),
    pl.Level.CONVEX: (pl.Promise.CONVEX,),
    pl.Level.CHECKED: (pl.Promise.GRADIENT_STEP,),
}
"""What has to be true of the denoiser. A certificate that is `assumed` says itself that it trusts the denoiser."""


def untrue(case: Case, result: pl.Result) -> list[str]:
    """Every false word about a run."""
    status, certificate = result.statuses[0], result.certificates[0]
    found = []
    if not bool(torch.isfinite(result.image).all()):
        found.append("the picture is not finite")
    if certificate.level is not pl.Level.OUTSIDE:
        found += _certificate(case, result)
    H = dense(case.problem.operator, tuple(result.image.shape))
    if status is pl.Status.CONVERGED:
        found += _converged(case, result, H)
    if status is pl.Status.DIVERGED:
        found += _diverged(case, result, H)
    if not status.failed and _size(result.image) > LARGE * _natural(case, H):
        found.append(f"{status.label}, but it is {_size(result.image) / _natural(case, H):.2g} times as large")
    if status is pl.Status.NON_FINITE and _goes_on_finite(case, result):
        found.append("non-finite, but all numbers are finite")
    return found


def _certificate(case: Case, result: pl.Result) -> list[str]:
    status, certificate = result.statuses[0], result.certificates[0]
    level, found = certificate.level, []
    if status.failed:
        found.append(f"{level.value} beside {status.label}")
    # A lie that the run does not contradict may stay hidden; then the certificate has to say that it rests on it.
    trusted = "if the denoiser is what it promises" in certificate.statement
    if not trusted and case.drawn.acted and case.drawn.true not in STRONGER.get(level, tuple(pl.Promise)):
        found.append(f"{level.value}, but the denoiser lies: {case.drawn.name}")
    found += _constants(case, level)
    if (
        case.drawn.steady
        and level in STRONGER
        and _size(_further(case, result)[-1]) > LARGE * max(_size(result.image), 1)
    ):
        found.append(f"{level.value}, but the run grows without bound")
    return found


def _constants(case: Case, level: pl.Level) -> list[str]:
    """Are the conditions true of the explicit matrix, and of a curvature found by differences?"""
    method, problem = case.method, case.problem
    shape = problem.operator.input_shape(problem.observed.shape)
    norm = _norm(dense(problem.operator, tuple(shape))) ** 2
    curvature = _curvature(problem)
    least = {"LADMM": "beta", "PrimalDual": "beta", "ISTA": "L_h", "FISTA": "L_h"}.get(type(method).__name__)
    if least is None:
        return []
    convex = level is pl.Level.CONVEX
    if least == "beta":
        beta, needed = float(method.beta), float(method.beta) * (norm + (getattr(method, "box", None) is not None))
        if not convex and beta < curvature * (1 - 1e-6):
            return [f"{level.value}, but beta = {beta:.6g} is below L_h = {curvature:.6g}"]
    else:
        needed = curvature * norm * (0.5 if convex and type(method) is pl.ISTA else 1)
    L_x = float(method.L_x)
    return [f"{level.value}, but L_x = {L_x:.6g} is below {needed:.6g}"] if L_x < needed * (1 - 1e-6) else []


def _curvature(problem: pl.Problem) -> float:
    """The largest slope of `grad h` that is seen between many points, also below 0."""
    h, y = problem.data_term, problem.observed
    points = torch.cat([torch.linspace(-0.5, 0.5, 40), torch.linspace(-3, 3, 40)]).double()
    points = points * (float(y.abs().max()) or 1.0)
    points = points.sort()[0]
    slopes = [h.gradient(torch.full_like(y, float(p)), y) for p in points]
    rises = [
        (b - a) / float(q - p) for a, b, p, q in zip(slopes, slopes[1:], points, points[1:], strict=False) if q > p
    ]
    return float(torch.stack(rises).max())


def _converged(case: Case, result: pl.Result, H: np.ndarray[Any, Any]) -> list[str]:
    """One gradient step of the method's own length from the picture, with the explicit matrix."""
    method, problem, x = case.method, case.problem, result.image
    weight = getattr(method, "L_x", getattr(method, "rho", None))
    if not case.drawn.steady or weight is None or getattr(method, "box", None) is not None:
        return []
    Hx = torch.from_numpy(H @ x.numpy().ravel()).view_as(problem.observed)
    g = torch.from_numpy(H.T @ problem.data_term.gradient(Hx, problem.observed).numpy().ravel()).view_as(x)
    fixed = call_denoiser(case.drawn.denoiser, x - g / float(weight), method.sigma_d)
    residual = float(weight) * float((x - fixed).norm())
    scale = _curvature(problem) * (_norm(H) ** 2) * max(float(x.norm()), 1e-300)
    # The rounding of x itself, a step as short as this cannot tell from a change.
    rounding = 100 * float(weight) * 1e-16 * float(x.norm())
    allowed = 10 * case.tolerance * scale + rounding
    return [f"converged, but the residual is {residual / scale:.2g}"] if residual > allowed else []


def _diverged(case: Case, result: pl.Result, H: np.ndarray[Any, Any]) -> list[str]:
    """Does it come back when it goes on? What is too large at the end of its iterations may not be given out."""
    if not case.drawn.steady or len(result.history) == case.iterations:
        return []
    last = _size(_further(case, result)[-1])
    if np.isfinite(last) and last < 10 * _natural(case, H):
        return [f"diverged, but it goes on to {last / _natural(case, H):.2g} times what it should be"]
    return []


def _further(case: Case, result: pl.Result) -> list[Tensor]:
    """The pictures of more iterations, whatever they are."""
    state, pictures = result.state, [result.state.x]
    if case.method.length is not None:
        return pictures
    with torch.no_grad():
        for _ in range(FURTHER):
            state = case.method.step(case.problem, state)
            pictures.append(state.x)
            if not bool(torch.isfinite(state.x).all()):
                break
    return pictures


def _goes_on_finite(case: Case, result: pl.Result) -> bool:
    return case.drawn.steady and case.method.length is None and bool(torch.isfinite(_further(case, result)[-1]).all())


def _norm(H: np.ndarray[Any, Any]) -> float:
    """The largest singular value."""
    return float(np.linalg.eigvalsh(H.T @ H)[-1]) ** 0.5


def _size(x: Tensor) -> float:
    size = float(x.double().norm())
    return size if np.isfinite(size) else np.inf


def _natural(case: Case, H: np.ndarray[Any, Any]) -> float:
    """About the size of the true picture: that of a regularised inverse, or of the start."""
    y = case.problem.observed.numpy().ravel()
    strongest = _norm(H)
    inverse = np.linalg.solve(H.T @ H + 1e-4 * strongest**2 * np.eye(H.shape[1]), H.T @ y)
    first = case.start if isinstance(case.start, Tensor) else None
    return max(float(np.linalg.norm(inverse)), 0.0 if first is None else float(first.norm()), 1e-12)


def is_hidden(case: Case, result: pl.Result) -> bool:
    """Is there a certificate although the denoiser lies?"""
    level = result.certificates[0].level
    return case.drawn.acted and case.drawn.true not in STRONGER.get(level, tuple(pl.Promise))


def bad_words(error: pl.InputError) -> list[str]:
    """What is wrong with a refusal."""
    words = str(error)
    return [] if words.isprintable() and 0 < len(words) <= LONGEST else [f"a refusal of {len(words)} characters"]
