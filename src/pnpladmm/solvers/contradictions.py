"""What a run showed that contradicts a certificate. A certificate is withdrawn where there is anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Promise, for_any_size
from pnpladmm.solvers.promises import broken_promise
from pnpladmm.solvers.state import PlugAndPlayState, State

if TYPE_CHECKING:
    from pnpladmm.solvers.history import History
    from pnpladmm.solvers.method import Method

PROX_ACCURACY = 1e-6
"""The relative rise of a Lagrangian that the accuracy of classical denoisers explains: they stop before rounding."""


@dataclass(frozen=True)
class Seen:
    """What the loop saw of each picture, besides the history."""

    state: State | None = None
    """The last one."""
    failed: Sequence[bool] | None = None
    denoiser_broke: Sequence[bool] | None = None
    """Did the denoiser return NaN or infinity for a finite picture?"""
    start_fits: Sequence[bool] | None = None
    """Was the given state a start that the theorem is about? None where `init` made it."""

    def of_run(self, picture: int) -> tuple[str, ...]:
        """What contradicts any statement on this picture's run."""
        if self.denoiser_broke is not None and self.denoiser_broke[picture]:
            return ("the denoiser returned NaN or infinity",)
        return ("the run diverged",) if self.failed is not None and self.failed[picture] else ()

    def of_start(self, picture: int) -> tuple[str, ...]:
        """What contradicts a statement that is about certain starts."""
        if self.start_fits is None or self.start_fits[picture]:
            return ()
        return ("the dual of the given start does not belong to its z: go on from the state of this run",)

    def of_promise(self, method: Method[Any]) -> tuple[str, ...]:
        """What contradicts the promise of the denoiser, for each picture; tried on small crops of the last picture."""
        state, denoiser = self.state, getattr(method, "denoiser", None)
        if not isinstance(state, PlugAndPlayState) or state.denoised_from is None or denoiser is None:
            return ()
        finite = torch.nan_to_num(state.denoised_from, 0, 0, 0)
        return broken_promise(for_any_size(denoiser), method.promise, finite, getattr(method, "sigma_d"))  # noqa: B009


def rise(history: History, falls: str, picture: int, promise: Promise) -> tuple[str, ...]:
    """What contradicts that the column `falls` of the history never rises."""
    values = column(getattr(history, falls), picture) if falls else None
    if values is None or len(values) < 2:
        return ()
    accuracy = 0.0 if promise is Promise.GRADIENT_STEP else PROX_ACCURACY
    excess = values.diff() - (history.rounding + accuracy) * values[1:].abs()
    if float(excess.max()) <= 0:
        return ()
    name = "Lagrangian" if falls == "lagrangian" else falls
    return (f"the {name} rose by {float(values.diff()[excess.argmax()]):.3g} in one iteration",)


def column(values: Tensor | None, picture: int) -> Tensor | None:
    """One picture's part of a column of the history, without what was not measured."""
    if values is None:
        return None
    own = values[:, picture]
    return own[torch.isfinite(own)]
