"""A way to estimate a blur that looks at nothing, for the tests of what stands around the ways."""

from __future__ import annotations

from dataclasses import dataclass

import torch

import pnpladmm as pl
from pnpladmm.blur import Estimate, Table, gaussian
from pnpladmm.estimate import Scene, Tell, Way


@dataclass(frozen=True)
class Guess(Way):
    width: float = 1.0

    def estimate(self, scene: Scene, tell: Tell) -> pl.Blur:
        tell("guessing", 0.5)
        kernel = gaussian(self.width)
        found = Estimate("guess", 1.5, 0.1, [[3.0, 4.0]], [0.25], ("seen nothing",), {"rows": Table(("a",), ((1,),))})
        return pl.Blur(kernel[None], torch.ones(1, *scene.size), uncertainty=0.2, estimate=found)
