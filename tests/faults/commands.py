"""The commands that are disturbed: small inputs, arguments, and which files are results."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import tifffile
from PIL import Image

from faults import serving
from pnpladmm.tensor_files import read_tensors

FEW = ("--noise", "3", "--denoiser", "tv", "--iterations", "3")


@dataclass(frozen=True)
class Command:
    """One call of pnpladmm in a folder of its own."""

    prepare: Callable[[Path], None]
    """Writes the inputs."""
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    """Patterns of files that must be the same after every fault, once the command was run again."""
    compare: Callable[[Path], object] = Path.read_bytes
    """What of a result must be the same."""
    around: Callable[[Callable[[], None], Path], Callable[[], None]] | None = None
    """Makes what is run of the command line; for a server the person who uses it."""


def _pixels(seed: int, high: int = 200) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.kron(rng.integers(20, high, (4, 5)), np.ones((8, 8))).astype(np.uint8)


def _pictures(folder: Path) -> None:
    for k, name in enumerate(("a.png", "b.png", "c.png")):
        Image.fromarray(_pixels(k)).save(folder / name)
    tifffile.imwrite(folder / "a.tif", 200 * _pixels(3).astype(np.uint16))
    psf = np.zeros((5, 5), np.uint8)
    psf[1:4, 2] = 100
    Image.fromarray(psf).save(folder / "psf.png")


def _large(folder: Path) -> None:
    """A blurred picture of several tiles."""
    from scipy.ndimage import uniform_filter

    y, x = np.mgrid[:160, :300] / 40
    sharp = 0.4 + 0.2 * np.sin(x * y) + 0.3 * ((2 * x).astype(int) + (1.5 * y).astype(int)) % 3 / 3
    noisy = uniform_filter(sharp, 5) + 0.01 * np.random.default_rng(0).normal(size=sharp.shape)
    tifffile.imwrite(folder / "a.tif", (noisy.clip(0, 1) * 65535).astype(np.uint16), tile=(64, 64))
    Image.fromarray(np.full((5, 5), 200, np.uint8)).save(folder / "psf.png")


def _job(folder: Path) -> None:
    _pictures(folder)
    given = {"picture": "a.png", "blur": "psf.png", "output": "x.png", "noise": 3.0, "denoiser": "tv", "iterations": 2}
    files = {"picture": "a.png", "blur": "psf.png"}
    hashes = {what: sha256((folder / name).read_bytes()).hexdigest() for what, name in files.items()}
    (folder / "j.job.json").write_text(json.dumps({"job": given, "sha256": hashes}))


def _sharp_and_blurred(folder: Path) -> None:
    from scipy.ndimage import convolve

    rng = np.random.default_rng(0)
    sharp = np.kron(rng.integers(20, 220, (12, 12)), np.ones((6, 6))).astype(float)
    kernel = np.array([[0, 1, 0], [1, 3, 1], [0, 1, 0]]) / 7
    blurred = convolve(sharp, kernel) + rng.normal(0, 1, sharp.shape)
    for name, pixels in (("sharp.png", sharp), ("blurred.png", blurred)):
        Image.fromarray(pixels.clip(0, 255).round().astype(np.uint8)).save(folder / name)


def _without_seconds(table: Path) -> object:
    """A table without the times that its rows took."""
    with table.open(newline="") as file:
        return [{name: cell for name, cell in row.items() if "second" not in name} for row in csv.DictReader(file)]


def _steps(weights: Path) -> object:
    """How far a training came. A resumed one draws other crops, so its weights differ."""
    return json.loads(weights.with_suffix(".json").read_text())["steps"], sorted(read_tensors(weights)[0])


def _training(folder: Path) -> None:
    (folder / "photos").mkdir()
    for k in range(3):
        rgb = np.stack([_pixels(3 * k + c) for c in range(3)], axis=-1)
        Image.fromarray(rgb).save(folder / "photos" / f"{k}.png")


TILES = ("--noise", "3", "--denoiser", "light", "--iterations", "2", "--tiles", "192")
TRAINING = (
    *("--steps", "6", "--batch", "2", "--crop", "16", "--widths", "8,8,8", "--blocks", "1", "--log-steps", "2"),
    *("--warmup-steps", "2", "--checkpoint-seconds", "0"),
)
EXPERIMENT = ("--quick", "--denoiser", "tikhonov", "--noise", "10", "--count", "1")

COMMANDS: dict[str, Command] = {
    "restore": Command(
        _pictures, ("restore", "a.png", "-b", "psf.png", "-o", "out.png", "--report", *FEW), ("out.png",)
    ),
    "restore a TIFF": Command(
        _pictures, ("restore", "a.tif", "-b", "psf.png", "-o", "out.tif", "--method", "ladmm", *FEW), ("out.tif",)
    ),
    "restore many": Command(
        _pictures, ("restore", "a.png", "b.png", "c.png", "-b", "psf.png", "-o", "out", *FEW), ("out/*.png",)
    ),
    "restore --job": Command(_job, ("restore", "--job", "j.job.json", "--trust"), ("x.png",)),
    "restore in tiles": Command(_large, ("restore", "a.tif", "-b", "psf.png", "-o", "out.tif", *TILES), ("out.tif",)),
    "restore in parts": Command(
        _large, ("restore", "a.tif", "-b", "psf.png", "-o", "out.tif", "--workers", "1", *TILES), ("out.tif",)
    ),
    "restore into zarr": Command(
        _large, ("restore", "a.tif", "-b", "psf.png", "-o", "out.zarr", *TILES), ("out.zarr/**/*",)
    ),
    "simulate": Command(
        _pictures,
        ("simulate", "a.png", "-b", "psf.png", "-o", "out.png", "--noise", "3"),
        ("out.png", "out.png.blur.npz"),
    ),
    "inspect": Command(_pictures, ("inspect", "psf.png", "--size", "32x32", "-o", "out.png"), ("out.png",)),
    "estimate": Command(
        _sharp_and_blurred, ("estimate", "blurred.png", "--sharp", "sharp.png", "-o", "out.npz"), ("out.npz",)
    ),
    "experiment": Command(
        lambda folder: None,
        ("experiment", "table", "--out", "results", "--methods", "ista,ladmm", *EXPERIMENT),
        ("results/table.csv",),
        _without_seconds,
    ),
    "serve": Command(
        _pictures,
        ("serve", "--folder", "projects", "--port", "0", "--no-browser"),
        ("result.png",),
        around=serving.prepare,
    ),
    "train": Command(_training, ("train", "run", "photos", "out.safetensors", *TRAINING), ("out.safetensors",), _steps),
}
