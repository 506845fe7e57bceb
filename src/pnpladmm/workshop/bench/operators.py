"""Blur and adjoint against other tools: that they agree, then how long each takes, taking turns."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.operators.blur import Order
from pnpladmm.workshop.bench.report import Options, Report, Table
from pnpladmm.workshop.bench.rivals import BLURS, Missing, RivalBlur
from pnpladmm.workshop.bench.scenes import Weights, make_kernels, make_picture, make_weights
from pnpladmm.workshop.bench.timing import Timing, take_turns

OURS = "pnpladmm"
PAPERS: Order = "convolve-then-weight"
DEEPINVS: Order = "weight-then-convolve"
"""The default there. For a rival the work is the same: forward and adjoint change places."""
AGREE = 1e-4
"""Largest relative difference between two float32 results that counts as agreement."""
PATIENCE = {"cpu": 6.0, "cuda": 1.5}
"""Seconds that forward and adjoint of a rival may be expected to take together; beyond it is left out."""
BUDGET = {"cpu": 3.0, "cuda": 0.4}
"""Seconds of samples after which two are enough."""
MEMORY_SHARE = 0.4
"""Share of the memory (of a GPU: of what is free) that a case may be expected to take."""


@dataclass(frozen=True)
class Case:
    """One blur of a colour picture."""

    size: tuple[int, int]
    kernels: int
    side: int
    weights: Weights
    order: Order = PAPERS

    @property
    def work(self) -> float:
        """For sorting: from quick to slow."""
        return float(self.size[0] * self.size[1] * self.kernels * self.side**2)

    @property
    def bytes(self) -> float:
        """About what the weights, the transforms of all kernels and the largest intermediate results take."""
        return 4.0 * self.size[0] * self.size[1] * (4 * self.kernels + 30)


HEADLINE = ((480, 640), 16, 33)
"""Size, P and k that the project's aim is stated for: never left out."""


def cases(quick: bool) -> list[Case]:
    """P x k x size x weights; uniform blur once, as both kinds of weights are the same then; deepinv's order once."""
    if quick:
        return [
            Case((64, 64), 1, 15, "segments"),
            Case((64, 80), 5, 15, "segments"),
            Case((64, 80), 5, 15, "segments", DEEPINVS),
            Case((96, 96), 16, 33, "dense"),
        ]
    sizes = [(256, 256), (512, 512), (480, 640), (1024, 1024), (2048, 2048)]
    kinds: tuple[Weights, ...] = ("segments", "dense")
    grid = [
        Case(size, count, side, kind)
        for size, count, side, kind in itertools.product(sizes, (1, 5, 16, 64), (15, 33, 65), kinds)
        if count > 1 or kind == "segments"
    ]
    grid += [Case(*HEADLINE, kind, DEEPINVS) for kind in kinds]
    return sorted(grid, key=lambda case: case.work)


def run(options: Options) -> Report:
    """All cases, from quick to slow."""
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    pace: dict[str, float] = {}
    columns = ("size", "P", "k", "weights", "ours, ms: H + H^T", *(f"{name} / ours" for name in BLURS), "difference")
    table = Table(f"Blur and adjoint of a colour picture on {options.device.type}: best (median)", columns)
    for case in cases(options.quick):
        options.say(f"{case.size[0]}x{case.size[1]}, P = {case.kernels}, k = {case.side}, {case.weights}")
        found = measure(case, options, pace)
        rows += found
        table.rows.append(_cells(case, found))
        for row in found:
            if row["missing"] and (note := f"{row['rival']}: {row['missing']}") not in notes:
                notes.append(note)
    notes.append("difference: the largest of |theirs - ours| / max |ours|, forward and adjoint, of those that ran")
    settings = {
        "channels": 3,
        "boundary": "circular",
        "dtype": "float32",
        "agreement": AGREE,
        "patience_s": PATIENCE[options.device.type],
    }
    return Report("operators", settings, rows, [table], notes)


def measure(case: Case, options: Options, pace: dict[str, float]) -> list[dict[str, Any]]:
    """One row a rival, ours first. `pace` holds the seconds a unit of work that each took last time."""
    device = options.device
    facts = asdict(case)
    if case.bytes > MEMORY_SHARE * _memory(device):
        gigabytes = case.bytes / 2**30
        return [_row(facts, name, left_out=f"needs about {gigabytes:.0f} GB") for name in (OURS, *BLURS)]
    kernels = make_kernels(case.kernels, case.side).to(device)
    weights = make_weights(case.weights, case.kernels, case.size, device)
    blur = SpatiallyVaryingBlur(kernels, weights, "circular", case.order)
    x, y = (make_picture(case.size, device, seed)[None] for seed in range(2))

    ready = {OURS: RivalBlur(blur.forward, blur.adjoint, case.work)}
    expected = blur.forward(x), blur.adjoint(y)
    rows = {OURS: _row(facts, OURS, difference=0.0)}
    for name, make in BLURS.items():
        try:
            rival = make(blur)
            guess = pace.get(name, 0.0) * rival.work
            if guess > PATIENCE[device.type] and (case.size, case.kernels, case.side) != HEADLINE:
                rows[name] = _row(facts, name, left_out=f"about {guess:.0f} s")
                continue
            difference = max(_difference(rival.forward(x), expected[0]), _difference(rival.adjoint(y), expected[1]))
        except Missing as missing:
            rows[name] = _row(facts, name, missing=str(missing))
            continue
        except torch.cuda.OutOfMemoryError:
            rows[name] = _row(facts, name, left_out="out of memory")
            continue
        rows[name] = _row(facts, name, difference=difference)
        if difference < AGREE:  # what computes something else is not timed
            ready[name] = rival
        else:
            rows[name]["left_out"] = "disagrees"
    timings = _time(ready, x, y, options)
    for name, (forward, adjoint) in timings.items():
        rows[name] |= {"forward": forward.as_json(), "adjoint": adjoint.as_json()}
        rows[name]["ratio"] = _ratios(timings[name], timings[OURS])
        pace[name] = (forward.best + adjoint.best) / ready[name].work
    return list(rows.values())


def _time(ready: dict[str, RivalBlur], x: Tensor, y: Tensor, options: Options) -> dict[str, tuple[Timing, Timing]]:
    samples, budget = (3, 0.3) if options.quick else (7, BUDGET[options.device.type])
    runs: dict[tuple[str, str], Callable[[], object]] = {}
    for name, rival in ready.items():
        runs[name, "forward"] = partial(rival.forward, x)
        runs[name, "adjoint"] = partial(rival.adjoint, y)
    taken = take_turns(runs, options.device, samples=samples, least=2, budget=budget)
    return {name: (taken[name, "forward"], taken[name, "adjoint"]) for name in ready}


def _ratios(theirs: tuple[Timing, Timing], ours: tuple[Timing, Timing]) -> dict[str, float]:
    """Forward plus adjoint: their time over ours."""
    return {
        "best": sum(t.best for t in theirs) / sum(t.best for t in ours),
        "median": sum(t.median for t in theirs) / sum(t.median for t in ours),
    }


def _difference(result: Tensor, expected: Tensor) -> float:
    return float((result - expected).abs().max() / expected.abs().max())


def _row(facts: dict[str, Any], rival: str, **more: Any) -> dict[str, Any]:
    empty = {"forward": None, "adjoint": None, "ratio": None, "difference": None, "left_out": None, "missing": None}
    return {**facts, "rival": rival, **empty, **more}


def _cells(case: Case, rows: list[dict[str, Any]]) -> tuple[str, ...]:
    ours, *others = rows
    kind = "uniform" if case.kernels == 1 else case.weights
    if case.order == DEEPINVS:
        kind += ", weighted first"
    first = (f"{case.size[0]}x{case.size[1]}", str(case.kernels), str(case.side), kind)
    times = ours["left_out"] or " + ".join(f"{1e3 * ours[way]['best']:.2f}" for way in ("forward", "adjoint"))
    cells = []
    for row in others:
        ratio = row["ratio"]
        cells.append(row["left_out"] or ("-" if ratio is None else f"{ratio['best']:.1f} ({ratio['median']:.1f})"))
    differences = [row["difference"] for row in others if row["difference"] is not None]
    return *first, times, *cells, f"{max(differences):.0e}" if differences else "-"


def _memory(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
