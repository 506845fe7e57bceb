"""What happened in a run: typed columns, one row per iteration."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from pnpladmm.denoisers.base import MeasuredCurvature, curvature_meter, precision_of
from pnpladmm.metrics import psnr
from pnpladmm.operators.base import shape_of
from pnpladmm.solvers.inner_products import squared
from pnpladmm.solvers.method import Method, PlugAndPlay
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.state import PlugAndPlayState, State
from pnpladmm.tensors import InputError, check_pictures

# Measuring a gradient step's curvature costs about a denoiser call: often enough to see it rise.
# No multiple of the iterations between leaps, so that both kinds of step are measured.
CURVATURE_EVERY = 9


@dataclass(frozen=True)
class History:
    """What was measured in a run: columns of shape (iterations, B), float64 on the CPU.

    A column is None where it cannot be measured. A picture that is done has NaN from the next iteration on.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> problem = pl.Problem(torch.rand(2, 1, 8, 8), pl.Mask(torch.ones(8, 8)), pl.Gaussian(0.1))
    >>> history = pl.solve(problem, pl.LADMM.certified(pl.load_denoiser("tv"), problem, 0.05), 5, tolerance=0).history
    >>> len(history), tuple(history.objective.shape), history.denoiser_calls.tolist()
    (5, (5, 2), [1, 2, 3, 4, 5])
    """

    x_change: Tensor
    """`||x+ - x|| / ||x+||`."""
    z_change: Tensor | None
    """`||z+ - z|| / ||z+||`, for methods with a split."""
    u_change: Tensor | None
    """`||u+ - u|| / ||z+||`: how far the split is from `z = Hx` (ADMM: `z = x`), relative to `z`, except at leaps."""
    data_fit: Tensor | None
    """`h(Hx)`."""
    objective: Tensor | None
    """`E(x) = h(Hx) + lambda f(x)`, where `f` can be evaluated."""
    lagrangian: Tensor | None
    """The augmented Lagrangian, where `f` can be evaluated."""
    psnr: Tensor | None
    """Against the reference, in dB, peak 1."""
    curvature: Tensor | None
    """Largest eigenvalue of the Hessian of a gradient-step denoiser, first and at every ninth iteration, else NaN."""
    seconds: Tensor
    """Since the start, shape (iterations,)."""
    denoiser_calls: Tensor
    """So far, shape (iterations,)."""
    rounding: float
    """Relative rounding error of the sums above: smaller changes of `lagrangian` mean nothing."""

    def __len__(self) -> int:
        """Iterations done."""
        return len(self.x_change)

    def last(self, name: str) -> Tensor | None:
        """The last value of a column for each picture: that of the iteration in which it was done."""
        column: Tensor | None = getattr(self, name)
        if column is None or not len(column):
            return None
        rows = torch.isfinite(column).long().cumsum(0).argmax(0, keepdim=True)
        return column.gather(0, rows)[0]


class Recorder:
    """Collects rows on the device, without a wait until the run is over."""

    def __init__(
        self, problem: Problem, method: Method[Any], reference: Tensor | None, everything: bool = True
    ) -> None:
        """Record each row in full, or only the relative changes if `everything` is False."""
        self.problem, self.method, self.everything = problem, method, everything
        self.reference = None if reference is None else _check_reference(problem, reference)
        self.rows: list[dict[str, Tensor | None]] = []
        self.seconds: list[float] = []
        self.calls: list[int] = []
        self.began = time.perf_counter()
        denoiser: object = method.denoiser if isinstance(method, PlugAndPlay) else None
        self.denoiser_dtype = precision_of(denoiser) or problem.observed.dtype
        self.measure_curvature = curvature_meter(denoiser) if isinstance(denoiser, MeasuredCurvature) else None

    def add(self, new: State, moved: dict[str, Tensor | None], running: Tensor) -> dict[str, Tensor | None]:
        """Measure the step to `new`, which changed by `moved`, for the pictures that took it."""
        p, m = self.problem, self.method
        row = dict(moved)
        if self.everything:
            row["data_fit"] = p.data_term.value(m.blurred(p, new), p.observed)
            row["objective"] = m.objective(p, new)
            row["lagrangian"] = m.lagrangian(p, new)
            row["curvature"] = self._curvature(new)
            row["psnr"] = None if self.reference is None else self._psnr(new.x)
        for name, value in row.items():
            if value is not None:
                row[name] = torch.where(running, value.double(), torch.nan)
        self.rows.append(row)
        self.seconds.append(time.perf_counter() - self.began)
        self.calls.append(m.calls_after(new.iteration))
        return row

    def history(self) -> History:
        """The rows as columns."""
        names = [f.name for f in fields(History) if f.name not in ("seconds", "denoiser_calls", "rounding")]
        columns = {name: self._column(name) for name in names}
        dtype = self.problem.observed.dtype
        eps = max(torch.finfo(dtype).eps, torch.finfo(self.denoiser_dtype).eps)
        # Errors of single pixels add up like a random walk, the sum itself is taken in float64.
        rounding = 100 * eps / math.sqrt(self.problem.observed[0].numel())
        return History(
            **columns,  # type: ignore[arg-type]  # built from the fields' own names
            seconds=torch.tensor(self.seconds, dtype=torch.float64),
            denoiser_calls=torch.tensor(self.calls),
            rounding=rounding,
        )

    def _column(self, name: str) -> Tensor | None:
        if not self.rows:
            return torch.zeros(0, self.problem.pictures) if name == "x_change" else None
        values = [row.get(name) for row in self.rows]
        known = next((v for v in values if v is not None), None)
        if known is None:
            return None
        empty = torch.full_like(known, torch.nan)
        return torch.stack([empty if v is None else v for v in values]).cpu()

    def _psnr(self, x: Tensor) -> Tensor:
        assert self.reference is not None
        return psnr(x if x.shape == self.reference.shape else self.problem.crop_to_observed(x), self.reference)

    def _curvature(self, state: State) -> Tensor | None:
        m, due = self.method, state.iteration % CURVATURE_EVERY == 0 or not self.rows
        if not due or self.measure_curvature is None:
            return None
        if not isinstance(m, PlugAndPlay) or not isinstance(state, PlugAndPlayState) or state.denoised_from is None:
            return None
        return self.measure_curvature(state.denoised_from, m.sigma_d)


def changes(old: State, new: State) -> dict[str, Tensor | None]:
    """Relative changes of `x`, `z` and the duals; None for a variable that the method does not have."""
    z = new.z
    duals = [(getattr(old, name), getattr(new, name)) for name in new.duals]
    moved = [after - before for before, after in duals if before is not None and after is not None]
    return {
        "x_change": _relative([new.x - old.x], new.x),
        "z_change": None if z is None or old.z is None else _relative([z - old.z], z),
        "u_change": None if z is None or not moved else _relative(moved, z),
    }


def _relative(moved: Sequence[Tensor], size: Tensor) -> Tensor:
    tiny = torch.finfo(torch.float64).tiny
    total = torch.stack([squared(change) for change in moved]).sum(0)
    return (total / squared(size).clamp_min(tiny)).sqrt()


def _check_reference(problem: Problem, reference: Tensor) -> Tensor:
    check_pictures("reference", reference)
    allowed = {problem.shape}
    if problem.operator.crop_offset is not None:
        allowed.add(shape_of("observed", problem.observed))
    if tuple(reference.shape) not in allowed:
        raise InputError(f"reference has shape {tuple(reference.shape)}: the picture to be found has {problem.shape}")
    return reference.to(problem.observed)
