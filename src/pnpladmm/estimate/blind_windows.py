"""A kernel for each of many windows of a shaken picture, which help each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pnpladmm.blur.arrays import Array
from pnpladmm.estimate.blind_scales import Look
from pnpladmm.estimate.blind_window import Found, Window, difference

COARSE = 0.4
"""Scales up to this one are shared: on them a blur that changes over the picture hardly does."""
EDGES = (0.5, 1.0, 2.0)
"""Weights of edges that are tried in each window, times that which is best for the whole picture."""
ROUNDS = 2
"""How often windows try what their neighbours found."""
BETTER = 5.0
"""By how much the logarithm of the likelihood of a neighbour's kernel must exceed that of a window's own."""
CHANGES = 10.0
"""The mean gain of the logarithm of the likelihood in a window from which its kernel is another one."""


@dataclass(frozen=True, eq=False)
class InWindows:
    """What is found in each window; None where it shows nothing."""

    found: list[Found | None]
    gain: float
    """The mean gain in the logarithm of the likelihood over the kernel of the whole picture."""

    @property
    def changes(self) -> bool:
        """Is there more than one kernel?"""
        return self.gain > CHANGES


def find_kernels(windows: list[Window | None], one: Found, tell: Callable[[int], object]) -> InWindows:
    """The kernels of all windows, from nothing and from what the whole picture shows on coarse scales.

    The spectrum of a window judges them, and that of the whole picture beside them.
    """
    found: list[Found | None] = []
    gains = []
    for number, window in enumerate(windows):
        tell(number)
        if window is None:
            found.append(None)
            continue
        own = _found(window, one)
        gains.append(window.unlikeliness(one.kernel) - own.unlikeliness)
        found.append(own)
    return InWindows(found, float(np.mean(gains)) if gains else 0.0)


def _found(window: Window, one: Found) -> Found:
    """The likeliest of some kernels of a window, and their mean difference from it."""
    side = one.kernel.shape[0]
    shared = [step for step in one.steps if step.scale < COARSE]
    looks = [Look(one.look.width, one.look.edges * factor) for factor in EDGES]
    runs = [window.found(side, look, _silent) for look in looks]
    if shared:
        runs.append(window.found(side, one.look, _silent, start=shared[-1]))
    own = min(runs, key=lambda run: run.unlikeliness)
    apart = [difference(own.kernel, run.kernel) for run in runs if run is not own]
    return replace(own, difference=float(np.median(apart)))


def improved(
    windows: list[Window | None], found: list[Found | None], nearness: Array, tell: Callable[[int], object]
) -> list[Found | None]:
    """The kernels refined; then each window tries those that its neighbours found."""
    best: list[Found | None] = []
    for number, (window, own) in enumerate(zip(windows, found, strict=True)):
        tell(number)
        best.append(None if window is None or own is None else window.refined(own))
    for _ in range(ROUNDS):
        for number, window in enumerate(windows):
            own = best[number]
            beside = [best[i] for i in np.flatnonzero(nearness[number] > 0.9)]
            others = [other for other in beside if other is not None]
            if window is None or own is None or not others:
                continue
            scores = [window.unlikeliness(other.kernel) for other in others]
            if min(scores) < own.unlikeliness - BETTER:
                new = window.refined(others[int(np.argmin(scores))])
                best[number] = min(own, replace(new, difference=own.difference), key=lambda run: run.unlikeliness)
    return best


def _silent(_: float) -> None:
    return None
