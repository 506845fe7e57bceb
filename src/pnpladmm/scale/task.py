"""The restoration of one tile of a large picture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpladmm.allocator import give_back
from pnpladmm.blur import read_blur
from pnpladmm.denoisers import load_denoiser
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.pictures import Picture
from pnpladmm.pictures.arrays import Array
from pnpladmm.pictures.raw import Raw, colour_of
from pnpladmm.restoration import Options
from pnpladmm.restoration.policy import Pages, Prepared, prepare, unit_of
from pnpladmm.scale.decisions import Decisions, decide
from pnpladmm.scale.engine import Engine
from pnpladmm.scale.source import Source, Span, open_source
from pnpladmm.scale.store import TileStore
from pnpladmm.solvers import Annealed, Problem, make_method, solve
from pnpladmm.solvers.colour import detail_of
from pnpladmm.tensors import InputError, one_line
from pnpladmm.tiling.geometry import Grid, Tile, plan_tiles
from pnpladmm.tiling.plan import halo_for, least_side


@dataclass(frozen=True)
class Settings:
    """What was asked for; `noise` is in [0, 1], for floats in the numbers of the file, None where it is estimated."""

    picture: str
    blur: str
    noise: float | None
    denoiser: str
    iterations: int | None
    strength: float
    saturation: bool
    device: str | None
    method: str = "fast"

    def options(self, noise: float) -> Options:
        """The settings of `restore` for one tile; saturated pixels are dealt with here."""
        return Options(
            noise=noise, denoiser=self.denoiser, iterations=self.iterations, strength=self.strength,
            saturation=False, device=self.device, method=self.method,
        )  # fmt: skip


def decisions_for(settings: Settings, engine: Engine) -> Decisions:
    """Look at the whole picture once, part by part."""

    def detail(known: Decisions, source: Source, rows: Span, columns: Span) -> Tensor | None:
        kh, kw = known.kernel
        scene = (rows[0], rows[1] + kh - 1), (columns[0], columns[1] + kw - 1)
        prepared, blank = prepared_part(settings, known, source, *scene)
        if blank:
            return None
        problem = known.units.problem(prepared.problem)
        return detail_of(problem.operator, problem.observed, problem.data_term.precision_of(problem.observed))

    return decide(settings.picture, settings.blur, settings.noise, settings.saturation, detail, engine)


def grid_of(settings: Settings, decisions: Decisions, side: int) -> Grid:
    """The tiles of the scene."""
    halo, blend = halo_for(decisions.kernel, load_denoiser(settings.denoiser, settings.device))
    if side < least_side(halo) < max(decisions.size):
        raise InputError(f"tiles = {side}: this blur and denoiser need a side of at least {least_side(halo)}")
    return plan_tiles(scene_of(decisions), side, halo, blend)


def restore_part(settings: Settings, decisions: Decisions, rows: Span, columns: Span) -> tuple[Prepared, Tensor]:
    """Restore a part of the scene by itself: its problem, and the picture (C, h, w), float32."""
    give_back()  # parts differ in size: what the last one left is in the way
    with open_source(settings.picture) as source:
        prepared, blank = prepared_part(settings, decisions, source, rows, columns)
    if blank:
        return prepared, prepared.problem.default_start()[0].float().cpu()
    problem, method = annealed_for(settings, decisions, prepared.problem)
    image = solve(problem, method, method.length, 0.0, record=False).image
    return prepared, decisions.units.back(image)[0].float().cpu()


def annealed_for(settings: Settings, decisions: Decisions, problem: Problem) -> tuple[Problem, Annealed]:
    """A part of the picture on the scale of the method, with the colours and the steps of the whole, and the method."""
    units = decisions.units
    problem = units.problem(problem)
    vars(problem)["colour_planes"] = decisions.colour_planes(problem.observed)
    denoiser = load_denoiser(settings.denoiser, settings.device)
    noise = units.noise(torch.tensor([decisions.noise], dtype=torch.float64, device=problem.observed.device))
    method = make_method("fast", denoiser, problem, noise, settings.strength, settings.iterations)
    if not isinstance(method, Annealed):
        raise InputError(f"{settings.denoiser} needs the whole picture: large files take networks, such as light")
    pace = decisions.pace
    return problem, method if pace is None else replace(method, step_lengths=pace.lengths or None)


def restore_tile(settings: Settings, decisions: Decisions, tile: Tile) -> np.ndarray[Any, Any]:
    """The pixels that a tile takes part in, float32, in [0, 1]."""
    return written_part(tile, restore_part(settings, decisions, *tile.extent)[1])


def check_folder(store: TileStore) -> None:
    """Refuse to work where the store of the tiles is not seen."""
    if not store.folder.is_dir():
        raise InputError(f"{one_line(str(store.folder))}: no such folder on this worker: it must see the same files")


def written_part(tile: Tile, part: Tensor) -> Array:
    """Of a restored tile (C, h, w) the pixels that it takes part in."""
    return np.ascontiguousarray(part[(slice(None), *tile.inside)].numpy())


def prepared_part(
    settings: Settings, decisions: Decisions, source: Source, rows: Span, columns: Span
) -> tuple[Prepared, bool]:
    """The problem of a part of the scene, and whether none of its pixels counts."""
    # The scene begins before the picture, by the reach of the kernels.
    operator, observed = operator_part(settings, decisions, rows, columns)
    samples, dead = decisions.read(source, *observed)
    raw = Raw(np.where(dead, 0, samples)[None], scale=decisions.scale, colour=colour_of(len(samples)))
    picture = Picture.from_raw(raw, source.name)
    blank = bool(dead.all())
    mask = torch.from_numpy(dead[None]) if dead.any() and not blank else None
    noise = torch.tensor([decisions.noise * unit_of(picture)], dtype=torch.float64)
    pages = Pages(picture, dead=mask, noise=noise, hot_are_dead=True)
    return prepare(pages, operator, settings.options(decisions.noise)), blank


def operator_part(
    settings: Settings, decisions: Decisions, rows: Span, columns: Span
) -> tuple[SpatiallyVaryingBlur, tuple[Span, Span]]:
    """The blur of a part of the scene, and the rows and columns of the picture that it maps to."""
    kh, kw = decisions.kernel
    observed = (rows[0], rows[1] - kh + 1), (columns[0], columns[1] - kw + 1)
    operator = read_blur(settings.blur, decisions.size, window=observed).operator("unknown")
    if decisions.pace is not None:
        on_scene = operator.weights.shape[-2:] == operator.scene
        here = ((rows, columns), scene_of(decisions)) if on_scene else (observed, decisions.size)
        decisions.pace.prepare(operator, *here[0], here[1])
    return operator, observed


def scene_of(decisions: Decisions) -> tuple[int, int]:
    """The size of the scene, which is larger than the picture by the reach of the kernels."""
    (height, width), (kh, kw) = decisions.size, decisions.kernel
    return height + kh - 1, width + kw - 1


def offset_of(decisions: Decisions) -> tuple[int, int]:
    """Where the picture begins in the scene: the kernels' reach."""
    kh, kw = decisions.kernel
    return kh - 1 - kh // 2, kw - 1 - kw // 2


def seen_of(decisions: Decisions) -> tuple[Span, Span]:
    """The rows and columns of the scene that are the picture."""
    (top, left), (height, width) = offset_of(decisions), decisions.size
    return (top, top + height), (left, left + width)


def fingerprint(path: str) -> str:
    """What changes when a file or a zarr folder changes: names, sizes and times."""
    place = Path(path)
    files = sorted(p for p in place.rglob("*") if p.is_file())[:10000] if place.is_dir() else [place]
    return "\n".join(f"{p.name} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in files)
