"""Blur and adjoint against other tools: first whether they agree, then the time of each."""

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
from pnpladmm.workshop.bench.inputs import Weights, make_kernels, make_picture, make_weights
from pnpladmm.workshop.bench.report import Options, Report, Row
from pnpladmm.workshop.bench.rivals import BLURS, Missing, RivalBlur
from pnpladmm.workshop.bench.timing import Timing, take_turns

OURS = "pnpladmm"
PAPER_ORDER: Order = "convolve-then-weight"
DEEPINV_ORDER: Order = "weight-then-convolve"
"""deepinv's default. The work is the same: forward and adjoint change places."""
AGREEMENT = 1e-4
"""Results of float32 agree if their relative difference is below this."""
MAX_SECONDS = {"cpu": 6.0, "cuda": 1.5}
"""A rival is left out if forward and adjoint are expected to take longer."""
BUDGET = {"cpu": 3.0, "cuda": 0.4}
"""Seconds after which two samples are enough."""
MEMORY_SHARE = 0.4
"""A case is left out if it is expected to need more than this share of the memory (on a GPU: of the free memory)."""


@dataclass(frozen=True)
class Case:
    """One blur of a colour picture."""

    size: tuple[int, int]
    kernels: int
    side: int
    weights: Weights
    order: Order = PAPER_ORDER

    @property
    def work(self) -> float:
        """What the time is about proportional to, for sorting."""
        return float(self.size[0] * self.size[1] * self.kernels * self.side**2)

    @property
    def bytes(self) -> float:
        """Roughly the memory of the weights, the transforms of all kernels and the largest intermediate results."""
        return 4.0 * self.size[0] * self.size[1] * (4 * self.kernels + 30)


TARGET = ((480, 640), 16, 33)
"""Size, P and k of the project's goal, which are never left out."""


def cases(quick: bool) -> list[Case]:
    """P x k x size x weights; uniform blur once, because its weights are all alike; deepinv's order at one size."""
    if quick:
        return [
            Case((64, 64), 1, 15, "segments"),
            Case((64, 80), 5, 15, "segments"),
            Case((64, 80), 5, 15, "segments", DEEPINV_ORDER),
            Case((96, 96), 16, 33, "dense"),
        ]
    sizes = [(256, 256), (512, 512), (480, 640), (1024, 1024), (2048, 2048)]
    kinds: tuple[Weights, ...] = ("segments", "dense")
    grid = [
        Case(size, count, side, kind)
        for size, count, side, kind in itertools.product(sizes, (1, 5, 16, 64), (15, 33, 65), kinds)
        if count > 1 or kind == "segments"
    ]
    grid += [Case(*TARGET, kind, DEEPINV_ORDER) for kind in kinds]
    return sorted(grid, key=lambda case: case.work)


def _blur(rows: list[Row]) -> str:
    kind = "uniform" if rows[0]["kernels"] == 1 else rows[0]["weights"]
    return kind + (", weighted first" if rows[0]["order"] == DEEPINV_ORDER else "")


def _own_times(rows: list[Row]) -> str:
    ours = rows[0]
    return ours["left_out"] or " + ".join(f"{1e3 * ours[way]['best']:.2f}" for way in ("forward", "adjoint"))


def _ratio(index: int) -> Callable[[list[Row]], str]:
    def cell(rows: list[Row]) -> str:
        row, ratio = rows[index], rows[index]["ratio"]
        return row["left_out"] or ("-" if ratio is None else f"{ratio['best']:.1f} ({ratio['median']:.1f})")

    return cell


def _largest_difference(rows: list[Row]) -> str:
    differences = [row["difference"] for row in rows[1:] if row["difference"] is not None]
    return f"{max(differences):.0e}" if differences else "-"


COLUMNS: dict[str, Callable[[list[Row]], str]] = {
    "size": lambda rows: f"{rows[0]['size'][0]}x{rows[0]['size'][1]}",
    "P": lambda rows: str(rows[0]["kernels"]),
    "k": lambda rows: str(rows[0]["side"]),
    "weights": _blur,
    "ours, ms: H + H^T": _own_times,
    **{f"{name} / ours": _ratio(index) for index, name in enumerate(BLURS, 1)},
    "difference": _largest_difference,
}
"""Of the rows of one case, ours first."""


def run(options: Options) -> Report:
    """Measure all cases, from quick to slow."""
    groups: list[list[Row]] = []
    pace: dict[str, float] = {}
    for case in cases(options.quick):
        options.say(f"{case.size[0]}x{case.size[1]}, P = {case.kernels}, k = {case.side}, {case.weights}")
        groups.append(measure(case, options, pace))
    rows = [row for group in groups for row in group]
    notes = list(dict.fromkeys(f"{row['rival']}: {row['missing']}" for row in rows if row["missing"]))
    notes.append("difference: the largest of |theirs - ours| / max |ours|, forward and adjoint, of those that ran")
    settings = {
        "channels": 3,
        "boundary": "circular",
        "dtype": "float32",
        "agreement": AGREEMENT,
        "patience_s": MAX_SECONDS[options.device.type],
    }
    title = f"Blur and adjoint of a colour picture on {options.device.type}: best (median)"
    return Report("operators", title, COLUMNS, rows, settings, notes, groups)


def measure(case: Case, options: Options, pace: dict[str, float]) -> list[Row]:
    """Compare and time one case.

    Parameters
    ----------
    case : Case
        The blur.
    options : Options
        Device and effort.
    pace : dict
        For each rival the seconds per unit of work in the last case; updated here.

    Returns
    -------
    list of Row
        One row per rival, ours first.
    """
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
            if guess > MAX_SECONDS[device.type] and (case.size, case.kernels, case.side) != TARGET:
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
        if difference < AGREEMENT:  # else it computes something else, and its time means nothing
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


def _row(facts: dict[str, Any], rival: str, **more: Any) -> Row:
    empty = {"forward": None, "adjoint": None, "ratio": None, "difference": None, "left_out": None, "missing": None}
    return {**facts, "rival": rival, **empty, **more}


def _memory(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
