"""What became of the tiles of a picture in parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pnpladmm.scale.decisions import Decisions
from pnpladmm.solvers import Certificate, Status

Tell = Callable[[int, int, float], None]
"""Told after each tile: how many are done, how many there are, pixels a second. Of methods with many iterations the
tiles of all iterations count."""


@dataclass(frozen=True)
class Done:
    """The tiles are in their store, unless the restoration was withdrawn."""

    decisions: Decisions
    """Those that the tiles were restored with."""
    status: Status
    certificate: Certificate
    iterations: int
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    residual: tuple[float, float] | None = None
    """Its size relative to the noise and the correlation of neighbours, where some tiles were looked at."""
