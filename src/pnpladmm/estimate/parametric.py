"""A blur of a known kind from the blurred picture alone: motion, defocus or Gaussian, everywhere or by region."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from pnpladmm.blur import Blur, Estimate, read_blur
from pnpladmm.blur.arrays import Array
from pnpladmm.blur.parameters import NAMES, SMALLEST, Parameters, find_parameters, relative_change
from pnpladmm.blur.readers.blur_file_regions import SUFFIXES
from pnpladmm.blur.spectrum import spectrum_of, transfer_of
from pnpladmm.estimate.drawings import tiles
from pnpladmm.estimate.psf_field import uniform_blur
from pnpladmm.estimate.scene import Scene
from pnpladmm.estimate.way import WAYS, Tell, Way
from pnpladmm.estimate.words import listed, where
from pnpladmm.tensors import InputError

WEAK = 0.1
"""Relative error of a kernel at which the confidence is one half."""
SATURATED = 0.01
"""Share of saturated pixels above which they are named: their outlines are sharp, whatever the blur."""


@WAYS.register("parametric")
@dataclass(frozen=True)
class Parametric(Way):
    """Length and angle of a motion, radius of a defocus, or width of a Gaussian, by the likelihood of the spectrum.

    Parameters
    ----------
    kind : "motion", "defocus", "gaussian" or path
        What the blur of the whole picture is; or a YAML blur file in which regions say `motion: auto`.

    Examples
    --------
    >>> import pnpladmm as pl, skimage.data
    >>> from pnpladmm.blur import defocus
    >>> blurred = pl.simulate(skimage.data.camera()[:256, :256] / 255, defocus(5.0), noise=0.01).picture
    >>> blur = pl.estimate_blur(blurred, "parametric", kind="defocus")
    >>> blur.source
    'defocus: radius 5.0 +- 0.1'
    """

    kind: Any

    switch: ClassVar[str | None] = "kind"

    def __post_init__(self) -> None:
        if self.kind not in NAMES and not str(self.kind).lower().endswith(SUFFIXES):
            raise InputError(f"kind = {self.kind!r}: choose one of {', '.join(NAMES)}, or give a blur file (YAML)")

    def estimate(self, scene: Scene, tell: Tell) -> Blur:
        """The blur, with errors and doubts."""
        grey = scene.grey
        if not scene.valid.all():  # outlines of holes look like sharp edges
            grey = np.where(scene.valid, grey, grey[scene.valid].mean() if scene.valid.any() else 0)
        tell("whole picture" if self.kind in NAMES else "regions", 0.0)
        saturated = _saturated(scene)
        if self.kind not in NAMES:
            blur = read_blur(Path(self.kind), scene.size, pixels=torch.from_numpy(grey))
            if blur.estimate is None:
                raise InputError(f"{self.kind}: no region says auto: restore with this file as it is")
            estimate = blur.estimate
            return blur.noted(estimate=_with(estimate, saturated))
        try:
            found = find_parameters(self.kind, grey)
        except InputError as error:
            raise InputError(f"{scene.name}: {error}") from None
        tell("parts", 0.4)
        places, parts = _parts(self.kind, grey)
        return _blur(scene, found, places, parts, saturated)


def _parts(kind: str, grey: Array) -> tuple[Array, list[Parameters]]:
    """The parameters in each quarter of the picture, if quarters are large enough."""
    height, width = grey.shape
    places, found = [], []
    if min(height, width) >= 4 * SMALLEST:
        for rows in (slice(0, height // 2), slice(height // 2, height)):
            for columns in (slice(0, width // 2), slice(width // 2, width)):
                try:
                    found.append(find_parameters(kind, grey[rows, columns]))
                except InputError:  # a flat quarter
                    continue
                places.append(((columns.start + columns.stop - 1) / 2, (rows.start + rows.stop - 1) / 2))
    return np.array(places).reshape(-1, 2), found


def _blur(scene: Scene, found: Parameters, places: Array, parts: list[Parameters], saturated: str | None) -> Blur:
    blur = uniform_blur(found.kernel(), scene.size, str(found))
    warnings = list(found.doubts)
    sure = [not part.doubts for part in parts]
    apart = np.array([_apart(found, part) for part in parts])
    off = [
        where(x, y, scene.size)
        for (x, y), ok, far, part in zip(places, sure, apart, parts, strict=True)
        if ok and far > 3 * max(part.uncertainty(), found.uncertainty(), 0.05)
    ]
    if off:
        warnings.append(f"the blur is another one in the {listed(off)}: give regions in a blur file")
    weak = [where(x, y, scene.size) for (x, y), ok in zip(places, sure, strict=True) if not ok]
    if weak:
        warnings.append(f"the {listed(weak)} alone would not show the blur")
    error = found.uncertainty()
    middle = np.array([[(scene.size[1] - 1) / 2, (scene.size[0] - 1) / 2]])
    confidence = [1 / (1 + (error / WEAK) ** 2), *(1 / (1 + (p.uncertainty() / WEAK) ** 2) for p in parts)]
    estimate = Estimate(
        "parametric",
        agreement=float(np.sqrt((apart[sure] ** 2).mean())) if any(sure) else None,
        places=np.concatenate([middle, places]),
        confidence=np.array(confidence),
        warnings=tuple(warnings),
        figures={"The spectrum of the picture, and that of the blur (logarithms)": _sheet(scene.grey, found)},
    )
    notes = [f"{where(x, y, scene.size)}: {part}" for (x, y), part in zip(places, parts, strict=True)]
    return blur.noted(*notes, uncertainty=error, estimate=_with(estimate, saturated))


def _apart(a: Parameters, b: Parameters) -> float:
    turn = abs((a.angle - b.angle + 90) % 180 - 90)
    return relative_change(a.kind, a.values, (b.size - a.size, turn))


def _saturated(scene: Scene) -> str | None:
    share = float(scene.saturated.mean())
    return (
        f"{100 * share:.0f} % of the pixels are saturated: their sharp outlines mislead" if share > SATURATED else None
    )


def _with(estimate: Estimate, warning: str | None) -> Estimate:
    return estimate if warning is None else replace(estimate, warnings=(*estimate.warnings, warning))


def _sheet(grey: Array, found: Parameters) -> bytes:
    """Logarithms of the averaged spectrum and of the transfer function, each over its own range."""
    spectrum = spectrum_of(grey)
    images = []
    for values in (spectrum.power, transfer_of(found.kind, found.values, spectrum)):
        image = np.zeros((128, 65))
        shown = np.log(values + 1e-9 * values.max())
        low, high = np.percentile(shown, (2, 99.5))
        rows, columns = np.round(spectrum.fy * 128).astype(int) + 64, np.round(spectrum.fx * 128).astype(int)
        image[rows % 128, columns] = ((shown - low) / max(high - low, 1e-9)).clip(0, 1)
        images.append(np.repeat(np.concatenate([image[::-1, :0:-1], image], 1)[..., None], 3, -1))
    return tiles(np.stack(images)[None])
