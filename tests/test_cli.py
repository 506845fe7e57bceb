"""The command line as a person uses it: files in, files out, one line for what is wrong."""

from __future__ import annotations

import inspect
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
from PIL import Image

import pnpladmm
from conftest import Run
from pnpladmm.pictures import read_picture

BLUR_FILE = """
background:
  gaussian: {sigma: 1.2}
feather: 3
regions:
  - rectangle: [0, 0, 20, 48]
    motion: {length: 7, angle: 30}
"""


def sharp_pixels(height: int = 56, width: int = 56) -> np.ndarray:
    y, x = np.mgrid[0:height, 0:width]
    return 0.2 + 0.5 * ((x // 9 + y // 8) % 2) + 0.2 * (x > y)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A sharp 16-bit picture, a file of its blur, and one kernel."""
    tifffile.imwrite(tmp_path / "sharp.tif", (sharp_pixels() * 65535).astype(np.uint16))
    (tmp_path / "blur.yaml").write_text(BLUR_FILE)
    kernel = np.zeros((5, 5))
    kernel[1:4, 2] = 1 / 3
    np.save(tmp_path / "kernel.npy", kernel)
    return tmp_path


def simulated(run: Run) -> None:
    code, _, err = run("simulate", "sharp.tif", "--blur", "blur.yaml", "--noise", "3", "-o", "y.tif")
    assert code == 0, err


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
    assert told["parameters"]["method"] == "LADMM"
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


PLAIN = ["restore", "y.tif", "-b", "kernel.npy", "-o", "x.tif"]

BAD: dict[str, tuple[list[str], int, str]] = {
    "nothing at all": (["restore"], 2, "give pictures, --blur and --out"),
    "no blur": (["restore", "y.tif", "-o", "x.tif"], 2, "pnpladmm estimate y.tif --blind -o blur.npz"),
    "no output": (["restore", "y.tif", "-b", "kernel.npy"], 2, "give pictures, --blur and --out"),
    "two blurs, one picture": (["restore", "y.tif", "-b", "a", "-b", "b", "-o", "x.tif"], 2, "pictures: 1, blurs: 2"),
    "same name twice": (["restore", "y.tif", "./y.tif", "-b", "kernel.npy", "-o", "out"], 2, "two pictures would be"),
    "noise is a word": ([*PLAIN, "--noise", "much"], 2, "--noise much"),
    "noise negative": ([*PLAIN, "--noise", "-3"], 2, "noise = -3"),
    "noise zero": ([*PLAIN, "--noise", "0"], 2, "noise = 0"),
    "unknown method": ([*PLAIN, "--method", "magic"], 2, "method 'magic'"),
    "unknown denoiser": ([*PLAIN, "--denoiser", "bm3d"], 2, "'bm3d'"),
    "unknown boundary": ([*PLAIN, "--boundary", "sky"], 2, "'sky'"),
    "strength zero": ([*PLAIN, "--strength", "0"], 2, "strength = 0"),
    "one call of fast": ([*PLAIN, "--iterations", "1"], 2, "iterations = 1"),
    "background alone": ([*PLAIN, "--background", "5"], 2, "needs a gain"),
    "gain zero": ([*PLAIN, "--gain", "0"], 2, "gain = 0"),
    "job and picture": (["restore", "y.tif", "--job", "r.json"], 2, "give nothing else"),
    "job and strength": (["restore", "--job", "r.json", "--strength", "2"], 2, "not strength"),
    "noise and gain": ([*PLAIN, "--noise", "3", "--gain", "1"], 2, "noise beside gain = 1.0"),
    "gain in linear light": ([*PLAIN, "--gain", "1", "--linear"], 2, "gain beside linear light"),
    "simulate a background without counts": (
        ["simulate", "sharp.tif", "-b", "kernel.npy", "-o", "y2.tif", "--background", "9"], 2, "needs a gain"
    ),
    "simulate noise beside counts": (
        ["simulate", "sharp.tif", "-b", "kernel.npy", "-o", "y2.tif", "--noise", "9", "--gain", "1"], 2, "beside a gain"
    ),
    "job missing": (["restore", "--job", "none.json"], 2, "none.json"),
    "job is no JSON": (["restore", "--job", "blur.yaml"], 2, "not a job file"),
    "job of something else": (["restore", "--job", "other.json"], 2, "not a job file"),
    "picture missing": (["restore", "none.tif", "-b", "kernel.npy", "-o", "x.tif"], 1, "none.tif"),
    "picture is a folder": (["restore", "folder", "-b", "kernel.npy", "-o", "x.tif"], 1, "folder"),
    "picture is text": (["restore", "blur.yaml", "-b", "kernel.npy", "-o", "x.tif"], 1, "blur.yaml"),
    "picture empty": (["restore", "empty.png", "-b", "kernel.npy", "-o", "x.png"], 1, "empty.png"),
    "picture truncated": (["restore", "cut.png", "-b", "kernel.npy", "-o", "x.png"], 1, "cut.png"),
    "output over input": (["restore", "y.tif", "-b", "kernel.npy", "-o", "y.tif"], 1, "overwrite"),
    "output format unknown": (["restore", "y.tif", "-b", "kernel.npy", "-o", "x.xyz", "--iterations", "2"], 1, "x.xyz"),
    "output cannot be written": (["restore", "y.tif", "-b", "none.npy", "-o", "whole.png/x.tif"], 1, "x.tif cannot be"),
    "output of simulate cannot be written": (
        ["simulate", "sharp.tif", "-b", "none.npy", "-o", "whole.png/x.tif"], 2, "whole.png/x.tif cannot"
    ),
    "output of demo cannot be written": (
        ["demo", "--denoiser", "none", "--out", "whole.png"], 2, "whole.png/report.html cannot"
    ),
    "two pictures into a file": (
        ["restore", "y.tif", "small.tif", "-b", "kernel.npy", "-o", "whole.png"], 2,
        "whole.png is a file: give a folder for 2 pictures",
    ),
    "a picture into a file without a suffix": (
        ["restore", "y.tif", "-b", "kernel.npy", "-o", "plain"], 2, "or a name such as plain.png"
    ),
    "blur is a folder": (["restore", "y.tif", "-b", "folder", "-o", "x.tif"], 1, "folder: is a folder: give a file"),
    "16 bit into JPEG": (["restore", "y.tif", "-b", "kernel.npy", "-o", "x.jpg", "--iterations", "2"], 1, "x.jpg"),
    "blur missing": (["restore", "y.tif", "-b", "none.npy", "-o", "x.tif"], 1, "none.npy"),
    "blur is the picture of a cat": (["restore", "y.tif", "-b", "empty.png", "-o", "x.tif"], 1, "empty.png"),
    "blur larger than the picture": (["restore", "y.tif", "-b", "large.npy", "-o", "x.tif"], 1, "large.npy"),
    "blur for another size": (["restore", "small.tif", "-b", "other.npz", "-o", "x.tif"], 1, "other.npz"),
    "blur all zero": (["restore", "y.tif", "-b", "zero.npy", "-o", "x.tif"], 1, "zero.npy"),
    "blur NaN": (["restore", "y.tif", "-b", "nan.npy", "-o", "x.tif"], 1, "nan.npy"),
    "blur with code in it": (["restore", "y.tif", "-b", "pickle.npy", "-o", "x.tif"], 1, "pickle.npy"),
    "blur file with a typo": (["restore", "y.tif", "-b", "typo.yaml", "-o", "x.tif"], 1, "typo.yaml"),
    "mask missing": ([*PLAIN, "--mask", "none.png"], 1, "none.png"),
    "mask of another size": ([*PLAIN, "--mask", "small.tif"], 1, "small.tif"),
    "mask of everything": ([*PLAIN, "--mask", "y.tif"], 1, "no pixel"),
    "variance of zeros": ([*PLAIN, "--variance", "flat.npy"], 1, "above 0"),
    "denoiser file missing": ([*PLAIN, "--denoiser", "w.pth"], 1, "w.pth"),
    "denoiser is no network": ([*PLAIN, "--denoiser", "w.safetensors"], 1, "w.safetensors"),
    "device that is none": ([*PLAIN, "--device", "abacus"], 2, "abacus"),
    "linear light of linear data": (
        ["restore", "counts.npy", "-b", "kernel.npy", "-o", "x.npy", "--linear"], 1, "counts.npy"
    ),
    "inspect without a size": (["inspect", "blur.yaml"], 2, "size"),
    "inspect a kernel without a size": (["inspect", "kernel.npy"], 2, "--size HxW or --picture FILE"),
    "inspect with a wrong size": (["inspect", "blur.yaml", "--size", "big"], 2, "--size big"),
    "inspect nothing": (["inspect", "none.psf"], 2, "none.psf"),
    "simulate without a blur file": (["simulate", "sharp.tif", "-b", "none.npy", "-o", "y2.tif"], 2, "none.npy"),
    "simulate a boundary that is none": (
        ["simulate", "sharp.tif", "-b", "kernel.npy", "-o", "y2.tif", "--boundary", "sky"], 2, "'sky'"
    ),
    "demo with a denoiser that is none": (["demo", "--denoiser", "bm3d"], 2, "'bm3d'"),
    "an option that is none": (["restore", "--sharpen"], 2, "No such option"),
    "a command that is none": (["sharpen"], 2, "No such command"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_the_right_exit_code(name: str, run: Run, files: Path) -> None:
    y = (sharp_pixels(40, 40) * 60000).astype(np.uint16)
    y[5:9, 5] += 1
    tifffile.imwrite(files / "y.tif", y)
    tifffile.imwrite(files / "small.tif", y[:20, :20])
    (files / "folder").mkdir()
    (files / "empty.png").write_bytes(b"")
    (files / "plain").write_bytes(b"")
    Image.fromarray((y >> 8).astype(np.uint8)).save(files / "whole.png")
    (files / "cut.png").write_bytes((files / "whole.png").read_bytes()[:200])
    (files / "other.json").write_text('{"a": 1}')
    np.save(files / "large.npy", np.ones((91, 91)))
    np.save(files / "zero.npy", np.zeros((5, 5)))
    np.save(files / "nan.npy", np.full((5, 5), np.nan))
    np.save(files / "flat.npy", np.zeros((40, 40), np.float32))
    np.save(files / "pickle.npy", np.array([{"code": 1}], dtype=object), allow_pickle=True)
    np.save(files / "counts.npy", np.full((40, 40), 5000.0, np.float32) + np.arange(40, dtype=np.float32))
    np.savez(files / "other.npz", kernels=np.ones((1, 3, 3)) / 9, weights=np.ones((1, 40, 40)))
    (files / "typo.yaml").write_text("background:\n  gausian: {sigma: 1}\n")
    (files / "w.safetensors").write_bytes(b"nothing")
    before = sorted(p.name for p in files.rglob("*"))

    arguments, expected, message = BAD[name]
    code, _, err = run(*arguments)
    assert code == expected, err
    assert message in err
    assert "Traceback" not in err
    if not message.startswith("No such"):  # those are typer's own, in a box
        assert len(err.strip().splitlines()) == 1, err
    leftovers = {p.name for p in files.rglob("*")} - set(before) - {"out"}
    assert not leftovers


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
