"""Lying denoisers and parameters at their edges, in short. `python -m lies --count 2000` is the long form."""

from __future__ import annotations

import dataclasses
import warnings

import pytest

import pnpladmm as pl
from lies.__main__ import judged
from lies.cases import case
from lies.truth import untrue


@pytest.mark.parametrize("first", [0, 10, 20])
def test_no_word_about_a_run_is_false(first: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(first, first + 10):
            label, false, words = judged(seed)
            assert not false, f"{label}: {words}"


def test_false_words_are_noticed() -> None:
    """The judge itself: what it says of a run with another status, another picture, another level."""

    one = case(344)
    result = pl.solve(one.problem, one.method, 60, 0.0)
    assert untrue(one, result) == []
    early = dataclasses.replace(one, iterations=100)
    for status, words in ((pl.Status.DIVERGED, "goes on to"), (pl.Status.CONVERGED, "the residual is")):
        assert words in " ".join(untrue(early, dataclasses.replace(result, statuses=(status,))))
    assert "times as large" in " ".join(untrue(one, dataclasses.replace(result, image=1e6 * result.image)))


def test_an_overshoot_is_no_divergence() -> None:
    """The theorem covers this run. Its first iterate is 900 times as large as the picture, its tenth is the picture."""

    one = case(344)
    result = pl.solve(one.problem, one.method, 60, 0.0)
    assert not result.status.failed
    assert result.certificate.level is pl.Level.CONVEX
