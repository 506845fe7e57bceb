"""`pnpladmm bench`: that the JSON holds what the table says, and that wrong arguments are one line."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench_cases import QUICK, tiny_drunet
from conftest import Run
from pnpladmm.workshop.bench import (
    commands,
    growth,
    operators,
    report,
    restoration,
    rivals,
    shares,
)
from pnpladmm.workshop.bench.instruments import DENOISER


def without_paths(text: str) -> bool:
    return str(Path.home()) not in text and "/tmp" not in text and str(Path.cwd()) not in text


@pytest.mark.parametrize("name", ["operators", "restoration", "shares", "growth"])
def test_quick_runs_write_whole_json(name: str, tmp_path: Path, run: Run) -> None:
    denoiser = str(tiny_drunet(tmp_path))
    code, out, _ = run("bench", name, "--quick", "--out", str(tmp_path), "--denoiser", denoiser)
    assert code == 0
    text = (tmp_path / f"{name}-cpu-quick.json").read_text()
    assert without_paths(text)
    found = json.loads(text)
    assert found["benchmark"] == name
    assert found["quick"] is True
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["torch"] == torch.__version__
    assert f"{name}-cpu-quick.json" in out
    for column in importlib.import_module(f"pnpladmm.workshop.bench.{name}").COLUMNS:
        assert column.split()[0] in out
    rows = found["rows"]
    {"operators": check_operators, "restoration": check_restoration, "shares": check_shares, "growth": check_growth}[
        name
    ](rows)


def check_operators(rows: list[dict[str, Any]]) -> None:
    assert len(rows) == len(operators.cases(True)) * (1 + len(rivals.BLURS))
    for row in rows:
        if row["missing"] is None:
            assert row["difference"] < 1e-5
            assert row["ratio"]["median"] > 0
    assert sum(row["rival"].startswith("scipy") and row["missing"] is None for row in rows) == 2 * len(
        operators.cases(True)
    )


def check_restoration(rows: list[dict[str, Any]]) -> None:
    found = {row["method"]: row for row in rows}
    reference = found[restoration.REFERENCE]
    assert reference["denoiser_calls"] == 100
    assert found[restoration.FASTEST]["denoiser_calls"] == 8
    assert found[restoration.FASTEST]["time_ratio"] == {"best": 1.0, "median": 1.0}
    assert found["scikit-image Richardson-Lucy"]["psnr"] > found["blurred"]["psnr"]
    for row in rows:
        assert np.isclose(row["over_ladmm"], row["psnr"] - reference["psnr"], atol=1e-9)


def check_shares(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        parts = sum(row[f"{part}_seconds"] for part in shares.PARTS)
        assert parts == pytest.approx(row["watched_seconds"], rel=1e-6)
        assert row["outside_share"] == pytest.approx(1 - row["denoiser_seconds"] / row["watched_seconds"], rel=1e-6)
        assert row["calls"][DENOISER] == shares.CALLS
        assert 0 < row["share_of_matrix_product"] < 2


def check_growth(rows: list[dict[str, Any]]) -> None:
    assert {row["axis"] for row in rows} == {"pixels", "kernels"}
    for row in rows:
        assert row["per_pixel"] == pytest.approx(row["seconds"]["best"] / row["size"] ** 2, rel=1e-6)
    measured = [row for row in rows if row["axis"] == "pixels"]
    assert all(row["peak_bytes"] > 0 for row in measured)
    assert len(growth.cases(QUICK)) == len(rows)


def test_bad_arguments_are_one_line(tmp_path: Path, run: Run) -> None:
    (tmp_path / "file").write_text("")
    for options, message in (
        (("shares", "--device", "sofa"), "--device sofa: give cpu or cuda"),
        (("shares", "--quick", "--denoiser", "nothing"), "denoiser 'nothing'"),
        (("operators", "--quick", "--out", str(tmp_path / "file")), f"--out {tmp_path / 'file'}: "),
    ):
        code, _, err = run("bench", *options)
        assert (code, len(err.splitlines())) == (2, 1)
        assert message in err


def test_the_command_line_knows_every_benchmark(run: Run) -> None:
    code, out, _ = run("bench", "--help")
    assert code == 0
    assert all(name in out for name in (*commands.BENCHMARKS, "all"))
    assert "--quick" in run("bench", "all", "--help")[1]


def test_all_runs_every_benchmark(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"a": lambda row: str(row["a"]), "twice": lambda row: str(2 * row["a"])}
    for name in commands.BENCHMARKS:
        result = report.Report(name, "title", columns, [{"a": 21}], {}, ["careful"])
        monkeypatch.setattr(f"pnpladmm.workshop.bench.{name}.run", lambda options, result=result: result)
    code, out, _ = run("bench", "all", "--out", str(tmp_path / "new" / "folder"))
    assert code == 0
    assert out.count("note: careful") == len(commands.BENCHMARKS)
    assert "42" in out
    for name in commands.BENCHMARKS:
        found = json.loads((tmp_path / "new" / "folder" / f"{name}-cpu.json").read_text())
        assert found["rows"] == [{"a": 21}]
