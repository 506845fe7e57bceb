"""The tuned parameters of the annealed method as numbers that are trained, by noise level."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from pnpladmm.solvers import settings
from pnpladmm.tensors import InputError

LEVELS = (1.0, 3.0, 10.0, 20.0, 40.0, 60.0)
"""Noise levels (of 255) with parameters of their own."""
TRAINED = ("sigma_d", "mu", "sigma_start", "bend", "tilt")
KEPT = "extrapolation"
"""The parameter that is not trained: it may be 0, and has no logarithm then."""


class MethodSchedule:
    """The logarithms of the trained parameters at `LEVELS`.

    Between the levels it interpolates as `settings.at_noise` does, so that what was trained is what a restoration uses.

    Parameters
    ----------
    name : str
        The denoiser whose tuned settings it begins with.
    calls : int
        Denoiser calls of the method.
    """

    def __init__(self, name: str, calls: int) -> None:
        methods = settings.rows_of(settings.shipped_settings(), name, None)
        levels = methods.get(f"fast-{calls}") or methods["fast-8"]
        rows = [{**settings.NEUTRAL, **settings.at_noise(levels, level)} for level in LEVELS]
        self.logs = torch.tensor([[math.log(row[key]) for key in TRAINED] for row in rows], dtype=torch.float64)
        """(levels, parameters), on the CPU, with gradients; noise levels are of 255."""
        self.logs.requires_grad_()
        self.kept = {level: {KEPT: row[KEPT]} for level, row in zip(LEVELS, rows, strict=True)}

    def at(self, noise: float | Tensor) -> dict[str, Tensor]:
        """Parameters at noise levels (of 255), with gradients and of their shape, () or (B,), on the CPU.

        Those that are noise levels are for pictures in [0, 1].
        """
        noise = torch.as_tensor(noise, dtype=torch.float64)
        levels = torch.tensor(LEVELS, dtype=torch.float64)
        inside = noise.clamp(LEVELS[0], LEVELS[-1])
        high = torch.searchsorted(levels, inside)
        low = (high - 1).clamp_min(0)
        width = torch.where(high > low, (levels[high] / levels[low]).log(), 1.0)
        share = ((inside / levels[low]).log() / width)[..., None]
        numbers = ((1 - share) * self.logs[low] + share * self.logs[high]).exp()
        row = dict(zip(TRAINED, numbers.unbind(-1), strict=True))
        for key in settings.NOISE_LEVELS:
            row[key] = row[key] * ((noise / LEVELS[0]).clamp_max(1.0) / 255)
        kept = [settings.at_noise(self.kept, float(one))[KEPT] for one in noise.reshape(-1)]
        return {**row, KEPT: torch.tensor(kept, dtype=torch.float64).reshape(noise.shape)}

    def rows(self) -> dict[str, dict[str, float]]:
        """As settings.json has them: noise level -> parameters, noise levels of 255."""
        values = self.logs.detach().exp().tolist()
        return {
            f"{level:g}": {
                **{key: float(f"{value:.5g}") for key, value in zip(TRAINED, row, strict=True)},
                **self.kept[level],
            }
            for level, row in zip(LEVELS, values, strict=True)
        }

    def load(self, rows: Mapping[str, Mapping[str, float]], source: str) -> None:
        """Go on from settings in the card of the weights `source`: those that `rows` returned, or tuned ones."""
        try:
            known = {float(level): {**settings.NEUTRAL, **row} for level, row in rows.items()}
            found = [settings.at_noise(known, level) for level in LEVELS]
            logs = torch.tensor([[math.log(row[key]) for key in TRAINED] for row in found], dtype=torch.float64)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError):
            raise InputError(f"{source}: its card holds no schedule that can be read: give other weights") from None
        if not bool(torch.isfinite(logs).all()):
            raise InputError(f"{source}: its card holds a schedule that is not finite: give other weights")
        with torch.no_grad():
            self.logs.copy_(logs)
