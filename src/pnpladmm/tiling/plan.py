"""Whether a picture is restored in tiles, in which, and how: the one place that decides it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from pnpladmm.denoisers import Denoiser
from pnpladmm.denoisers.base import name_of, reach_of
from pnpladmm.operators import LinearOperator, SpatiallyVaryingBlur
from pnpladmm.operators.base import Shape
from pnpladmm.operators.fft import Size
from pnpladmm.solvers import Method, Problem, Result, solve
from pnpladmm.solvers.loop import Callback
from pnpladmm.solvers.method import PlugAndPlay
from pnpladmm.solvers.state import State
from pnpladmm.tensors import InputError
from pnpladmm.tiling.denoiser import in_tiles
from pnpladmm.tiling.fast import Whole, solve_in_tiles
from pnpladmm.tiling.geometry import ALIGNMENT, plan_tiles
from pnpladmm.tiling.memory import SHARE, free_memory, gigabytes, left_for_pictures, needed_bytes, tile_side
from pnpladmm.tiling.operator import TiledBlur
from pnpladmm.tiling.window import as_blur_operator

NETWORK_SHARE = 0.4
"""A network's result changes by less than a step of 8 bits with pixels that are farther away than this share of its
reach; measured at the seams (docs/notes)."""
UNKNOWN_REACH = 112
"""For denoisers that do not say how far they reach."""
MOST_HALO = 0.25
"""The largest share of a tile's side that its halo takes on each side."""


@dataclass(frozen=True)
class Plan:
    """How a picture is restored in tiles."""

    side: int
    """The longest side of a tile with its halo."""
    halo: int
    blend: int
    why: str
    """A sentence for people."""

    def operator(self, blur: LinearOperator) -> TiledBlur:
        """The blur in tiles of this size."""
        return TiledBlur(as_blur_operator(blur), self.side)


def plan_for(
    shape: Shape,
    sample: int,
    blur: LinearOperator,
    denoiser: Denoiser,
    memory: int | None,
    tiles: int | None,
    device: torch.device | None = None,
) -> Plan | None:
    """The plan for pictures (B, C, H, W) that are restored together; None where they are restored undivided.

    `memory` are the bytes that may be used: by default a share of what is free on `device`, where the pictures will
    lie. `tiles` is the longest side of a tile.
    Where neither is given, a blur that cannot be divided is left whole, whatever it needs.
    """
    pictures, channels, height, width = shape
    able, halo, blend = False, 0, 0
    if isinstance(blur, SpatiallyVaryingBlur):
        able = type(blur) is SpatiallyVaryingBlur
        halo, blend = halo_for((blur.kernels.shape[-2], blur.kernels.shape[-1]), denoiser)
    if tiles is not None:
        as_blur_operator(blur)
        if max(height, width) <= tiles:
            return None
        return Plan(tiles, halo, blend, "tiles were asked for")
    device = device or torch.device("cpu")
    free = free_memory(device) if memory is None else memory
    need = needed_bytes(pictures, channels, height * width, sample, denoiser)
    budget = free if free is None else left_for_pictures(free) if memory is not None else int(SHARE * free)
    if budget is None or need <= budget:
        return None
    if not able:
        if memory is not None:
            as_blur_operator(blur)
        return None
    side = tile_side(budget, pictures, channels, height * width, sample, denoiser, least_side(halo), device)
    if max(height, width) <= side:
        return None
    given = "that is allowed" if memory is not None else "that is free"
    return Plan(side, halo, blend, f"undivided it would need about {gigabytes(need)}, more than the memory {given}")


def halo_for(kernel: Size, denoiser: Denoiser) -> tuple[int, int]:
    """The halo of a tile and, of it, the pixels that are blended: from the kernels and the reach of the denoiser."""
    reach = reach_of(denoiser)
    pixels = max(kernel) // 2 + NETWORK_SHARE * (UNKNOWN_REACH if reach is None else reach)
    halo = -(-int(pixels) // ALIGNMENT) * ALIGNMENT
    return halo, halo * 3 // 8


def least_side(halo: int) -> int:
    """The shortest side that tiles with this halo may have."""
    return max(int(halo / MOST_HALO), 8 * ALIGNMENT)


def solve_by(
    plan: Plan | None,
    problem: Problem,
    method: Method[Any],
    iterations: int | None,
    tolerance: float,
    callback: Callback | None,
    state: State | None = None,
    scale: float = 1.0,
) -> tuple[Result, tuple[str, ...]]:
    """Solve a problem undivided or by the plan; the notes say how it was divided, and what that changed.

    Methods with a schedule are run tile by tile. The others compute the iterates of the undivided run: their operator
    works in tiles, and their denoiser where it has a finite reach. Undivided runs may go on from a state. A difference
    of 1 in the problem is one of `scale` in the picture of the user, who is told of the errors at seams.
    """
    if plan is None:
        return solve(problem, method, iterations, tolerance, state, callback=callback), ()
    operator = problem.operator
    assert isinstance(operator, TiledBlur)
    if method.length is None:
        method, note = exactly_tiled(method, plan.side)
        result = solve(problem, method, iterations, tolerance, callback=callback)
        return result, (f"{plan.why}: the operator works in {len(operator.windows)} tiles; {note}",)
    blur, least = operator.blur, least_side(plan.halo)
    if plan.side < least:
        raise InputError(f"tiles = {plan.side}: this blur and denoiser need a side of at least {least}")
    grid = plan_tiles(blur.scene, plan.side, plan.halo, plan.blend, blur.boundary == "circular")
    whole = Whole(problem, blur, method, iterations or method.length, tolerance)
    done = solve_in_tiles(whole, grid, callback)
    size = "x".join(map(str, grid.side))
    words = f"{plan.why}: restored in {len(grid)} tiles of up to {size} with a halo of {plan.halo}"
    return done.result, (words if done.seams is None else f"{words}; {done.seams.scaled(scale)}",)


def exactly_tiled(method: Method[Any], side: int) -> tuple[Method[Any], str]:
    """The method with a denoiser that works in tiles and gives the same, and a sentence on it."""
    denoiser = getattr(method, "denoiser", None)
    if not isinstance(method, PlugAndPlay) or denoiser is None:
        return method, "the iterates are those of the undivided run"
    tiled = in_tiles(denoiser, side)
    if tiled is None:
        return method, f"{name_of(denoiser)} is not local and sees the whole picture; the iterates are the same"
    return replace(method, denoiser=tiled), "so does the denoiser; the iterates are those of the undivided run"
