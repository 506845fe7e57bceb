"""The data step of half-quadratic splitting and of ADMM, solved by preconditioned conjugate gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from pnpladmm.operators import LinearOperator
from pnpladmm.solvers.colour import ColourPlanes
from pnpladmm.solvers.conjugate_gradient import Prepare, descend, new_descent
from pnpladmm.solvers.inner_products import squared
from pnpladmm.solvers.step_lengths import descend_by
from pnpladmm.tensors import tell_of_lost_gradients

if TYPE_CHECKING:
    from pnpladmm.solvers.workspace import Workspace


@dataclass(frozen=True)
class NormalMatrix:
    """`q -> (H^T p H + a) q`."""

    operator: LinearOperator
    precision: Tensor
    a: Tensor

    def __call__(self, q: Tensor) -> Tensor:
        """Apply the matrix to pictures."""
        H = self.operator
        return torch.addcmul(H.adjoint(self.precision * H.forward(q)), self.a, q)


class NormalSystem:
    """The matrix `H^T p H + a` and its preconditioner, for one `p` and an `a` that may change."""

    def __init__(self, operator: LinearOperator, precision: Tensor, a: Tensor) -> None:
        self.matrix = NormalMatrix(operator, precision, a.clone())
        self.precondition = operator.preconditioner(precision, self.matrix.a)
        self.prepare: Prepare = new_descent

    @property
    def recordable(self) -> bool:
        """May steps be recorded in a CUDA graph, and used again with another `a`?"""
        return self.matrix.operator.recordable and self.precondition is not None and self.precondition.recordable

    def set(self, a: Tensor) -> None:
        """Change `a` in place, also in the preconditioner."""
        self.matrix.a.copy_(a)
        if self.precondition is not None:
            self.precondition.set(a)

    def descend(self, r: Tensor, goal: Tensor, iterations: int | Tensor) -> tuple[Tensor, Tensor]:
        """Solve for the right-hand side `r` from 0: the solution and its residual."""
        return descend(self.matrix, torch.zeros_like(r), r, goal, iterations, self.precondition, self.prepare)


@dataclass(frozen=True)
class DataStep:
    """`argmin_z h(Hz) + a/2 ||z - v||^2` for quadratic `h` of precision `p`, that is

        (H^T p H + a) z = H^T p y + a v.

    The residual is `r = g + a (v - z)` with `g = H^T p (y - Hz)`. Taking `H^T` of the small `y - Hz`, and not the
    difference of two large pictures, keeps digits that float32 would lose at weak noise. The `g` of the solution
    follows from the last residual. So a solve that goes on from the last `z` and its `g` needs no `H` before its first
    step.
    """

    operator: LinearOperator
    precision: Tensor
    observed: Tensor
    iterations: int | Tensor
    tolerance: float
    planes: ColourPlanes | None = None
    """Where given, each colour plane is a system of its own with its own number of `iterations`, (B, C)."""
    lengths: Tensor | None = None
    """Where given, the steps that are taken (`step_lengths.py`), unless they lead away from the solution."""

    def gradient(self, z: Tensor) -> Tensor:
        """`g = H^T p (y - H z)`: the direction in which the data fit improves."""
        H = self.operator
        return H.adjoint(self.precision * (self.observed - H.forward(z)))

    def solve(
        self, a: Tensor, v: Tensor, z: Tensor, g: Tensor | None = None, workspace: Workspace | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the new `z` and its `g`, from a `z` to start with and its `g` (computed here if not given).

        `a` is () or (B, 1, 1, 1). Stops where the next correction is below about `tolerance ||v||`. A `workspace`
        keeps the system for the next solve of the run. Gradients do not pass through, and a warning says so.
        """
        tell_of_lost_gradients("a data step", v, z)
        with torch.no_grad():
            return self._solve(a, v, z, g, workspace)

    def _solve(
        self, a: Tensor, v: Tensor, z: Tensor, g: Tensor | None, workspace: Workspace | None
    ) -> tuple[Tensor, Tensor]:
        system = self.system(a, v, workspace)
        goal, r = self.begin(system, a, v, z, self.gradient(z) if g is None else g)
        found = None if self.lengths is None else descend_by(self.lengths, system.matrix, r, system.precondition)
        change, r = system.descend(r, goal, self.iterations) if found is None else found
        return self.end(a, v, z, change, r)

    def system(self, a: Tensor, v: Tensor, workspace: Workspace | None = None) -> NormalSystem:
        """The matrix and its preconditioner, for pictures such as `v`."""
        p = self.precision
        if self.planes is not None and p.ndim > 2:
            p = p[..., :1, :, :]  # all channels have the same
        return NormalSystem(self.operator, p, a) if workspace is None else workspace.system(self.operator, p, a, v)

    def begin(self, system: NormalSystem, a: Tensor, v: Tensor, z: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Where to stop, and the residual, of channels or of colour planes."""
        # Without a preconditioner the error is known to be at most ||r|| / a.
        goal = self.tolerance**2 * squared(v if system.precondition is not None else a * v)
        r = torch.addcmul(g, a, v - z)
        return goal, r if self.planes is None else self.planes.split(r)

    def end(self, a: Tensor, v: Tensor, z: Tensor, change: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """The new `z` and its `g`, from the solution of the system and its residual."""
        if self.planes is not None:
            change, r = self.planes.join(change), self.planes.join(r)
        z = z + change
        return z, torch.addcmul(r, a, v - z, value=-1)


DataSolver: TypeAlias = Callable[[DataStep, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""`(step, a, v, z, g) -> (z, g)`: `DataStep.solve`, or another way to do it."""
