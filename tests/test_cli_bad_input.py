"""The command line and what is wrong: one line, the right exit code, nothing left behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from cli_cases import sharp_and_blur, sharp_pixels
from conftest import Run

files = pytest.fixture(sharp_and_blur)

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
