"""Regions of a YAML blur file that say `motion: auto`, `defocus: auto` or `gaussian: auto`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pnpladmm.blur.arrays import Array
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import Options
from pnpladmm.blur.parameters import NAMES, Parameters, find_parameters
from pnpladmm.blur.trust import Estimate, Table
from pnpladmm.tensors import InputError


def is_automatic(entry: Any) -> bool:
    """Does it say `motion: auto` or the like?"""
    return isinstance(entry, dict) and len(entry) == 1 and next(iter(entry.items())) in [(k, "auto") for k in NAMES]


def visible(masks: list[Array]) -> list[Array]:
    """What remains of each mask under those that come after it."""
    found: list[Array] = []
    over = np.zeros(masks[0].shape if masks else (1, 1), dtype=bool)
    for mask in reversed(masks):
        found.insert(0, mask & ~over)
        over = mask | over
    return found


@dataclass
class Automatic:
    """The kernels of a blur file that are found in the picture, and how far to trust them."""

    path: Path
    options: Options
    found: list[tuple[str, Array, Parameters]] = field(default_factory=list)

    def kernel(self, where: str, entry: dict[str, str], inside: Array) -> Array:
        """The kernel (1, k, k) of a region."""
        ((kind, _),) = entry.items()
        if self.options.pixels is None:
            raise InputError(
                f"{self.path}: {where}: {kind}: auto: it is found in the picture: restore the picture with this "
                "file, or use pnpladmm estimate PICTURE --parametric FILE"
            )
        pixels = self.options.pixels.detach().cpu().double()
        grey = pixels.reshape(-1, *pixels.shape[-3:])[0].mean(0).numpy() if pixels.ndim > 2 else pixels.numpy()
        try:
            parameters = find_parameters(kind, grey, inside)
        except InputError as error:
            raise InputError(f"{self.path}: {where}: {error}") from None
        self.found.append((where, inside, parameters))
        return parameters.kernel()[None]

    def noted(self, blur: Blur) -> Blur:
        """The blur with what was found, its doubts, and its uncertainty."""
        if not self.found:
            return blur
        notes = [f"{where}: {parameters}" for where, _, parameters in self.found]
        warnings = [f"{where}: {doubt}" for where, _, parameters in self.found for doubt in parameters.doubts]
        areas = np.array([inside.sum() for _, inside, _ in self.found])
        errors = np.array([parameters.uncertainty() for _, _, parameters in self.found])
        rows = tuple((where, p.kind, p.size, p.angle, p.size_error, p.angle_error) for where, _, p in self.found)
        estimate = Estimate(
            "parametric",
            places=np.array([np.argwhere(inside).mean(0)[::-1] for _, inside, _ in self.found]),
            confidence=1 / (1 + (errors / 0.1) ** 2),
            warnings=tuple(warnings),
            tables={"regions": Table(("region", "kind", "size", "angle", "size error", "angle error"), rows)},
        )
        doubted = [f"uncertain: {warning}" for warning in warnings]
        expected = float(np.sqrt((areas * errors**2).sum() / areas.sum()))
        return blur.noted(*notes, *doubted, uncertainty=expected, estimate=estimate)
