"""LADMM on tiles that exchange their borders in each iteration: the iterates and the certificate of the whole picture.

LADMM needs no inner product of whole pictures. Changes, objective and Lagrangian are sums over tiles, the bound of the
norm and the curvature are maxima. `certified` makes no leaps here, because these need inner products.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpladmm.data_terms import DataTerm, Gaussian, WeightedGaussian
from pnpladmm.denoisers.base import precision_of, reach_of
from pnpladmm.denoisers.relaxed import Relaxed
from pnpladmm.files import write_text
from pnpladmm.operators import Mask, NormBound
from pnpladmm.operators.norm import collatz_wielandt
from pnpladmm.scale.decisions import Decisions
from pnpladmm.scale.done import Done, Tell
from pnpladmm.scale.engine import Engine, Task
from pnpladmm.scale.field import Field, Sums, largest, total
from pnpladmm.scale.iterate import Constants, begin, exact_denoiser, iterate, power
from pnpladmm.scale.store import TileStore
from pnpladmm.scale.task import Settings
from pnpladmm.solvers import LADMM, History, Problem, Status, make_method
from pnpladmm.solvers.certificate import certify
from pnpladmm.solvers.contradictions import Seen
from pnpladmm.solvers.history import CURVATURE_EVERY
from pnpladmm.solvers.loop import DEFAULT_ITERATIONS
from pnpladmm.solvers.optimality import residual_of
from pnpladmm.tensors import InputError
from pnpladmm.tiling.geometry import ALIGNMENT, Grid, plan_tiles

TOLERANCE = 1e-4
"""Relative changes below which the picture counts as done, as in memory."""
TURNS = 5
"""The curvature is measured at every tile in the first iteration, later at one tile of so many, in turn."""
SIGNED_ITERATIONS = 8
"""Power iterations with the absolute value of a signed blur, which is slow."""
ROWS = "history.json"


@dataclass(frozen=True)
class ExactWork:
    """The iterations of one job, and where they are computed."""

    store: TileStore
    settings: Settings
    decisions: Decisions
    grid: Grid
    engine: Engine
    tell: Tell | None
    began: float = field(default_factory=time.perf_counter)

    def run(self) -> Done:
        """Iterate until the changes are small, and put the picture into the store of tiles."""
        states = Field(self.store, "state", self.grid)
        problem = stand_in(self.decisions, self._norm())
        constants = constants_for(self.settings, self.decisions, problem)
        limit = self.settings.iterations or DEFAULT_ITERATIONS
        rows = self._rows()
        if not rows:
            self._all(begin, states, states.missing(0), 0, constants)
        status = Status.CONVERGED if rows and _converged(rows[-1]) else Status.ITERATION_LIMIT
        while len(rows) < limit and status is not Status.CONVERGED:
            step = len(rows) + 1
            self._iterate(states, step, limit, constants)
            rows.append(self._row(states.sums(step), float(problem.norm_squared.upper)))
            write_text(self.store.folder / ROWS, json.dumps(rows) + "\n")
            states.drop(step - 1)
            if not math.isfinite(rows[-1]["x_change"]):
                raise InputError(f"the run broke at iteration {step}: the picture has values that are not finite")
            status = Status.CONVERGED if _converged(rows[-1]) else status
        self._put(states, len(rows))
        method = constants.method(self.settings)
        history = _history(rows, self.decisions, method)
        certificate = certify(problem, method, history, Seen(failed=(False,)))[0]
        return Done(self.decisions, status, certificate, len(rows))

    def _iterate(self, states: Field, step: int, limit: int, constants: Constants) -> None:
        missing = states.missing(step)
        due = step == 1 or step % CURVATURE_EVERY == 0
        turn = step // CURVATURE_EVERY
        everywhere = step == 1 or len(self.grid) < TURNS
        with_curvature = {n: due and (everywhere or (n + turn) % TURNS == 0) for n in missing}
        given = [
            (states, n, self.settings, self.decisions, constants, tile, step, with_curvature[n])
            for n, tile in enumerate(self.grid)
            if n in with_curvature
        ]
        self._wait(iterate, given, (step - 1) * len(self.grid) + len(self.grid) - len(missing), limit * len(self.grid))

    def _all(self, task: Task, states: Field, numbers: list[int], done: int, *others: Any) -> None:
        tiles = list(self.grid)
        given = [(states, n, self.settings, self.decisions, *others, tiles[n]) for n in numbers]
        self._wait(task, given, done, len(self.grid))

    def _wait(self, task: Task, given: list[tuple[Any, ...]], done: int, of: int) -> None:
        for number, _ in enumerate(self.engine.run(task, given), 1):
            if self.tell is not None and of > len(self.grid):
                pixels = number * self.decisions.size[0] * self.decisions.size[1] / len(self.grid)
                self.tell(done + number, of, pixels / max(time.perf_counter() - self.began, 1e-9))

    def _norm(self) -> NormBound:
        """The bound of `||H||^2`, by power iterations over tiles."""
        powers = Field(self.store, "power", self.grid)
        path = self.store.folder / "norm.json"
        if path.is_file():
            known = json.loads(path.read_text(encoding="utf-8"))
            return NormBound(*(torch.tensor([known[end]], dtype=torch.float64) for end in ("lower", "upper")))
        step, top, signed = 0, 1.0, False

        def product() -> tuple[Tensor, Tensor]:
            nonlocal step, top, signed
            step += 1
            tiles = list(self.grid)
            missing = powers.missing(step)
            given = [(powers, n, self.settings, self.decisions, tiles[n], step, top) for n in missing]
            self._wait(power, given, 0, 0)
            sums = powers.sums(step)
            powers.drop(step - 1)
            top, signed = largest(sums, "top"), any(one["signed"] for one in sums)
            products, squares = (np.sum([one[name] for one in sums], 0) for name in ("products", "squares"))
            if signed and step >= SIGNED_ITERATIONS:
                return torch.tensor([math.inf], dtype=torch.float64), torch.tensor([largest(sums, "ratio")])
            return (
                torch.tensor([float((products / squares).max())], dtype=torch.float64),
                torch.tensor([largest(sums, "ratio")], dtype=torch.float64),
            )

        bound = collatz_wielandt(product, 1)
        lower = 0.0 if signed else float(bound.lower)  # that of |H| says nothing of H
        found = {"lower": lower, "upper": float(bound.upper)}
        write_text(path, json.dumps(found) + "\n")
        powers.drop(step)
        return NormBound(torch.tensor([lower], dtype=torch.float64), bound.upper)

    def _rows(self) -> list[dict[str, float]]:
        path = self.store.folder / ROWS
        found: list[dict[str, float]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
        return found

    def _row(self, sums: list[Sums], upper: float) -> dict[str, float]:
        """The row of the history that belongs to the sums of all tiles."""
        x, z = max(total(sums, "x"), _TINY), max(total(sums, "z"), _TINY)
        parts = torch.tensor([one["residual"] for one in sums], dtype=torch.float64).sum(0)
        residual = residual_of(parts[:, None], torch.tensor([upper], dtype=torch.float64))
        return {
            "x_change": math.sqrt(total(sums, "dx") / x),
            "z_change": math.sqrt(total(sums, "dz") / z),
            "u_change": math.sqrt(total(sums, "du") / z),
            **{name: total(sums, name) for name in ("data_fit", "objective", "lagrangian")},
            "curvature": largest(sums, "curvature"),
            "residual": float(residual),
            "seconds": time.perf_counter() - self.began,
        }

    def _put(self, states: Field, step: int) -> None:
        """The picture of the last iteration into the store of tiles, in the numbers of the picture."""
        units = self.decisions.units
        for number, tile in enumerate(self.grid):
            planes = states.read(step, *(part.core for part in (tile.rows, tile.columns)))
            self.store.write(number, units.back(torch.from_numpy(planes[:1]))[0].numpy())


_TINY = torch.finfo(torch.float64).tiny


def exact_grid(settings: Settings, decisions: Decisions, side: int) -> Grid:
    """Tiles whose halo holds all that an iteration of their core depends on."""
    reach = reach_of(exact_denoiser(settings))
    (height, width), kernel = decisions.size, decisions.kernel
    if reach is None:
        raise InputError(f"{settings.denoiser} needs the whole picture: in parts take a network, such as prox-drunet")
    # H and H^T before the denoiser; after it H, and H^T once more for the residual.
    pixels = reach + 3 * (max(kernel) // 2 + 1)
    halo = -(-pixels // ALIGNMENT) * ALIGNMENT
    least = 2 * halo + 8 * ALIGNMENT
    scene = (height + kernel[0] - 1, width + kernel[1] - 1)
    if side < least and side < max(scene):
        raise InputError(f"tiles = {side}: this blur and denoiser need a side of at least {least} for exact iterations")
    return plan_tiles(scene, side, halo, 0)


def stand_in(decisions: Decisions, norm: NormBound) -> Problem:
    """A tiny problem with the constants of the whole one, for all that asks for these alone."""
    noise = decisions.units.noise(torch.tensor([decisions.noise], dtype=torch.float64))
    y = torch.zeros(1, decisions.channels, 2, 2, dtype=torch.float64)
    weighted = decisions.saturation or decisions.hot is not None
    term: DataTerm = WeightedGaussian((noise**-2).expand(2, 2).clone()) if weighted else Gaussian(noise)
    problem = Problem(y, Mask(torch.ones(2, 2, dtype=torch.float64)), term)
    vars(problem)["norm_squared"] = norm
    return problem


def constants_for(settings: Settings, decisions: Decisions, problem: Problem) -> Constants:
    """The parameters of the method for the whole picture."""
    noise = decisions.units.noise(torch.tensor([decisions.noise], dtype=torch.float64))
    made: Any = make_method(settings.method, exact_denoiser(settings), problem, noise, settings.strength)
    assert isinstance(made, LADMM)
    relaxation = made.denoiser.gamma if isinstance(made.denoiser, Relaxed) else 1.0
    return Constants(*(float(value) for value in (made.sigma_d, made.beta, made.L_x, relaxation)))


def _converged(row: dict[str, float]) -> bool:
    return max(row[name] for name in ("x_change", "z_change", "u_change", "residual")) < TOLERANCE


def _history(rows: list[dict[str, float]], decisions: Decisions, method: LADMM) -> History:
    def column(name: str) -> Tensor | None:
        values = torch.tensor([row[name] for row in rows], dtype=torch.float64)
        return values[:, None] if bool(torch.isfinite(values).any()) else None

    names = ("z_change", "u_change", "data_fit", "objective", "lagrangian", "curvature")
    changes = column("x_change")
    assert changes is not None
    eps = torch.finfo(precision_of(method.denoiser) or torch.float32).eps
    pixels = decisions.channels * decisions.size[0] * decisions.size[1]
    return History(
        x_change=changes,
        **{name: column(name) for name in names},
        psnr=None,
        seconds=torch.tensor([row["seconds"] for row in rows], dtype=torch.float64),
        denoiser_calls=torch.arange(1, len(rows) + 1),
        rounding=100 * eps / math.sqrt(pixels),
    )
