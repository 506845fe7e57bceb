"""What the tests share: small random blurs, explicit matrices, a test picture, the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import skimage.data
import torch
from PIL import Image
from torch import Tensor

import pnpladmm as pl
import scale_cases
from dataset_cases import good_things, write_coco
from estimate_cases import Guess
from pnpladmm import cli
from pnpladmm import deepinv as adapter
from pnpladmm.estimate import WAYS
from pnpladmm.scale import restore_large

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run `pnpladmm ...` in a folder of its own; returns exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pnpladmm", *arguments])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes], list[subprocess.Popen[bytes]]]]:
    """A scheduler and two workers as processes of their own."""
    pytest.importorskip("distributed", reason="needs the extra scale: pip install 'pnpladmm[scale]'")
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
    file = tmp_path / "scheduler.json"
    quiet = subprocess.DEVNULL
    scheduler = subprocess.Popen([*dask, "--scheduler-file", str(file)], stdout=quiet, stderr=quiet)
    workers: list[subprocess.Popen[bytes]] = []
    try:
        deadline = time.monotonic() + 60
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny"]
        command += ["--no-dashboard", "--local-directory", str(tmp_path)]
        workers += [subprocess.Popen(command, stdout=quiet, stderr=quiet) for _ in range(2)]
        yield address, scheduler, workers
    finally:
        for process in (*workers, scheduler):
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a picture in several formats that are read in parts, and its PSF."""
    pytest.importorskip("zarr", reason="needs the extra scale: pip install 'pnpladmm[scale]'")
    folder: Path = tmp_path_factory.mktemp("scale")
    scale_cases.write_scene(folder)
    return folder


@pytest.fixture(scope="session")
def expected(scene: Path) -> np.ndarray:
    """What the zarr of the scene becomes."""
    import zarr

    restore_large(scale_cases.settings(scene, "in.zarr"), scene / "expected.zarr", side=192)
    found: np.ndarray = zarr.open(scene / "expected.zarr/0", mode="r")[:]
    return found


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """So small transforms gain nothing from threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def guess() -> Iterator[None]:
    """A way to estimate a blur by the name `guess`."""
    WAYS.register("guess")(Guess)
    yield
    del WAYS._things["guess"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Pictures and blurs for the tests of what is lost."""
    pixels = np.tile(np.kron([[40, 200], [180, 60]], np.ones((8, 8))), (2, 2)).astype(np.uint8)
    for name in ("a.png", "b.png", "mask.png"):
        Image.fromarray(pixels if name != "mask.png" else 0 * pixels).save(tmp_path / name)
    psf = np.zeros((5, 5), np.uint8)
    psf[1:4, 2] = 100
    Image.fromarray(psf).save(tmp_path / "psf.png")
    np.save(tmp_path / "kernel.npy", psf.astype(float))
    (tmp_path / "blur.yaml").write_text("background:\n  kernel: kernel.npy\n")
    return tmp_path


def dense(operator: pl.LinearOperator, shape: tuple[int, int, int, int]) -> np.ndarray:
    """The matrix of an operator, one column a pixel."""
    scipy_operator = operator.to_scipy(shape)
    return np.stack([scipy_operator.matvec(column) for column in np.eye(scipy_operator.shape[1])], axis=1)


def dense_adjoint(operator: pl.LinearOperator, shape: tuple[int, int, int, int]) -> np.ndarray:
    """The matrix of its adjoint."""
    scipy_operator = operator.to_scipy(shape)
    return np.stack([scipy_operator.rmatvec(column) for column in np.eye(scipy_operator.shape[0])], axis=1)


def positive_blur(
    size: tuple[int, int] = (24, 20), count: int = 3, k: int = 5, boundary: str = "circular", seed: int = 0
) -> pl.SpatiallyVaryingBlur:
    """A blur of the paper's kind: unit-sum kernels, weights of soft segments that sum to one."""
    rng = np.random.default_rng(seed)
    kernels = rng.random((count, k, k)) ** 3
    kernels /= kernels.sum((1, 2), keepdims=True)
    weights = rng.random((count, *size)) ** 4
    weights /= weights.sum(0)
    return pl.SpatiallyVaryingBlur(kernels, weights, boundary=boundary)


def picture(size: int = 128, dtype: torch.dtype = torch.float64) -> Tensor:
    """A crop of the camera man, (1, 1, size, size)."""
    pixels = skimage.data.camera()[60 : 60 + 2 * size : 2, 170 : 170 + 2 * size : 2]
    return torch.from_numpy(pixels / 255.0).to(dtype)[None, None]


def small_problem(sigma: float = 0.05, seed: int = 0, size: int = 24) -> tuple[pl.Problem, Tensor]:
    """A blurred, noisy 24x24 crop in float64, and the sharp one."""
    sharp = picture(size)
    operator = positive_blur((size, size), seed=seed)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(sharp.shape, dtype=sharp.dtype, generator=generator)
    return pl.Problem(operator.forward(sharp) + sigma * noise, operator, pl.Gaussian(sigma)), sharp


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    pytest.importorskip("pycocotools")
    write_coco(tmp_path / "coco", good_things())
    return tmp_path / "coco"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The examples in the docstrings of `pnpladmm.deepinv` need deepinv."""
    found = [item for item in items if item.nodeid.startswith("src/pnpladmm/deepinv.py")]
    if not found:
        return
    try:
        adapter.load_deepinv()
    except Exception as reason:
        for item in found:
            item.add_marker(pytest.mark.skip(reason=f"deepinv cannot be used here: {reason}"))
