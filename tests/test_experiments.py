"""The experiments: same numbers twice, nothing lost to a kill, tuning that never sees the test pictures."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

import pnpladmm as pl
from pnpladmm import cli
from pnpladmm.experiments import running
from pnpladmm.experiments.curves import make_convergence, make_splitting
from pnpladmm.experiments.everything import redraw, run_everything
from pnpladmm.experiments.gallery import make_gallery
from pnpladmm.experiments.paper import TABLE_1
from pnpladmm.experiments.protocol import METHODS, chosen_methods, settings_of
from pnpladmm.experiments.running import Setup
from pnpladmm.experiments.stability import diverged, make_parameters
from pnpladmm.experiments.stability_page import draw_parameters, linear_limit
from pnpladmm.experiments.store import Store
from pnpladmm.experiments.table import make_table
from pnpladmm.experiments.tuning import tune
from pnpladmm.metrics import PAPER, psnr
from pnpladmm.settings import read_settings, shipped_settings
from pnpladmm.tensors import InputError

FEW = "richardson-lucy,ista,ladmm,fast-8"


def quick(out: Path, **options: Any) -> Setup:
    """One small embedded picture and a prior that costs nothing, unless told otherwise."""
    common = {"denoiser_name": "tikhonov", "noise": (10.0,), "count": 1, "quick": True, "quiet": True}
    return Setup(out, **{**common, **options})


def without_seconds(value: Any) -> Any:
    """A result without what may differ from run to run."""
    if isinstance(value, dict):
        return {k: without_seconds(v) for k, v in value.items() if "seconds" not in k or k == "paper_seconds"}
    return [without_seconds(v) for v in value] if isinstance(value, list) else value


def result(out: Path, name: str) -> Any:
    return without_seconds(json.loads((out / f"{name}.json").read_text()))


def check_files(out: Path, name: str, *figures: str) -> None:
    """JSON, CSV, PNG, SVG and HTML are there and can be read; the page needs no other file."""
    json.loads((out / f"{name}.json").read_text())
    with (out / f"{name}.csv").open() as file:
        assert len(list(csv.DictReader(file))) > 0
    for figure in figures or (name,):
        pixels = np.asarray(Image.open(out / f"{figure}.png").convert("L"))
        assert pixels.std() > 5
        assert ElementTree.parse(out / f"{figure}.svg").getroot().tag.endswith("svg")
    page = (out / f"{name}.html").read_text()
    assert page.count("data:image/") >= len(figures or (name,))
    assert "src='http" not in page
    assert not list(out.glob(".*.part"))


# --- the table ---


def test_table_has_the_papers_figures_and_ours(tmp_path: Path) -> None:
    data = make_table(quick(tmp_path, denoiser_name="light", count=2), METHODS)
    check_files(tmp_path, "table")
    rows = {(row["method"], row["noise"]): row for row in data["rows"]}
    assert len(rows) == len(METHODS) + 1
    for method, levels in TABLE_1.items():
        assert rows[method, 10.0]["paper"] == dataclasses.asdict(levels[10])
    assert rows["ladmm", 10.0]["paper"]["psnr"] == 23.7
    assert rows["fast-8", 10.0]["paper"] is None
    # With the prior 3 dB and more are gained on what came, without it little.
    observed = rows["observed", 10.0]["psnr"]
    for method in ("ista", "admm", "ladmm", "certified", "fast-8", "fast-24"):
        row = rows[method, 10.0]
        assert row["psnr"] > observed + 3
        assert row["calls"] == row["iterations"] > 0
        assert row["seconds"] > 0
    assert rows["richardson-lucy", 10.0]["psnr"] < observed + 1.5
    assert rows["richardson-lucy", 10.0]["calls"] == 0
    assert rows["ladmm", 10.0]["gain"] is None
    gains = np.subtract(rows["fast-8", 10.0]["pictures"]["psnr"], rows["ladmm", 10.0]["pictures"]["psnr"])
    assert rows["fast-8", 10.0]["gain"] == pytest.approx(gains.mean(), rel=1e-12)
    assert rows["fast-8", 10.0]["gain_error"] == pytest.approx(gains.std(ddof=1) / math.sqrt(2), rel=1e-12)
    page = (tmp_path / "table.html").read_text()
    for text in ("PnP-ADMM + CG", "23.7", "247", "Annealed, 8 calls"):
        assert text in page
    assert ("no weights" in page) == ("alex" not in data["lpips"])


def test_a_row_is_what_the_library_gives(tmp_path: Path) -> None:
    """One method of the table against `solve` called by hand, sample by sample."""
    setup = quick(tmp_path, denoiser_name="light")
    data = make_table(setup, chosen_methods("ladmm"))
    sample = setup.samples("test")[10.0][0]
    problem = sample.problem()
    row = shipped_settings()["drunet"]["ladmm"][10.0]
    sigma_d = row["sigma_d"] / 255
    L_x = row["lambda"] / sigma_d**2
    beta = L_x / (row["ratio"] * problem.norm_squared.upper)
    method = pl.LADMM(pl.load_denoiser("light"), sigma_d, beta=beta, L_x=L_x)
    found = pl.solve(problem, method, 10, tolerance=0)
    expected = float(psnr(found.image, sample.sharp, PAPER))
    assert data["rows"][1]["method"] == "ladmm"
    assert data["rows"][1]["psnr"] == pytest.approx(expected, abs=1e-4)


def test_the_same_numbers_twice_and_in_other_batches(tmp_path: Path) -> None:
    methods = chosen_methods(FEW)
    for name, batch in (("a", None), ("b", None), ("c", 1)):
        make_table(quick(tmp_path / name, count=2, batch=batch), methods)
    assert result(tmp_path / "a", "table") == result(tmp_path / "b", "table")
    first, single = (result(tmp_path / name, "table")["rows"] for name in "ac")
    for row, other in zip(first, single, strict=True):
        assert row["pictures"]["psnr"] == pytest.approx(other["pictures"]["psnr"], abs=1e-4)


def test_other_tasks_have_tables(tmp_path: Path) -> None:
    for task in ("sr2", "inpainting"):
        data = make_table(quick(tmp_path), chosen_methods("richardson-lucy,ladmm"), task)
        check_files(tmp_path, f"table-{task}")
        assert data["tuned_for"] == "deblur"
        assert all(row["paper"] is None for row in data["rows"])
        methods = {row["method"] for row in data["rows"]}
        assert methods == {"observed", "ladmm"} | ({"richardson-lucy"} if task == "sr2" else set())


# --- nothing is lost ---


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
    modules = ("pnpladmm.experiments.table", "pnpladmm.experiments.tuning", "optuna", "pytest", "skimage.segmentation")
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
        if process.exitcode is not None:  # it was quicker: strike earlier
            latest *= 0.7
            continue
        os.kill(process.pid, signal.SIGKILL)
        process.join()
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

    monkeypatch.setattr(running, "solve", forbidden)
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
    whole = running.solve

    def interrupted(*args: Any, callback: Any, **options: Any) -> Any:
        def stop(step: Any) -> None:
            callback(step)
            raise KeyboardInterrupt

        return whole(*args, callback=stop, **options)

    monkeypatch.setattr(running, "solve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make_table(quick(tmp_path), chosen_methods("ista"))
    assert [json.loads(p.read_text())["key"]["method"] for p in (tmp_path / "units").glob("*.json")] == ["observed"]


# --- tuning ---


def test_tuning_never_reads_the_test_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    splits = []
    load = running.load_dataset

    def watched(split: str, *args: Any) -> Any:
        splits.append(split)
        if split != "tune":
            raise AssertionError("tuning reads what is scored")
        return load(split, *args)

    monkeypatch.setattr(running, "load_dataset", watched)
    tune(quick(tmp_path), chosen_methods("ladmm,richardson-lucy"), trials=2)
    assert splits == ["tune"]
    with pytest.raises(AssertionError, match="what is scored"):
        make_table(quick(tmp_path), chosen_methods("ista"))


def test_a_resumed_study_makes_the_trials_it_would_have_made(tmp_path: Path) -> None:
    methods = chosen_methods("ista,richardson-lucy")
    tune(quick(tmp_path / "whole"), methods, trials=12)
    for trials in (3, 12):
        tune(quick(tmp_path / "parts"), methods, trials=trials)
    whole, parts = (result(tmp_path / name, "tune") for name in ("whole", "parts"))
    assert whole["searches"] == parts["searches"]
    check_files(tmp_path / "whole", "tune")
    for search in whole["searches"]:
        # The same number for every method, the given-up ones counted.
        assert len(search["trials"]) == 12
        values = [trial["psnr"] for trial in search["trials"] if trial["psnr"] is not None]
        assert search["psnr"] == max(values)
        assert search["psnr"] >= search["trials"][0]["psnr"]
    assert any(trial["psnr"] is None for search in whole["searches"] for trial in search["trials"])
    # Points differ: the sampler is not stuck on one seed.
    assert whole["searches"][1]["method"] == "ista"
    points = {trial["parameters"]["sigma_d"] for trial in whole["searches"][1]["trials"]}
    assert len(points) == 12


def test_tuned_settings_are_a_table_the_experiments_read(tmp_path: Path) -> None:
    table = tune(quick(tmp_path, denoiser_name="light"), chosen_methods("fast-8"), trials=2)
    assert read_settings(tmp_path / "settings.json") == table
    assert set(table) == set(shipped_settings())
    assert table["drunet"] == shipped_settings()["drunet"]
    tuned = table["light"]["fast-8"][10.0]
    setup = quick(tmp_path, denoiser_name="light", settings_file=tmp_path / "settings.json")
    assert setup.row(chosen_methods("fast-8")[0], 10.0) == tuned
    assert set(tuned) >= {"sigma_d", "mu", "sigma_start"}
    tune(quick(tmp_path / "sr2", denoiser_name="light"), chosen_methods("fast-8"), trials=1, task="sr2")
    both = read_settings(tmp_path / "sr2" / "settings.json")
    assert both["light"]["fast-8"] == shipped_settings()["light"]["fast-8"]
    assert set(both["light"]["fast-8:sr2"]) == {10.0}


def test_settings_lie_inside_the_search_space() -> None:
    for method in METHODS:
        for noise in (1.0, 10.0, 20.0, 40.0):
            row = settings_of(shipped_settings(), "light", pl.load_denoiser("tv"), method, noise)
            for name, span in method.space.items():
                low, high = span.at(noise)
                assert low <= row[name] <= high, (method.name, noise, name)


# --- curves, parameters, gallery ---


def test_convergence_and_splitting(tmp_path: Path) -> None:
    setup = quick(tmp_path)
    data = make_convergence(setup, METHODS)
    check_files(tmp_path, "convergence")
    for curve in data["curves"]:
        assert curve["seconds"] == sorted(curve["seconds"])
        assert len(curve["psnr"]) == len(curve["calls"]) == len(curve["seconds"])
    table = make_table(setup, METHODS)
    ends = {row["method"]: row["psnr"] for row in table["rows"]}
    for curve in data["curves"]:
        assert curve["psnr"][-1] == pytest.approx(ends[curve["method"]], abs=1e-9)
        assert curve["psnr"][0] == pytest.approx(ends["observed"], abs=1e-9)
    data = make_splitting(setup, METHODS)
    check_files(tmp_path, "splitting")
    changes = {curve["method"]: curve for curve in data["curves"]}
    assert set(changes) == {"ista", "admm", "ladmm", "certified"}
    assert changes["ista"]["z_change"] is None
    for curve in changes.values():
        assert curve["x_change"][-1] < 0.5 * curve["x_change"][0]


def test_where_ladmm_diverges(tmp_path: Path) -> None:
    """With a prior that leaves the strongest mode alone the measured limit is the one of the 2x2 matrix."""
    data = make_parameters(quick(tmp_path, denoiser_name="identity"))
    check_files(tmp_path, "parameters")
    for found in data["limits"][0]["betas"]:
        assert found["linear"] == linear_limit(found["beta"])
        for low, high in zip(found["low"], found["high"], strict=True):
            assert low < high < 1
            assert low * 0.9 <= found["linear"] <= high * 1.1
    inside = [curve for panel in data["panels"] for curve in panel["curves"] if curve["inside"]]
    outside = [curve for panel in data["panels"] for curve in panel["curves"] if curve["r"] < 0.4]
    assert inside
    assert outside
    assert not any(curve["diverged"] for curve in inside)
    assert all(curve["diverged"] for curve in outside)


def test_the_linear_limit_is_that_of_the_matrix() -> None:
    for beta in (0.05, 0.5, 1.0, 3.0, 20.0):
        c, limit = 1 / beta, linear_limit(beta)
        for r, stable in ((1.001 * limit, True), (0.999 * limit, False)):
            step = np.array([[1 - 1 / r, (1 - c) / r], [(1 - 1 / r) / (1 + c), ((1 - c) / r + c) / (1 + c)]])
            assert (np.abs(np.linalg.eigvals(step)).max() < 1) == stable


def test_divergence_is_seen_and_convergence_is_not_mistaken_for_it() -> None:
    from conftest import small_problem

    problem, _ = small_problem()
    norm, L_h = problem.norm_squared.upper, problem.L_h()
    denoiser = pl.load_denoiser("identity")
    for r, expected in ((1.01, False), (0.55, False), (0.45, True), (0.1, True)):
        method = pl.LADMM(denoiser, 0.1, beta=1.001 * L_h, L_x=r * 1.001 * L_h * norm)
        assert bool(diverged(pl.solve(problem, method, 150, tolerance=0))) == expected


def test_gallery_and_drawing_again(tmp_path: Path) -> None:
    data = make_gallery(quick(tmp_path), chosen_methods("ladmm,fast-8"))
    check_files(tmp_path, "gallery", "gallery-10")
    assert list(data["sheets"][0]["columns"]) == ["sharp", "observed", "ladmm", "fast-8"]
    names = ("gallery.html", "gallery.csv", "gallery-10.png", "gallery-10.svg")
    before = {name: (tmp_path / name).read_bytes() for name in names}
    for name in names:
        (tmp_path / name).unlink()
    assert redraw(tmp_path) == ["gallery"]
    assert {name: (tmp_path / name).read_bytes() for name in names} == before
    (tmp_path / "gallery-10.npz").unlink()
    with pytest.raises(InputError, match="run the gallery again"):
        redraw(tmp_path)


def test_without_matplotlib_the_numbers_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        for name in ("matplotlib", "matplotlib.figure"):
            patch.setitem(sys.modules, name, None)
        make_table(quick(tmp_path), chosen_methods("ista"))
    assert "experiment draw" in capsys.readouterr().err
    assert (tmp_path / "table.csv").is_file()
    assert not (tmp_path / "table.html").exists()
    assert redraw(tmp_path) == ["table"]
    check_files(tmp_path, "table")


def test_what_cannot_be_run_is_refused_in_the_units_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"noise 200: give levels above 0 and up to 127\.5, of 255"):
        quick(tmp_path, noise=(200.0,))
    with pytest.raises(InputError, match="splitting of fast-8: none of them iterates"):
        make_splitting(quick(tmp_path), chosen_methods("fast-8"))
    assert not (tmp_path / "splitting.json").exists()


def test_limits_that_were_not_found_are_left_empty(tmp_path: Path) -> None:
    """`r` is searched below 1.5: a picture that diverges all the way up has no limit, not 1.5."""
    data = make_parameters(quick(tmp_path))
    data["limits"][0]["betas"][0]["high"][0] = data["limits"][0]["searched"][1]
    draw_parameters(data, tmp_path)
    with (tmp_path / "parameters-limits.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["does_not_at"] == ""
    assert all(row["does_not_at"] for row in rows[1:])
    assert "above 1.5" in (tmp_path / "parameters.html").read_text()


def test_skipped_pictures_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = running.load_dataset

    def with_one_left_out(*arguments: Any) -> Any:
        return dataclasses.replace(real(*arguments), skipped={"without two regions": 3})

    monkeypatch.setattr(running, "load_dataset", with_one_left_out)
    quick(tmp_path, quiet=False).samples("test")
    assert "3 without two regions" in capsys.readouterr().out
    quick(tmp_path, quiet=True).samples("test")
    assert capsys.readouterr().out == ""


def test_everything_at_once(tmp_path: Path) -> None:
    setup = quick(tmp_path)
    names = list(run_everything(setup, chosen_methods("ladmm,fast-8"), ("deblur", "sr2")))
    assert names == ["table", "convergence", "parameters", "splitting", "gallery", "table-sr2"]
    index = (tmp_path / "index.html").read_text()
    for name in names:
        assert f"href='{name}.html'" in index
        assert (tmp_path / f"{name}.html").is_file()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu(tmp_path: Path) -> None:
    for name in "ab":
        setup = quick(tmp_path / name, denoiser_name="light", device="cuda", count=2)
        list(run_everything(setup, METHODS, ("deblur", "sr2", "inpainting")))
    for name in ("table", "table-sr2", "table-inpainting", "convergence", "splitting", "parameters"):
        assert result(tmp_path / "a", name) == result(tmp_path / "b", name)
    on_cpu = make_table(quick(tmp_path / "cpu", denoiser_name="light", device="cpu", count=2), METHODS)
    for row, other in zip(result(tmp_path / "a", "table")["rows"], on_cpu["rows"], strict=True):
        assert row["psnr"] == pytest.approx(other["psnr"], abs=0.05)


# --- the command line ---


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pnpladmm", "experiment", *arguments])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_the_command_prints_the_table(run: Any, tmp_path: Path) -> None:
    options = ("--quick", "--denoiser", "tikhonov", "--noise", "10", "--count", "1", "--methods", "ista")
    code, out, _ = run("table", *options)
    assert code == 0
    assert "PnP-ISTA" in out
    assert (tmp_path / "results" / "table.html").is_file()
    code, _, err = run("table", *options)
    assert code == 0
    assert "2 of 2 parts from an earlier run" in err
    code, out, _ = run("draw", "results")
    assert code == 0
    assert "results/table.html" in out
    code, out, _ = run("tune", *options, "--trials", "1", "--out", "tuned")
    assert code == 0
    assert (tmp_path / "tuned" / "settings.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("table", "--methods", "ladm"), "method 'ladm': choose among richardson-lucy, "),
        (("tune", "--methods", "ladmm,"), "method ''"),
        (("table", "--noise", "0"), "noise 0: give levels above 0"),
        (("table", "--noise", "-5"), "noise -5"),
        (("table", "--noise", "nan"), "noise nan"),
        (("table", "--noise", "300"), "noise 300"),
        (("gallery", "--noise", "ten"), "--noise ten: give numbers"),
        (("table", "--task", "sr5"), "task 'sr5': choose among deblur"),
        (("tune", "--task", "sr2,sr3"), "one task at a time"),
        (("tune", "--trials", "0"), "trials = 0"),
        (("table", "--data", "empty"), "empty"),
        (("table", "--data", "nowhere"), "nowhere"),
        (("table", "--count", "0"), "count = 0"),
        (("table", "--batch", "0"), "batch = 0"),
        (("table", "--device", "abacus"), "device 'abacus'"),
        (("table", "--denoiser", "nonsense"), "denoiser 'nonsense'"),
        (("table", "--denoiser", "missing.safetensors"), "missing.safetensors"),
        (("table", "--settings", "broken.json"), "broken.json"),
        (("table", "--settings", "list.json"), "list.json"),
        (("table", "--settings", "missing.json"), "missing.json"),
        (("table", "--settings", "other.json", "--denoiser", "light"), "tune with this denoiser first"),
        (("table", "--settings", "half.json", "--denoiser", "light"), "the settings have no richardson-lucy for light"),
        (("table", "--settings", "lacking.json", "--denoiser", "light", "--methods", "ladmm"), "lack ratio"),
        (("draw", "empty"), "no results of experiments"),
        (("tune", "--out", "broken"), "no database of trials"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    run: Any, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tune.sqlite").write_bytes(b"this is no database" * 100)
    (tmp_path / "broken.json").write_text('{"light": ')
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "half.json").write_text('{"light": {"ladmm": {"10": {"sigma_d": 20, "lambda": 0.5, "ratio": 1}}}}')
    (tmp_path / "lacking.json").write_text('{"light": {"ladmm": {"10": {"sigma_d": 20, "lambda": 0.5}}}}')
    quickly = () if arguments[0] == "draw" else ("--quick",)
    code, out, err = run(*arguments, *quickly)
    assert code == 2
    assert message in err
    assert err.startswith("pnpladmm: ")
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in out + err
