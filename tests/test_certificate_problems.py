"""Certificates of random small problems against dense matrices: a few of those of certificate_problems.py."""

from __future__ import annotations

from collections import Counter

import pytest

from certificate_problems import examined
from pnpladmm.solvers.certificate import CheckedCondition


def test_no_certificate_is_false() -> None:
    levels: Counter[str] = Counter()
    for seed in range(60):
        words, level, wrong = examined(seed)
        assert not wrong, (words, level)
        levels[level] += 1
    assert levels["proved"] >= 8
    assert levels["convex"] >= 6
    assert levels["outside"] >= 18


def test_false_certificates_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With conditions that hold 3 % too early."""
    monkeypatch.setattr(CheckedCondition, "holds", property(lambda self: self.left >= 0.97 * self.right))
    found = [text for seed in range(30) for text in examined(seed)[2]]
    assert any(text.startswith("beta") for text in found)
    assert any(text.startswith("L_x") for text in found)
