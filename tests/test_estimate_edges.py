"""`estimate_blur(..., "edges")`: the width of blur from straight edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import skimage.data
from scipy.signal import fftconvolve

import pnpladmm as pl
from pnpladmm.blur import Blur, common_size, defocus, gaussian
from pnpladmm.estimate.edge_profiles import disc_step, find_edges, gaussian_step

NOISE = 0.004


def blocks(height: int = 240, width: int = 240, seed: int = 1) -> np.ndarray:
    """Slanted rectangles on each other, drawn with four samples per pixel."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[: 4 * height, : 4 * width] / 4.0
    picture = np.full(x.shape, 0.5)
    for _ in range(24):
        cx, cy, turn = rng.uniform(0, width), rng.uniform(0, height), rng.uniform(0, np.pi)
        u, v = (x - cx) * np.cos(turn) + (y - cy) * np.sin(turn), (y - cy) * np.cos(turn) - (x - cx) * np.sin(turn)
        picture[(np.abs(u) < rng.uniform(20, 60)) & (np.abs(v) < rng.uniform(20, 60))] = rng.uniform(0.1, 0.9)
    return picture.reshape(height, 4, width, 4).mean((1, 3))


def blurred(kernel: np.ndarray, sharp: np.ndarray | None = None) -> np.ndarray:
    clean = fftconvolve(blocks() if sharp is None else sharp, kernel, mode="valid")
    return clean + NOISE * np.random.default_rng(0).standard_normal(clean.shape)


def test_steps_are_integrals_of_their_kernels() -> None:
    distance = np.linspace(-8, 8, 1601)
    for step, kernel in (
        (gaussian_step(distance, 2.0), gaussian(2.0, size=41)),
        (disc_step(distance, 5.0), defocus(5.0)),
    ):
        line = kernel.numpy().sum(0)
        edges = np.arange(len(line) + 1) - len(line) / 2
        expected = np.interp(distance, edges, np.concatenate([[0], np.cumsum(line)]))
        assert np.abs(step - expected).max() < 0.02


def test_every_edge_has_the_width_of_the_blur() -> None:
    found = find_edges(blurred(gaussian(2.0).numpy()), np.ones((224, 224), bool), NOISE)
    assert len(found.places) > 10
    assert np.median(found.sigma) == pytest.approx(np.hypot(2.0, 0.29), rel=0.03)


@pytest.mark.parametrize(("kind", "size"), [("defocus", 6.0), ("gaussian", 2.0)])
def test_kind_and_width(kind: str, size: float) -> None:
    blur = pl.estimate_blur(blurred((defocus if kind == "defocus" else gaussian)(size).numpy()), "edges")
    assert f"{kind}:" in blur.source
    assert float(blur.source.split()[-1]) == pytest.approx(size, rel=0.08)
    assert blur.uncertainty is not None
    assert blur.uncertainty < 0.25


def test_a_width_that_changes_over_the_picture() -> None:
    sharp = blocks(300, 300, 2)
    kernels = common_size([gaussian(1.2), gaussian(2.0), gaussian(3.4)])
    right = np.linspace(0, 2, 300)
    weights = np.maximum(0, 1 - np.abs(right - np.arange(3)[:, None]))[:, None].repeat(300, 1)
    clean = Blur(kernels, weights).operator("replicate").forward(pl.Picture.from_array(sharp).pixels)[0, 0].numpy()
    picture = clean + NOISE * np.random.default_rng(0).standard_normal(clean.shape)
    blur = pl.estimate_blur(picture, "edges", kind="gaussian")
    assert "polynomial" in blur.source

    def width(column: int) -> float:
        kernel = blur.psf_at(150, column)[0].numpy().sum(0)
        offset = np.arange(len(kernel)) - len(kernel) // 2
        return float(np.sqrt((kernel * offset**2).sum()))

    assert width(40) == pytest.approx(1.4, rel=0.15)
    assert width(150) == pytest.approx(2.0, rel=0.15)
    assert width(260) == pytest.approx(3.1, rel=0.15)


def test_a_sharp_picture() -> None:
    blur = pl.estimate_blur(blocks(), "edges")
    assert blur.estimate is not None
    assert any("kernel is a point" in warning for warning in blur.estimate.warnings)


@pytest.mark.parametrize(
    ("picture", "words"),
    [
        (np.full((100, 100), 0.5), "flat: it has no edges"),
        (np.random.default_rng(0).random((100, 100)), "straight edges of 5 that are needed"),
        (blocks()[:20, :20], "straight edges of 5"),
        (skimage.data.page() / 255.0, "straight edges of 5"),
    ],
)
def test_what_cannot_be_used_is_named(picture: np.ndarray, words: str) -> None:
    with pytest.raises(pl.InputError, match=words):
        pl.estimate_blur(picture, "edges")


def test_from_file_to_file(run, tmp_path: Path) -> None:
    counts = (blurred(defocus(4.0).numpy(), blocks(160, 160, 3)).clip(0, 1) * 65535).round().astype(np.uint16)
    pl.write_picture(tmp_path / "p.png", pl.Picture.from_array(counts))
    code, _, err = run("estimate", "p.png", "--edges", "-o", "b.npz", "--report")
    assert code == 0, err
    assert "defocus: radius 4" in err
    assert (tmp_path / "b.edges.csv").read_text().startswith("x,y,width")
