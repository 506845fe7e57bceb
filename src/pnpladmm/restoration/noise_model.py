"""What `restore` assumes of the noise of a picture: its parts, and the level that they add up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor

Source: TypeAlias = Literal["given", "estimated", "variance map", "counts"]
"""Where the noise of the sensor is known from."""

PARTS = {"jpeg": "JPEG errors", "blur_error": "errors of the PSF"}
"""What the parts are called that come to the noise of the sensor."""


@dataclass(frozen=True)
class NoiseModel:
    """The noise of each picture of a batch. Its parts are independent, so their variances add up:

        level^2 = white^2 + jpeg^2 + blur_error^2.

    Parameters
    ----------
    source : {"given", "estimated", "variance map", "counts"}
        Where `white` is known from.
    white : Tensor, (B,)
        Standard deviation of the sensor's noise for pictures in [0, 1], float64; of a map the root of its median.
        Rounding to the numbers of the file is part of it.
    jpeg : Tensor, (B,)
        The level that stands for the errors of JPEG compression; 0 where there was none.
    blur_error : Tensor, (B,)
        The level that stands for a PSF which does not fit the picture; 0 where it fits.

    Examples
    --------
    >>> import torch
    >>> from pnpladmm.restoration import NoiseModel
    >>> noise = NoiseModel("estimated", torch.tensor([3 / 255]), jpeg=torch.tensor([4 / 255]))
    >>> print(noise)
    noise 5.00 of 255 (3.00 estimated, 4.00 JPEG errors)
    """

    source: Source
    white: Tensor
    jpeg: Tensor | None = None
    blur_error: Tensor | None = None

    def __post_init__(self) -> None:
        """Parts that are not there are 0."""
        white = torch.as_tensor(self.white, dtype=torch.float64).reshape(-1)
        object.__setattr__(self, "white", white)
        for name in PARTS:
            part = getattr(self, name)
            part = 0.0 if part is None else part
            part = torch.as_tensor(part, dtype=torch.float64, device=white.device).reshape(-1).expand_as(white)
            object.__setattr__(self, name, part)

    @property
    def level(self) -> Tensor:
        """The standard deviation of all parts together, (B,), float64: what the restoration works with."""
        return torch.stack([self.white, *(getattr(self, name) for name in PARTS)]).square().sum(0).sqrt()

    def of(self, picture: int) -> NoiseModel:
        """The noise of one picture of the batch."""
        return replace(self, **{name: getattr(self, name)[picture : picture + 1] for name in ("white", *PARTS)})

    def has_other_parts(self, picture: int) -> bool:
        """Whether this picture has more than the noise of the sensor: what is left is then smaller, and not white."""
        return any(float(getattr(self, name)[picture]) > 0 for name in PARTS)

    def __str__(self) -> str:
        """One line, of 255."""
        return self.words()

    def words(self, unit: float = 1.0) -> str:
        """One line, of 255; for floats beyond [0, 1] in their own numbers, `unit` times those of the picture."""
        of = " of 255" if unit == 1 else " in the numbers of the picture"
        factor = 255.0 if unit == 1 else unit
        levels = _numbers(self.level, factor)
        parts = [f"{_numbers(getattr(self, name), factor)} {words}" for name, words in PARTS.items() if self._has(name)]
        source = {"variance map": "the median of the variance map", "counts": "the median of the counts' noise"}
        known = source.get(self.source, self.source)
        inside = ", ".join([f"{_numbers(self.white, factor)} {known}", *parts]) if parts else known
        return f"noise {levels}{of} ({inside})"

    def _has(self, name: str) -> bool:
        return bool((getattr(self, name) > 0).any())


def joined_noise(models: Sequence[NoiseModel], left_out: int = 0) -> NoiseModel:
    """The noise of pages that were restored one after the other; NaN for the last `left_out`, which were not."""
    parts = {f.name: torch.cat([getattr(m, f.name) for m in models]) for f in fields(NoiseModel) if f.name != "source"}
    empty = parts["white"].new_full((left_out,), torch.nan)
    return NoiseModel(models[0].source, **{name: torch.cat([part, empty]) for name, part in parts.items()})


def _numbers(levels: Tensor, factor: float) -> str:
    form = ".2f" if factor == 255 else ".4g"
    return ", ".join(f"{factor * float(level):{form}}" for level in levels)
