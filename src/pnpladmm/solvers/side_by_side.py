"""Parts of a picture that are restored side by side, to find step lengths for all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pnpladmm.solvers.annealed import Annealed, AnnealedState
from pnpladmm.solvers.data_step import DataStep
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.step_lengths import Descending, StepLengths, descend_together


@dataclass(frozen=True)
class Part:
    """A part of a picture as a problem of its own."""

    problem: Problem
    share: Tensor
    """(H, W): how much each pixel of the scene counts; 0 where it feels that the part ends."""
    stays: bool = True
    """Does it count in the second step lengths, too?"""


def find_step_lengths(method: Annealed, parts: Sequence[Part]) -> tuple[StepLengths, StepLengths]:
    """The step lengths of conjugate gradient for which all parts, taken together, are the picture.

    Second come those of the parts that stay: about as far from the first as these are from those of the picture.
    The parts have the same size, number of pictures and channels.
    """
    with torch.no_grad():
        states = [method.init(part.problem) for part in parts]
        found: list[tuple[Tensor, Tensor]] = []
        for call in range(method.calls):
            steps = [method.data_step(part.problem, call) for part in parts]
            lengths, solved = _solve(method, parts, steps, states)
            found.append(lengths)
            if call < method.calls - 1:  # nobody asks for the last picture
                states = [method.denoised(s, *zg) for s, zg in zip(states, solved, strict=True)]
    return tuple(one for one, _ in found), tuple(two for _, two in found)


def _solve(
    method: Annealed, parts: Sequence[Part], steps: list[DataStep], states: list[AnnealedState]
) -> tuple[tuple[Tensor, Tensor], list[tuple[Tensor, Tensor]]]:
    """One data step of all parts: its step lengths, also of those that stay, and the new `z` and `g` of each part."""
    systems, goal = [], torch.zeros(1, 1, dtype=torch.float64)
    for part, step, s in zip(parts, steps, states, strict=True):
        a = method.prior_share(s)
        system = step.system(a, s.x)
        _, r = step.begin(system, a, s.x, s.z, s.g)
        systems.append(Descending(system.matrix, system.precondition, r, part.share.to(r), part.stays))
        v = s.x if system.precondition is not None else a * s.x
        goal = goal + step.tolerance**2 * systems[-1].inner(v, v, by_channel=False)
    lengths = descend_together(systems, goal, _limits(steps[0], len(states[0].x)))
    return lengths, [
        step.end(method.prior_share(s), s.x, s.z, system.x, system.r)
        for step, s, system in zip(steps, states, systems, strict=True)
    ]


def _limits(step: DataStep, pictures: int) -> Tensor:
    """The most steps, (B, 1) or (B, C)."""
    limits = torch.as_tensor(step.iterations)
    return (limits if limits.ndim == 2 else limits.reshape(-1, 1)).expand(pictures, -1)
