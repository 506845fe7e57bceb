"""Settings that suit a noise level: tuned at a few levels, interpolated between them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

# Noise level (of 255) -> sigma_d at the end of the schedule (of 255), mu.
FAST: Mapping[float, tuple[float, float]] = {
    1: (4, 0.06),
    3: (8, 0.09),
    10: (18, 0.25),
    20: (28, 0.25),
    40: (46, 0.3),
}
START_OVER_NOISE = 60.0
"""The schedule starts at most so many times above the noise: pictures with little noise (astronomy) need no more."""
# Noise level (of 255) -> sigma_d (of 255), lambda = L_x sigma_d^2.
LADMM: Mapping[float, tuple[float, float]] = {
    1: (5, 1.0),
    10: (20, 0.5),
    20: (40, 0.5),
    40: (40, 0.5),
}
TV_WEIGHT = 6.0
"""`lambda f = TV_WEIGHT TV(x)` for total variation at any noise level: `h` carries the 1/sigma^2."""


def interpolate(table: Mapping[float, tuple[float, float]], sigma: Tensor) -> tuple[Tensor, Tensor]:
    """(sigma_d, second setting), both (B,), at noise `sigma` (B,) in [0, 1]; linear in the logarithms."""
    pairs = [_at(table, 255 * float(level)) for level in sigma.reshape(-1)]
    first, second = torch.tensor(pairs, dtype=torch.float64, device=sigma.device).T
    return first / 255, second


def _at(table: Mapping[float, tuple[float, float]], level: float) -> tuple[float, float]:
    levels = sorted(table)
    if level <= levels[0]:
        # Below the table the end of the schedule scales with the noise, as the network is homogeneous.
        end, other = table[levels[0]]
        return end * level / levels[0], other
    if level >= levels[-1]:
        return table[levels[-1]]
    low = max(n for n in levels if n <= level)
    high = min(n for n in levels if n > level)
    share = math.log(level / low) / math.log(high / low)
    first, second = (
        math.exp((1 - share) * math.log(a) + share * math.log(b)) for a, b in zip(table[low], table[high], strict=True)
    )
    return first, second
