"""The gate: files that claim too much, in numbers, sizes, depth or words, are refused in one line at once.

Every case was found by somebody who tried to bring the program down. They run with little memory above what is in use,
so that a reader that believes a header fails the test.
"""

from __future__ import annotations

import os
import struct
import time
import zipfile
from contextlib import suppress
from pathlib import Path

import h5py
import imagecodecs
import numpy as np
import pytest
import scipy.io
import tifffile

import pnpladmm as pl
from gate_cases import SIZE, K, Write, little_memory, nested_cells, refused, text  # noqa: F401
from pnpladmm.blur import gaussian, read_blur
from pnpladmm.gate import max_bytes
from pnpladmm.sandbox import WORKER, read_apart, worker
from pnpladmm.tensor_files import read_tensors
from pnpladmm.tensors import InputError


def npz_of_bytes(path: Path) -> None:
    head = b"{'descr': '|u1', 'fortran_order': False, 'shape': (50000, 50000), }".ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("kernels.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head)


def npz_of_zeros(path: Path) -> None:
    np.savez_compressed(path, kernels=np.zeros((5000, 5000), np.uint8), weights=np.ones((1, *SIZE)))


def hdf_of_nothing(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("kernel", (33_000, 32_500), "f8", chunks=(100, 100), compression="gzip")


def fits_header(**cards: object) -> Write:
    def write(path: Path) -> None:
        head = {"SIMPLE": "T", "BITPIX": 8, "NAXIS": 2, "NAXIS1": 5, "NAXIS2": 5, **cards}
        text = "".join(f"{key:8}= {value!s:>20}".ljust(80) for key, value in head.items()) + "END".ljust(80)
        path.write_bytes(text.ljust(2880).encode() + bytes(2880))

    return write


def png(pixels: np.ndarray) -> Write:
    return lambda path: path.write_bytes(imagecodecs.png_encode(pixels))


def regions(path: Path) -> None:
    one = " - {rectangle: [0, 0, 1, 1], defocus: {radius: 1}}\n"
    path.write_text("regions:\n" + 1000 * one)


FEATHER = "feather: 100000\nbackground: {defocus: {radius: 2}}\n"


BOMBS: dict[str, tuple[str, Write, str]] = {
    "NPZ of bytes": ("b.npz", npz_of_bytes, "cut off|over the limit"),
    "NPZ of zeros": ("b.npz", npz_of_zeros, "over the limit"),
    "MATLAB 7.3 of nothing": ("b.mat", hdf_of_nothing, "over the limit"),
    "MATLAB 5 of cells in cells": ("b.mat", nested_cells, "damaged, or made to do so|cannot be read"),
    "a PNG of one colour": ("b.png", png(np.full((9000, 9000), 200, np.uint8)), "over the limit"),
    "a wide Gaussian": ("b.yaml", text("background: {gaussian: {sigma: 500}}"), "must fit"),
    "a long, thin Gaussian": ("b.yaml", text("background: {gaussian: {sigma: [125, 0.02]}}"), "must fit"),
    "a wide disc": ("b.yaml", text("background: {defocus: {radius: 500}}"), "must fit"),
    "a wide seam": ("b.yaml", text(FEATHER), "feather 100000: give pixels, at most half the picture"),
    "aliases of aliases": (
        "b.yaml",
        text("a: &a [x, x]\n" + "".join(f"b{i}: &b{i} [*a, *a]\n" for i in range(40))),
        "without aliases",
    ),
    "an alias of itself": ("b.yaml", text("a: &a [*a]\n"), "without aliases"),
    "brackets": ("b.yaml", text(30_000 * "["), "31 brackets"),
    "depth without brackets": ("b.yaml", text(3000 * "- "), "levels"),
    "a number of 60,000 digits": ("b.yaml", text(f"feather: {60_000 * '9'}"), "60000 digits"),
    "two billion axes": ("b.fits", fits_header(NAXIS=2147483648), "NAXIS is 2147483648: give a whole number"),
    "an axis below 0": ("b.fits", fits_header(NAXIS1=-5), "NAXIS1 is -5"),
    "a long axis": ("b.fits", fits_header(NAXIS1=10**12), "is cut off"),
    "a header without an end": ("b.fits", lambda p: p.write_bytes(b"SIMPLE  =" + 5_000_000 * b" "), "no end"),
}


@pytest.mark.parametrize("case", BOMBS)
def test_bombs_are_refused_at_once(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, write, words = BOMBS[case]
    path = tmp_path / name
    if case in ("NPZ of zeros", "a PNG of one colour"):
        monkeypatch.setenv("PNPLADMM_MAX_BYTES", "1e8")
    write(path)
    assert name in refused(lambda: read_blur(path, SIZE), words) or case == "a wide seam"


def test_a_thousand_regions_of_a_large_picture(tmp_path: Path) -> None:
    regions(tmp_path / "b.yaml")
    refused(lambda: read_blur(tmp_path / "b.yaml", (2000, 3000)), "1000 regions would decode to")


def test_a_map_of_wide_blur_on_a_small_picture(tmp_path: Path) -> None:
    values = np.linspace(1, 200, 48 * 60).reshape(SIZE)
    np.save(tmp_path / "m.npy", values)
    refused(lambda: read_blur(tmp_path / "m.npy", SIZE, kind="gaussian"), "kernels are 1601x1601")
    refused(lambda: read_blur(tmp_path / "m.npy", SIZE, kind="defocus"), "kernels are 401x401")
    np.save(tmp_path / "m.npy", np.stack([values, values]) / 2)
    refused(lambda: read_blur(tmp_path / "m.npy", SIZE, kind="motion"), "kernels are 101x101")


@pytest.mark.parametrize("name", ["b.png", "b.yaml", "b.mat", "b.csv", "b.npz"])
def test_pipes_have_no_end(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    refused(lambda: read_blur(tmp_path / name, SIZE), "device or a pipe")
    refused(lambda: pl.read_picture(tmp_path / name), "device or a pipe")
    refused(lambda: pl.load_state(tmp_path / name), "device or a pipe")


def test_devices_have_no_end() -> None:
    refused(lambda: read_blur("/dev/zero", SIZE), "device or a pipe")
    refused(lambda: pl.read_picture("/dev/zero"), "device or a pipe")
    refused(lambda: read_tensors(Path("/dev/zero")), "device or a pipe")


@pytest.mark.parametrize("packed", [False, True])
def test_an_npy_header_of_gigabytes(packed: bool, tmp_path: Path) -> None:
    """numpy makes room for the header before it looks for it."""
    content = b"\x93NUMPY\x02\x00" + struct.pack("<I", 3_928_350_290) + bytes(200)
    path = tmp_path / ("a.npz" if packed else "a.npy")
    if packed:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("kernel.npy", content)
    else:
        path.write_bytes(content)
        refused(lambda: pl.read_picture(path), "its header would have 3928350290 bytes")
    refused(lambda: read_blur(path, SIZE), "its header would have 3928350290 bytes")


def test_the_limit_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", np.zeros((1000, 1000), np.float32))
    monkeypatch.setenv("PNPLADMM_MAX_BYTES", "3e6")
    refused(lambda: pl.read_picture(tmp_path / "a.npy"), "over the limit of .* raise PNPLADMM_MAX_BYTES")
    monkeypatch.setenv("PNPLADMM_MAX_BYTES", "5e6")
    assert pl.read_picture(tmp_path / "a.npy").pixels.shape == (1, 1, 1000, 1000)
    monkeypatch.setenv("PNPLADMM_MAX_BYTES", "lots")
    refused(max_bytes, "PNPLADMM_MAX_BYTES is 'lots'")


def test_wide_kernels_keep_their_shape() -> None:
    kernel = gaussian(90.0).numpy()
    r = np.arange(kernel.shape[0]) - kernel.shape[0] // 2
    true = np.exp(-0.5 * (r[:, None] ** 2 + r[None] ** 2) / 90.0**2)
    assert np.abs(kernel - true / true.sum()).max() < 1e-5 * kernel.max()


def test_a_matlab_file_that_crashes_its_reader_is_refused(tmp_path: Path) -> None:
    cells = np.empty(2, dtype=object)
    cells[:] = [K, K.T]
    scipy.io.savemat(tmp_path / "k.mat", {"kernel": K, "name": "a", "cells": cells})
    found = read_apart("mat", tmp_path / "k.mat")
    assert np.array_equal(found["kernel"], K)
    assert np.array_equal(found["cells"].ravel()[1], K.T)
    whole = (tmp_path / "k.mat").read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(4):
        damaged = bytearray(whole)
        damaged[int(rng.integers(128, 220))] ^= 1 << int(rng.integers(0, 8))
        (tmp_path / "k.mat").write_bytes(damaged)
        with suppress(InputError):
            read_apart("mat", tmp_path / "k.mat")


def test_a_parser_that_waits_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the system: no thread has to be started for it."""
    script = tmp_path / "waits.py"
    script.write_text(
        f"import sys, time\nsys.path.insert(0, {str(WORKER.parent)!r})\n"
        "import worker\nworker.TASKS['mat'] = lambda path, limit: time.sleep(60)\nworker.main()\n"
    )
    monkeypatch.setattr("pnpladmm.sandbox.WORKER", script)
    monkeypatch.setattr("pnpladmm.sandbox.WAITING", -3.5)
    monkeypatch.setattr("threading.Thread.start", lambda self: pytest.fail("a thread"))
    nested_cells(tmp_path / "k.mat", 1)
    began = time.monotonic()
    refused(lambda: read_apart("mat", tmp_path / "k.mat"), "takes too long")
    assert time.monotonic() - began < 50


def test_tiff_files_are_decoded_in_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With hardly any memory left a thread may not begin, and Python waits for it for ever: four files did so."""
    monkeypatch.setattr(tifffile.TIFF, "MAXWORKERS", 8)
    monkeypatch.setattr("tifffile.tifffile.ThreadPoolExecutor", lambda *_: pytest.fail("threads"))
    pixels = np.random.default_rng(0).integers(0, 255, (3, 600, 700, 3), dtype=np.uint8)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, pixels, photometric="rgb", compression="zlib", rowsperstrip=8, maxworkers=1)
    pl.write_picture(tmp_path / "b.tif", pl.read_picture(path))
    pl.write_picture(tmp_path / "c.tif", pl.Picture.from_array(pixels[0]))
    assert worker.TASKS["tiff"](str(path), 2**30) == {}
    tifffile.imwrite(tmp_path / "k.tif", pixels[0, :, :, 0], compression="zlib", rowsperstrip=8, maxworkers=1)
    read_blur(tmp_path / "k.tif", (900, 900))


def test_a_parser_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "slow.py"
    script.write_text("import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass\n")
    monkeypatch.setattr("pnpladmm.sandbox.WORKER", script)
    nested_cells(tmp_path / "k.mat", 1)
    refused(lambda: read_apart("mat", tmp_path / "k.mat"), "takes too long")
