"""The other commands, the names of options, the help."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pnpladmm
from cli_cases import sharp_and_blur
from conftest import Run

files = pytest.fixture(sharp_and_blur)


def test_inspect_says_and_draws(run: Run, files: Path) -> None:
    code, out, _ = run("inspect", "blur.yaml", "--size", "56x56", "-o", "blur.png")
    assert code == 0
    assert "2" in out
    assert Image.open(files / "blur.png").size[0] > 100


def test_a_point_lands_where_the_kernel_says(run: Run, files: Path) -> None:
    """The kernel's mass lies one row above its centre and two columns to the right."""
    kernel = np.zeros((7, 7))
    kernel[2, 5] = 1
    np.save(files / "shift.npy", kernel)
    point = np.zeros((31, 33), np.float32)
    point[15, 16] = 1
    np.save(files / "point.npy", point)
    code, _, err = run("simulate", "point.npy", "--blur", "shift.npy", "-o", "moved.npy", "--boundary", "zero")
    assert code == 0, err
    moved = np.load(files / "moved.npy")
    rows, columns = np.mgrid[0:31, 0:33]
    assert (moved * rows).sum() / moved.sum() == pytest.approx(14, abs=0.05)
    assert (moved * columns).sum() / moved.sum() == pytest.approx(18, abs=0.05)


def test_python_m_pnpladmm_is_the_command() -> None:
    said = subprocess.run([sys.executable, "-m", "pnpladmm", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == pnpladmm.__version__


def test_options_and_parameters_have_the_same_names(run: Run) -> None:
    """All that decides a picture can be said on both sides."""
    parameters = set(inspect.signature(pnpladmm.restore).parameters)
    code, out, _ = run("restore", "--help")
    assert code == 0
    only_python = {"picture", "axes", "progress", "callback"}
    for name in parameters - only_python:
        assert f"--{name.replace('_', '-')}" in out, name
    for names in (pnpladmm.METHODS, pnpladmm.DENOISERS):
        assert all(name in out for name in names)


def test_help_has_examples(run: Run) -> None:
    for command in ("demo", "restore", "inspect", "simulate"):
        code, out, _ = run(command, "--help")
        assert code == 0
        assert f"pnpladmm {command}" in out.split("Example")[-1]
