"""`estimate_blur(..., "sharp")`: kernels from a sharp picture of the same scene."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import skimage.data
import torch

import pnpladmm as pl
from pnpladmm.blur import Blur, common_size, gaussian, motion
from pnpladmm.estimate.kernel_fields import Field, convolved, wide_enough
from pnpladmm.estimate.kernel_fit import PRIORS
from pnpladmm.estimate.outlines import fit_outlines, trusted
from pnpladmm.estimate.pair import Pair
from pnpladmm.estimate.regions import with_seams

NOISE = 2 / 255


def scene(height: int = 110, width: int = 140) -> np.ndarray:
    """A crop of a photograph, and so much fine texture that every place shows something."""
    rng = np.random.default_rng(1)
    crop = skimage.data.camera()[80 : 80 + height, 160 : 160 + width] / 255.0
    return 0.6 * crop + 0.4 * rng.random((height, width))


def shown(sharp: np.ndarray, blur: Blur, noise: float = NOISE) -> np.ndarray:
    rng = np.random.default_rng(2)
    clean = blur.operator("replicate").forward(torch.from_numpy(sharp)[None, None].float())[0, 0].double().numpy()
    return clean + noise * rng.standard_normal(clean.shape)


def hooked() -> np.ndarray:
    """A kernel without any symmetry, its centroid in the middle pixel."""
    kernel = np.zeros((9, 9))
    kernel[4, 2:7] = 1
    kernel[1:5, 6] = [0.2, 0.4, 0.6, 1.0]
    kernel[6, 3] = 1.3
    return kernel / kernel.sum()


def padded(kernel: np.ndarray, side: int) -> np.ndarray:
    margin = (side - len(kernel)) // 2
    return np.pad(kernel, margin) if margin >= 0 else kernel[-margin:margin, -margin:margin]


def error(blur: Blur, place: tuple[int, int], true: np.ndarray) -> float:
    found = blur.psf_at(*place)[0].numpy()
    true = padded(true, 41)
    return float(np.linalg.norm(padded(found, 41) - true) / np.linalg.norm(true))


def test_a_given_saturation_holds_for_the_sharp_picture_too() -> None:
    sharp = scene().astype(np.float32)
    sharp[40:45, 60:65] = 1.0  # so many pixels of the largest value look like a limit
    blurred = shown(sharp, Blur(hooked()[None], torch.ones(1, *sharp.shape)))
    pixels = [
        int(next(n for n in blur.notes if n.startswith("one kernel")).split()[-2])
        for blur in (pl.estimate_blur(blurred, "sharp", sharp=sharp, saturation=s, field="one") for s in (None, 2.0))
    ]
    assert pixels[0] < 0.99 * pixels[1]
    finer = (sharp.clip(0, 1) * 65535).astype(np.uint16)  # other numbers, another limit
    assert pl.estimate_blur(blurred, "sharp", sharp=finer, saturation=2.0, field="one").uncertainty is not None


def test_one_kernel_the_right_way_round() -> None:
    sharp = scene()
    blur = pl.estimate_blur(shown(sharp, Blur(hooked()[None], torch.ones(1, *sharp.shape))), "sharp", sharp=sharp)
    assert len(blur.kernels) == 1
    assert error(blur, (50, 60), hooked()) < 0.05
    assert blur.uncertainty is not None
    assert blur.uncertainty < 0.05
    assert blur.estimate is not None
    assert 0.9 < (blur.estimate.residual or 0) < 1.1
    assert blur.estimate.warnings == ()


def test_shifted_and_darker() -> None:
    sharp = scene()
    blurred = 0.5 * shown(np.roll(sharp, (3, -5), (0, 1)), Blur(hooked()[None], torch.ones(1, *sharp.shape))) + 0.1
    blur = pl.estimate_blur(blurred, "sharp", sharp=sharp, field="one")
    assert error(blur, (50, 60), hooked()) < 0.06
    assert "the sharp picture was moved by -5 pixels to the right and 3 down" in blur.notes
    (brightness,) = (note for note in blur.notes if note.startswith("brightness"))
    assert float(brightness.split()[3]) == pytest.approx(0.5, abs=0.01)


def test_regions_are_found() -> None:
    sharp = scene()
    left = np.zeros(sharp.shape)
    left[:, :65] = 1
    kernels = common_size([motion(9, 30), gaussian(1.2)])
    blurred = shown(sharp, Blur(kernels, np.stack([left, 1 - left])))
    blur = pl.estimate_blur(blurred, "sharp", sharp=sharp)
    assert len(blur.kernels) == 2
    assert error(blur, (55, 30), kernels[0].numpy()) < 0.09
    assert error(blur, (55, 105), kernels[1].numpy()) < 0.06
    found = blur.weights[np.argmax(blur.weights[:, 55, 30].numpy())].numpy()
    assert np.abs(found - left)[:, np.abs(np.arange(140) - 64.5) > 12].max() < 0.2
    assert any("squared residual" in note for note in blur.notes)


def test_outlines_of_a_large_picture_are_rough_and_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pnpladmm.estimate.sharp.MOST_LABELS", 1000)
    sharp = scene(80, 100)
    left = np.zeros(sharp.shape)
    left[:, :50] = 1
    kernels = common_size([motion(7, 30), gaussian(1.2)])
    blurred = shown(sharp, Blur(kernels, np.stack([left, 1 - left])))
    blur = pl.estimate_blur(blurred, "sharp", sharp=sharp, field="regions", side=11)
    assert len(blur.kernels) > 1
    assert blur.estimate is not None
    assert any("outlines of regions are rough: 100x80" in warning for warning in blur.estimate.warnings)


def test_outlines_are_found_to_the_pixel() -> None:
    sharp = scene()
    size = sharp.shape
    rows, columns = np.mgrid[: size[0], : size[1]]
    kernels = common_size([motion(9, 30), gaussian(1.2)]).numpy()
    regions = [(rows - 55) ** 2 + (columns - x) ** 2 < 30**2 for x in (70, 76)]  # the true one, and one that is off
    true, off = (with_seams(np.stack([r, ~r]).astype(float), kernels) for r in regions)
    clean = sum(u * convolved(sharp, k) for u, k in zip(true, kernels, strict=True))
    blurred = clean + NOISE * np.random.default_rng(2).standard_normal(size)
    known = np.ones(size, bool)
    pair = Pair(sharp, blurred, known, known, NOISE, len(kernels[0]), (0, 0), 1.0, 0.0)
    _, found = fit_outlines(pair, Field("2 regions", kernels, off, np.zeros((2, 2)), PRIORS[:2]), off)
    inside = pair.usable()
    assert np.abs(off - true)[:, inside].mean() > 0.04
    assert np.abs(found - true)[:, inside].mean() < 0.01
    np.testing.assert_allclose(found.sum(0), 1, rtol=1e-12)


def test_kernels_that_are_cut_off_get_more_room() -> None:
    sharp = scene()
    known = np.ones(sharp.shape, bool)
    pair = Pair(sharp, sharp, known, known, NOISE, 9, (0, 0), 1.0, 0.0)
    middle, edge = np.zeros((9, 9)), np.zeros((9, 9))
    middle[4, 3:6], edge[4, 4:] = 1 / 3, 1 / 5
    whole = np.ones((1, *sharp.shape))
    for kernel, side in ((middle, 9), (edge, 15)):
        wide, field = wide_enough(pair, Field("one", kernel[None], whole, np.zeros((1, 2)), PRIORS[:1]))
        assert wide.side == side
        np.testing.assert_array_equal(field.kernels[0], padded(kernel, side))


def test_light_from_beyond_the_picture_counts_less() -> None:
    sharp = scene()
    known = np.ones(sharp.shape, bool)
    pair = Pair(sharp, sharp, known, known, NOISE, 9, (0, 0), 1.0, 0.0)
    left = np.zeros((9, 9))
    left[4, 8] = 1  # y(n) = x(n - 4): the first four columns are lit from beyond
    found = trusted(pair, Field("one", left[None], np.ones((1, *sharp.shape)), np.zeros((1, 2)), PRIORS[:1]))
    assert found[:, :4].max() < 0.1
    assert found[:, 4:].min() > 0.999


def test_a_region_that_was_not_found_counts_in_the_stated_error() -> None:
    sharp = scene()
    left = np.zeros(sharp.shape)
    left[:, :65] = 1
    kernels = common_size([motion(9, 30), gaussian(1.2)])
    blurred = shown(sharp, Blur(kernels, np.stack([left, 1 - left])))
    blur = pl.estimate_blur(blurred, "sharp", sharp=sharp, field="one")
    actual = np.mean([error(blur, place, kernels[i].numpy()) for i, place in enumerate([(55, 30), (55, 105)])])
    assert blur.uncertainty is not None
    assert 0.5 * actual < blur.uncertainty < 1.5 * actual
    assert actual > 0.2


def test_a_smooth_change_on_a_grid() -> None:
    sharp = scene(150, 150)
    right = np.linspace(0, 1, 150)[None, :].repeat(150, 0)
    kernels = common_size([gaussian(1.0), gaussian(2.4)])
    blur = pl.estimate_blur(shown(sharp, Blur(kernels, np.stack([1 - right, right]))), "sharp", sharp=sharp, side=15)
    for column in (20, 75, 130):
        share = column / 149
        assert error(blur, (75, column), ((1 - share) * kernels[0] + share * kernels[1]).numpy()) < 0.1
    chosen = pl.estimate_blur(
        shown(sharp, Blur(kernels, np.stack([1 - right, right]))), "sharp", sharp=sharp, side=15, field="grid"
    )
    assert "grid" in chosen.source
    assert error(chosen, (75, 75), ((kernels[0] + kernels[1]) / 2).numpy()) < 0.1


def test_a_sharp_picture_has_a_point_as_kernel() -> None:
    sharp = scene()
    blur = pl.estimate_blur(shown(sharp, Blur(np.ones((1, 1, 1)), torch.ones(1, *sharp.shape))), "sharp", sharp=sharp)
    assert blur.estimate is not None
    assert any("is a point" in warning for warning in blur.estimate.warnings)
    assert blur.psf_at(50, 50).max() > 0.97


def test_text() -> None:
    page = skimage.data.page()[40:150, 40:200] / 255.0
    blur = pl.estimate_blur(shown(page, Blur(gaussian(1.5)[None], torch.ones(1, *page.shape))), "sharp", sharp=page)
    assert error(blur, (50, 60), gaussian(1.5).numpy()) < 0.08


@pytest.mark.parametrize(
    ("sharp", "blurred", "options", "words"),
    [
        (scene(), scene()[::-1, ::-1], {}, "do not show the same scene"),
        (scene(), np.random.default_rng(0).random((110, 140)), {}, "do not show the same scene"),
        (scene(), np.full((110, 140), 0.4), {}, "is flat"),
        (np.full((110, 140), 0.4), scene(), {}, "is flat"),
        (scene(), scene()[:100], {}, "cut both to the same field"),
        (scene(40, 40), scene(40, 40), {"side": 41}, "do not fit into 40x40"),
        (scene(), scene(), {"side": 4}, "odd number"),
        (scene(), scene(), {"field": "polynomial"}, "choose one of auto, one, grid, regions"),
    ],
)
def test_what_cannot_be_used_is_named(sharp: np.ndarray, blurred: np.ndarray, options: dict, words: str) -> None:
    with pytest.raises(pl.InputError, match=words):
        pl.estimate_blur(blurred, "sharp", sharp=sharp, **options)


def test_from_file_to_file(run, tmp_path: Path) -> None:
    sharp = scene()
    blurred = shown(sharp, Blur(hooked()[None], torch.ones(1, *sharp.shape)))
    for name, pixels in (("sharp.png", sharp), ("blurred.png", blurred)):
        pl.write_picture(tmp_path / name, pl.Picture.from_array((pixels.clip(0, 1) * 65535).round().astype(np.uint16)))
    code, _, err = run("estimate", "blurred.png", "--sharp", "sharp.png", "--field", "one", "-o", "b.npz", "--report")
    assert code == 0, err
    assert "a sharp reference" in err
    back = pl.read_blur(tmp_path / "b.npz", sharp.shape)
    assert error(back, (50, 60), hooked()) < 0.06
    assert back.uncertainty is not None
    page = (tmp_path / "b.npz.report" / "report.html").read_text()
    assert "sharp one blurred" in page
