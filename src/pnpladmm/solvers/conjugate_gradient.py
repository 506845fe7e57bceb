"""Preconditioned conjugate gradient on a batch of pictures, each with its own steps and its own stop.

The data step of half-quadratic splitting and ADMM, `(H^T p H + a) z = H^T p y + a v`, is `DataStep`. Its
residual is `r = g + a (v - z)` with `g = H^T p (y - H z)`: taking `H^T` of the small `y - H z`, and not the
difference of two large pictures, spares digits that float32 has not got at weak noise. The `g` of the solution
is known for free, so a solve that goes on from the last `z` applies `H` to no picture before its first step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pnpladmm.operators import LinearOperator, SpatiallyVaryingBlur
from pnpladmm.operators.preconditioner import LocalWiener
from pnpladmm.solvers.colour import ColourPlanes
from pnpladmm.solvers.recorded import Recorded

Map: TypeAlias = Callable[[Tensor], Tensor]

TINY = torch.finfo(torch.float64).tiny
RECORDED_SAMPLES = 1 << 23
"""Batches of more samples than this keep a GPU busy however its steps are told: recording would only cost memory."""


def conjugate_gradient(
    apply: Map, b: Tensor, x: Tensor, iterations: int, tolerance: float, precondition: Map | None = None
) -> Tensor:
    """Solve `A x = b` from `x`, `A` symmetric positive definite, until `||b - A x|| <= tolerance ||b||`.

    `precondition` is `r -> M^-1 r`, symmetric positive definite, near `A^-1`; the stop is then at
    `||M^-1 (b - A x)|| <= tolerance ||M^-1 b||`, about the relative error of `x`. A picture that is done stays as
    it is, so that its result does not depend on its neighbours. Nothing that is given is modified.
    """
    size = squared(b if precondition is None else precondition(b))
    return descend(apply, x, b - apply(x), tolerance**2 * size, iterations, precondition)[0]


def descend(
    apply: Map,
    x: Tensor,
    r: Tensor,
    goal: Tensor,
    iterations: int | Tensor,
    precondition: Map | None = None,
    buffers: Buffers | None = None,
) -> tuple[Tensor, Tensor]:
    """`x` and its residual after at most `iterations` steps from `x`, whose residual is `r = b - A x`.

    A picture stops at `||M^-1 r||^2 <= goal`, (B,), or after its own number of `iterations`, (B,) on the CPU. With
    `iterations` (B, C), falling along the channels, each channel is a system of its own, as `A` and `M` must allow for,
    and those that are done are left out: the first ones go on alone. What is returned may lie in `buffers`.
    """
    limits = torch.as_tensor(iterations)
    by_channel = limits.ndim == 2
    limits = limits if by_channel else limits.reshape(-1, 1)
    goal = goal[:, None] / limits.shape[1]
    left = limits.to(x.device, non_blocking=True)
    last = limits.amax(0).tolist() if by_channel else [int(limits.max())] * x.shape[1]
    buffers = Buffers() if buffers is None else buffers
    finished: list[tuple[Tensor, Tensor]] = []
    p, rz, done = torch.zeros_like(x), torch.ones_like(goal), 0
    for steps in sorted(set(last)):
        width = sum(n >= steps for n in last)
        if width < x.shape[1]:
            finished.append((x[:, width:], r[:, width:]))
        systems = slice(width if by_channel else 1)
        descent, step = buffers.take(apply, precondition, x[:, :width], by_channel)
        descent.load(x[:, :width], r[:, :width], p[:, :width], rz[:, systems], goal, left[:, systems] - done)
        for _ in range(steps - done):
            step()
            if descent.stopped:
                break
        x, r, p, rz, done = descent.x, descent.r, descent.p, descent.rz, steps
    if finished:
        x, r = (torch.cat(parts, 1) for parts in zip((x, r), *reversed(finished), strict=True))
    return x, r


class Descent:
    """Conjugate gradient at one place in memory: the picture `x`, its residual `r`, the direction `p`.

    `rz = <r, M^-1 r>` and the steps that are `left` are (B, 1), or (B, C) where each channel is a system of its own.
    """

    def __init__(self, apply: Map, precondition: Map | None, like: Tensor, by_channel: bool) -> None:
        self.apply, self.precondition, self.by_channel = apply, precondition, by_channel
        self.x, self.r, self.p = (torch.empty_like(like, memory_format=torch.contiguous_format) for _ in range(3))
        systems = (len(like), like.shape[1] if by_channel else 1)
        self.rz, self.goal = (torch.zeros(systems, dtype=torch.float64, device=like.device) for _ in range(2))
        self.left = torch.zeros(systems, dtype=torch.long, device=like.device)
        self.stopped = False
        """Have all pictures stopped? Never on a GPU: asking would cost a wait."""

    def load(self, x: Tensor, r: Tensor, p: Tensor, rz: Tensor, goal: Tensor, left: Tensor) -> None:
        """Begin here, or go on: the first direction is `M^-1 r` where `p` is 0."""
        for mine, given in zip(
            (self.x, self.r, self.p, self.rz, self.goal, self.left), (x, r, p, rz, goal, left), strict=True
        ):
            mine.copy_(given)
        self.stopped = False

    def step(self) -> None:
        """One step of each picture that has not stopped."""
        z = self.r if self.precondition is None else self.precondition(self.r)
        running = (_squares(z, self.by_channel) > self.goal) & (self.left > 0)
        if not z.is_cuda and not bool(running.any()):
            self.stopped = True
            return
        self.left.sub_(1)
        rz = _products(self.r, z, self.by_channel)
        torch.addcmul(z, _column(rz / self.rz.clamp_min(TINY), z), self.p, out=self.p)
        self.rz.copy_(rz)
        Ap = self.apply(self.p)
        alpha = rz / _products(self.p, Ap, self.by_channel).clamp_min(TINY)
        alpha = _column(torch.where(running, alpha, 0.0), z)
        self.x.addcmul_(alpha, self.p)
        self.r.addcmul_(alpha, Ap, value=-1)


class Buffers:
    """Where `descend` works. Kept from solve to solve of one system, a GPU needs to be told of a step only once."""

    def __init__(self, recorded: bool = False) -> None:
        """`recorded`: for CUDA tensors, and maps that a graph can hold (solvers/recorded.py)."""
        self.recorded = recorded
        self._kept: dict[tuple[torch.Size, bool], tuple[Descent, Recorded]] = {}

    def take(
        self, apply: Map, precondition: Map | None, like: Tensor, by_channel: bool
    ) -> tuple[Descent, Callable[[], None]]:
        """A descent for pictures of the shape of `like`, and its step. Recorded, it goes on with its first maps."""
        if not self.recorded:
            descent = Descent(apply, precondition, like, by_channel)
            return descent, descent.step
        key = (like.shape, by_channel)
        if key not in self._kept:
            descent = Descent(apply, precondition, like, by_channel)
            self._kept[key] = descent, Recorded(descent.step, like.device)
        return self._kept[key]


@dataclass(frozen=True)
class NormalMatrix:
    """`q -> (H^T p H + a) q`."""

    operator: LinearOperator
    precision: Tensor
    a: Tensor

    def __call__(self, q: Tensor) -> Tensor:
        """Of pictures."""
        H = self.operator
        return torch.addcmul(H.adjoint(self.precision * H.forward(q)), self.a, q)


class System:
    """`A = H^T p H + a` and its preconditioner, for one `p` and, if it is `adaptable`, an `a` that may change."""

    def __init__(self, operator: LinearOperator, precision: Tensor, a: Tensor, keep: bool = False) -> None:
        """`keep`: on a GPU, to be used again with another `a`; steps are recorded where that is possible."""
        self.matrix = NormalMatrix(operator, precision, a.clone())
        self.precondition = operator.preconditioner(precision, self.matrix.a)
        # What others do in Python, as subclasses may, would be done once and never again.
        self.adaptable = type(operator) is SpatiallyVaryingBlur and isinstance(self.precondition, LocalWiener)
        self.buffers = Buffers(recorded=keep and self.adaptable)

    def set(self, a: Tensor) -> None:
        """Change `a` where it lies, and the preconditioner with it."""
        assert isinstance(self.precondition, LocalWiener)
        self.matrix.a.copy_(a)
        self.precondition.set(a)


@dataclass(frozen=True)
class DataStep:
    """`argmin_z h(Hz) + a/2 ||z - v||^2` for quadratic `h` of precision `p`: `(H^T p H + a) z = H^T p y + a v`."""

    operator: LinearOperator
    precision: Tensor
    observed: Tensor
    iterations: int | Tensor
    tolerance: float
    planes: ColourPlanes | None = None
    """Where given, each is a system of its own with its own number of `iterations`, (B, C)."""
    kept: dict[Any, System] | None = None
    """Where the system of one solve waits for the next, on a GPU."""

    def gradient(self, z: Tensor) -> Tensor:
        """`g = H^T p (y - H z)`: the direction in which the data fit improves."""
        H = self.operator
        return H.adjoint(self.precision * (self.observed - H.forward(z)))

    @torch.no_grad()
    def solve(self, a: Tensor, v: Tensor, z: Tensor, g: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The new `z` and its `g`, from a `z` to start with and its `g` (found here where it is not given).

        `a` is () or (B, 1, 1, 1). Stops where the next correction is below about `tolerance ||v||`. Gradients do not
        pass through it.
        """
        g = self.gradient(z) if g is None else g
        system = self._system(a, v)
        # Without a preconditioner the error is known to be at most ||r|| / a.
        goal = self.tolerance**2 * squared(v if system.precondition is not None else a * v)
        r = torch.addcmul(g, a, v - z)
        r = r if self.planes is None else self.planes.split(r)
        change, r = descend(
            system.matrix, torch.zeros_like(r), r, goal, self.iterations, system.precondition, system.buffers
        )
        if self.planes is not None:
            change, r = self.planes.join(change), self.planes.join(r)
        z = z + change
        return z, torch.addcmul(r, a, v - z, value=-1)

    def _system(self, a: Tensor, v: Tensor) -> System:
        p = self.precision
        if self.planes is not None and p.ndim > 2:
            p = p[..., :1, :, :]  # it is that of all channels
        if self.kept is None or not v.is_cuda or v.numel() > RECORDED_SAMPLES:
            return System(self.operator, p, a)
        # Threads must not meet in one place; nor may what inference mode made be changed outside it.
        key = (a.shape, a.dtype, self.planes is None, threading.get_ident(), torch.is_inference_mode_enabled())
        if key in self.kept:
            self.kept[key].set(a)
            return self.kept[key]
        system = System(self.operator, p, a, keep=True)
        if system.adaptable:
            self.kept[key] = system
        return system


def squared(a: Tensor) -> Tensor:
    """`||a||^2` of each picture, (B,)."""
    return _squares(a, by_channel=False).squeeze(1)


def _products(a: Tensor, b: Tensor, by_channel: bool) -> Tensor:
    """Inner products, (B, 1) or (B, C)."""
    return _total((a * b).sum(-1), by_channel)


def _squares(a: Tensor, by_channel: bool) -> Tensor:
    """`||a||^2`, (B, 1) or (B, C): read once, where a product would be written and read."""
    return _total(torch.linalg.vector_norm(a, dim=-1).square(), by_channel)


def _total(lines: Tensor, by_channel: bool) -> Tensor:
    """Of the lines of each picture, or of each of its channels.

    Each line in the pictures' dtype, their sum in float64: as good as float64 throughout to float32 pictures, without
    copies of them twice as large.
    """
    return lines.flatten(2 if by_channel else 1).sum(-1, dtype=torch.float64).view(len(lines), -1)


def _column(value: Tensor, like: Tensor) -> Tensor:
    """(B, 1) or (B, C) as a factor of pictures."""
    return value.to(like.dtype)[:, :, None, None]
