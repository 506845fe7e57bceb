"""Preconditioned conjugate gradient on a batch of pictures. Each picture has its own number of steps and its own stop.

For `A x = b` with `A` and `M` symmetric positive definite, from `x` with residual `r = b - A x` and `p = 0`:

    z     = M^-1 r
    beta  = <r, z> / (<r, z> of the step before)
    p     = z + beta p
    alpha = <r, z> / <p, A p>
    x     = x + alpha p
    r     = r - alpha A p

`Descent.step` is this step. `conjugate_gradient` solves one system. `descend` is the general form: pictures, or single
channels of them, with different numbers of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from pnpladmm.solvers.inner_products import products, squared, squares

Map: TypeAlias = Callable[[Tensor], Tensor]
"""From pictures (B, C, H, W) to pictures of the same shape."""

TINY = torch.finfo(torch.float64).tiny


def conjugate_gradient(
    apply: Map, b: Tensor, x: Tensor, iterations: int, tolerance: float, precondition: Map | None = None
) -> Tensor:
    """Solve `A x = b` from `x`, `A` symmetric positive definite, until `||b - A x|| <= tolerance ||b||`.

    `precondition` is `r -> M^-1 r`, symmetric positive definite, near `A^-1`. The stop is then at
    `||M^-1 (b - A x)|| <= tolerance ||M^-1 b||`, about the relative error of `x`. A picture that is done does not
    change any more, so that its result does not depend on its neighbours. The arguments are not modified.
    """
    size = squared(b if precondition is None else precondition(b))
    return descend(apply, x, b - apply(x), tolerance**2 * size, iterations, precondition)[0]


class Descent:
    """The variables of conjugate gradient, at one place in memory: `x`, its residual `r`, the direction `p`.

    `rz = <r, M^-1 r>`, the `goal` and the number of steps `left` have the shape (B, 1), or (B, C) where each channel is
    a system of its own.
    """

    def __init__(self, apply: Map, precondition: Map | None, like: Tensor, by_channel: bool) -> None:
        self.apply, self.precondition, self.by_channel = apply, precondition, by_channel
        self.x, self.r, self.p = (torch.empty_like(like, memory_format=torch.contiguous_format) for _ in range(3))
        systems = (len(like), like.shape[1] if by_channel else 1)
        self.rz, self.goal = (torch.zeros(systems, dtype=torch.float64, device=like.device) for _ in range(2))
        self.left = torch.zeros(systems, dtype=torch.long, device=like.device)
        self.stopped = False
        """Have all pictures stopped? Never true on a GPU, where asking would cost a wait."""

    def load(self, x: Tensor, r: Tensor, p: Tensor, rz: Tensor, goal: Tensor, left: Tensor) -> None:
        """Set all variables, to begin or to go on. Where `p` is 0 the first direction is `M^-1 r`."""
        for mine, given in zip(
            (self.x, self.r, self.p, self.rz, self.goal, self.left), (x, r, p, rz, goal, left), strict=True
        ):
            mine.copy_(given)
        self.stopped = False

    def step(self) -> None:
        """One step of each picture that has not stopped: the equations above, in their order."""
        z = self.r if self.precondition is None else self.precondition(self.r)
        running = (squares(z, self.by_channel) > self.goal) & (self.left > 0)
        if not z.is_cuda and not bool(running.any()):
            self.stopped = True
            return
        self.left.sub_(1)
        rz = products(self.r, z, self.by_channel)
        beta = _factor(rz / self.rz.clamp_min(TINY), z)
        torch.addcmul(z, beta, self.p, out=self.p)
        self.rz.copy_(rz)
        Ap = self.apply(self.p)
        alpha = rz / products(self.p, Ap, self.by_channel).clamp_min(TINY)
        alpha = _factor(torch.where(running, alpha, 0.0), z)
        self.x.addcmul_(alpha, self.p)
        self.r.addcmul_(alpha, Ap, value=-1)


class Prepare(Protocol):
    """Gives a `Descent` for pictures of the shape of `like`, and a function that makes its step.

    It may give the same one again, with the maps of the first time (`cuda_graph.RecordedDescents` does).
    """

    def __call__(
        self, apply: Map, precondition: Map | None, like: Tensor, by_channel: bool
    ) -> tuple[Descent, Callable[[], None]]:
        """Return a descent and its step."""
        ...


def new_descent(
    apply: Map, precondition: Map | None, like: Tensor, by_channel: bool
) -> tuple[Descent, Callable[[], None]]:
    """A new `Descent` each time."""
    descent = Descent(apply, precondition, like, by_channel)
    return descent, descent.step


def descend(
    apply: Map,
    x: Tensor,
    r: Tensor,
    goal: Tensor,
    iterations: int | Tensor,
    precondition: Map | None = None,
    prepare: Prepare = new_descent,
) -> tuple[Tensor, Tensor]:
    """Return `x` and its residual after at most `iterations` steps from `x`, whose residual is `r = b - A x`.

    A picture stops at `||M^-1 r||^2 <= goal`, (B,), or after its own number of `iterations`, (B,) on the CPU. With
    `iterations` of shape (B, C), not growing along the channels, each channel is a system of its own, which `A` and `M`
    must allow for. Channels that are done are left out and the first ones go on alone. What is returned may lie in the
    memory of the descent that `prepare` gave.
    """
    limits = torch.as_tensor(iterations)
    by_channel = limits.ndim == 2
    limits = limits if by_channel else limits.reshape(-1, 1)
    goal = goal[:, None] / limits.shape[1]
    left = limits.to(x.device, non_blocking=True)
    last = limits.amax(0).tolist() if by_channel else [int(limits.max())] * x.shape[1]
    finished: list[tuple[Tensor, Tensor]] = []
    p, rz, done = torch.zeros_like(x), torch.ones_like(goal), 0
    for steps in sorted(set(last)):
        width = sum(n >= steps for n in last)  # this many channels still go on
        if width < x.shape[1]:
            finished.append((x[:, width:], r[:, width:]))
        systems = slice(width if by_channel else 1)
        descent, step = prepare(apply, precondition, x[:, :width], by_channel)
        descent.load(x[:, :width], r[:, :width], p[:, :width], rz[:, systems], goal, left[:, systems] - done)
        for _ in range(steps - done):
            step()
            if descent.stopped:
                break
        x, r, p, rz, done = descent.x, descent.r, descent.p, descent.rz, steps
    if finished:
        x, r = (torch.cat(parts, 1) for parts in zip((x, r), *reversed(finished), strict=True))
    return x, r


def _factor(value: Tensor, like: Tensor) -> Tensor:
    """(B, 1) or (B, C) as a factor of pictures."""
    return value.to(like.dtype)[:, :, None, None]
