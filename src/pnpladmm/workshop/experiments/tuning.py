"""Tuning: for each method and noise level the same number of trials, on the tuning split and nothing else.

A study lives in SQLite and holds finished trials only. The search itself goes on in memory, and each trial's sampler is
seeded by the trial's number: a study that was killed and taken up again makes the trials it would have made anyway.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pnpladmm.metrics import PAPER, psnr
from pnpladmm.report import write_text
from pnpladmm.solvers import Progress as Step
from pnpladmm.solvers import Status
from pnpladmm.solvers.settings import Row, Table
from pnpladmm.tensors import InputError
from pnpladmm.workshop.experiments.page import keep
from pnpladmm.workshop.experiments.progress import Progress
from pnpladmm.workshop.experiments.protocol import Compared
from pnpladmm.workshop.experiments.running import Batch, Setup, run
from pnpladmm.workshop.experiments.samples import Task
from pnpladmm.workshop.experiments.store import code_digest, digest
from pnpladmm.workshop.experiments.tuning_page import draw_tuning

if TYPE_CHECKING:
    import optuna

COUNT = 20
TRIALS, QUICK_TRIALS = 40, 3
RANDOM_TRIALS = 8
"""Before the sampler models anything; the given first points are among them."""
KEPT = 60.0
"""A trial goes on while it is among the best so many per cent at a look."""
DIGITS = 4


@dataclass(frozen=True)
class Search:
    """One study: a method at a noise level."""

    method: Compared
    noise: float
    name: str
    """In the database: what is searched, and a digest of all that decides its trials but for the code."""
    base: Row
    """The settings there are: the first point, and where parameters that are not searched stay."""


def tune(setup: Setup, methods: Sequence[Compared], trials: int | None = None, task: Task = "deblur") -> Table:
    """Tune; write `settings.json`, the table there was with what was found, `tune.json` and what is drawn from it."""
    optuna = _optuna()
    wanted = (QUICK_TRIALS if setup.quick else TRIALS) if trials is None else trials
    if wanted < 1:
        raise InputError(f"trials = {wanted}: give at least 1")
    pictures: dict[float, list[Batch]] = {}
    searches: list[Search] = []
    loaded = setup.samples("tune", task, COUNT)
    for noise, samples in loaded.items():
        pictures[noise] = setup.batches(samples)
        searches += [_search(setup, method, noise, task, pictures[noise]) for method in methods]
    setup.out.mkdir(parents=True, exist_ok=True)
    storage = _storage(optuna, setup.out / "tune.sqlite")
    studies = [
        optuna.create_study(storage=storage, study_name=s.name, direction="maximize", load_if_exists=True)
        for s in searches
    ]
    notes = _code_notes(studies)
    count = sum(len(batch.names) for batch in pictures[setup.noise[0]])
    cost = sum(_cost(s, setup.quick) * max(0, wanted - len(k.trials)) for s, k in zip(searches, studies, strict=True))
    with Progress("tune", count * cost, setup.quiet) as progress:
        for note in notes:
            progress.say(note)
        for search, study in zip(searches, studies, strict=True):
            _finish(setup, search, study, wanted, pictures[search.noise], progress)
    found = [_found(setup, search, study, wanted) for search, study in zip(searches, studies, strict=True)]
    table = _merged(setup, found, task)
    write_text(setup.out / "settings.json", json.dumps(_plain(table), indent=1) + "\n")
    data = {
        "experiment": "tune",
        "task": task,
        **setup.described(loaded),
        "trials": wanted,
        "titles": {method.name: method.title for method in methods},
        "searches": found,
    }
    keep(setup.out, "tune", data, draw_tuning)
    return table


def _search(setup: Setup, method: Compared, noise: float, task: Task, batches: Sequence[Batch]) -> Search:
    base = setup.row(method, noise, task)
    decides = {
        "space": method.space,
        "looks": method.looks,
        "iterations": method.iterations,
        "base": base,
        "data": [batch.digest for batch in batches],
        "quick": setup.quick,
        "denoiser": setup.denoiser_digest,
        "machine": setup.machine,
    }
    name = f"{setup.denoiser_title} {method.name} {task} noise {noise:g} {digest(decides)[:12]}"
    return Search(method, noise, name, base)


def _finish(
    setup: Setup,
    search: Search,
    study: optuna.Study,
    wanted: int,
    batches: Sequence[Batch],
    progress: Progress,
) -> None:
    """Add trials until there are `wanted`; one is stored when it is done, in one transaction."""
    optuna = _optuna()
    pruner = optuna.pruners.PercentilePruner(KEPT, n_startup_trials=5)
    memory = optuna.create_study(direction="maximize", pruner=pruner)
    memory.add_trials(study.trials)
    points = _first_points(search)
    for n in range(len(memory.trials), wanted):
        memory.sampler = optuna.samplers.TPESampler(
            seed=int(digest([setup.seed, search.method.name, search.noise, n])[:8], 16),
            n_startup_trials=RANDOM_TRIALS,
            multivariate=True,
            constant_liar=False,
        )
        if n < len(points):
            memory.enqueue_trial(points[n])
        trial = memory.ask()
        row = {**search.base, **_suggest(trial, search)}
        before = progress.done
        value = _score(setup, search, row, batches, trial, progress)
        if value is None:
            memory.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            memory.tell(trial, value)
        study.add_trial(memory.trials[-1])
        whole = _cost(search, setup.quick) * sum(len(batch.names) for batch in batches)
        progress.advance(whole - (progress.done - before), _label(search))


def _score(
    setup: Setup,
    search: Search,
    row: Row,
    batches: Sequence[Batch],
    trial: optuna.Trial,
    progress: Progress,
) -> float | None:
    """Mean PSNR over the tuning pictures, in the paper's convention; None if given up on the way.

    A look compares the first batch with earlier trials' first batch at the same iteration: later ones go on without.
    """
    method = search.method
    iterations = method.length(row, setup.quick)
    looks = {max(1, round(share * iterations)) for share in method.looks if share * iterations < iterations}
    scores: list[float] = []
    for batch in batches:
        given_up = False

        def look(step: Step, batch: Batch = batch) -> bool:
            nonlocal given_up
            progress.advance(len(batch.names), _label(search))
            if batch is batches[0] and step.iteration in looks:
                trial.report(_mean_psnr(step.state.x, batch), step.iteration)
                given_up = trial.should_prune()
            return given_up

        made = method.make(setup.denoiser, batch.problem, row, setup.quick)
        result = run(batch, made, iterations, callback=look, may_stop=True)
        if given_up:
            return None
        if Status.STOPPED in result.statuses:
            raise KeyboardInterrupt
        scores += psnr(result.image, batch.sharp, PAPER).tolist()
    return _finite(sum(scores) / len(scores))


def _mean_psnr(x: Any, batch: Batch) -> float:
    return _finite(float(psnr(x, batch.sharp, PAPER).mean()))


def _finite(value: float) -> float:
    """A picture that blew up counts as 0 dB."""
    return value if math.isfinite(value) else 0.0


def _suggest(trial: optuna.Trial, search: Search) -> Row:
    found: Row = {}
    for name, span in search.method.space.items():
        low, high = span.at(search.noise)
        if span.whole:
            found[name] = float(trial.suggest_int(name, round(low), round(high), log=True))
        else:
            found[name] = trial.suggest_float(name, low, high, log=not span.even)
    return found


def _first_points(search: Search) -> list[dict[str, float]]:
    """The settings there are, and those of earlier probes, moved into the range."""
    rows = [search.base]
    if search.noise in search.method.first_points:
        rows.append(search.method.first_points[search.noise])
    points: list[dict[str, float]] = []
    for row in rows:
        point = {
            name: round(row[name]) if span.whole else span.clip(row[name], search.noise)
            for name, span in search.method.space.items()
        }
        if point not in points:
            points.append(point)
    return points


def _found(setup: Setup, search: Search, study: optuna.Study, wanted: int) -> dict[str, Any]:
    """What a study found in its first `wanted` trials: the best one's parameters, and all trials."""
    complete = _optuna().trial.TrialState.COMPLETE
    trials = study.trials[:wanted]
    best = max((t for t in trials if t.state == complete), key=lambda t: float(t.value or 0.0))
    row = {**search.base, **{name: _rounded(value) for name, value in best.params.items()}}
    return {
        "method": search.method.name,
        "noise": search.noise,
        "study": search.name,
        "psnr": best.value,
        "parameters": row,
        "bounds": {name: list(span.at(search.noise)) for name, span in search.method.space.items()},
        "trials": [
            {"number": n, "parameters": dict(t.params), "psnr": t.value if t.state == complete else None}
            for n, t in enumerate(trials)
        ],
    }


def _rounded(value: float) -> float:
    """To a few digits: the table is for reading, and the optimum is flat."""
    return float(f"{value:.{DIGITS}g}")


def _merged(setup: Setup, found: Sequence[Mapping[str, Any]], task: Task) -> Table:
    """The table there was, with what was found; a task other than deblurring has entries of its own."""
    table: Table = {d: {m: dict(levels) for m, levels in methods.items()} for d, methods in setup.settings.items()}
    rows = table.setdefault(setup.denoiser_title, {})
    for search in found:
        name = search["method"] if task == "deblur" else f"{search['method']}:{task}"
        rows.setdefault(name, {})[search["noise"]] = search["parameters"]
    return table


def _plain(table: Table) -> dict[str, Any]:
    return {
        denoiser: {
            method: {f"{level:g}": row for level, row in sorted(levels.items())} for method, levels in methods.items()
        }
        for denoiser, methods in table.items()
    }


def _code_notes(studies: Sequence[optuna.Study]) -> list[str]:
    """Mark new studies with the code they begin with; say where old ones began with other code."""
    changed = 0
    for study in studies:
        begun = study.user_attrs.get("code")
        if begun is None:
            study.set_user_attr("code", code_digest())
        changed += begun is not None and begun != code_digest()
    return [f"{changed} studies began with another version of the code; a new --out begins anew"] if changed else []


def _cost(search: Search, quick: bool) -> float:
    """Denoiser calls of a trial, about."""
    iterations = search.method.length({"iterations": 30.0, **search.base}, quick)
    return iterations * (1.0 if search.method.calls_per_iteration else 0.1)


def _label(search: Search) -> str:
    return f"{search.method.title}, noise {search.noise:g}"


def _storage(optuna: Any, path: Path) -> Any:
    try:
        with path.open("ab"):
            pass
        with sqlite3.connect(path) as check:
            check.execute("pragma quick_check").fetchall()
    except (sqlite3.DatabaseError, OSError) as error:
        raise InputError(f"{path}: no database of trials can be kept there ({error})") from None
    return optuna.storages.RDBStorage(f"sqlite:///{path}")


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise InputError("tuning needs optuna: pip install 'pnpladmm[experiments]'") from None
    import warnings

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna
