"""The rule of the doubt: its cases are what they say, and the fit finds what is in them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from pnpladmm.restoration.psf_error import NAMES, coefficients
from pnpladmm.workshop.training import doubts
from pnpladmm.workshop.training.doubt_cases import FACTORS, KINDS, SCENES, doubt_case, made_scene, measure
from pnpladmm.workshop.training.doubts import Row, fit, judged, read_rows

NUMBERS = {"alone", "suspect", "wrong", "factor", "gain", "lowest", "highest"}


def crop() -> torch.Tensor:
    rows, columns = torch.meshgrid(*[torch.arange(224, dtype=torch.float64)] * 2, indexing="ij")
    return (0.5 + 0.3 * torch.sin(rows / 5) * torch.cos(columns / 7)).expand(1, 3, 224, 224).clone()


def row(number: int, rng: np.random.Generator) -> Row:
    """A wrong PSF shows in one piece of evidence, and a higher level helps by as much."""
    found: Row = {"number": number, "crop": str(number), "kind": KINDS[0], "before": 20.0}
    logs = np.log(FACTORS)
    for which, wrong in (("right", 0.0), ("wrong", float(rng.uniform(0.5, 2)))):
        psnr = 30 - 4 * wrong - 4 * np.abs(logs - wrong)
        evidence = rng.standard_normal((len(FACTORS), len(NAMES)))
        evidence[:, NAMES.index("raised")] = logs
        evidence[:, NAMES.index("compressed")] = number % 2
        evidence[:, NAMES.index("explained")] = 3 * (wrong - logs) + 0.1 * rng.standard_normal(len(FACTORS))
        found[which] = {"psnr": psnr.tolist(), "evidence": evidence.tolist()}
    return found


def test_the_fit_finds_what_is_there() -> None:
    rng = np.random.default_rng(0)
    rows = [row(number, rng) for number in range(80)]
    found = judged(rows, fit(rows))
    assert found["warned, right PSF"] <= 0.08
    assert found["warned of these"] >= 0.95
    assert found["dB below the best level"] < 0.5 * found["the same at the first level"]


def test_the_shipped_coefficients_fit_the_evidence() -> None:
    assert set(coefficients()) == NUMBERS
    for name, values in coefficients().items():
        assert len(values) == len(NAMES) * (1 + (name == "wrong")) + (name not in ("lowest", "highest"))
        assert all(math.isfinite(value) for value in values)


def test_cases_have_the_blur_that_they_say() -> None:
    for number in range(0, len(KINDS), 9):
        case = doubt_case(number, [("crop", crop())])
        assert case.kind == KINDS[number]
        assert case.picture.pixels.shape == case.sharp.shape
        blurred = case.right.operator("reflect").forward(case.sharp)[..., 16:-16, 16:-16]
        if not case.picture.metadata.jpeg_table and case.told is None:
            assert float((blurred - case.picture.pixels[..., 16:-16, 16:-16]).abs().mean()) < 10 / 255
    made = doubt_case(5, [("crop", crop())])
    assert made.told is not None
    for kind in SCENES:
        scene = made_scene(kind, 40, np.random.default_rng(0))
        assert 0 <= float(scene.min()) < float(scene.max()) <= 1


def test_a_case_is_measured_at_every_level() -> None:
    number = next(n for n in range(5, 600, 6) if doubt_case(n, [("crop", crop())]).picture.pixels.shape[-1] == 20)
    found = measure(number, [("crop", crop())])
    for which in ("right", "wrong"):
        assert len(found[which]["psnr"]) == len(found[which]["evidence"]) == len(FACTORS)
        raised = [one[NAMES.index("raised")] for one in found[which]["evidence"]]
        assert raised == pytest.approx(np.log(FACTORS), abs=1e-6)


def test_a_fit_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    asked: list[int] = []
    monkeypatch.setattr(doubts, "load_dataset", lambda *_, **__: type("Set", (), {"samples": ()}))
    monkeypatch.setattr(doubts, "measure", lambda number, *_: asked.append(number) or row(number, rng))
    out = tmp_path / "doubts.json"
    doubts.train_doubts(out, 12, say=lambda _: None)
    with (tmp_path / "doubts.cases.jsonl").open("a") as stream:
        stream.write('{"number": 12, "cr')  # cut off
    assert len(read_rows([tmp_path / "doubts.cases.jsonl"])) == 12
    doubts.train_doubts(out, 13, say=lambda _: None)
    assert asked == list(range(13))
    assert set(json.loads(out.read_text())) == NUMBERS
