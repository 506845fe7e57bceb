"""The demonstration: what it writes and says; the shipped network beats total variation; importing is quick."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pnpladmm as pl
from conftest import Run
from pnpladmm import demo
from pnpladmm.metrics import psnr
from pnpladmm.solvers import Level


@pytest.fixture(scope="module")
def small() -> demo.Demo:
    return demo.make_demo(size=128)


def test_light_beats_total_variation_by_a_decibel(small: demo.Demo) -> None:
    def restored(denoiser: str, **options: object) -> float:
        image = pl.restore(small.problem.observed, small.blur, denoiser=denoiser, **options).image
        return float(psnr(image, small.sharp))

    blurred = float(psnr(small.problem.observed, small.sharp))
    tv, light = restored("tv", iterations=40), restored("light")
    assert tv > blurred + 2
    assert light > tv + 1


def test_what_it_writes_and_returns(tmp_path: Path) -> None:
    blurred, restored, certified = demo.run_demo(tmp_path, "light", iterations=3, size=64)
    names = {path.name for path in tmp_path.iterdir()}
    pictures = {f"{n}.png" for n in ("sharp", "blurred", "restored", "certified", "before_after", "blur")}
    assert names == pictures | {"report.html", "report.json"}
    for name in ("sharp", "blurred", "restored", "certified"):
        assert Image.open(tmp_path / f"{name}.png").size == (64, 64)
    drawing = np.asarray(Image.open(tmp_path / "blur.png").convert("RGB"))
    assert len(np.unique(drawing.reshape(-1, 3), axis=0)) > 50  # regions in colours, kernels over them
    assert restored.psnr > blurred.psnr + 2
    assert certified.run is not None
    assert certified.run.certificate.level is Level.ASSUMED
    assert len(certified.run.history) == 3

    page = (tmp_path / "report.html").read_text()
    parts = ["As restore does it", "Certified iterations after it", "Residual", "Certificate", "beta", "L_x", "Noise:"]
    parts += ["assumed:", "proved on one assumption", "PSNR of the restored picture", "data:image/svg+xml"]
    for part in (*parts, "iteration limit"):
        assert part in page, part
    assert "http" not in page  # self-contained
    told = json.loads((tmp_path / "report.json").read_text())
    told = told["Certified iterations after it"]
    assert told["iterations"] == 3 == len(told["history"]["x_change"])
    assert told["certificate"]["level"] == "assumed"
    assert told["parameters"]["PSNR of the restored picture (dB)"] == pytest.approx(certified.psnr)


def test_the_command_says_how_good_it_is_and_what_to_try_next(run: Run, tmp_path: Path) -> None:
    code, out, err = run("demo", "--out", "shown", "--iterations", "2")
    assert code == 0, err
    assert "no theorem" not in out
    for words in ("blurred: ", "restored: ", "certified: ", " dB", "convergence proved", "Next", "pnpladmm restore"):
        assert words in out, words
    assert (tmp_path / "shown" / "report.html").exists()


def test_importing_is_quick_and_drags_nothing_in(tmp_path: Path) -> None:
    """Under 0.3 CPU seconds beyond torch's own import, whose garbage does not count, with compiled modules."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    code = (
        "import torch, time, gc; gc.collect(); t = time.process_time(); import pnpladmm; "
        "print(time.process_time() - t); import sys; "
        "print([m for m in ('matplotlib', 'skimage', 'astropy', 'tifffile', 'PIL', 'yaml', 'rich', 'typer', "
        "'pnpladmm.report', 'pnpladmm.workshop') if m in sys.modules])"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
        ).stdout.splitlines()
        for _ in range(3)
    ]
    assert min(float(run[0]) for run in runs) < 0.3
    assert runs[0][1] == "[]"
