"""What is decided once for a large picture, and the restoration of one of its tiles."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur import read_blur
from pnpladmm.denoisers import load_denoiser
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.pictures import Picture
from pnpladmm.pictures.raw import Raw, colour_of
from pnpladmm.pictures.samples import natural_scale, to_pixels
from pnpladmm.restoration import Options, estimate_noise
from pnpladmm.restoration.policy import MOST_SATURATED, Pages, Prepared, prepare
from pnpladmm.restoration.units import Units, darkest_and_brightest
from pnpladmm.scale.source import Source, Span, open_source
from pnpladmm.solvers import make_method, solve
from pnpladmm.solvers.colour import ColourPlanes, detail_of
from pnpladmm.tensors import InputError
from pnpladmm.tiling.geometry import Grid, Tile, plan_tiles
from pnpladmm.tiling.plan import halo_for, least_side

SAMPLE, SAMPLES = 256, 16
"""Side and number of the parts from which noise and colours of the whole picture are measured."""
LARGEST_KERNEL = 1024
ROWS = 512
"""Rows that are read at once where the whole picture is looked at."""


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
    planes: tuple[Any, Any, Any] | None = None
    """Mixing, unmixing and energy of the colour planes, as lists."""

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


@dataclass(frozen=True)
class Settings:
    """What was asked for; `noise` is in [0, 1], None where it is to be estimated."""

    picture: str
    blur: str
    noise: float | None
    denoiser: str
    iterations: int | None
    strength: float
    saturation: bool
    device: str | None

    def options(self, noise: float) -> Options:
        """The settings of `restore` for one tile; saturated pixels are dealt with here."""
        return Options(
            noise=noise, denoiser=self.denoiser, iterations=self.iterations, strength=self.strength,
            saturation=False, device=self.device,
        )  # fmt: skip


def decide(settings: Settings) -> Decisions:
    """Look at the whole picture once, part by part."""
    with open_source(settings.picture) as source:
        white = source.white
        channels, height, width = source.shape
        seen = [_looked_at(source, (first, min(first + ROWS, height)), width) for first in range(0, height, ROWS)]
        share = sum(look.top for look in seen) / (channels * height * width)
        scale = natural_scale(np.array([max(look.largest for look in seen)])) if white is None else white
        saturation = settings.saturation and white is not None and 0 < share <= MOST_SATURATED
        ends = [look.without_top if saturation else look.ends for look in seen]
        darkest, brightest = min(low for low, _ in ends) / scale, max(high for _, high in ends) / scale
        parts = _samples(source, scale)
        noise = settings.noise
        if noise is None:
            noise = float(estimate_noise(torch.cat([pixels for _, _, pixels in parts], -2)))
        known_ends = (darkest, brightest) if darkest <= brightest else (0.0, 1.0)
        kernel = _kernel_size(settings, (height, width))
        found = Decisions((height, width), channels, scale, noise, saturation, known_ends, kernel)
        details = [_detail(settings, found, source, rows, columns) for rows, columns, _ in parts]
    known = [d.flatten(2) for d in details if d is not None]
    if not known:
        return found
    planes = ColourPlanes.of(torch.cat(known, -1).unsqueeze(-1))
    lists = tuple(part.double().tolist() for part in (planes.mixing, planes.unmixing, planes.energy))
    return dataclasses.replace(found, planes=lists)  # type: ignore[arg-type]  # three of them


def grid_of(settings: Settings, decisions: Decisions, side: int) -> Grid:
    """The tiles of the scene, which is larger than the picture by the reach of the kernels."""
    (height, width), (kh, kw) = decisions.size, decisions.kernel
    halo, blend = halo_for((kh, kw), load_denoiser(settings.denoiser, settings.device))
    if side < least_side(halo) < max(height, width):
        raise InputError(f"tiles = {side}: this blur and denoiser need a side of at least {least_side(halo)}")
    return plan_tiles((height + kh - 1, width + kw - 1), side, halo, blend)


def restore_part(settings: Settings, decisions: Decisions, rows: Span, columns: Span) -> Tensor:
    """Restore a part of the scene by itself: (C, h, w), float32."""
    with open_source(settings.picture) as source:
        prepared, blank = _prepared(settings, decisions, source, rows, columns)
    if blank:
        return prepared.problem.default_start()[0].float().cpu()
    units = decisions.units
    problem = units.problem(prepared.problem)
    vars(problem)["colour_planes"] = decisions.colour_planes(problem.observed)
    denoiser = load_denoiser(settings.denoiser, settings.device)
    noise = units.noise(torch.tensor([decisions.noise], dtype=torch.float64, device=problem.observed.device))
    method = make_method("fast", denoiser, problem, noise, settings.strength, settings.iterations)
    if method.length is None:
        raise InputError(f"{settings.denoiser} needs the whole picture: large files take networks, such as light")
    image = solve(problem, method, method.length, 0.0, record=False).image
    return units.back(image)[0].float().cpu()


def restore_tile(settings: Settings, decisions: Decisions, tile: Tile) -> np.ndarray[Any, Any]:
    """The pixels that a tile takes part in, float32, in [0, 1]."""
    part = restore_part(settings, decisions, *tile.extent)
    return np.ascontiguousarray(part[(slice(None), *tile.inside)].numpy())


def _prepared(
    settings: Settings, decisions: Decisions, source: Source, rows: Span, columns: Span
) -> tuple[Prepared, bool]:
    """The problem of a part of the scene, and whether none of its pixels counts."""
    # The scene begins before the picture, by the reach of the kernels.
    operator, observed = _operator(settings, decisions, rows, columns)
    samples = source.read(*observed)
    dead = np.zeros(samples.shape, bool)
    if decisions.saturation:
        dead |= samples >= decisions.scale
    if samples.dtype.kind == "f":
        dead |= ~np.isfinite(samples)
    raw = Raw(np.where(dead, 0, samples)[None], scale=decisions.scale, colour=colour_of(len(samples)))
    picture = Picture.from_raw(raw, source.name)
    blank = bool(dead.all())
    mask = torch.from_numpy(dead[None]) if dead.any() and not blank else None
    pages = Pages(picture, dead=mask, noise=torch.tensor([decisions.noise], dtype=torch.float64))
    return prepare(pages, operator, settings.options(decisions.noise)), blank


def _operator(
    settings: Settings, decisions: Decisions, rows: Span, columns: Span
) -> tuple[SpatiallyVaryingBlur, tuple[Span, Span]]:
    """The blur of a part of the scene, and the rows and columns of the picture that it maps to."""
    kh, kw = decisions.kernel
    observed = (rows[0], rows[1] - kh + 1), (columns[0], columns[1] - kw + 1)
    return read_blur(settings.blur, decisions.size, window=observed).operator("unknown"), observed


def _kernel_size(settings: Settings, size: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of the kernels, from a corner of the picture; the blur must fit a picture of this size."""
    rows, columns = min(size[0], LARGEST_KERNEL), min(size[1], LARGEST_KERNEL)
    return read_blur(settings.blur, size, window=((0, rows), (0, columns))).kernel_size


@dataclass(frozen=True)
class Look:
    """What some rows of a file hold, in its own numbers."""

    largest: float
    top: int
    """Samples at the largest value of an integer type."""
    ends: tuple[float, float]
    without_top: tuple[float, float]


def _looked_at(source: Source, rows: Span, width: int) -> Look:
    """Look at all samples of some rows."""
    part = source.read(rows, (0, width))
    finite = np.isfinite(part) if part.dtype.kind == "f" else np.ones(part.shape, bool)
    top = part >= source.white if source.white is not None else np.zeros(part.shape, bool)
    values = torch.from_numpy(np.where(finite, part, 0).astype(np.float64))[None]
    pairs = []
    for counts in (finite, finite & ~top):
        low, high = darkest_and_brightest(values, torch.from_numpy(counts)[None])
        pairs.append((float(low), float(high)) if counts.any() else (np.inf, -np.inf))
    return Look(float(values.abs().max()), int(top.sum()), pairs[0], pairs[1])


def _samples(source: Source, scale: float) -> list[tuple[Span, Span, Tensor]]:
    """Parts that are spread over the picture, as pixels (1, C, h, w)."""
    _, height, width = source.shape
    h, w = (min(SAMPLE, n) // 2 * 2 or n for n in (height, width))
    count = int(np.sqrt(SAMPLES))
    tops, lefts = (np.unique(np.linspace(0, n - m, count).astype(int)) for n, m in ((height, h), (width, w)))
    found = []
    for top in tops.tolist():
        for left in lefts.tolist():
            rows, columns = (top, top + h), (left, left + w)
            samples = source.read(rows, columns)
            found.append((rows, columns, to_pixels(np.nan_to_num(samples, posinf=0, neginf=0)[None], scale)))
    return found


def _detail(settings: Settings, decisions: Decisions, source: Source, rows: Span, columns: Span) -> Tensor | None:
    """What the blur removed in a part of the picture, by which the colours are mixed."""
    if decisions.channels == 1:
        return None
    kh, kw = decisions.kernel
    scene = (rows[0], rows[1] + kh - 1), (columns[0], columns[1] + kw - 1)
    prepared, blank = _prepared(settings, decisions, source, *scene)
    if blank:
        return None
    problem = decisions.units.problem(prepared.problem)
    return detail_of(problem.operator, problem.observed, problem.data_term.precision_of(problem.observed))


def fingerprint(path: str) -> str:
    """What changes when a file or a zarr folder changes: names, sizes and times."""
    place = Path(path)
    files = sorted(p for p in place.rglob("*") if p.is_file())[:10000] if place.is_dir() else [place]
    return "\n".join(f"{p.name} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in files)
