"""Which field of PSFs the stars determine: the one that predicts best the stars it has not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pnpladmm.blur.arrays import Array
from pnpladmm.estimate.star_model import Regression, Stars, fit_fields, prepare, unexplained
from pnpladmm.estimate.terms import Terms

FOLDS = 4
TAUS = (0.01, 0.03, 0.08, 0.25)
"""Widths of the prior of the corrections, relative to the profile."""
BETTER = 1.0
"""Standard errors by which a more complicated field must predict better than a simpler one."""


@dataclass(frozen=True)
class Choice:
    """A field and the width of its prior, with the error of all that were tried."""

    terms: Terms
    tau: float
    errors: tuple[tuple[Terms, float, float], ...]
    """Terms, the best tau for it, and chi^2 per pixel of stars that were left out."""


def choose(stars: Stars, possible: list[Terms], beta: float, seed: int = 0) -> Choice:
    """The simplest field that predicts left-out stars as well as the best one, with its prior."""
    if len(stars.flux) < 2:
        return Choice(possible[0], TAUS[1], ())
    folds = np.random.default_rng(seed).permutation(len(stars.flux)) % min(FOLDS, len(stars.flux))
    pixels = (stars.weights > 0).sum((1, 2)).clip(1)
    whole = prepare(stars, beta)
    found: list[tuple[Terms, float, Array]] = []
    for terms in possible:
        scores = np.zeros((len(TAUS), len(folds)))
        for fold in range(folds.max() + 1):
            seen, hidden = stars.take(folds != fold), stars.take(folds == fold)
            part = Regression(whole.basis, whole.weights[folds != fold], whole.gram[folds != fold])
            for i, field in enumerate(fit_fields(seen, terms, beta, TAUS, part)):
                scores[i, folds == fold] = unexplained(hidden, field)
        scores /= pixels
        best = int(_typical(scores).argmin())
        found.append((terms, TAUS[best], scores[best]))
    chosen = found[0]
    for candidate in found[1:]:
        gain = _clipped(chosen[2] - candidate[2])
        if gain.mean() > BETTER * gain.std() / np.sqrt(len(gain)):
            chosen = candidate
    errors = tuple((terms, tau, float(_typical(scores[None])[0])) for terms, tau, scores in found)
    return Choice(chosen[0], chosen[1], errors)


def _typical(scores: Array) -> Array:
    """The mean over stars, the worst of them (galaxies, blends) brought down to where the others end."""
    limit = np.percentile(scores, 95, axis=1, keepdims=True)
    result: Array = np.minimum(scores, limit).mean(1)
    return result


def _clipped(gain: Array) -> Array:
    low, high = np.percentile(gain, (3, 97))
    return gain.clip(low, high)
