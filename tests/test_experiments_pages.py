"""The pages beside the table: curves of convergence, limits of the parameters, the gallery, all drawn again at will."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import pnpladmm as pl
from experiment_cases import check_files, quick
from pnpladmm.solvers.settings import FILE
from pnpladmm.tensors import InputError
from pnpladmm.workshop.experiments.comparison import COMPARED, chosen_methods
from pnpladmm.workshop.experiments.curves import make_convergence, make_splitting
from pnpladmm.workshop.experiments.everything import redraw
from pnpladmm.workshop.experiments.gallery import make_gallery
from pnpladmm.workshop.experiments.stability import diverged, make_parameters
from pnpladmm.workshop.experiments.stability_page import draw_parameters, linear_limit
from pnpladmm.workshop.experiments.table import make_table


def test_convergence_and_splitting(tmp_path: Path) -> None:
    setup = quick(tmp_path)
    data = make_convergence(setup, COMPARED)
    check_files(tmp_path, "convergence")
    for curve in data["curves"]:
        assert curve["seconds"] == sorted(curve["seconds"])
        assert len(curve["psnr"]) == len(curve["calls"]) == len(curve["seconds"])
    table = make_table(setup, COMPARED)
    ends = {row["method"]: row["psnr"] for row in table["rows"]}
    for curve in data["curves"]:
        assert curve["psnr"][-1] == pytest.approx(ends[curve["method"]], abs=1e-9)
        assert curve["psnr"][0] == pytest.approx(ends["observed"], abs=1e-9)
    data = make_splitting(setup, COMPARED)
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


def test_relaxed_runs_stand_for_a_prior_as_strong_without_relaxation(tmp_path: Path) -> None:
    table = json.loads(FILE.read_text())
    table["identity"] = {"certified": {"10": {"sigma_d": 8.0, "relaxation": 0.25}}}
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(table))
    data = make_parameters(quick(tmp_path / "out", denoiser_name="identity", settings_file=path))
    used = {panel["part"]: panel["sigma_d"] for panel in data["panels"]}
    assert used["L_x"] == used["beta, L_x inside"] == pytest.approx(4.0)
    assert used["beta, tuned L_x"] == table["drunet"]["ladmm"]["10"]["sigma_d"]


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
