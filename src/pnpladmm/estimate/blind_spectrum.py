"""How well the spectrum of a blurred picture fits a kernel: it judges kernels without knowing the sharp picture.

The edges that a blind estimate guesses agree with the kernel that they were guessed with. The spectrum is another
witness: that of a photograph is smooth (`blur/spectrum.py`), so the marks in it are those of the blur. It says nothing
about where light lies, as a kernel and its mirror image leave the same marks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur.spectrum import CELLS, QUARTERS, TAILS, Spectrum


@dataclass(frozen=True, eq=False)
class Witness:
    """The spectrum of a picture, for kernels of one side."""

    spectrum: Spectrum
    side: int

    def unlikeliness(self, kernel: Tensor) -> float:
        """Minus the logarithm of the likelihood of a kernel (k, k)."""
        return -self.spectrum.likelihood(self._transfer(kernel.double().cpu()).numpy())

    def scene_and_noise(self, kernel: Tensor) -> tuple[Tensor, float]:
        """The scene's spectrum and the noise that fit best with a kernel (k, k) of float64."""
        scene, noise = self.spectrum.scene_and_noise(self._transfer(kernel).numpy())
        return torch.from_numpy(scene), noise

    def misfit(self, kernel: Tensor, scene: Tensor, noise: float) -> Tensor:
        """Minus the logarithm of the likelihood with a given scene, differentiable."""
        logarithm, weight = (torch.from_numpy(a) for a in (self.spectrum.logarithm, self.spectrum.weight))
        left = logarithm - torch.log(self._transfer(kernel) * scene + noise)
        return (TAILS + 1) / 2 * torch.log1p(left**2 * weight / TAILS).sum()

    def _transfer(self, kernel: Tensor) -> Tensor:
        """`|K|^2` averaged over each cell."""
        values = torch.fft.fft2(self._waves * kernel, s=(CELLS, CELLS))
        power = (values.real**2 + values.imag**2).mean(0)
        return power[self._cells]

    @cached_property
    def _waves(self) -> Tensor:
        """Four waves that move the frequencies of a transform by a quarter of a cell."""
        at = np.arange(self.side)
        waves = [np.exp(-2j * np.pi * (oy * at[:, None] + ox * at[None, :])) for oy in QUARTERS for ox in QUARTERS]
        return torch.from_numpy(np.stack(waves))

    @cached_property
    def _cells(self) -> tuple[Tensor, Tensor]:
        rows, columns = (np.round(f * CELLS).astype(int) % CELLS for f in (self.spectrum.fy, self.spectrum.fx))
        return torch.from_numpy(rows), torch.from_numpy(columns)
