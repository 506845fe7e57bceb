"""Tuning never sees the test pictures, goes on where it stopped, and leaves settings that the experiments read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import pnpladmm as pl
from experiment_cases import check_files, quick, result
from pnpladmm.solvers.settings import Table, read_settings, shipped_settings
from pnpladmm.tensors import PerPicture
from pnpladmm.workshop.experiments import setup as experiment_setup
from pnpladmm.workshop.experiments.comparison import COMPARED, chosen_methods, settings_of
from pnpladmm.workshop.experiments.table import make_table
from pnpladmm.workshop.experiments.tuning import tune


def test_tuning_never_reads_the_test_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    splits = []
    load = experiment_setup.load_dataset

    def watched(split: str, *args: Any) -> Any:
        splits.append(split)
        if split != "tune":
            raise AssertionError("tuning reads what is scored")
        return load(split, *args)

    monkeypatch.setattr(experiment_setup, "load_dataset", watched)
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
    for method in COMPARED:
        for noise in (1.0, 10.0, 20.0, 40.0):
            for denoiser in ("light", "prox-drunet"):
                row = settings_of(shipped_settings(), denoiser, pl.load_denoiser("tv"), method, noise)
                for name, span in method.space.items():
                    low, high = span.at(noise)
                    assert low <= row[name] <= high, (denoiser, method.name, noise, name)


def test_what_some_levels_leave_out_has_its_default_there_and_what_a_denoiser_lacks_is_drunets() -> None:
    certified, ladmm = chosen_methods("ladmm,certified")[::-1]
    table: Table = {
        "drunet": {
            "ladmm": {10.0: {"sigma_d": 1.0, "lambda": 1.0, "ratio": 2.0}},
            "certified:sr2": {10.0: {"sigma_d": 9.0}},
        },
        "mine": {"certified": {10.0: {"sigma_d": 4.0}, 40.0: {"sigma_d": 16.0, "relaxation": 0.25}}},
    }

    def plain(v: Tensor, sigma: PerPicture) -> Tensor:
        return v

    between = settings_of(table, "mine", plain, certified, 20.0)
    assert between == {"sigma_d": pytest.approx(8.0), "relaxation": pytest.approx(0.5)}
    assert settings_of(table, "mine", plain, ladmm, 10.0)["ratio"] == 2.0
    assert (
        settings_of(table, "mine", plain, certified, 10.0, "sr2")["sigma_d"] == 4.0
    )  # its own, not drunet's for the task
    assert settings_of(table, "drunet", plain, certified, 10.0, "sr2")["sigma_d"] == 9.0
    with pytest.raises(pl.InputError, match="no certified for drunet"):
        settings_of(table, "drunet", plain, certified, 10.0)
