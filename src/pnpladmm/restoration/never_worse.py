"""Look at a restored picture before it is returned; restore again more gently, or return the observation.

A PSF that does not fit, noise that is stronger than assumed and a strength that is too low all end in ringing. Its
signs are measured without the truth, and the answer to all of them is a higher noise level.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from pnpladmm.data_terms import Gaussian, WeightedGaussian
from pnpladmm.restoration.policy import Prepared
from pnpladmm.restoration.psf_error import (
    DOUBTFUL,
    TRIAL,
    doubt,
    evidence,
    expected_gain,
    is_suspect,
    is_wrong,
    known_error,
    residual,
)
from pnpladmm.restoration.psf_score import psf_score
from pnpladmm.restoration.signs import detail_of, signs_of
from pnpladmm.solvers import Annealed, Certificate, Level, Problem, Result, Status
from pnpladmm.solvers.state import State

ROWS = 512
REPEATS = 2
"""So many times a picture is restored again."""
LEAST_GAIN = 0.0
"""A picture that was doubted is returned if it is expected to be better than the observation by this much, in dB."""
HOPELESS = 1.0
"""A picture that is doubted by more than this although it was restored again is not returned."""
UNEXPLAINED = 1.5
"""A residual that is larger than so many times the noise, as it was raised, explains nothing."""
MUCH = 3.0
"""A noise level that is raised by more than this factor is worth a warning, less is worth a note."""
GENTLE = 3.3
"""With a PSF that is called wrong the noise level is raised by this factor at least."""
LARGEST = 1 << 22
"""Samples: larger pictures get no restoration on trial, which would need more memory."""
LARGEST_FACTOR, STRONGEST = 12.0, 0.5
"""The noise level is raised by this factor at most, and not beyond this level."""
ASKED = 0.7
"""Who asks for less smoothing by `strength` gets it, up to a doubt of this much more."""

NO_FIT = "the PSF does not fit the picture, or the noise is stronger than assumed"
"""How the warning about a PSF that is called wrong begins."""

Attempt: TypeAlias = Callable[[Prepared], tuple[Result, tuple[str, ...]]]
"""A restoration and notes on it; its picture is on the problem's own domain and in the numbers of the observation."""


@dataclass(frozen=True)
class Judged:
    """The restoration that is returned, and what was found about it."""

    prepared: Prepared
    result: Result
    withdrawn: Tensor
    """True for pictures that are likely worse than the observation, (B,)."""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def with_known_error(prepared: Prepared, uncertainty: float | None) -> Prepared:
    """The noise raised for a PSF whose relative error is known, such as that of an estimated blur."""
    if not uncertainty or _raised_term(prepared.problem, torch.zeros(1)) is None:
        return prepared
    return raised(prepared, known_error(uncertainty, detail_of(prepared.problem), prepared.noise))


def never_worse(attempt: Attempt, prepared: Prepared, strength: float = 1.0) -> Judged:
    """Restore, and restore again with a higher noise level where the picture shows that the data were trusted too much.

    Only the annealed method is asked again: the rule was fitted to its pictures. What a picture gets does not depend on
    its neighbours in a batch. A run that failed or was stopped is not judged: nobody takes its picture for a good one.
    """
    result, notes = attempt(prepared)
    none = torch.zeros(prepared.problem.pictures, dtype=torch.bool)
    if not isinstance(result.method, Annealed):
        return Judged(prepared, result, none, notes)
    before, doubted, withdrawn, wrong, poor = prepared.noise, none, none, none, none
    for left in range(REPEATS, -1, -1):
        if Status.STOPPED in result.statuses:  # nobody waits for a better picture
            withdrawn = none
            break
        known = known_of(prepared, result, before)
        if known is None:
            break
        verdict = judge(known, prepared.noise, before, strength)
        whole = ~torch.tensor([status.failed for status in result.statuses])
        again = whole & verdict.again
        if left == REPEATS:
            wrong, poor = whole & verdict.wrong, whole & verdict.worse
            if bool((whole & is_suspect(known).cpu()).any()) and prepared.problem.observed.numel() <= LARGEST:
                found = _on_trial(attempt, prepared, known)
                if isinstance(found, Result):
                    result = found
                    break
                wrong = whole & found
            verdict, again = verdict.with_wrong(wrong, before), again | wrong
        doubted = doubted | again | wrong
        withdrawn = whole & doubted & verdict.worse
        if not left or not bool(again.any()):
            break
        level = torch.where(again.to(verdict.level.device), verdict.level, prepared.noise)
        prepared = raised(prepared, (level.square() - prepared.noise.square()).clamp_min(0).sqrt())
        del result  # as large as the picture
        result, notes = attempt(prepared)
    words = words_on(before, prepared.noise, wrong, poor & ~doubted, withdrawn)
    return Judged(prepared, result, withdrawn, (*notes, *words.notes), words.warnings)


def known_of(prepared: Prepared, result: Result, before: Tensor) -> Tensor | None:
    """The evidence (B, K) about restored pictures, whose level was `before` at first; None where there is none."""
    signs = signs_of(prepared.problem, result.image, prepared.noise)
    if signs is None or not isinstance(result.method, Annealed):
        return None
    score = psf_score(prepared.problem, result.image, prepared.noise)
    return evidence(signs, score, before, result.method.calls, prepared.model.jpeg)


def _on_trial(attempt: Attempt, prepared: Prepared, known: Tensor) -> Tensor | Result:
    """Which PSFs are wrong by a gentle restoration, too, (B,); or that restoration, if it was stopped."""
    gentle = raised(prepared, (TRIAL**2 - 1) ** 0.5 * prepared.noise)
    result, _ = attempt(gentle)
    if Status.STOPPED in result.statuses:
        return result
    more = known_of(gentle, result, prepared.noise)
    assert more is not None  # there was some about the first one
    return (is_suspect(known) & is_wrong(known, more)).cpu()


@dataclass(frozen=True)
class Verdict:
    """What the signs of restored pictures mean, (B,) each."""

    again: Tensor
    """Restore it again, more gently?"""
    level: Tensor
    """The noise level for that."""
    worse: Tensor
    """May it be worse than the observation?"""
    wrong: Tensor
    """Is the PSF likely so wrong that much is lost? To be asked of the first restoration."""

    def with_wrong(self, wrong: Tensor, before: Tensor) -> Verdict:
        """Restore pictures with a PSF that is `wrong` (B,) again, and gently enough; their level was `before`."""
        level = torch.where(wrong.to(before.device), torch.maximum(self.level, GENTLE * before), self.level)
        return replace(self, again=self.again | wrong, level=level.clamp_max(STRONGEST), wrong=wrong)


def judge(known: Tensor, noise: Tensor, before: Tensor, strength: float) -> Verdict:
    """The verdict on what is known (B, K) of pictures restored with the levels `noise`, at first `before`, (B,)."""
    allowed = DOUBTFUL + min(ASKED, max(0.0, -math.log(strength)))
    doubts, most = doubt(known).to(before), (LARGEST_FACTOR * before).clamp_max(STRONGEST)
    again = (doubts >= allowed) & (noise < 0.99 * most)
    level = torch.maximum(noise, torch.minimum(doubts.exp() * noise, most))
    worse = (expected_gain(known) < LEAST_GAIN) | (doubts >= allowed + HOPELESS).to(known.device)
    worse = worse | (residual(known) > UNEXPLAINED)
    return Verdict(again.cpu(), level, worse.cpu(), is_wrong(known).cpu())


def raised(prepared: Prepared, error: Tensor) -> Prepared:
    """The same problem with independent noise of level `error` (B,) on top, which stands for errors of the PSF."""
    noise, problem = prepared.noise, prepared.problem
    term = _raised_term(problem, error)
    assert term is not None
    # The model is about the picture as it was given, the noise maybe about linear light.
    share = (error / noise) * prepared.model.level
    known = torch.zeros_like(share) if prepared.model.blur_error is None else prepared.model.blur_error
    model = replace(prepared.model, blur_error=(known.square() + share.square()).sqrt())
    problem = Problem(problem.observed, problem.operator, term)
    return replace(prepared, problem=problem, noise=(noise.square() + error.square()).sqrt(), model=model)


def returned(result: Result, problem: Problem, before: Tensor, withdrawn: Tensor) -> Result:
    """The result on the picture's own domain, with the picture `before` instead of those that are withdrawn.

    A run that was stopped keeps its status: nothing more is to be started.
    """
    image = problem.crop_to_observed(result.image)
    if not bool(withdrawn.any()):
        return replace(result, image=image)
    given = withdrawn.to(image.device).view(-1, 1, 1, 1)
    x = torch.where(given, problem.default_start().to(image), result.state.x)
    nothing = Certificate(Level.OUTSIDE, "the restoration was withdrawn: this is the picture that was given", ())
    flags = withdrawn.tolist()
    return replace(
        result,
        image=torch.where(given, before.to(image), image),
        statuses=tuple(
            Status.WITHDRAWN if w and s is not Status.STOPPED else s
            for w, s in zip(flags, result.statuses, strict=True)
        ),
        certificates=tuple(nothing if w else c for w, c in zip(flags, result.certificates, strict=True)),
        state=State(x=x, iteration=result.state.iteration),
    )


def _raised_term(problem: Problem, error: Tensor) -> Gaussian | WeightedGaussian | None:
    term, y = problem.data_term, problem.observed
    if isinstance(term, Gaussian):
        sigma = torch.as_tensor(term.sigma, dtype=torch.float64, device=y.device).reshape(-1)
        return Gaussian((sigma.square() + error.to(sigma).square()).sqrt())
    if isinstance(term, WeightedGaussian):
        precision = term.precision_of(y).expand_as(y)
        added = error.to(precision).square().view(-1, 1, 1, 1)
        # Some rows at a time: large pictures would need many copies.
        return WeightedGaussian(torch.cat([part / (1 + part * added) for part in torch.split(precision, ROWS, -2)], -2))
    return None


@dataclass(frozen=True)
class Words:
    """What users are told."""

    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def words_on(before: Tensor, after: Tensor, wrong: Tensor, poor: Tensor, withdrawn: Tensor) -> Words:
    """What is said of raised levels (of 255), wrong PSFs, pictures that gain little, and withdrawn ones; (B,) each."""
    notes, warnings = [], []
    numbers = (v.tolist() for v in (before, after, wrong, poor, withdrawn))
    for first, last, told_wrong, little, given_up in zip(*numbers, strict=True):
        gently = (
            f"restored more gently, with a noise level of {255 * last:.1f} instead of {255 * first:.1f} of 255"
            if last > 1.01 * first
            else ""
        )
        if given_up:
            warnings.append(
                "every restoration looks worse than the picture itself, which is returned: the PSF does not fit, or it "
                "is not centred, turned or mirrored, or the noise is stronger than assumed"
            )
        elif told_wrong or last > MUCH * first:
            warnings.append(f"{NO_FIT}: {gently}" if gently else NO_FIT)
        elif little:
            said = (
                "the restoration may be no better than the picture: it has little blur, or the noise is not as assumed"
            )
            warnings.append(f"{said}; {gently}" if gently else said)
        elif gently:
            notes.append(f"the restoration went beyond the range of the picture: {gently}")
    return Words(tuple(dict.fromkeys(notes)), tuple(dict.fromkeys(warnings)))
