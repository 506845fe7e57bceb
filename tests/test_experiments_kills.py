"""Nothing of an experiment is lost to a kill, and what is finished is not done again."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiment_cases import FEW, quick, result
from pnpladmm.workshop.experiments import batches
from pnpladmm.workshop.experiments.comparison import chosen_methods
from pnpladmm.workshop.experiments.store import Store
from pnpladmm.workshop.experiments.table import make_table
from pnpladmm.workshop.experiments.tuning import tune


def _table_for_the_kill(out: Path) -> None:
    torch.set_num_threads(1)
    make_table(quick(out), chosen_methods(FEW))


def _tune_for_the_kill(out: Path) -> None:
    torch.set_num_threads(1)
    tune(quick(out), chosen_methods("ladmm"), trials=8)


@pytest.fixture(scope="module")
def processes() -> Any:
    """Processes that start quickly: forked from one that has imported everything and computed nothing."""
    context = multiprocessing.get_context("forkserver")
    modules = (
        "pnpladmm.workshop.experiments.table",
        "pnpladmm.workshop.experiments.tuning",
        "optuna",
        "pytest",
        "skimage.segmentation",
    )
    drawing = ("torchmetrics.functional.image", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg")
    context.set_forkserver_preload([*modules, *drawing])
    return context


def run_and_kill(processes: Any, target: Callable[[Path], None], tmp_path: Path, kills: int) -> tuple[Path, Path]:
    """One run left alone; one killed at random moments, then let finish."""
    quiet, disturbed = tmp_path / "quiet", tmp_path / "disturbed"

    def start(out: Path) -> Any:
        process = processes.Process(target=target, args=(out,))
        process.start()
        return process

    began = time.monotonic()
    process = start(quiet)
    process.join()
    assert process.exitcode == 0
    whole = time.monotonic() - began
    rng = random.Random(os.getpid())
    killed, latest = 0, 0.6 * whole
    while killed < kills:
        process = start(disturbed)
        process.join(rng.uniform(0.1, 1) * latest)
        if process.exitcode is None:
            os.kill(process.pid, signal.SIGKILL)
            process.join()
        if process.exitcode == 0:  # it was quicker, perhaps between the look and the kill: strike earlier
            latest *= 0.7
            continue
        assert process.exitcode == -signal.SIGKILL
        killed += 1
    process = start(disturbed)
    process.join()
    assert process.exitcode == 0
    return quiet, disturbed


def test_five_kills_leave_the_same_table(tmp_path: Path, processes: Any) -> None:
    quiet, disturbed = run_and_kill(processes, _table_for_the_kill, tmp_path, 5)
    assert result(quiet, "table") == result(disturbed, "table")
    names = {path.name for path in (quiet / "units").glob("*.json")}
    assert {path.name for path in (disturbed / "units").glob("*.json")} == names
    assert len(names) == 5


def test_kills_leave_the_same_study(tmp_path: Path, processes: Any) -> None:
    quiet, disturbed = run_and_kill(processes, _tune_for_the_kill, tmp_path, 3)
    assert result(quiet, "tune") == result(disturbed, "tune")
    assert (quiet / "settings.json").read_text() == (disturbed / "settings.json").read_text()


def test_finished_parts_are_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = quick(tmp_path)
    make_table(setup, chosen_methods("ista"))
    before = result(tmp_path, "table")

    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("computed again")

    monkeypatch.setattr(batches, "solve", forbidden)
    make_table(quick(tmp_path), chosen_methods("ista"))
    assert result(tmp_path, "table") == before
    for change in ({"seed": 1}, {"noise": (11.0,)}, {"denoiser_name": "soft"}):
        with pytest.raises(AssertionError, match="computed again"):
            make_table(quick(tmp_path, **change), chosen_methods("ista"))


def test_units_of_other_code_or_broken_ones_are_done_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    key = {"experiment": "table", "noise": 10.0, "method": "ista"}
    store.put(key, {"psnr": [1.5, 0.1 + 0.2], "picture": np.arange(6, dtype=np.uint8).reshape(2, 3)})
    found = store.get(key)
    assert found is not None
    assert found["psnr"] == [1.5, 0.1 + 0.2]
    np.testing.assert_array_equal(found["picture"], [[0, 1, 2], [3, 4, 5]])
    assert store.get({**key, "noise": 10.5}) is None
    (path,) = tmp_path.glob("*.json")
    unit = json.loads(path.read_text())
    path.write_text(json.dumps({**unit, "code": "of another day"}))
    assert store.get(key) is None
    assert store.stale == 1
    assert Store(tmp_path, reuse=True).get(key) is not None
    for broken in ("", "{", "[]", json.dumps({**unit, "values": None})):
        path.write_text(broken)
        assert Store(tmp_path).get(key) is None
    path.write_text(json.dumps(unit))
    path.with_suffix(".npz").write_bytes(b"PK")
    assert Store(tmp_path).get(key) is None


def test_an_interrupted_run_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C inside a run: `solve` returns what there is, which must not become a result."""
    whole = batches.solve

    def interrupted(*args: Any, callback: Any, **options: Any) -> Any:
        def stop(step: Any) -> None:
            callback(step)
            raise KeyboardInterrupt

        return whole(*args, callback=stop, **options)

    monkeypatch.setattr(batches, "solve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make_table(quick(tmp_path), chosen_methods("ista"))
    assert [json.loads(p.read_text())["key"]["method"] for p in (tmp_path / "units").glob("*.json")] == ["observed"]


def test_the_spelling_of_a_denoiser_does_not_change_its_digest(tmp_path: Path) -> None:
    """Names are found in any case: results are stored under the same weights."""
    found = [quick(tmp_path / name, denoiser_name=name).denoiser_digest for name in ("light", "LIGHT")]
    assert found[0] == found[1]
    assert "(" not in found[0]  # of the file, not the name of an object
