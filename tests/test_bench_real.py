"""The benchmark of real files: its cases are what they say, and a run that was stopped goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from pnpladmm.workshop.bench import real, report
from pnpladmm.workshop.bench.real_cases import ERRORS, aligned_error, error_cases, format_cases, sharp_crops


def test_the_best_shift_is_found() -> None:
    x = torch.rand(1, 3, 60, 60, dtype=torch.float64)
    shifted = x.roll((2, -1), (-2, -1))
    assert aligned_error(shifted, x, 2) == 0
    assert aligned_error(shifted, x, 1) > 0.01


def test_cases_have_the_blur_and_the_noise_that_they_say() -> None:
    crops = sharp_crops(Path("embedded"), 1)
    cases = list(error_cases(crops, 64, len(ERRORS)))
    assert {case.kind for case in cases} == {*ERRORS, "right"}
    for case in cases:
        assert case.picture.pixels.shape == case.sharp.shape == (1, 3, 64, 64)
        apart = [torch.linalg.norm(b.psf_at(32, 32).sum(0)) for b in (case.right, case.blur)]
        assert (case.blur is case.right) == (case.kind == "right"), (case.kind, apart)
    right = next(case for case in cases if case.kind == "right")
    kernel = right.right.operator("reflect")
    left = (kernel.forward(right.sharp) - right.picture.pixels)[..., 20:-20, 20:-20]
    assert float(left.std()) == pytest.approx(2 / 255, rel=0.2)
    kinds = [case.kind for case in format_cases(crops, 64)]
    assert kinds[0] == "PNG"
    assert len(kinds) == 15
    tables = [case.picture.metadata.jpeg_table for case in format_cases(crops, 64)]
    assert not tables[0]
    assert all(tables[1:-1])


def test_lines_count_what_is_worse_and_what_was_said() -> None:
    base = {"table": "PSF errors", "kind": ERRORS[0], "before": 25.0, "right": 30.0}
    rows = [{**base, "default": 24.0, "warnings": 1}, {**base, "default": 24.8, "warnings": 0}]
    rows.append({**base, "default": 29.5, "warnings": 1})
    line = list(real._lines(rows))[-1]
    found = [line[name] for name in ("cases", "worse", "silent", "warned", "lost", "found")]
    assert found == [3, 2, 1, 2, 2, 1]


def test_a_run_goes_on_and_writes_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = report.Options(torch.device("cpu"), denoiser="light", data=Path("embedded"), folder=tmp_path)
    crops = sharp_crops(Path("embedded"), 1)
    monkeypatch.setattr(real, "_cases", lambda options: list(error_cases(crops, 40, 1))[:1])
    first = real.run(options)
    assert [row["kind"] for row in first.rows] == [ERRORS[0]]
    assert {"before", "default", "right", "warnings", "status"} <= set(first.rows[0])
    monkeypatch.setattr(real, "_measure", lambda *_: pytest.fail("measured again"))
    assert real.run(options).rows == first.rows
    written = json.loads(first.write(tmp_path, options).read_text())
    assert written["rows"] == first.rows
    assert not options.parts("real").exists()  # type: ignore[union-attr]
