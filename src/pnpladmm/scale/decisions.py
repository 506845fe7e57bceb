"""What is decided once for a large picture, for all its tiles: its noise, its scale, which pixels count."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur import Blur, read_blur
from pnpladmm.pictures.arrays import Array
from pnpladmm.pictures.samples import natural_scale, to_pixels
from pnpladmm.restoration import estimate_noise
from pnpladmm.restoration.hot_pixels import MOST, HotRule, noise_without_hot, rule_of, spread_of
from pnpladmm.restoration.policy import MOST_SATURATED
from pnpladmm.restoration.psf_error import known_error
from pnpladmm.restoration.signs import detail_in
from pnpladmm.restoration.units import Units, darkest_and_brightest
from pnpladmm.scale.engine import Engine
from pnpladmm.scale.source import Source, Span, open_source
from pnpladmm.solvers.colour import ColourPlanes

if TYPE_CHECKING:
    from pnpladmm.scale.pace import Pace

SAMPLE, SAMPLES = 256, 16
"""Side and number of the parts from which noise and colours of the whole picture are measured."""
LARGEST_KERNEL = 1024
BLOCK = 512, 4096
"""Rows and columns that are read at once where the whole picture is looked at."""


@dataclass(frozen=True)
class Decisions:
    """One for the whole picture; every tile is restored with them."""

    size: tuple[int, int]
    channels: int
    scale: float
    """The file's value for pixels of 1."""
    noise: float
    """In [0, 1]."""
    saturation: bool
    """Do saturated pixels not count?"""
    ends: tuple[float, float]
    """The darkest and the brightest place of 2x2 pixels, as pixels."""
    kernel: tuple[int, int]
    """Rows and columns of the kernels."""
    extremes: tuple[float, float] = (0.0, 1.0)
    """The darkest and the brightest pixel that counts."""
    hot: tuple[float, float] | None = None
    """Level (as pixels) and spread of the rule for hot pixels; None where none is looked for."""
    hot_count: int = 0
    planes: tuple[Any, Any, Any] | None = None
    """Mixing, unmixing and energy of the colour planes, as lists."""
    pace: Pace | None = None
    """The steps of the fast method, where tiles have them in common."""

    @property
    def units(self) -> Units:
        """The scale that methods see the picture on: one for all tiles."""
        low, high = (torch.tensor(end, dtype=torch.float64).view(1, 1, 1, 1) for end in self.ends)
        return Units.between(low, high, torch.tensor([self.noise], dtype=torch.float64))

    def colour_planes(self, like: Tensor) -> ColourPlanes | None:
        """The colour planes for pictures as `like`, on their device."""
        if self.planes is None:
            return None
        mixing, unmixing, energy = (torch.tensor(part, dtype=torch.float64) for part in self.planes)
        return ColourPlanes(mixing.to(like), unmixing.to(like), energy)

    def read(self, source: Source, rows: Span, columns: Span) -> tuple[Array, Array]:
        """Samples (C, h, w) of a part of the picture, 0 where they are not finite, and which do not count."""
        # Whether a pixel is hot depends on its neighbours, on those of other parts, too.
        wide = [
            (max(0, first - 1), min(n, last + 1)) for (first, last), n in zip((rows, columns), self.size, strict=True)
        ]
        samples = source.read(wide[0], wide[1])
        dead = ~np.isfinite(samples) if samples.dtype.kind == "f" else np.zeros(samples.shape, bool)
        samples = np.where(dead, 0, samples).astype(samples.dtype)
        if self.saturation:
            dead |= samples >= self.scale
        if self.hot is not None:
            rule = HotRule(torch.tensor(self.hot[0], dtype=torch.float64).view(1, 1, 1, 1), self.hot[1])
            dead |= rule.marks(to_pixels(samples[None], self.scale))[0].numpy()
        own = tuple(slice(a - w[0], b - w[0]) for (a, b), w in zip((rows, columns), wide, strict=True))
        return samples[(slice(None), *own)], dead[(slice(None), *own)]


Ends = tuple[float, float]
Detail = Callable[[Decisions, Source, Span, Span], Tensor | None]
"""What the blur removed in a part of the picture, by which the colours are mixed."""


def decide(picture: str, blur: str, noise: float | None, saturation: bool, detail: Detail, engine: Engine) -> Decisions:
    """Look at the whole picture once, part by part."""
    with open_source(picture) as source:
        white = source.white
        channels, height, width = source.shape
        known = _corner_of(blur, (height, width))
        places = _places((height, width))
        rule = _hot_rule(source, blur, places)
        blocks = [(picture, rows, columns, rule) for rows, columns in _blocks((height, width))]
        seen = [look for _, look in engine.run(_look, blocks)]
        pixels = channels * height * width
        share = sum(look.top for look in seen) / pixels
        hot = sum(look.hot for look in seen)
        scale = natural_scale(np.array([max(look.largest for look in seen)])) if white is None else white
        saturation = saturation and white is not None and 0 < share <= MOST_SATURATED
        counting = [look.without_top if saturation else look.with_top for look in seen]
        ends, extremes = (_widest([look[i] for look in counting], scale) for i in range(2))
        found = Decisions(
            (height, width), channels, scale, noise or 0.0, saturation,
            ends, known.kernel_size, extremes,
            (float(rule.level) / scale, rule.spread) if rule is not None and 0 < hot < MOST * pixels else None, hot,
        )  # fmt: skip
        parts = [found.read(source, *place) for place in places]
        given = noise if noise is None or white is not None else noise / scale
        level = _noise(given, parts, scale, known.uncertainty)
        found = dataclasses.replace(found, noise=level, hot_count=hot if found.hot else 0)
        # As in memory: the planes are systems of their own only where all channels count alike.
        which = {int(saturation), *([2] if found.hot else [])}
        alike = channels > 1 and not any(look.uneven[i] for look in seen for i in which)
        details = [detail(found, source, *place) for place in places] if alike else []
    return dataclasses.replace(found, planes=_planes([d.flatten(2) for d in details if d is not None]))


def _planes(details: list[Tensor]) -> Any:
    """The colour planes of the detail in all parts, as lists."""
    if not details:
        return None
    planes = ColourPlanes.of(torch.cat(details, -1).unsqueeze(-1))
    return tuple(part.double().tolist() for part in (planes.mixing, planes.unmixing, planes.energy))


def _noise(given: float | None, parts: list[tuple[Array, Array]], scale: float, uncertainty: float | None) -> float:
    """The noise level, given or estimated, and raised where it is known how far the PSF is off."""
    pixels = torch.cat([to_pixels(samples[None], scale) for samples, _ in parts], -2)
    counts = torch.cat([torch.from_numpy(~dead[None]) for _, dead in parts], -2)
    level = estimate_noise(pixels, counts) if given is None else torch.tensor([given], dtype=torch.float64)
    if uncertainty:
        side = parts[0][0].shape[-2]
        y, valid = (torch.cat(torch.split(whole, side, -2), 1) for whole in (pixels.double(), counts))
        level = (level.square() + known_error(uncertainty, detail_in(y, valid), level).square()).sqrt()
    return float(level)


def _corner_of(blur: str, size: tuple[int, int]) -> Blur:
    """The blur in a corner of the picture, for its kernel size; it must fit a picture of this size."""
    rows, columns = min(size[0], LARGEST_KERNEL), min(size[1], LARGEST_KERNEL)
    return read_blur(blur, size, window=((0, rows), (0, columns)))


def _hot_rule(source: Source, blur: str, places: list[tuple[Span, Span]]) -> HotRule | None:
    """The rule for hot pixels in the numbers of the file: the noise of all samples, and the PSF in the middle."""
    samples = [source.read(*place) for place in places]
    bad = [~np.isfinite(part) if part.dtype.kind == "f" else part >= np.iinfo(part.dtype).max for part in samples]
    values = [np.where(b, 0, part).astype(np.float32)[None] for b, part in zip(bad, samples, strict=True)]
    pixels = torch.cat([torch.from_numpy(part) for part in values], -2)
    counts = torch.cat([torch.from_numpy(~b[None]) for b in bad], -2)
    if min(pixels.shape[-2:]) < 8:
        return None
    _, height, width = source.shape
    middle = [(n // 2 - min(n, SAMPLE) // 2, n // 2 - min(n, SAMPLE) // 2 + min(n, SAMPLE)) for n in (height, width)]
    local = read_blur(blur, (height, width), window=(middle[0], middle[1])).operator("unknown")
    size = [last - first for first, last in middle]
    spread = spread_of(local, pixels.new_zeros(1, source.shape[0], *size))
    return rule_of(noise_without_hot(pixels, counts), spread)


@dataclass(frozen=True)
class Look:
    """What a block of a file holds, in its own numbers."""

    largest: float
    top: int
    """Samples at the largest value of an integer type."""
    hot: int
    """Hot pixels."""
    with_top: tuple[Ends, Ends]
    """The darkest and brightest place of 2x2 pixels, and the darkest and brightest pixel."""
    without_top: tuple[Ends, Ends]
    """The same without samples at the largest value."""
    uneven: tuple[bool, bool, bool]
    """Are there pixels of which some channels count and others do not: with the largest value, without it, hot ones?"""


def _widest(found: list[Ends], scale: float) -> Ends:
    """The ends of all parts together, as pixels."""
    low, high = min(low for low, _ in found) / scale, max(high for _, high in found) / scale
    return (low, high) if low <= high else (0.0, 1.0)


def _look(picture: str, rows: Span, columns: Span, rule: HotRule | None) -> Look:
    """One task: look at a block."""
    with open_source(picture) as source:
        return _looked_at(source, rows, columns, rule)


def _looked_at(source: Source, rows: Span, columns: Span, rule: HotRule | None) -> Look:
    """Look at all samples of a block."""
    part = source.read(rows, columns)
    finite = np.isfinite(part) if part.dtype.kind == "f" else np.ones(part.shape, bool)
    top = part >= source.white if source.white is not None else np.zeros(part.shape, bool)
    exact = np.float32 if part.dtype.itemsize < 4 else np.float64
    values = torch.from_numpy(np.where(finite, part, 0).astype(exact))[None]
    hot = torch.zeros(values.shape, dtype=torch.bool) if rule is None else rule.marks(values.float())
    found, uneven = [], []
    # Mostly no sample is at the top, and both are the same.
    for known in (finite, finite & ~top) if top.any() else (finite,):
        counts = torch.from_numpy(known)[None]
        own = values[counts & ~hot]
        low, high = darkest_and_brightest(values, counts)
        empty = (np.inf, -np.inf)
        pairs = (float(low), float(high)), (float(own.min()), float(own.max())) if len(own) else empty
        found.append(pairs if bool(counts.any()) else (empty, empty))
        uneven.append(_is_uneven(counts))
    ends = found[0], found[-1]
    return Look(
        float(values.abs().max()), int(top.sum()), int(hot.sum()), *ends, (uneven[0], uneven[-1], _is_uneven(hot))
    )


def _is_uneven(marks: Tensor) -> bool:
    """Do marks (1, C, h, w) differ between the channels of a pixel?"""
    return bool((marks != marks[:, :1]).any())


def _blocks(size: tuple[int, int]) -> list[tuple[Span, Span]]:
    """Rows and columns of blocks that cover the picture."""
    spans = [[(at, min(at + step, n)) for at in range(0, n, step)] for n, step in zip(size, BLOCK, strict=True)]
    return [(rows, columns) for rows in spans[0] for columns in spans[1]]


def _places(size: tuple[int, int]) -> list[tuple[Span, Span]]:
    """Rows and columns of parts that are spread over the picture, all of one size."""
    count = int(np.sqrt(SAMPLES))
    spans = []
    for n in size:
        side = min(SAMPLE, n) // 2 * 2 or n
        firsts = np.unique(np.linspace(0, n - side, count).astype(int))
        spans.append([(int(first), int(first) + side) for first in firsts])
    return [(rows, columns) for rows in spans[0] for columns in spans[1]]
