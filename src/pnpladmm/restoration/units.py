"""The scale that methods see a picture on: dark near 0 and bright near 1, whatever its own numbers are.

Networks, thresholds and tuned settings suit pictures in [0, 1]. A frame with a maximum of 50 of 65535 counts, or one
with a large offset, is the same picture for them, once it is brought to that range.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pnpladmm.data_terms import DataTerm, Gaussian, WeightedGaussian
from pnpladmm.solvers import Problem, Progress
from pnpladmm.solvers.loop import Callback
from pnpladmm.solvers.state import State

DARK, BRIGHT = 0.0, 1.0
"""What the darkest and the brightest areas become: about what they are in photographs."""
LEAST_RANGE = 8.0
"""The least range in units of the noise: a flat picture is not stretched until its noise fills the range."""
SEEN = 0.5
"""Pixels that see less than this share of a flat picture say nothing about its range (masks, dark borders)."""
EXACT = 1e-5
"""A flat picture that comes out flat to this is flat: the rest is rounding, which a large offset would multiply."""
ROWS = 512
"""Rows that are looked at together: whole pictures would need many copies."""
UNEVEN = 4.0
"""Where a flat picture becomes more uneven than this, what is observed is no picture (a transform)."""


@dataclass(frozen=True)
class Units:
    """`x = offset + scale x'`: pictures x as they are, and x' as methods see them. Both are (B, 1, 1, 1), float64."""

    offset: Tensor
    scale: Tensor

    @classmethod
    def of(cls, problem: Problem, noise: Tensor) -> Units | None:
        """The units of a problem with noise levels (B,); None where its observation cannot be shifted or scaled.

        The range goes from the darkest to the brightest place of 2x2 pixels, so that single pixels do not decide.
        """
        y, flat = problem.observed, _flat(problem)
        if flat is None or not isinstance(problem.data_term, Gaussian | WeightedGaussian):
            return None
        least = SEEN * float(flat.amax())
        counts = (problem.precision_for("Units").expand_as(y) > 0) & (flat > least)
        return cls.between(*darkest_and_brightest(y, counts, flat.clamp_min(least)), noise)

    @classmethod
    def between(cls, low: Tensor, high: Tensor, noise: Tensor) -> Units:
        """The units of pictures from `low` to `high`, each (B, 1, 1, 1)."""
        # In a pattern as fine as the pixels every place has both: the ends change their roles.
        spread = torch.maximum((high - low).abs(), LEAST_RANGE * noise.to(low).view(-1, 1, 1, 1))
        scale = spread / (BRIGHT - DARK)
        return cls((high + low) / 2 - scale * (BRIGHT + DARK) / 2, scale)

    def problem(self, problem: Problem) -> Problem:
        """The problem for x': `y' = (y - H offset) / scale`."""
        y, flat = problem.observed, _flat(problem)
        assert flat is not None
        there = (y - self.offset.to(y) * flat).div_(self.scale.to(y))
        return Problem(there, problem.operator, self._data_term(problem.data_term, y))

    def noise(self, levels: Tensor) -> Tensor:
        """Noise levels (B,) of x'."""
        return levels / self.scale.reshape(-1).to(levels)

    def back(self, x: Tensor) -> Tensor:
        """Pictures as they are."""
        return (self.scale.to(x) * x).add_(self.offset.to(x))

    def state(self, state: State) -> State:
        """The picture as it is, and nothing else: no run can go on from variables on a scale of their own."""
        return State(x=self.back(state.x), iteration=state.iteration)

    def callback(self, callback: Callback | None) -> Callback | None:
        """A callback that gets pictures as they are."""
        if callback is None:
            return None

        def call(step: Progress) -> bool | None:
            return callback(replace(step, state=self.state(step.state)))

        return call

    def _data_term(self, term: DataTerm, y: Tensor) -> DataTerm:
        if isinstance(term, Gaussian):
            sigma = torch.as_tensor(term.sigma, dtype=torch.float64, device=y.device).reshape(-1)
            return Gaussian(self.noise(sigma.expand(len(y))))
        precision = term.precision_of(y)
        assert precision is not None
        scale = self.scale.square().to(precision.device)
        parts = [(part.double() * scale).to(precision) for part in torch.split(precision, ROWS, -2)]
        return WeightedGaussian(torch.cat(parts, -2))


def _flat(problem: Problem) -> Tensor | None:
    """`H 1`, what the operator makes of a flat picture: 1 for a PSF of sum 1; None where that is no flat picture."""
    one = torch.ones(problem.shape, dtype=problem.observed.dtype, device=problem.observed.device)
    flat = problem.operator.forward(one)
    low, high = flat.aminmax()
    if float(torch.maximum(high - 1, 1 - low)) < EXACT:
        return torch.ones_like(flat[:1, :1, :1, :1])
    lit = flat[flat.abs() > EXACT * flat.abs().amax()]
    if lit.numel() == 0 or bool((lit < 0).any()) or float(lit.amax() / lit.median()) > UNEVEN:
        return None
    return flat


def darkest_and_brightest(y: Tensor, counts: Tensor, flat: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The darkest and the brightest place of each picture, (B, 1, 1, 1), float64; of `y / flat` if that is given."""
    window = (min(2, y.shape[-2]), min(2, y.shape[-1]))
    pool = torch.nn.functional.max_pool2d
    lows, highs = [], []
    for top in range(0, max(1, y.shape[-2] - 1), ROWS):
        rows = slice(top, top + ROWS + 1)  # the last one again: places lie on two rows
        part, seen = y[..., rows, :], counts.expand_as(y)[..., rows, :]
        part = part if flat is None else part / flat.expand_as(y)[..., rows, :]
        lows.append(_least(pool(torch.where(seen, part, torch.inf), window, 1)))
        highs.append(_least(pool(torch.where(seen, -part, torch.inf), window, 1)))
    return _end(lows), -_end(highs)


def _least(values: Tensor) -> Tensor:
    """The least finite value of each picture; infinity where there is none."""
    return torch.where(values.isfinite(), values, torch.inf).flatten(1).amin(1).double()


def _end(parts: list[Tensor]) -> Tensor:
    """The least value over all parts; 0 where there is none."""
    least = torch.stack(parts).amin(0)
    return torch.where(least.isfinite(), least, torch.zeros_like(least)).view(-1, 1, 1, 1)
