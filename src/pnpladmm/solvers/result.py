"""What a run returns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from torch import Tensor

from pnpladmm.solvers.certificate import Certificate, weakest
from pnpladmm.solvers.history import History
from pnpladmm.solvers.method import Method, State


class Status(Enum):
    """How a picture's run ended, from best to worst. Each member carries a sentence of advice."""

    CONVERGED = ("converged", "The changes fell below the tolerance.")
    FINISHED = ("finished", "The method's schedule is complete; it does not iterate until convergence.")
    ITERATION_LIMIT = (
        "iteration limit",
        "The changes are still above the tolerance: allow more iterations if the last picture still improves.",
    )
    STOPPED = ("stopped", "The run was interrupted; the picture is the one of the last complete iteration.")
    DIVERGED = (
        "diverged",
        "The picture grew without bound; returned is the calmest iterate. Raise L_x, or lower beta, until "
        "L_x >= beta ||H||^2, or use LADMM.certified.",
    )
    NON_FINITE = (
        "non-finite",
        "NaN or infinity appeared; returned is the calmest iterate. Check the denoiser's output, or use "
        "LADMM.certified.",
    )

    def __init__(self, label: str, advice: str) -> None:
        self.label = label
        self.advice = advice


@dataclass(frozen=True)
class Result:
    """A restored batch with everything that is known of how it came about."""

    image: Tensor
    """(B, C, H, W); on failure the calmest iterate (the least relative change) before it."""
    statuses: tuple[Status, ...]
    """One a picture."""
    history: History
    certificates: tuple[Certificate, ...]
    """One a picture."""
    method: Method
    state: State
    """Where the run stands: `solve(..., start=state)` goes on from here, bit for bit."""

    @property
    def status(self) -> Status:
        """The worst of the batch."""
        return max(self.statuses, key=lambda s: list(Status).index(s))

    @property
    def certificate(self) -> Certificate:
        """The weakest of the batch."""
        return weakest(self.certificates)
