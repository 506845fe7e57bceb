"""States: all that a method carries from one iteration to the next. A checkpoint is a state."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import torch
from torch import Tensor

from pnpladmm.solvers.problem import Problem
from pnpladmm.tensors import InputError, check_pictures

Start: TypeAlias = Tensor | Literal["observed", "adjoint"] | None
"""Where `x` starts: a given picture, the observation made to fit, or `H^T y`. None is `observed`."""


@dataclass(frozen=True, kw_only=True)
class State:
    """All that a method carries from one iteration to the next.

    A subclass adds tensors whose first axis is the pictures of the batch, and numbers. The split `z` and the scaled
    duals named in `duals` count for the stopping rule and have columns in the history. The state of a method that
    always has `z`, `u` or `Hx` declares it again without a default: `z: Tensor = field()`.
    """

    duals: ClassVar[tuple[str, ...]] = ("u",)
    """Names of the scaled dual variables, where the method has some."""

    x: Tensor
    """The picture, (B, C, H, W)."""
    Hx: Tensor | None = None
    """`H x`, where the method has computed it anyway."""
    z: Tensor | None = None
    """The split variable, where the method has one."""
    u: Tensor | None = None
    """Its scaled dual, where the method has one."""
    iteration: int = 0


@dataclass(frozen=True, kw_only=True)
class PlugAndPlayState(State):
    """The state of a method whose picture comes from a denoiser."""

    denoised_from: Tensor | None = None
    """`v`, where `x = D_{sigma_d}(v)` exactly; None at the start, and where `x` is not what the denoiser returned for
    `sigma_d`. Priors that are known only through the argument of the denoiser are evaluated with it."""


StateT = TypeVar("StateT", bound=State)
PlugAndPlayStateT = TypeVar("PlugAndPlayStateT", bound=PlugAndPlayState)


def keep_finished(old: StateT, new: StateT, running: Tensor) -> StateT:
    """`new` for the pictures that are still running, `old` for the others; on the device, without a wait."""
    kept: dict[str, Any] = {}
    for f in fields(new):
        before, after = getattr(old, f.name), getattr(new, f.name)
        if isinstance(before, Tensor) and isinstance(after, Tensor):
            mask = running.view(-1, *(1,) * (after.ndim - 1))
            kept[f.name] = torch.where(mask, after, before)
    return replace(new, **kept)


def start_picture(problem: Problem, start: Start) -> Tensor:
    """`x0` as a new tensor."""
    if start is None or isinstance(start, str):
        if start not in (None, "observed", "adjoint"):
            raise InputError(f"start {start!r}: give a picture, 'observed' or 'adjoint'")
        return problem.operator.adjoint(problem.observed) if start == "adjoint" else problem.default_start()
    check_pictures("start", start)
    if tuple(start.shape) != problem.shape:
        raise InputError(f"start has shape {tuple(start.shape)}: the picture to be found has {problem.shape}")
    return start.to(problem.observed).clone()
