"""What a run returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from torch import Tensor

from pnpladmm.solvers.certificate import Certificate, weakest
from pnpladmm.solvers.history import History
from pnpladmm.solvers.method import Method
from pnpladmm.solvers.state import State


class Status(Enum):
    """How the run of a picture ended, from best to worst. Each member has a `label` and a sentence of `advice`.

    Examples
    --------
    >>> import pnpladmm as pl
    >>> pl.Status.CONVERGED.label, pl.Status.CONVERGED.advice
    ('converged', 'The changes and, where it is known, the optimality residual fell below the tolerance.')
    """

    CONVERGED = ("converged", "The changes and, where it is known, the optimality residual fell below the tolerance.")
    FINISHED = ("finished", "The method's schedule is complete; it does not iterate until convergence.")
    ITERATION_LIMIT = (
        "iteration limit",
        "The changes or the optimality residual are still above the tolerance: allow more iterations if the last "
        "picture still improves.",
    )
    WITHDRAWN = (
        "withdrawn",
        "Every restoration looked worse than the picture itself, which is returned. Check the PSF: its size, its "
        "centre, whether it is turned or mirrored.",
    )
    STOPPED = ("stopped", "The run was interrupted; the picture is the one of the last complete iteration.")
    DIVERGED = (
        "diverged",
        "The picture grew without bound; the calmest iterate is returned. Raise L_x, or lower beta, until "
        "L_x >= beta ||H||^2, or use LADMM.certified.",
    )
    NON_FINITE = (
        "non-finite",
        "NaN or infinity appeared; the calmest iterate is returned. Check the denoiser's output, or use "
        "LADMM.certified.",
    )

    def __init__(self, label: str, advice: str) -> None:
        self.label = label
        self.advice = advice

    @property
    def failed(self) -> bool:
        """Whether the picture is not to be used: the run diverged, or NaN appeared."""
        return self in (Status.DIVERGED, Status.NON_FINITE)

    @property
    def sentence(self) -> str:
        """The label and the advice in one line."""
        return f"{self.label}: {self.advice}"


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """A restored batch, with all that is known about the run. Subclasses may add fields.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> problem = pl.Problem(torch.rand(1, 1, 8, 8), pl.Mask(torch.ones(8, 8)), pl.Gaussian(0.1))
    >>> pl.solve(problem, pl.LADMM.certified(pl.load_denoiser("tv"), problem, 0.05), iterations=3, tolerance=0)
    Result(1x1x8x8, iteration limit after 3 iterations of LADMM, proved)
    """

    image: Tensor
    """(B, C, H, W). For pictures that failed the calmest iterate, the one with the least relative change."""
    statuses: tuple[Status, ...]
    """How each picture's run ended."""
    history: History
    """What was measured at each iteration."""
    certificates: tuple[Certificate, ...]
    """The certificate of each picture."""
    method: Method[Any]
    """The method, with the parameters that were used."""
    state: State
    """Where the run stands: `solve(..., start=state)` goes on from here, bit for bit."""

    html: ClassVar[Callable[[Any], str] | None] = None
    """How notebooks show a result; set by the package, because solvers do not know reports."""

    def _repr_html_(self) -> str | None:
        """What a notebook shows; None where only `repr` is known."""
        shown = type(self).html
        return None if shown is None else shown(self)

    def __repr__(self) -> str:
        size, rows = "x".join(str(n) for n in self.image.shape), len(self.history)
        run = f"{self.status.label} after {rows} iteration{'s' * (rows != 1)} of {self.method.name}"
        return f"{type(self).__name__}({size}, {run}, {self.certificate.level.value})"

    @property
    def status(self) -> Status:
        """The worst status of the batch."""
        return max(self.statuses, key=lambda s: list(Status).index(s))

    @property
    def certificate(self) -> Certificate:
        """The weakest certificate of the batch."""
        return weakest(self.certificates)
