"""Tuning: for each method and noise level the same number of trials, on the tuning split and nothing else.

A study lives in SQLite and holds finished trials only. The search itself goes on in memory, and the seed of each
trial's sampler comes from the trial's number: a study that was stopped and is started again makes the trials it would
have made anyway.
"""

from __future__ import annotations

import json
import math
import sqlite3
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pnpladmm.files import optional, write_text
from pnpladmm.metrics import PAPER, psnr
from pnpladmm.solvers import Progress as Step
from pnpladmm.solvers import Status, solve
from pnpladmm.solvers.settings import Row, Table
from pnpladmm.tensors import InputError
from pnpladmm.workshop.experiments.batches import Batch
from pnpladmm.workshop.experiments.comparison import Compared
from pnpladmm.workshop.experiments.output import write_result
from pnpladmm.workshop.experiments.progress import Progress
from pnpladmm.workshop.experiments.samples import Task
from pnpladmm.workshop.experiments.setup import Setup
from pnpladmm.workshop.experiments.store import code_digest, digest
from pnpladmm.workshop.experiments.tuning_page import draw_tuning
from pnpladmm.workshop.experiments.units import Advance

if TYPE_CHECKING:
    import optuna

COUNT = 20
TRIALS, QUICK_TRIALS = 40, 3
RANDOM_TRIALS = 8
"""Trials before the sampler models anything; the given first points are among them."""
BEST_PER_CENT = 60.0
"""A trial is stopped early when its score is not among this share of the earlier ones."""
DIGITS = 4


@dataclass(frozen=True)
class Search:
    """One study: a method at a noise level."""

    method: Compared
    noise: float
    name: str
    """The study's name in the database; it has a digest of all that decides the trials, except the code."""
    start: Row
    """The settings before the search: its first point, and the values of parameters that are not searched."""
    batches: tuple[Batch, ...]
    quick: bool

    @property
    def iterations(self) -> int:
        """Of a trial at the first point."""
        return self.method.length({"iterations": 30.0, **self.start}, self.quick)

    @property
    def cost(self) -> float:
        """Of one trial, about, in denoiser calls times pictures."""
        return self.iterations * self.method.cost_per_iteration * sum(len(batch.names) for batch in self.batches)

    @property
    def label(self) -> str:
        """For progress."""
        return f"{self.method.title_of_run(self.quick)}, noise {self.noise:g}"


def tune(setup: Setup, methods: Sequence[Compared], trials: int | None = None, task: Task = "deblur") -> Table:
    """Tune; write `settings.json` (the old table with the new settings), `tune.json` and what is drawn from it."""
    optuna = _optuna()
    wanted = (QUICK_TRIALS if setup.quick else TRIALS) if trials is None else trials
    if wanted < 1:
        raise InputError(f"trials = {wanted}: give at least 1")
    loaded = setup.samples("tune", task, COUNT)
    searches: list[Search] = []
    for noise, samples in loaded.items():
        batches = tuple(setup.batches(samples))
        searches += [_search(setup, method, noise, task, batches) for method in methods if method.space]
    if not searches:
        names = ", ".join(method.name for method in methods)
        raise InputError(f"tuning of {names}: none of its parameters has a range to search")
    setup.out.mkdir(parents=True, exist_ok=True)
    storage = _storage(optuna, setup.out / "tune.sqlite")
    studies = [
        optuna.create_study(storage=storage, study_name=s.name, direction="maximize", load_if_exists=True)
        for s in searches
    ]
    to_do = sum(s.cost * max(0, wanted - len(study.trials)) for s, study in zip(searches, studies, strict=True))
    with Progress("tune", to_do, setup.quiet) as progress:
        if changed := _begun_with_other_code(studies):
            progress.say(f"{changed} studies began with another version of the code; use a new --out to begin again")
        for search, study in zip(searches, studies, strict=True):
            _finish(setup, search, study, wanted, progress)
    found = [_found(search, study, wanted) for search, study in zip(searches, studies, strict=True)]
    table = _merged(setup, found, task)
    write_text(setup.out / "settings.json", json.dumps(_plain(table), indent=1) + "\n")
    data = {
        "experiment": "tune",
        "task": task,
        **setup.described(loaded),
        "trials": wanted,
        "titles": {search.method.name: search.method.title_of_run(setup.quick) for search in searches},
        "searches": found,
    }
    write_result(setup.out, "tune", data, draw_tuning)
    return table


def _search(setup: Setup, method: Compared, noise: float, task: Task, batches: tuple[Batch, ...]) -> Search:
    start = setup.row(method, noise, task)
    decides = {
        "space": method.space,
        "looks": method.looks,
        "iterations": method.iterations,
        "start": start,
        "data": [batch.digest for batch in batches],
        "quick": setup.quick,
        "denoiser": setup.denoiser_digest,
        "machine": setup.machine,
    }
    name = f"{setup.denoiser_title} {method.name} {task} noise {noise:g} {digest(decides)[:12]}"
    return Search(method, noise, name, start, batches, setup.quick)


def _finish(setup: Setup, search: Search, study: optuna.Study, wanted: int, progress: Progress) -> None:
    """Add trials until there are `wanted`; each is stored in one transaction when it is finished."""
    optuna = _optuna()
    pruner = optuna.pruners.PercentilePruner(BEST_PER_CENT, n_startup_trials=5)
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
        with progress.part(search.cost, search.label) as advance:
            score = _score(setup, search, {**search.start, **_suggest(trial, search)}, trial, advance)
        if score is None:
            memory.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            memory.tell(trial, score)
        study.add_trial(memory.trials[-1])


def _score(setup: Setup, search: Search, row: Row, trial: optuna.Trial, advance: Advance) -> float | None:
    """Mean PSNR over the tuning pictures, in the paper's convention; None if the trial was stopped early.

    The first batch decides about that: its score is compared with the one of earlier trials at the same iteration.
    """
    method = search.method
    iterations = method.length(row, setup.quick)
    looks = {max(1, round(share * iterations)) for share in method.looks if share * iterations < iterations}
    scores: list[float] = []
    for batch in search.batches:
        stopped_early = False

        def look(step: Step, batch: Batch = batch) -> bool:
            nonlocal stopped_early
            advance(len(batch.names))
            if batch is search.batches[0] and step.iteration in looks:
                trial.report(_zero_if_infinite(float(psnr(step.state.x, batch.sharp, PAPER).mean())), step.iteration)
                stopped_early = trial.should_prune()
            return stopped_early

        made = method.make(setup.denoiser, batch.problem, row, setup.quick)
        result = solve(batch.problem, made, iterations, 0.0, batch.start, callback=look)
        if stopped_early:
            return None
        if Status.STOPPED in result.statuses:
            raise KeyboardInterrupt
        scores += psnr(result.image, batch.sharp, PAPER).tolist()
    return _zero_if_infinite(sum(scores) / len(scores))


def _zero_if_infinite(score: float) -> float:
    """A picture that diverged counts as 0 dB."""
    return score if math.isfinite(score) else 0.0


def _suggest(trial: optuna.Trial, search: Search) -> Row:
    found: Row = {}
    for name, span in search.method.space.items():
        low, high = span.at(search.noise)
        if span.whole:
            found[name] = float(trial.suggest_int(name, round(low), round(high), log=True))
        else:
            found[name] = trial.suggest_float(name, low, high, log=not span.linear)
    return found


def _first_points(search: Search) -> list[dict[str, float]]:
    """The settings before the search and those that the method recommends, moved into the range."""
    rows = [search.start]
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


def _found(search: Search, study: optuna.Study, wanted: int) -> dict[str, Any]:
    """The result of a study's first `wanted` trials: the parameters of the best one, and all trials."""
    complete = _optuna().trial.TrialState.COMPLETE
    trials = study.trials[:wanted]
    best = max((t for t in trials if t.state == complete), key=lambda t: float(t.value or 0.0))
    row = {**search.start, **{name: _rounded(value) for name, value in best.params.items()}}
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
    """To a few digits: people read the table, and the optimum is flat."""
    return float(f"{value:.{DIGITS}g}")


def _merged(setup: Setup, found: Sequence[Mapping[str, Any]], task: Task) -> Table:
    """The old table with the new settings; a task other than deblurring has entries of its own."""
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


def _begun_with_other_code(studies: Sequence[optuna.Study]) -> int:
    """How many studies began with another version of the code; new ones are marked with this version."""
    changed = 0
    for study in studies:
        begun = study.user_attrs.get("code")
        if begun is None:
            study.set_user_attr("code", code_digest())
        changed += begun is not None and begun != code_digest()
    return changed


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
    optuna = optional("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna
