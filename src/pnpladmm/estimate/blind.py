"""A blur from one shaken photograph and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch

from pnpladmm.blur import Blur, Estimate
from pnpladmm.blur.arrays import Array
from pnpladmm.estimate.blind_field import TRUSTED, Windows, aligned, changes, joined, windows_of
from pnpladmm.estimate.blind_scales import Step
from pnpladmm.estimate.blind_window import DOUBTFUL, Found, expected_error, find_kernel, finished
from pnpladmm.estimate.drawings import tiles
from pnpladmm.estimate.psf_field import blur_of_grid, uniform_blur
from pnpladmm.estimate.scene import Scene, check_side
from pnpladmm.estimate.way import WAYS, Tell, Way
from pnpladmm.estimate.words import listed, where
from pnpladmm.tensors import InputError

SIDES = (31, 47, 71)
"""Sides of the kernel that are tried, until it does not fill the last one."""
SHARE = 3
"""The kernel may be at most this part of the shorter side."""
SMALLEST = 15
"""Pixels: a picture that does not hold a kernel of this side three times is too small."""
LARGEST = 512
"""Pixels: one kernel is found in a part of the picture of at most this side, that with the most edges."""
POINT = 0.8
"""Of the light within a pixel of the centre: the kernel is a point."""
FIELDS = ("auto", "one", "grid")


@WAYS.register("blind")
@dataclass(frozen=True)
class Blind(Way):
    """From the shaken picture alone: sharp edges and the kernel between them and the picture, from coarse to fine.

    Parameters
    ----------
    side : int, optional
        Side of the kernel, odd; found if not given.
    field : {"auto", "one", "grid"}
        One kernel, or one for each of many overlapping windows, joined to a smooth field; `auto` takes one where the
        windows differ by no more than their errors.

    Examples
    --------
    >>> Blind(side=31).field
    'auto'
    """

    side: int | None = None
    field: str = "auto"

    switch: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        check_side("side", self.side, least=5)
        if self.field not in FIELDS:
            raise InputError(f"field = {self.field!r}: choose one of {', '.join(FIELDS)}")

    def estimate(self, scene: Scene, tell: Tell) -> Blur:
        """One kernel for the whole picture, or a field."""
        windows = windows_of(scene.size) if self.field != "one" else None
        if windows is None and self.field == "grid":
            raise InputError(f"field = grid: {scene.size[0]}x{scene.size[1]} pixels are too few for several windows")
        one = _one(scene, self._sides(scene), tell, 0.2 if windows else 0.9)
        if windows is None:
            return _uniform(scene, one, ())
        found = _in_windows(scene, windows, one, tell)
        field = _field(found, windows, one)
        median, significant = changes(field.kernels, field.differences, windows.nearness())
        words = f"kernels of {len(field.kernels)} windows differ by {100 * median:.0f} % (median)"
        if self.field == "auto" and not significant:
            return _uniform(scene, one, (f"{words}, not more than their errors: one kernel was taken",))
        for number, each in enumerate(found):
            tell(f"window {number + 1} of {len(found)}, refined", 0.8 + 0.2 * number / len(found))
            found[number] = each and _finished(scene, windows.box(number, scene.size), each)
        return _varying(scene, windows, _field(found, windows, one), one, words)

    def _sides(self, scene: Scene) -> tuple[int, ...]:
        most = (min(scene.size) // SHARE - 1) // 2 * 2 + 1
        if most < SMALLEST:
            height, width = scene.size
            raise InputError(f"{scene.name} has {height}x{width} pixels: a blind estimate needs {SHARE * SMALLEST + 3}")
        if self.side is None:
            return tuple(dict.fromkeys(min(side, most) for side in SIDES))
        if self.side > most:
            raise InputError(f"side = {self.side}: at most {most} in a picture of {min(scene.size)} pixels")
        return (self.side,)


@dataclass(frozen=True, eq=False)
class Field:
    """The kernels of the windows (N, k, k), aligned, with confidences and differences of halves (N,)."""

    kernels: Array
    confidence: Array
    differences: Array


def _one(scene: Scene, sides: tuple[int, ...], tell: Tell, share: float) -> Found:
    """One kernel, from the part of the picture that has the most edges."""
    report = partial(_tell_share, tell, "kernel", 0, share)
    return find_kernel(scene.name, *_part(scene, _best_part(scene)), sides, report, scene.device)


def _finished(scene: Scene, box: tuple[slice, slice], found: Found) -> Found:
    return finished(scene.name, *_part(scene, box), found, scene.device)


def _part(scene: Scene, box: tuple[slice, slice]) -> tuple[Array, Array]:
    """The grey values of a part of the picture, and which of them count."""
    return scene.grey[box], (scene.valid & ~scene.saturated)[box]


def _tell_share(tell: Tell, what: str, start: float, length: float, share: float) -> None:
    tell(what, start + length * share)


def _best_part(scene: Scene) -> tuple[slice, slice]:
    """Rows and columns of the part of at most `LARGEST` pixels with the largest derivatives."""
    if max(scene.size) <= LARGEST:
        return slice(None), slice(None)
    gy, gx = np.gradient(scene.grey)
    slope = np.hypot(gx, gy)
    strong = np.where(scene.valid & ~scene.saturated, np.minimum(slope, np.percentile(slope, 99)), 0)
    total = np.pad(strong.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    high, wide = (min(LARGEST, n) for n in scene.size)
    sums = total[high:, wide:] - total[:-high, wide:] - total[high:, :-wide] + total[:-high, :-wide]
    row, column = np.unravel_index(int(sums.argmax()), sums.shape)
    return slice(int(row), int(row) + high), slice(int(column), int(column) + wide)


def _in_windows(scene: Scene, windows: Windows, one: Found, tell: Tell) -> list[Found | None]:
    """What is found in each window; None where it shows nothing."""
    results: list[Found | None] = []
    side, total = one.kernel.shape[0], len(windows.places)
    for number in range(total):
        report = partial(_tell_share, tell, f"window {number + 1} of {total}", 0.2 + 0.6 * number / total, 0.6 / total)
        picture, counts = _part(scene, windows.box(number, scene.size))
        try:
            results.append(find_kernel(scene.name, picture, counts, (side,), report, scene.device))
        except InputError:
            results.append(None)
    return results


def _field(results: list[Found | None], windows: Windows, one: Found) -> Field:
    """The kernels of all windows; where a window shows nothing, that of the whole picture with confidence 0."""
    kernels, confidence, differences = [], [], []
    whole = one.kernel.double().numpy()
    whole_is_point = _share_in_the_middle(whole) > POINT
    for found in results:
        if found is None:
            kernels.append(whole)
            confidence.append(0.0)
            differences.append(1.0)
            continue
        kernels.append(found.kernel.double().numpy())
        # Where a window shows nothing, no blur explains it as well as any.
        empty = _share_in_the_middle(kernels[-1]) > POINT and not whole_is_point
        confidence.append(0.0 if empty else found.confidence)
        differences.append(found.difference)
    trust = np.array(confidence)
    return Field(aligned(np.stack(kernels), trust, windows.nearness()), trust, np.array(differences))


def _share_in_the_middle(kernel: Array) -> float:
    """The most light that any 3x3 pixels of the kernel hold."""
    from scipy.ndimage import uniform_filter

    return float(9 * uniform_filter(kernel, 3, mode="constant").max())


def _uniform(scene: Scene, one: Found, notes: tuple[str, ...]) -> Blur:
    one = _finished(scene, _best_part(scene), one)
    if not one.sharpens:
        raise _nothing_helps(scene)
    kernel = one.kernel.double().numpy()
    warnings = _warnings(one, kernel)
    if one.difference > DOUBTFUL:
        warnings.append(
            f"parts of the picture give kernels that differ by {100 * one.difference:.0f} %: "
            "it shows few edges or only fine ones, or its blur changes from place to place"
        )
    height, width = scene.size
    estimate = Estimate(
        "blind",
        agreement=one.difference,
        places=np.array([[(width - 1) / 2, (height - 1) / 2]]),
        confidence=np.array([one.confidence]),
        warnings=tuple(warnings),
        figures={"The kernel from coarse to fine": _drawn(one.steps)},
    )
    blur = uniform_blur(kernel, scene.size, "the picture alone, one kernel")
    return blur.noted(_note(one), *notes, uncertainty=expected_error(one.difference), estimate=estimate)


def _nothing_helps(scene: Scene) -> InputError:
    return InputError(
        f"{scene.name}: no blur was found that makes it sharper: it shows too few clear edges, or no shake"
    )


def _varying(scene: Scene, windows: Windows, field: Field, one: Found, words: str) -> Blur:
    if not field.confidence.any():
        raise _nothing_helps(scene)
    nearness = windows.nearness()
    kernels = joined(field.kernels, field.confidence, nearness)
    warnings = _warnings(one, kernels.mean(0))
    weak = [where(x, y, scene.size) for x, y in windows.places[field.confidence < TRUSTED]]
    if weak:
        warnings.append(
            f"this picture does not show enough edges in the {listed(weak)}; blur taken from its neighbours"
        )
    blur = blur_of_grid(kernels, windows.x, windows.y, scene.size, f"the picture alone, {len(kernels)} windows")
    estimate = Estimate(
        "blind",
        agreement=float(np.median(field.differences)),
        places=windows.places,
        confidence=field.confidence,
        warnings=tuple(warnings),
        figures={"The kernel of the whole picture from coarse to fine": _drawn(one.steps)},
    )
    error = expected_error(float(np.median(field.differences)))
    return blur.noted(_note(one), words, uncertainty=error, estimate=estimate)


def _warnings(one: Found, kernel: Array) -> list[str]:
    found = []
    if _share_in_the_middle(kernel) > POINT:
        found.append("the kernel is a point: the picture is sharp, or nothing in it shows how it was blurred")
    if one.fills:
        found.append(f"the kernel fills its {kernel.shape[0]} pixels: give a larger side")
    return found


def _note(one: Found) -> str:
    side = one.kernel.shape[0]
    return f"kernels of {side}x{side} pixels, found in {len(one.steps)} scales"


def _drawn(steps: list[Step]) -> bytes:
    """The kernels of all scales, each as large as the last one."""
    side = steps[-1].kernel.shape[0]
    at = [((torch.arange(side) + 0.5) * step.kernel.shape[0] / side).long() for step in steps]
    shown = [step.kernel[i][:, i] / step.kernel.max() for step, i in zip(steps, at, strict=True)]
    return tiles(np.stack([np.repeat(image.numpy()[..., None], 3, -1) for image in shown])[None])
