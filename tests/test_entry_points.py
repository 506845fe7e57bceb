"""A package outside of this one adds a method, a blur reader and a denoiser by entry points (tests/toy_package)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import skimage.data
from PIL import Image

TOY = Path(__file__).parent / "toy_package"


def with_toy(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, with the toy package installed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TOY), os.environ.get("PYTHONPATH", "")])}
    environment |= {"COLUMNS": "400", "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `pnpladmm ...` with the toy package."""
    return with_toy(folder, "-m", "pnpladmm", *arguments)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Image.fromarray(skimage.data.camera()[100:164, 200:264]).save(tmp_path / "photo.png")
    (tmp_path / "psf.toy").write_text("TOYBLUR 3")
    (tmp_path / "blur.yaml").write_text(
        "background: {kernel: psf.toy}\nregions:\n  - rectangle: [0, 0, 20, 20]\n    gaussian: {sigma: 1}\n"
    )
    return tmp_path


def test_all_three_work_from_the_command_line(folder: Path) -> None:
    done = command(
        folder, "restore", "photo.png", "--blur", "psf.toy", "--method", "douglas-rachford", "--denoiser", "box-mean",
        "--noise", "5", "--iterations", "5", "--out", "sharp.png", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)["done"][0]
    assert outcome["iterations"] == 5
    assert np.asarray(Image.open(folder / "sharp.png")).std() > np.asarray(Image.open(folder / "photo.png")).std()
    assert "douglas-rachford" in command(folder, "restore", "--help").stdout
    again = command(folder, "restore", "--job", "sharp.png.job.json")
    assert again.returncode == 0, again.stderr


def test_the_reader_works_inside_yaml(folder: Path) -> None:
    done = command(folder, "inspect", "blur.yaml", "--picture", "photo.png")
    assert done.returncode == 0, done.stderr
    assert "2 of 9x9" in done.stdout
    (folder / "psf.toy").write_text("TOYBLUR none")
    refused = command(folder, "inspect", "blur.yaml", "--picture", "photo.png")
    assert refused.returncode == 2
    assert "width 'none': give a whole number" in refused.stderr


def test_poisson_data_come_as_the_method_declares(folder: Path) -> None:
    """The toy needs a quadratic term: `restore` gives it one, and a problem made by hand is refused in one line."""
    done = command(
        folder, "restore", "photo.png", "--blur", "psf.toy", "--method", "douglas-rachford", "--denoiser", "tv",
        "--gain", "2", "--iterations", "2", "--out", "counts.png",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    program = """
import torch, pnpladmm as pl
from pnpladmm.solvers.registry import METHODS
y, op = torch.full((1, 1, 8, 8), 0.5), pl.SpatiallyVaryingBlur(torch.ones(1, 3, 3) / 9, torch.ones(1, 8, 8))
method = METHODS["douglas-rachford"](pl.load_denoiser("tv"), 0.1)
try:
    pl.solve(pl.Problem(y, op, pl.Poisson(0.01, 0.1)), method, 1)
except pl.InputError as error:
    print(error)
"""
    refused = with_toy(folder, "-c", program)
    assert "needs a quadratic data term" in refused.stdout, refused.stderr


def test_the_objective_is_that_of_what_the_denoiser_got_and_states_are_saved(folder: Path) -> None:
    program = """
import torch, pnpladmm as pl
from pnpladmm.solvers.registry import METHODS
torch.manual_seed(0)
y, op = torch.rand(1, 1, 16, 16), pl.SpatiallyVaryingBlur(torch.ones(1, 3, 3) / 9, torch.ones(1, 16, 16))
problem = pl.Problem(y, op, pl.Gaussian(0.05))
method = METHODS["douglas-rachford"](pl.load_denoiser("tikhonov"), 0.1)
whole = pl.solve(problem, method, 6, 0.0)
half = pl.solve(problem, method, 3, 0.0)
pl.save_state(half.state, "state.safetensors")
rest = pl.solve(problem, method, 3, 0.0, start=pl.load_state("state.safetensors"))
assert torch.equal(whole.image, rest.image)
x = whole.image
phi = method.denoiser.prior(x, whole.state.denoised_from, 0.1)
expected = problem.data_term.value(op.forward(x), y) + 400 * phi
assert torch.allclose(whole.history.objective[-1], expected, rtol=1e-9), (whole.history.objective[-1], expected)
print("fine")
"""
    done = with_toy(folder, "-c", program)
    assert done.stdout.strip() == "fine", done.stderr


@pytest.mark.slow
def test_an_experiment_takes_the_method_by_name(folder: Path) -> None:
    pytest.importorskip("optuna")
    done = command(
        folder, "experiment", "table", "--quick", "--data", "embedded", "--count", "1", "--methods",
        "douglas-rachford", "--denoiser", "tv", "--out", "results",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "douglas-rachford" in (folder / "results" / "table.csv").read_text()
