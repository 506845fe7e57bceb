"""The gate: files that claim too much, in numbers, sizes, depth or words, are refused in one line at once.

Every case was found by somebody who tried to bring the program down. They run with a limit of 64 MB of addresses above
what is in use, so that a reader that believes a header fails the test.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import h5py
import imagecodecs
import numpy as np
import pytest
import scipy.io
import tifffile
import torch
from astropy.io import fits
from PIL import Image

import pnpladmm as pl
from blur_cases import comet, unit
from pnpladmm.blur import gaussian, read_blur
from pnpladmm.gate import Field, max_bytes, parse_json, read_text, take, yaml_events
from pnpladmm.sandbox import read_apart
from pnpladmm.solvers.settings import read_settings
from pnpladmm.tensor_files import read_tensors
from pnpladmm.tensors import LONGEST, InputError

SIZE = (48, 60)
K = unit(comet())
SECONDS = 5.0
"""Of computing; a reader of a small file takes a few hundredths."""


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """Room for 1 GB more than is in use."""
    import scipy.interpolate
    import scipy.ndimage  # noqa: F401  # imported now, because they count

    used = (
        int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if Path("/proc").is_dir() else 0
    )
    before = resource.getrlimit(resource.RLIMIT_AS)
    if used:
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def refused(action: Callable[[], object], words: str = "") -> str:
    """The message of one line with which something is refused, soon."""
    began = time.process_time()
    with pytest.raises(InputError, match=words) as caught:
        action()
    assert time.process_time() - began < SECONDS
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) <= LONGEST
    return text


# ---- sizes

Write = Callable[[Path], object]


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


def nested_cells(path: Path, depth: int = 100_000) -> None:
    def element(kind: int, data: bytes) -> bytes:
        return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)

    inside = element(6, struct.pack("<II", 1, 0)) + element(5, struct.pack("<ii", 1, 1)) + element(1, b"")
    sizes = [(len(inside) + 8) * (depth - i) - 8 for i in range(depth)]
    head = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<HH", 0x0100, 0x4D49)
    path.write_bytes(head + b"".join(struct.pack("<II", 14, size) + inside for size in sizes))


def text(words: str) -> Write:
    return lambda path: path.write_text(words)


def saved(array: np.ndarray) -> Write:
    return lambda path: np.save(path, array)


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


# ---- parsers apart


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


def test_a_parser_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "slow.py"
    script.write_text("import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass\n")
    monkeypatch.setattr("pnpladmm.sandbox.WORKER", script)
    nested_cells(tmp_path / "k.mat", 1)
    refused(lambda: read_apart("mat", tmp_path / "k.mat"), "takes too long")


# ---- weights and states


def with_strides(path: Path) -> None:
    torch.save({"m_head.weight": torch.as_strided(torch.zeros(1), (40_000, 8000, 3, 3), (0, 0, 0, 0))}, path)


WEIGHTS: dict[str, Callable[[Path], object]] = {
    "a stride of 0": with_strides,
    "an overlap": lambda p: torch.save({"w": torch.as_strided(torch.zeros(100), (90, 10), (1, 1))}, p),
    "float8": lambda p: torch.save({"w": torch.zeros(4).to(torch.float8_e4m3fn)}, p),
    "sparse": lambda p: torch.save({"w": torch.eye(4).to_sparse()}, p),
    "meta": lambda p: torch.save({"w": torch.empty(10**6, 10**6, device="meta")}, p),
    "complex": lambda p: torch.save({"w": torch.zeros(4, dtype=torch.complex64)}, p),
    "quantised": lambda p: torch.save({"w": torch.quantize_per_tensor(torch.zeros(4), 0.1, 0, torch.qint8)}, p),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("suffix", [".pth", ".pt"])
@pytest.mark.parametrize("case", WEIGHTS)
def test_weights_that_are_no_plain_numbers(case: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"w{suffix}"
    WEIGHTS[case](path)
    assert path.name in refused(lambda: read_tensors(path))


def test_torch_s_older_format_is_read(tmp_path: Path) -> None:
    weights = {"w": torch.randn(30, 20), "b": torch.randn(20)}
    torch.save(weights, tmp_path / "w.pth", _use_new_zipfile_serialization=False)
    found, _ = read_tensors(tmp_path / "w.pth")
    assert all(torch.equal(found[key], weights[key]) for key in weights)


@pytest.mark.parametrize("value", ["nan", '"x"', "[1]", "true", "NaN1", 5000 * "9", "{"])
def test_states_with_odd_numbers(value: str, tmp_path: Path) -> None:
    problem = pl.Problem(torch.rand(1, 1, 8, 8), pl.Mask(torch.ones(8, 8)), pl.Gaussian(0.1))
    state = pl.LADMM(pl.load_denoiser("tv"), 0.05, beta=100.0, L_x=110.0).init(problem)
    path = tmp_path / "s.safetensors"
    pl.save_state(state, path)
    assert pl.load_state(path).iteration == 0
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"]["iteration"] = value
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    refused(lambda: pl.load_state(path), "iteration is")


@pytest.mark.parametrize(
    "content", ["[", 30_000 * "[", "[1]", '{"a": 5}', '{"a": {"b": {"c": {"d": "e"}}}}', "\\ud800"]
)
def test_settings_that_are_none(content: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(content)
    refused(lambda: read_settings(tmp_path / "s.json"), "not a table of settings")


# ---- texts and fields


def test_json_of_strangers() -> None:
    assert parse_json("a", '{"a": [1, 2.5, "[[[[["]}', "a table") == {"a": [1, 2.5, "[[[[["]}
    for bad, words in (
        (40 * "[", "31 brackets"),
        ('{"a": NaN}', "no finite number"),
        ('{"a": 1e999}', "no finite number"),
        ('{"a": ' + 5000 * "9" + "}", "5000 digits"),
        ('{"a": "\\ud800"}', "no Unicode"),
        ("[1]", "no table"),
        (b"\xff\xfe", "not a table"),
    ):
        refused(lambda bad=bad: parse_json("a", bad, "a table"), words)


def test_texts_have_an_end(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"a" * 5000)
    refused(lambda: read_text(tmp_path / "t", 4096, "a list"), "more than 4 KiB is too long for a list")
    assert len(read_text(tmp_path / "t", 5000, "a list")) == 5000
    assert list(yaml_events("a: 1"))


@pytest.mark.parametrize("value", [None, True, "five", 5.5, float("nan"), 0, 100, 10**400, [5], b"\x00"])
def test_fields_have_a_type_and_a_range(value: object) -> None:
    assert take("f", {"N": 5.0}, "N", Field(int, 1, 99)) == 5
    assert take("f", {}, "N", Field(int, 1, 99, default=7)) == 7
    assert refused(lambda: take("f", {"N": value}, "N", Field(int, 1, 99)), "give a whole number from 1 to 99")


def test_messages_are_one_short_line() -> None:
    text = str(InputError("file.fits: " + 5000 * "\x00\n\u202e" + ": give another"))
    assert len(text) <= LONGEST
    assert text.isprintable()
    assert text.startswith("file.fits")
    assert text.endswith("give another")


# ---- headers of PSFs


def stdpsf(path: Path, **cards: object) -> None:
    hdu = fits.PrimaryHDU(np.stack([K] * 4).astype(np.float32))
    given = {"NXPSFS": 2, "NYPSFS": 2, "IPSFX01": 1, "IPSFX02": 60, "JPSFY01": 1, "JPSFY02": 48, **cards}
    for key, value in given.items():
        if value is not None:
            hdu.header[key] = value
    hdu.writeto(path, overwrite=True)


GRIDS: dict[str, dict[str, object]] = {
    "no NYPSFS": {"NYPSFS": None},
    "a count below 0": {"NXPSFS": -2},
    "a huge count": {"NXPSFS": 10**15},
    "a count in words": {"NXPSFS": "many"},
    "a coordinate in words": {"IPSFX01": "left"},
    "a coordinate far away": {"IPSFX01": 1e300},
    "a switch for a coordinate": {"JPSFY02": True},
}


@pytest.mark.parametrize("case", GRIDS)
def test_headers_of_psf_grids(case: str, tmp_path: Path) -> None:
    stdpsf(tmp_path / "g.fits")
    read_blur(tmp_path / "g.fits", SIZE)
    stdpsf(tmp_path / "g.fits", **GRIDS[case])
    refused(lambda: read_blur(tmp_path / "g.fits", SIZE), "g.fits")


@pytest.mark.parametrize(
    "places", [np.arange(8.0).reshape(4, 2) * 1e-9, np.array([[1, 1], [2, 2], [3, 3], [1e200, 4]]), np.zeros((4, 2))]
)
def test_singular_places(places: np.ndarray) -> None:
    psfs = np.stack([np.roll(K, i, 0) for i in range(4)])
    with suppress(InputError):
        blur = pl.as_blur(psfs, SIZE, positions=places)
        assert bool(torch.isfinite(blur.weights).all())


@pytest.mark.parametrize(
    "line", ["x,y\n" + 200_000 * "1" + ",2\n", "x,y\n\x00,2\n", 'x,y\n"' + 5000 * "\n", "\n", "x,y"]
)
def test_tables_of_odd_lines(line: str, tmp_path: Path) -> None:
    np.save(tmp_path / "s.npy", np.stack([K] * 3))
    (tmp_path / "s.csv").write_text(line)
    refused(lambda: read_blur(tmp_path / "s.npy", SIZE))


def test_names_that_are_too_long(tmp_path: Path) -> None:
    for name in (5000 * "a", "a\x00b", "\ud800", "a\nb"):
        refused(lambda name=name: read_blur(tmp_path / name, SIZE))
        refused(lambda name=name: pl.read_picture(tmp_path / name))
        (tmp_path / "b.yaml").write_bytes(f"kernels: {json.dumps(name)}\nindex: 0\n".encode("utf-8", "replace"))
        refused(lambda: read_blur(tmp_path / "b.yaml", SIZE))


def test_numbers_that_overflow(tmp_path: Path) -> None:
    for values in (np.full((5, 5), 1e308), np.full((5, 5), 5e-324), np.array([[1e308, -1e308, 1.0]] * 3)):
        np.save(tmp_path / "k.npy", values)
        for recentre in (False, True):
            with suppress(InputError):
                blur = read_blur(tmp_path / "k.npy", SIZE, recentre=recentre)
                assert bool(torch.isfinite(blur.kernels).all())
                assert float(blur.kernels.sum()) == pytest.approx(1)


# ---- damage that decoders do not tell


def jpeg_tiff(path: Path, tile: tuple[int, int] | None = None) -> None:
    rng = np.random.default_rng(0)
    ramp = np.add.outer(np.arange(120) * 1.3, np.arange(160) * 0.8)[..., None]
    pixels = np.clip(ramp + rng.normal(0, 8, (120, 160, 3)), 0, 255).astype(np.uint8)
    tifffile.imwrite(path, pixels, photometric="rgb", compression="jpeg", tile=tile)


@pytest.mark.parametrize("tile", [None, (64, 64)])
def test_cut_jpeg_in_tiff_is_refused(tile: tuple[int, int] | None, tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    jpeg_tiff(path, tile)
    assert pl.read_picture(path).pixels.shape == (1, 3, 120, 160)
    whole = path.read_bytes()
    for kept in np.linspace(1, len(whole) - 1, 25).astype(int):
        path.write_bytes(whole[:kept])
        refused(lambda: pl.read_picture(path))


def test_damaged_jpeg_data_are_refused_or_a_warning(tmp_path: Path) -> None:
    pixels = np.clip(np.add.outer(np.arange(96) * 2, np.arange(128)), 0, 255).astype(np.uint8)
    pixels = pixels + np.random.default_rng(0).integers(0, 9, pixels.shape).astype(np.uint8)
    path = tmp_path / "a.jpg"
    Image.fromarray(pixels).save(path, quality=90)
    whole = path.read_bytes()
    assert not pl.read_picture(path).notes
    path.write_bytes(whole[: 2 * len(whole) // 3] + b"\xff\xd9")
    refused(lambda: pl.read_picture(path), "damaged JPEG")
    path.write_bytes(whole[:-2] + bytes(range(40)) + b"\xff\xd9")
    assert "may be damaged" in pl.read_picture(path).notes[0]
    result = pl.restore(path, np.ones((3, 3)), noise=0.02, denoiser="tv", iterations=2)
    assert "may be damaged" in result.warnings[0]
    assert not any("may be damaged" in note for note in result.notes)


@pytest.mark.parametrize("packed", [False, True])
def test_checksums_of_fits_files(packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.fits"
    values = np.random.default_rng(0).normal(100, 5, (24, 30)).astype(np.int16)
    hdus = [fits.PrimaryHDU(), fits.CompImageHDU(values)] if packed else [fits.PrimaryHDU(values)]
    fits.HDUList(hdus).writeto(path, checksum=True)
    assert not any("damaged" in note for note in pl.read_picture(path).notes)
    content = bytearray(path.read_bytes())
    at = content.rfind(b"END" + 77 * b" ")
    place = at - at % 2880 + 2880 + (900 if packed else 100)
    content[place] ^= 4
    path.write_bytes(content)
    assert "may be damaged: the checksum of the data of HDU" in pl.read_picture(path).notes[0]
    content[place] ^= 4
    path.write_bytes(content.replace(b"conforms to FITS", b"conforms to fits", 1))
    assert "may be damaged" in pl.read_picture(path).notes[0]


@pytest.mark.parametrize("pages", [1, 3])
@pytest.mark.parametrize("kind", ["palette", "planar", "planar pages"])
def test_tiff_layouts_survive(kind: str, pages: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shape = {"palette": (16, 18), "planar": (3, 16, 18), "planar pages": (2, 16, 18)}[kind]
    pixels = rng.integers(0, 255, (pages, *shape), dtype=np.uint8)
    pixels = pixels[0] if pages == 1 else pixels
    options = {
        "palette": {"photometric": "palette", "colormap": rng.integers(0, 65535, (3, 256), dtype=np.uint16)},
        "planar": {"photometric": "rgb", "planarconfig": "separate"},
        "planar pages": {"photometric": "minisblack", "planarconfig": "separate"},
    }[kind]
    tifffile.imwrite(tmp_path / "a.tif", pixels, **options)
    first = pl.read_picture(tmp_path / "a.tif")
    pl.write_picture(tmp_path / "b.tif", first)
    second = pl.read_picture(tmp_path / "b.tif")
    assert torch.equal(first.pixels, second.pixels)
    assert first.colour == second.colour


@pytest.mark.parametrize(
    "numbers", ['{"step": NaN}', '{"step": 2.5}', '{"seconds": -1}', '{"rate_factor": 0}', "[", "5"]
)
def test_checkpoints_with_odd_numbers(numbers: str, tmp_path: Path) -> None:
    from pnpladmm.workshop.training.checkpoint import Parts, read_checkpoint, write_checkpoint

    network = torch.nn.Linear(2, 2)
    parts = Parts(network, torch.nn.Linear(2, 2), torch.optim.AdamW(network.parameters()), torch.Generator())
    path = tmp_path / "c.safetensors"
    write_checkpoint(path, parts, {"step": 3.0, "loss": float("nan")}, {})
    assert read_checkpoint(path, parts)[0]["step"] == 3
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"]["numbers"] = numbers
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + content[8 + length :])
    refused(lambda: read_checkpoint(path, parts), "c.safetensors")


def test_oversampled_psfs_of_one_row() -> None:
    refused(lambda: pl.as_blur(np.ones((3, 1, 9)), SIZE, index=0, oversampling=2), "two or more along each side")


def test_the_largest_floats_survive(tmp_path: Path) -> None:
    for kind in (np.float32, np.float64):
        values = np.array([[1.0, np.finfo(kind).max], [0.5, -1e30]], kind)
        np.save(tmp_path / "a.npy", values)
        pl.write_picture(tmp_path / "b.npy", pl.read_picture(tmp_path / "a.npy"))
        assert np.array_equal(np.load(tmp_path / "b.npy")[0, 1], values[0, 1])
