"""The demonstration: what it writes, that the shipped network beats total variation, that importing is quick."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pnpladmm import demo
from pnpladmm.metrics import psnr
from pnpladmm.solvers import Level, solve


@pytest.fixture(scope="module")
def small() -> demo.Demo:
    return demo.make_demo(size=128)


def restored(case: demo.Demo, denoiser: str, iterations: int) -> float:
    method = demo.demo_method(case, denoiser)
    result = solve(case.problem, method, iterations, 0)
    return float(psnr(case.problem.crop_to_observed(result.image), case.sharp))


def test_light_beats_total_variation_by_a_decibel(small: demo.Demo) -> None:
    blurred = float(psnr(small.problem.observed, small.sharp))
    tv, light = restored(small, "tv", 60), restored(small, "light", 40)
    assert tv > blurred + 2
    assert light > tv + 1


def test_the_convex_prior_is_certified(small: demo.Demo) -> None:
    assert solve(small.problem, demo.demo_method(small, "tv"), 2).certificate.level is Level.CONVEX


def test_what_it_writes(tmp_path: Path) -> None:
    result, figures = demo.run_demo(tmp_path, "tv", iterations=3)
    names = {path.name for path in tmp_path.iterdir()}
    pictures = {"sharp.png", "blurred.png", "restored.png", "before_after.png", "blur.png"}
    assert names == pictures | {"report.html", "report.json"}
    for name in ("sharp", "blurred", "restored"):
        assert Image.open(tmp_path / f"{name}.png").size == (demo.SIZE, demo.SIZE)
    drawing = np.asarray(Image.open(tmp_path / "blur.png").convert("RGB"))
    assert len(np.unique(drawing.reshape(-1, 3), axis=0)) > 50  # regions in colours, kernels over them
    page = (tmp_path / "report.html").read_text()
    for part in ("Residual", "Certificate", "convex:", "beta", "L_x", "<svg", "iteration limit"):
        assert part in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    ).replace("https://matplotlib.org", "")  # self-contained
    told = json.loads((tmp_path / "report.json").read_text())
    assert told["iterations"] == 3 == len(told["history"]["x_change"])
    assert told["certificate"]["level"] == "convex"
    assert told["parameters"]["PSNR of the restored picture (dB)"] == pytest.approx(list(figures.values())[1])
    assert result.history.psnr is not None


def test_importing_is_quick_and_drags_nothing_in() -> None:
    """Under 0.3 s beyond torch's own import, in the best of three tries."""
    code = (
        "import torch, time; t = time.perf_counter(); import pnpladmm; print(time.perf_counter() - t); import sys; "
        "print([m for m in ('matplotlib', 'skimage', 'astropy', 'tifffile', 'PIL', 'yaml') if m in sys.modules])"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
        for _ in range(3)
    ]
    assert min(float(run[0]) for run in runs) < 0.3
    assert runs[0][1] == "[]"
