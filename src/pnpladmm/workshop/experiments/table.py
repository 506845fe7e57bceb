"""The paper's Table 1: methods against noise levels, with the paper's figures beside ours."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pnpladmm.workshop.experiments.batches import Batch, Clock, warm_up
from pnpladmm.workshop.experiments.comparison import Compared
from pnpladmm.workshop.experiments.output import write_result
from pnpladmm.workshop.experiments.paper import SECONDS, figures_of
from pnpladmm.workshop.experiments.samples import Task
from pnpladmm.workshop.experiments.scoring import METRICS, Judge
from pnpladmm.workshop.experiments.setup import Setup
from pnpladmm.workshop.experiments.table_page import BASELINE, draw_table
from pnpladmm.workshop.experiments.units import Advance, Run, Unit, run_units

COUNT = 60
"""Test pictures."""
OBSERVED = "observed"
"""The row of the observed pictures: what every method starts from."""
STARTS = {"inpainting": "Gaps filled", "sr2": "Enlarged", "sr3": "Enlarged", "sr4": "Enlarged"}
"""The title of that row where the observation has another size, or gaps."""


def table_name(task: str) -> str:
    """The name of a task's files."""
    return "table" if task == "deblur" else f"table-{task}"


def make_table(setup: Setup, methods: Sequence[Compared], task: Task = "deblur") -> dict[str, Any]:
    """Score every method at every noise level on the test pictures; write `table.json` and what is drawn from it."""
    if task == "inpainting":  # without a prior the gaps stay black
        methods = [method for method in methods if method.uses_denoiser]
    judge = Judge(setup.where, brief=setup.quick)
    units: list[Unit] = []
    loaded = setup.samples("test", task, COUNT)
    for noise, samples in loaded.items():
        for batch in setup.batches(samples):
            units.append(_observed_unit(setup, batch, noise, task, judge))
            units += [_unit(Run(setup, batch, method, noise, task), judge) for method in methods]
    found: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for unit, values in run_units(setup, table_name(task), units):
        found.setdefault((unit.key["method"], unit.key["noise"]), []).append(values)
    order = [OBSERVED, *(method.name for method in methods)]
    rows = [_row(name, noise, found[name, noise]) for name in order for noise in setup.noise]
    _compare(rows, task)
    data = {
        "experiment": "table",
        "task": task,
        **setup.described(loaded),
        "lpips": judge.trunks,
        "tuned_for": setup.tuned_for(methods, task),
        "titles": {
            OBSERVED: STARTS.get(task, "As observed"),
            **{method.name: method.title_of_run(setup.quick) for method in methods},
        },
        "rows": rows,
    }
    write_result(setup.out, table_name(task), data, partial(draw_table, name=table_name(task)))
    return data


def _unit(run: Run, judge: Judge) -> Unit:
    batch = run.batch

    def compute(advance: Advance) -> dict[str, Any]:
        clock = Clock(batch.device)
        clock.start()
        _ = batch.problem.norm_squared
        norm_seconds = clock.read()
        method = run.make_method()
        warm_up(batch, method, run.iterations)
        clock.start()
        result = run.solve(method, advance)
        seconds = clock.read()
        return {
            "names": batch.names,
            **judge(result.image, batch.sharp),
            "parameters": run.settings,
            "calls": method.calls_after(run.iterations),
            "iterations": run.iterations,
            "failed": sum(status.failed for status in result.statuses),
            "certificate": result.certificate.level.value,
            "seconds": seconds,
            "norm_seconds": norm_seconds,
        }

    return run.unit("table", compute, lpips=judge.trunks)


def _observed_unit(setup: Setup, batch: Batch, noise: float, task: Task, judge: Judge) -> Unit:
    def compute(advance: Advance) -> dict[str, Any]:
        return {
            "names": batch.names,
            **judge(batch.start, batch.sharp),
            "parameters": {},
            "calls": 0,
            "iterations": 0,
            "failed": 0,
            "certificate": None,
            "seconds": 0.0,
            "norm_seconds": 0.0,
        }

    key = setup.unit_key("table", batch, method=OBSERVED, noise=noise, task=task, lpips=judge.trunks)
    return Unit(key, batch, 0.1 * len(batch.names), f"as observed, noise {noise:g}", compute)


def _row(method: str, noise: float, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A method at a noise level: means over the pictures, and the pictures themselves."""
    names = [name for part in parts for name in part["names"]]
    each: dict[str, list[float] | None] = {}
    for metric in METRICS:
        columns = [part[metric] for part in parts]
        each[metric] = None if any(c is None for c in columns) else [value for c in columns for value in c]
    return {
        "method": method,
        "noise": noise,
        **{metric: None if values is None else statistics.fmean(values) for metric, values in each.items()},
        "calls": parts[0]["calls"],
        "iterations": parts[0]["iterations"],
        "seconds": sum(part["seconds"] for part in parts) / len(names),
        "norm_seconds": sum(part["norm_seconds"] for part in parts) / len(names),
        "failed": sum(part["failed"] for part in parts),
        "certificate": parts[0]["certificate"],
        "parameters": parts[0]["parameters"],
        "pictures": {"names": names, **each},
    }


def _compare(rows: Sequence[dict[str, Any]], task: str) -> None:
    """Add the paper's figures, and the gain over LADMM with its standard error, picture by picture."""
    for row in rows:
        printed = figures_of(row["method"], row["noise"], task)
        row["paper"] = None if printed is None else dataclasses.asdict(printed)
        row["paper_seconds"] = SECONDS.get(row["method"]) if printed is not None else None
        base = next((r for r in rows if r["method"] == BASELINE and r["noise"] == row["noise"]), None)
        row["gain"] = row["gain_error"] = None
        if base is not None and row is not base:
            pairs = zip(row["pictures"]["psnr"], base["pictures"]["psnr"], strict=True)
            gains = [ours - theirs for ours, theirs in pairs]
            row["gain"] = statistics.fmean(gains)
            row["gain_error"] = statistics.stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else None
