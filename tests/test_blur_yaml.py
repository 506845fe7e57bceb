"""Blurs that people write down or paint: YAML blur files, and maps of widths and motion; and what inspect says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import skimage.io
import tifffile
import torch

from blur_cases import (
    SIZE,
    centroid,
    check_shows,
    comet,
    one_thread,  # noqa: F401
    placed,
    shown,
    unit,
)
from pnpladmm.blur import Blur, as_blur, defocus, describe, draw_blur, gaussian, motion, read_blur
from pnpladmm.blur.describe import fwhm
from pnpladmm.tensors import InputError

BLUR_FILE = """
background: {gaussian: {sigma: 1.0}}
feather: 0.5
regions:
  - rectangle: [30, 0, 59, 20]
    motion: {length: 7, angle: 30}
  - polygon: [[0, 28], [24, 28], [24, 47], [0, 47]]
    defocus: {radius: 3}
  - mask: hand.png
    kernel: psf.npy
  - rectangle: [5000, 0, 6000, 20]
    gaussian: {sigma: [3, 1], angle: 45}
"""
KERNEL = unit(comet(9, 1.0))


def write_blur_file(folder: Path, text: str = BLUR_FILE) -> Path:
    mask = np.zeros(SIZE, np.uint8)
    mask[28:, 36:] = 255
    skimage.io.imsave(folder / "hand.png", mask, check_contrast=False)
    np.save(folder / "psf.npy", 5 * KERNEL)
    (folder / "blur.yaml").write_text(text)
    return folder / "blur.yaml"


def test_blur_file_with_regions(tmp_path: Path) -> None:
    blur = read_blur(write_blur_file(tmp_path), SIZE)
    cases = {(10, 45): motion(7, 30), (38, 11): defocus(3), (39, 49): torch.from_numpy(KERNEL), (10, 10): gaussian(1.0)}
    for (row, column), kernel in cases.items():
        check_shows(blur, row, column, placed(kernel.numpy(), row, column))
    assert len(blur.kernels) == 4
    assert any("region 4 covers no pixel" in note for note in blur.notes)
    assert torch.allclose(blur.weights.sum(0), torch.ones(SIZE))


@pytest.mark.parametrize("option", ["labels", "positions"])
def test_regions_say_themselves_where_kernels_act(tmp_path: Path, option: str) -> None:
    path = write_blur_file(tmp_path)
    with pytest.raises(InputError, match=f"blur.yaml: {option}: regions say themselves .*: leave {option} out"):
        read_blur(path, SIZE, **{option: tmp_path / "hand.png"})  # type: ignore[arg-type]


def test_regions_as_fractions_and_a_sharp_background(tmp_path: Path) -> None:
    text = "units: fraction\nregions:\n  - rectangle: [0.5, 0, 1, 1]\n    motion: {length: 9}\nfeather: 0\n"
    blur = read_blur(write_blur_file(tmp_path, text), SIZE)
    assert torch.equal(blur.weights[1] > 0.5, (torch.arange(SIZE[1]) >= 30).expand(SIZE))
    check_shows(blur, 20, 12, placed(np.ones((1, 1)), 20, 12))
    assert any("sharp" in note for note in blur.notes)


def test_motion_runs_where_the_angle_says(tmp_path: Path) -> None:
    """30 degrees counter-clockwise from the right: the line rises to the right as the picture is seen."""
    text = "background: {motion: {length: 11, angle: 30}}\n"
    picture = shown(read_blur(write_blur_file(tmp_path, text), SIZE), 24, 30)[0]
    right = picture[:, 31:]
    assert centroid(right)[1] < 23.5
    assert centroid(picture) == pytest.approx((30, 24), abs=0.01)


def test_a_blur_file_that_points_to_files(tmp_path: Path) -> None:
    write_blur_file(tmp_path)
    bank = np.stack([KERNEL, KERNEL.T])
    np.save(tmp_path / "bank.npy", bank)
    (tmp_path / "bank.yaml").write_text("kernels: bank.npy\nlabels: hand.png\nfeather: 0.5\n")
    blur = read_blur(tmp_path / "bank.yaml", SIZE)
    check_shows(blur, 39, 49, placed(KERNEL.T, 39, 49))
    np.save(tmp_path / "depth.npy", np.full(SIZE, 2.0))
    (tmp_path / "depth.yaml").write_text("map: depth.npy\nkind: defocus\n")
    check_shows(read_blur(tmp_path / "depth.yaml", SIZE), 20, 30, placed(defocus(2.0).numpy(), 20, 30))


# --- maps ---------------------------------------------------------------------------------------------------


def ramp(low: float, high: float) -> np.ndarray:
    """Wider to the right."""
    return np.tile(np.linspace(low, high, SIZE[1]), (SIZE[0], 1))


@pytest.mark.parametrize("kind", ["gaussian", "defocus"])
@pytest.mark.parametrize("suffix", [".npy", ".tif", ".npz"])
def test_maps_of_widths(tmp_path: Path, kind: str, suffix: str) -> None:
    values = ramp(0.6, 3.0)
    path = tmp_path / f"map{suffix}"
    if suffix == ".npy":
        np.save(path, values)
    elif suffix == ".tif":
        tifffile.imwrite(path, values.astype(np.float32))
    else:
        np.savez(path, **{"sigma" if kind == "gaussian" else "radius": values})
    # Light is weighed where the map's width is: with the source's order the PSF is that of the source's place.
    blur = read_blur(path, SIZE, kind=None if suffix == ".npz" else kind, order="weight-then-convolve")  # type: ignore[arg-type]
    make = gaussian if kind == "gaussian" else defocus
    for row, column in ((24, 15), (20, 30), (24, 44)):
        expected = make(values[row, column]).numpy()
        check_shows(blur, row, column, placed(expected, row, column), tolerance=0.012)
    (note,) = blur.notes
    assert "quantised to" in note
    assert "at most" in note
    assert len(blur.kernels) <= 32


def test_no_blur_where_the_map_is_zero(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", ramp(0, 2))
    blur = read_blur(tmp_path / "m.npy", kind="defocus")
    assert shown(blur, 20, 0)[0, 20, 0] == pytest.approx(1, abs=0.01)
    np.save(tmp_path / "flat.npy", np.zeros(SIZE))
    assert read_blur(tmp_path / "flat.npy", kind="gaussian").kernel_size == (1, 1)


@pytest.mark.parametrize("layout", ["first", "last", "two"])
def test_motion_maps(tmp_path: Path, layout: str) -> None:
    dx, dy = np.full(SIZE, 6.0), ramp(-4, 4)
    path = tmp_path / "m.npz"
    vectors = np.stack([dx, dy], -1 if layout == "last" else 0)
    np.savez(path, **({"dx": dx, "dy": dy} if layout == "two" else {"motion": vectors}))
    blur = read_blur(path, SIZE, order="weight-then-convolve", most=64)
    for row, column in ((24, 9), (24, 30), (24, 51)):
        true = motion(np.hypot(6, dy[row, column]), np.degrees(np.arctan2(-dy[row, column], 6))).numpy()
        check_shows(blur, row, column, placed(true, row, column), tolerance=0.15)
    # Down to the right where dy > 0: no flip.
    picture = shown(blur, 24, 51)[0]
    assert centroid(picture[:, 52:])[1] > 24.5
    assert "vectors" in blur.notes[0]


def test_more_kernels_cost_less_error(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", ramp(0.5, 4))
    few = read_blur(tmp_path / "m.npy", kind="gaussian", most=3)
    many = read_blur(tmp_path / "m.npy", kind="gaussian", tolerance=1e-3, most=32)
    assert len(few.kernels) == 3 < len(many.kernels)
    worst = [float(b.notes[0].split("at most ")[1].split(" %")[0]) for b in (few, many)]
    assert worst[0] > 5 * worst[1]


# --- inspect ------------------------------------------------------------------------------------------------


def test_fwhm() -> None:
    assert fwhm(gaussian(2.0).numpy()) == pytest.approx(2.355 * 2.0, rel=0.03)
    assert fwhm(defocus(4.0).numpy()) == pytest.approx(8.0, rel=0.03)


def test_describe_and_draw(tmp_path: Path) -> None:
    blur = read_blur(write_blur_file(tmp_path), SIZE)
    text = describe(blur)
    for word in (
        "file with 4 regions",
        "4 of ",
        "48x60",
        "PSF sum",
        "PSF FWHM",
        "||H||^2       between",
        "note",
    ):
        assert word in text, word
    assert all(len(line) < 200 for line in text.splitlines())
    draw_blur(blur, tmp_path / "sheet.png")
    pixels = skimage.io.imread(tmp_path / "sheet.png")
    assert pixels.shape[0] > 400
    assert pixels[..., :3].std() > 10


def test_describe_finds_the_rank_and_signs() -> None:
    bank = torch.stack([gaussian(1.0, size=9), gaussian(1.0, size=9), motion(7, 0, size=9)])
    weights = torch.rand(3, *SIZE) - 0.2
    text = describe(Blur(bank, weights), norm=False)
    assert "3 of 9x9" in text
    assert "x 0.000, y 0.000 pixels" in describe(Blur(bank, torch.ones(3, *SIZE)), norm=False)
    assert re.search(r"kernels needed: [12] for 99 % of the energy, 2 for 99\.99 %", text)
    assert "not bounded" in text


def test_the_norm_of_a_signed_blur_lies_between_the_bounds() -> None:
    from conftest import dense
    from pnpladmm.blur.describe import norm_bound

    bank = torch.stack([gaussian(1.0, size=5), motion(5, 40, size=5)])
    blur = Blur(bank, torch.rand(2, 12, 10) - 0.3, "weight-then-convolve")
    operator = blur.operator("unknown")
    norm = np.linalg.norm(dense(operator, (1, 1, *operator.scene)), 2) ** 2
    bound = norm_bound(blur, True)
    assert bound is not None
    assert 0.9 * norm < float(bound.lower) <= norm <= float(bound.upper) < 3 * norm


def test_a_kernel_for_each_channel(tmp_path: Path) -> None:
    np.save(tmp_path / "psf.npy", KERNEL)
    text = "channels:\n  - kernel: psf.npy\n  - gaussian: {sigma: 1.5}\n"
    (tmp_path / "blur.yaml").write_text(text)
    blur = read_blur(tmp_path / "blur.yaml", size=SIZE)
    found = blur.psf_at(20, 20)
    assert found.shape[0] == 2
    wider = found.shape[-1] // 2 - KERNEL.shape[-1] // 2  # as large as the larger kernel, centres aligned
    assert np.subtract(centroid(found[0].numpy()), wider) == pytest.approx(centroid(KERNEL), abs=1e-6)
    assert fwhm(found[1].numpy()) == pytest.approx(1.5 * 2.3548, rel=0.03)
    point = torch.zeros(1, 2, *SIZE)
    point[..., 20, 20] = 1
    seen = blur.operator("zero").forward(point)
    assert float((seen[0, 0] - seen[0, 1]).abs().max()) > 0.01
    with pytest.raises(InputError, match="channels"):
        blur.operator("zero").forward(torch.zeros(1, 3, *SIZE))


def test_a_kernel_for_each_of_two_channels_in_python() -> None:
    kernels = np.stack([KERNEL, KERNEL.T])[None]
    found = as_blur(kernels, SIZE).psf_at(20, 20).numpy()
    assert found.shape[0] == 2
    np.testing.assert_allclose(found[1], found[0].T, atol=1e-12)
    assert np.abs(found[0] - found[1]).max() > 1e-3


@pytest.mark.parametrize("wrong", ["channels: 3", "channels: [{kernel: psf.npy}]", "channels: [1, 2]"])
def test_channels_that_are_no_list_of_kernels(tmp_path: Path, wrong: str) -> None:
    np.save(tmp_path / "psf.npy", KERNEL)
    (tmp_path / "blur.yaml").write_text(wrong)
    with pytest.raises(InputError, match="channel"):
        read_blur(tmp_path / "blur.yaml", size=SIZE)
