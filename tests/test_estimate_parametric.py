"""`estimate_blur(..., "parametric")` and `auto` in blur files: sizes and angles from the blurred picture alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import skimage.data
from scipy.signal import fftconvolve

import pnpladmm as pl
from pnpladmm.blur import defocus, gaussian, motion
from pnpladmm.blur.parameters import find_parameters

NOISE = 0.005


def camera() -> np.ndarray:
    return skimage.data.camera() / 255.0


def blurred(sharp: np.ndarray, kernel: np.ndarray, seed: int = 0) -> np.ndarray:
    clean = fftconvolve(sharp, kernel, mode="valid")
    return clean + NOISE * np.random.default_rng(seed).standard_normal(clean.shape)


@pytest.mark.parametrize(("length", "angle"), [(12.0, 25.0)])
def test_length_and_angle_of_a_motion(length: float, angle: float) -> None:
    found = find_parameters("motion", blurred(camera()[:256, :256], motion(length, angle).numpy()))
    assert found.doubts == ()
    assert found.size == pytest.approx(length, abs=0.3)
    assert abs((found.angle - angle + 90) % 180 - 90) < 2, "counter-clockwise, rows run down"


@pytest.mark.parametrize(("kind", "size"), [("defocus", 3.0), ("defocus", 14.0), ("gaussian", 1.6), ("gaussian", 6.0)])
def test_radius_and_width(kind: str, size: float) -> None:
    kernel = (defocus if kind == "defocus" else gaussian)(size).numpy()
    found = find_parameters(kind, blurred(camera(), kernel))
    assert found.doubts == ()
    assert abs(found.size - size) < max(0.3, 0.05 * size)
    assert abs(found.size - size) < 3 * found.size_error
    assert found.uncertainty() < 0.25


def test_what_shows_no_blur_is_uncertain() -> None:
    noise = np.random.default_rng(0).random((200, 200))
    for picture, word in ((camera()[100:300, 100:300], "is a point"), (noise, "")):
        found = find_parameters("defocus", picture)
        assert any(word in doubt for doubt in found.doubts)
        assert found.uncertainty() >= 0.5


def test_the_whole_picture() -> None:
    blur = pl.estimate_blur(blurred(camera(), defocus(5.0).numpy()), "parametric", kind="defocus")
    assert blur.source.startswith("defocus: radius 5.0")
    assert blur.uncertainty is not None
    assert blur.uncertainty < 0.1
    assert blur.estimate is not None
    assert (blur.estimate.agreement or 1) < 0.15
    assert np.linalg.norm(blur.psf_at(200, 200)[0].numpy() - defocus(5.0).numpy()) < 0.05 * np.linalg.norm(defocus(5.0))


def two_halves() -> np.ndarray:
    left = blurred(camera()[:220], defocus(4.0, 15).numpy())
    right = blurred(camera()[:220], motion(11, 60, 15).numpy(), 1)
    left[:, 249:] = right[:, 249:]
    return left


def test_a_blur_file_says_auto(run, tmp_path: Path) -> None:
    picture = two_halves()
    height = len(picture)
    (tmp_path / "blur.yaml").write_text(
        f"background: {{motion: auto}}\nregions:\n  - rectangle: [0, 0, 248, {height}]\n    defocus: auto\n"
    )
    pl.write_picture(tmp_path / "p.png", pl.Picture.from_array((picture.clip(0, 1) * 65535).round().astype(np.uint16)))
    code, _, err = run("estimate", "p.png", "--parametric", "blur.yaml", "-o", "b.npz", "--report")
    assert code == 0, err
    blur = pl.read_blur(tmp_path / "b.npz", picture.shape)
    for column, true in ((100, defocus(4.0, 15)), (400, motion(11, 60, 15))):
        found = blur.psf_at(height // 2, column)[0].numpy()
        found = np.pad(found, [((15 - n) // 2,) * 2 for n in found.shape])
        assert np.linalg.norm(found - true.numpy()) < 0.2 * np.linalg.norm(true.numpy())
    assert blur.uncertainty is not None
    assert blur.estimate is not None
    assert blur.estimate.way == "parametric"
    result = pl.restore(tmp_path / "p.png", tmp_path / "blur.yaml", iterations=2)
    assert any("region 1: defocus: radius" in note for note in result.notes)


def test_auto_needs_a_picture(tmp_path: Path) -> None:
    (tmp_path / "blur.yaml").write_text("background: {motion: auto}")
    with pytest.raises(pl.InputError, match="motion: auto: it is found in the picture"):
        pl.read_blur(tmp_path / "blur.yaml", (100, 100))
    (tmp_path / "fixed.yaml").write_text("background: {motion: {length: 5}}")
    with pytest.raises(pl.InputError, match="no region says auto"):
        pl.estimate_blur(camera(), "parametric", kind=tmp_path / "fixed.yaml")


@pytest.mark.parametrize(
    ("picture", "options", "words"),
    [
        (np.full((100, 100), 0.5), {"kind": "motion"}, "flat: it shows no blur"),
        (camera()[:40, :40], {"kind": "motion"}, "40x40 pixels: 48 are needed"),
        (camera(), {"kind": "coma"}, "choose one of motion, defocus, gaussian"),
        (camera(), {}, "parametric needs kind"),
    ],
)
def test_what_cannot_be_used_is_named(picture: np.ndarray, options: dict, words: str) -> None:
    with pytest.raises(pl.InputError, match=words):
        pl.estimate_blur(picture, "parametric", **options)
