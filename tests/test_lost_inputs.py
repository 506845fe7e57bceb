"""Inputs of every command: they have an end, and no output takes their place."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import tifffile

import pnpladmm as pl
from conftest import Run
from lost_cases import FEW, contents, refuses
from pnpladmm.blur_jobs import run_estimate
from pnpladmm.locks import only_writer_of


@pytest.mark.usefixtures("guess")
@pytest.mark.parametrize("name", ["b.npz", "b.rows.csv"])
def test_estimate_writes_over_no_input(name: str, files: Path) -> None:
    """Neither the blur nor its tables."""
    os.link(files / "a.png", files / name)
    before = contents(files)
    with pytest.raises(pl.InputError, match="would overwrite"):
        run_estimate(files / name, files / "b.npz", "guess")
    assert contents(files) == before
    run_estimate(files / name, files / "c.npz", "guess")


def test_estimates_read_no_pipes(run: Run, files: Path) -> None:
    os.mkfifo(files / "pipe.csv")
    for way in ("--points", "--sharp", "--parametric"):
        assert "device or a pipe" in refuses(run, files, "estimate", "a.png", way, "pipe.csv", "-o", "b.npz")
    assert "device or a pipe" in refuses(run, files, "estimate", "pipe.csv", "--edges", "-o", "b.npz")


@pytest.mark.parametrize("suffix", [".tif", ".npy"])
def test_a_restoration_in_parts_writes_over_no_input(suffix: str, run: Run, files: Path) -> None:
    pixels = np.full((40, 50), 9, np.uint16)
    tifffile.imwrite(files / "y.tif", pixels)
    np.save(files / "y.npy", pixels)
    for output in (f"y{suffix}", "kernel.npy"):
        given = ("restore", f"y{suffix}", "-b", "kernel.npy", "-o", output, "--workers", "1", "--noise", "3")
        assert "would overwrite" in refuses(run, files, *given)


def test_what_is_done_keeps_no_lock(run: Run, files: Path) -> None:
    """A process that was killed at its very end leaves one; the next one skips the picture."""
    given = ("restore", "a.png", "b.png", "-b", "psf.png", "-o", "out", *FEW)
    assert run(*given)[0] == 0
    before = contents(files)
    (files / "out" / ".b.png.lock").touch()
    assert run(*given)[0] == 0
    assert contents(files) == before
    with only_writer_of(files / "out" / "b.png"):
        assert run(*given)[0] == 0
        assert (files / "out" / ".b.png.lock").exists()  # somebody is at it


@pytest.mark.parametrize("moment", ["report", "job"])
def test_a_picture_without_its_report_is_not_done(
    moment: str,
    run: Run,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    given = ("restore", "a.png", "b.png", "-b", "psf.png", "-o", "out", "--report", *FEW)
    with monkeypatch.context() as patch:
        patch.setattr(f"pnpladmm.jobs.run.{'write_restoration' if moment == 'report' else 'write_job'}", killed)
        assert run(*given)[0] != 0
    assert run(*given)[0] == 0
    assert (files / "out" / "a.png.report" / "report.html").exists()
    assert (files / "out" / "b.png.job.json").exists()


@pytest.mark.parametrize("field", ["picture", "blur", "mask", "denoiser"])
def test_job_files_name_no_pipes(field: str, run: Run, files: Path) -> None:
    """A pipe beside the job file; or with `--trust` a device."""
    os.mkfifo(files / "pipe.npy")
    given = {"picture": "a.png", "blur": "psf.png", "output": "x.png", "noise": 3.0, "denoiser": "tv"}
    for path, more in (("./pipe.npy", ()), ("/dev/zero", ("--trust",))):
        (files / "j.job.json").write_text(json.dumps({"job": given | {field: path}, "sha256": {field: 64 * "0"}}))
        line = refuses(run, files, "restore", "--job", "j.job.json", *more)
        assert ("'/dev/zero': choose one of" if (field, more) == ("denoiser", ("--trust",)) else "a pipe") in line
