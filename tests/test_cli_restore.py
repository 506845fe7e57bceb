"""`pnpladmm restore` as a person uses it: files in, files out, what it says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

import pnpladmm
from cli_cases import sharp_and_blur, sharp_pixels, simulated
from conftest import Run
from pnpladmm.pictures import read_picture

files = pytest.fixture(sharp_and_blur)


def test_simulate_and_restore_keep_the_depth_and_gain_decibels(run: Run, files: Path) -> None:
    simulated(run)
    code, out, err = run("restore", "y.tif", "--blur", "y.tif.blur.npz", "--denoiser", "tv", "-o", "x.tif", "--json")
    assert code == 0, err
    restored = tifffile.imread(files / "x.tif")
    assert restored.dtype == np.uint16
    blurred = tifffile.imread(files / "y.tif")
    assert restored.shape == blurred.shape
    margin = (56 - blurred.shape[0]) // 2
    sharp = sharp_pixels()[margin:-margin, margin:-margin]
    errors = [np.mean((image / 65535 - sharp) ** 2) for image in (blurred, restored)]
    assert 10 * np.log10(errors[0] / errors[1]) > 3
    told = json.loads(out)
    assert told["failed"] == []
    assert told["done"][0]["noise"] == pytest.approx(3, rel=0.2)
    assert told["done"][0]["output"] == "x.tif"


def test_a_job_file_repeats_the_run_bit_for_bit_and_notices_changed_files(run: Run, files: Path) -> None:
    simulated(run)
    options = ["--noise", "3", "--denoiser", "tv", "--iterations", "4", "--method", "ladmm"]
    assert run("restore", "y.tif", "--blur", "y.tif.blur.npz", "-o", "x.tif", *options)[0] == 0
    first = (files / "x.tif").read_bytes()
    (files / "x.tif").unlink()
    code, _, err = run("restore", "--job", "x.tif.job.json")
    assert code == 0, err
    assert (files / "x.tif").read_bytes() == first
    job = json.loads((files / "x.tif.job.json").read_text())
    assert job["job"]["noise"] == 3.0
    assert set(job["sha256"]) == {"picture", "blur"}
    assert job["versions"]["pnpladmm"]
    run("simulate", "sharp.tif", "--blur", "blur.yaml", "--noise", "9", "-o", "y.tif")
    code, _, err = run("restore", "--job", "x.tif.job.json")
    assert code == 2
    assert "y.tif is not the file it was" in err


def test_a_job_file_notices_a_kernel_that_changed_behind_the_regions(run: Run, files: Path) -> None:
    (files / "named.yaml").write_text("background:\n  kernel: kernel.npy\n")
    options = ["--noise", "3", "--denoiser", "tv", "--iterations", "2"]
    assert run("restore", "sharp.tif", "--blur", "named.yaml", "-o", "x.tif", *options)[0] == 0
    assert run("restore", "--job", "x.tif.job.json")[0] == 0
    np.save(files / "kernel.npy", np.ones((5, 5)) / 25)
    code, _, err = run("restore", "--job", "x.tif.job.json")
    assert code == 2
    assert "kernel.npy is not the file it was" in err


def test_many_pictures_some_of_which_fail(run: Run, files: Path) -> None:
    simulated(run)
    (files / "broken.tif").write_bytes(b"II*\0 not a picture")
    (files / "z.tif").write_bytes((files / "y.tif").read_bytes())
    code, out, err = run(
        "restore", "y.tif", "broken.tif", "z.tif", "--blur", "y.tif.blur.npz", "-o", "out", "--denoiser", "tv",
        "--iterations", "2", "--json",
    )  # fmt: skip
    assert code == 1
    told = json.loads(out)
    assert [d["picture"] for d in told["done"]] == ["y.tif", "z.tif"]
    assert [d["picture"] for d in told["failed"]] == ["broken.tif"]
    assert "broken.tif" in err
    assert sorted(p.name for p in (files / "out").glob("*.tif")) == ["y.tif", "z.tif"]


def test_stacks_go_page_by_page_and_reports_are_written(run: Run, files: Path) -> None:
    pages = (np.stack([sharp_pixels(), sharp_pixels()[::-1]]) * 60000).astype(np.uint16)
    tifffile.imwrite(files / "stack.tif", pages, photometric="minisblack")
    code, _, err = run(
        "restore", "stack.tif", "--blur", "kernel.npy", "-o", "out.tif", "--denoiser", "tv", "--iterations", "3",
        "--noise", "2", "--report",
    )  # fmt: skip
    assert code == 0, err
    assert tifffile.imread(files / "out.tif").shape == pages.shape
    page = (files / "out.tif.report" / "report.html").read_text()
    assert "Certificate" in page
    told = json.loads((files / "out.tif.report" / "report.json").read_text())
    assert told["parameters"]["method"] == "SplitDescent"
    assert told["noise"] == pytest.approx(2)
    drawings = page.count("data:image/svg+xml")
    assert drawings == 2  # relative change, objective
    assert page.count("<img") == 4 + drawings  # before, after, blur, residual
    assert "out.tif" not in page.split("Parameters")[0]
    assert sorted(p.name for p in (files / "out.tif.report").glob("*.png")) == ["after.png", "before.png", "blur.png"]


def test_what_a_run_says(run: Run, files: Path) -> None:
    """The noise that was assumed; a certificate only where there is one, or where one was asked for."""
    simulated(run)
    common = ["restore", "y.tif", "--blur", "y.tif.blur.npz", "-o", "x.tif", "--iterations", "2", "--denoiser"]
    said = {}
    for name, extra in {
        "light": ["light", "--noise", "3"],
        "light, certified": ["light", "--method", "Certified"],
        "soft, asked": ["identity", "--method", "ladmm", "--certify", "2"],
        "tv": ["tv"],
    }.items():
        code, _, said[name] = run(*common, *extra)
        assert code == 0, said[name]
        assert "no theorem" not in said[name]
        assert "outside" not in said[name]
    assert "noise 3.00 of 255" in said["light"]
    assert "convergence" not in said["light"]
    assert "convergence proved on one assumption" in said["light, certified"]
    assert "converge to the best picture for this prior" in said["tv"]
    assert "convergence proved" in said["soft, asked"]
    code, out, _ = run(*common, "light", "--json")
    assert json.loads(out)["done"][0]["certificate"]["level"] == "outside"


def test_a_failed_picture_writes_nothing_and_the_others_are_restored(
    run: Run, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("pnpladmm.tiling.plan")
    solve, calls = module.solve, []

    def diverges_first(*arguments: Any, **options: Any) -> pnpladmm.Result:
        result = solve(*arguments, **options)
        calls.append(result)
        return result if len(calls) > 1 else replace(result, statuses=(pnpladmm.Status.DIVERGED,))

    monkeypatch.setattr(module, "solve", diverges_first)
    (files / "z.tif").write_bytes((files / "sharp.tif").read_bytes())
    options = ["--noise", "3", "--denoiser", "tv", "--iterations", "2"]
    code, _, err = run("restore", "sharp.tif", "z.tif", "-b", "kernel.npy", "-o", "out", *options)
    assert code == 1
    assert f"pnpladmm: sharp.tif: diverged: {pnpladmm.Status.DIVERGED.advice}" in err
    assert sorted(path.name for path in (files / "out").iterdir()) == ["z.tif", "z.tif.job.json"]


def test_noise_beyond_white_is_allowed_on_the_0_255_scale(run: Run, files: Path) -> None:
    """Files of floats may have a white far above 1."""
    options = ["--noise", "300", "--denoiser", "tv", "--iterations", "2"]
    code, _, err = run("restore", "sharp.tif", "-b", "kernel.npy", "-o", "x.tif", *options)
    assert code == 0, err
    assert "noise 300.00 of 255" in err
    code, _, err = run("simulate", "sharp.tif", "-b", "kernel.npy", "--noise", "300", "-o", "y.tif")
    assert code == 0, err


def test_markup_in_names_is_text(run: Run, files: Path) -> None:
    """A file's name is somebody else's text: the report shows it, and does not run it."""
    name = "<img src=x onerror=alert(1)>.tif"
    (files / name).write_bytes((files / "sharp.tif").read_bytes())
    options = ["--denoiser", "tv", "--iterations", "2", "--noise", "2", "--report"]
    code, _, err = run("restore", name, "--blur", "kernel.npy", "-o", "x.tif", *options)
    assert code == 0, err
    page = (files / "x.tif.report" / "report.html").read_text()
    assert "<img src=x" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;.tif" in page


def test_masks_variance_counts_and_linear_light(run: Run, files: Path) -> None:
    simulated(run)
    y = tifffile.imread(files / "y.tif")
    tifffile.imwrite(files / "mask.tif", (np.random.default_rng(0).random(y.shape) < 0.01).astype(np.uint8))
    np.save(files / "variance.npy", np.full(y.shape, (3 / 255 * 65535) ** 2, np.float32))
    common = ["restore", "y.tif", "--blur", "y.tif.blur.npz", "--iterations", "2"]
    for k, extra in enumerate(
        [
            ["--mask", "mask.tif", "--noise", "3"],
            ["--variance", "variance.npy"],
            ["--variance", "variance.npy", "--linear"],
            ["--gain", "100", "--background", "500"],
            ["--linear"],
        ]
    ):
        code, _, err = run(*common, "-o", f"{k}.tif", *extra)
        assert code == 0, err
        assert np.isfinite(tifffile.imread(files / f"{k}.tif")).all()


def test_wrong_psf_is_told_to_the_user(run: Run, files: Path) -> None:
    from pnpladmm.blur import gaussian

    simulated(run)
    np.save(files / "wrong.npy", gaussian(3.5).numpy())
    code, _, err = run(
        "restore",
        "y.tif",
        "--blur",
        "wrong.npy",
        "--noise",
        "3",
        "--denoiser",
        "tv",
        "-o",
        "x.tif",
        "--iterations",
        "40",
    )
    assert code == 0
    assert "warning: the residual is" in err


def interrupted(command: list[str], folder: Path) -> str:
    """Run a command, press Ctrl-C once its progress shows, and return what it said, with its exit code."""
    with subprocess.Popen(
        command,
        cwd=folder,
        stderr=subprocess.PIPE,
        # A test run in the background may have inherited a SIGINT that is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            assert process.stderr is not None
            time.sleep(10)  # a cold start on a busy machine; the run itself would take hours
            os.kill(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    return f"{said.decode()}exit code {process.returncode}"


def test_ctrl_c_keeps_the_picture_if_asked(files: Path) -> None:
    simulate = [sys.executable, "-m", "pnpladmm.cli", "simulate", "sharp.tif", "--blur", "blur.yaml", "-o", "y.tif"]
    subprocess.run(simulate, cwd=files, check=True, capture_output=True)
    command = [
        sys.executable,
        "-m",
        "pnpladmm.cli",
        "restore",
        "y.tif",
        "--blur",
        "y.tif.blur.npz",
        "--method",
        "ladmm",
    ]
    command += ["--denoiser", "hard", "--noise", "3", "--iterations", "1000000", "-o"]
    for output, keep in (("kept.tif", ["--keep"]), ("lost.tif", [])):
        err = interrupted([*command, output, *keep], files)
        assert (files / output).exists() == bool(keep), err
        assert err.endswith("exit code 130"), err
        assert "Traceback" not in err
    assert not list(files.glob(".*part*"))


def test_read_back_is_what_was_written(run: Run, files: Path) -> None:
    """An identity blur and no smoothing to speak of give back the 16-bit picture, depth and all."""
    np.save(files / "delta.npy", np.ones((1, 1)))
    code, _, err = run(
        "restore", "sharp.tif", "-b", "delta.npy", "-o", "x.tif", "--noise", "0.001", "--method", "admm",
        "--denoiser", "identity", "--iterations", "3",
    )  # fmt: skip
    assert code == 0, err
    before, after = read_picture(files / "sharp.tif"), read_picture(files / "x.tif")
    assert after.dtype == before.dtype == "uint16"
    assert float((after.pixels - before.pixels).abs().max()) <= 1 / 65535
