"""Restorations follow the picture through scale and offset, and single hot pixels do not matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.ndimage import convolve

import pnpladmm as pl
from pnpladmm.denoisers.shipped import is_installed
from pnpladmm.restoration.hot_pixels import hot_pixels
from pnpladmm.restoration.units import Units

KERNEL = np.outer([1, 4, 6, 4, 1], [1, 4, 6, 4, 1]) / 256.0


def frame(side: int = 48) -> np.ndarray:
    """Edges, a ramp and spots in [0, 1], blurred, with noise of 0.02."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:side, :side] / side
    sharp = 0.2 + 0.3 * columns + 0.4 * ((rows - 0.5) ** 2 + (columns - 0.4) ** 2 < 0.06)
    sharp[side // 4, side // 4 :: 9] += 0.3
    return convolve(sharp, KERNEL, mode="nearest") + 0.02 * rng.standard_normal(sharp.shape)


def restored(picture: np.ndarray, **options: Any) -> np.ndarray:
    return np.asarray(pl.restore(picture, KERNEL, **options), dtype=np.float64)


@pytest.mark.parametrize("denoiser", ["light", "drunet", "tv", "soft"])
def test_results_follow_scale_and_offset(denoiser: str) -> None:
    if denoiser == "drunet" and not is_installed("drunet"):
        pytest.skip("the large weights are not installed")
    y = frame()
    calls = 20 if denoiser == "tv" else 4  # its iterations are short
    expected = restored(y, denoiser=denoiser, iterations=calls)
    size = np.abs(expected).max()
    assert np.abs(expected - y).max() > 0.05  # it does something
    moves = [(1e-6, 0.0), (1e6, 0.0), (1.0, 1000.0), (1.0, -1.0), (0.37, -0.2)]
    for scale, offset in moves[2:4] if denoiser == "drunet" else moves:
        there = restored(scale * y + offset, denoiser=denoiser, iterations=calls)
        assert np.abs((there - offset) / scale - expected).max() < 1e-3 * size, (scale, offset)


def test_other_methods_and_masks_follow_too() -> None:
    y = frame()
    mask = np.zeros(y.shape, dtype=bool)
    mask[10:12, 20:30] = True
    for method in ("ladmm", "primal-dual"):
        options = {"method": method, "denoiser": "tv", "iterations": 15, "mask": mask}
        expected = restored(y, **options)
        there = restored(1e3 * y - 40, **options)
        assert np.abs((there + 40) / 1e3 - expected).max() < 1e-3, method


def test_a_dark_frame_of_16_bits_is_restored_as_well_as_a_bright_one() -> None:
    counts = np.rint(2000 * frame()).clip(0).astype(np.uint16)
    bright = restored(counts * np.uint16(30), denoiser="tv", iterations=4) / 30
    assert np.abs(restored(counts, denoiser="tv", iterations=4) - bright).max() <= 1


def test_a_hot_pixel_changes_nothing_away_from_it() -> None:
    y = frame().astype(np.float32)
    expected = restored(y, denoiser="light")
    y[20, 30] = 1e6
    result = pl.restore(y, KERNEL, denoiser="light")
    assert any("hot or dead" in note for note in result.notes)
    difference = np.abs(np.asarray(result) - expected)
    assert difference.max() < 0.1
    rows, columns = np.mgrid[:48, :48]
    assert difference[np.hypot(rows - 20, columns - 30) > 8].max() < 0.01


def test_stars_are_not_hot() -> None:
    y = frame()
    y[8:13, 30:35] += 50 * KERNEL  # what the PSF makes of a point, 350 times the noise
    y[33:38, 8:13] += 50 * KERNEL.max() * (np.hypot(*np.mgrid[-2:3, -2:3]) < 1.1)  # sharper than the PSF
    operator = pl.as_blur(KERNEL, (48, 48)).operator("replicate")
    assert hot_pixels(torch.from_numpy(y)[None, None], operator) is None
    y[20, 20] -= 3
    found = hot_pixels(torch.from_numpy(y)[None, None], operator)
    assert found is not None
    assert found.nonzero().tolist() == [[0, 0, 20, 20]]


def test_a_flat_picture_does_not_change_what_is_hot_beside_it() -> None:
    """Its noise cannot be found; that of the other can."""
    noise = torch.randn(1, 1, 48, 48, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = 0.5 + 0.01 * noise
    y[..., 19:22, 19:22] = 0.5
    y[..., 20, 20] = 0.5 + 12 * 0.01  # much for noise, too little for a hot pixel
    operator = pl.as_blur(KERNEL, (48, 48)).operator("replicate")
    assert hot_pixels(y, operator) is None
    assert hot_pixels(torch.cat([y, torch.zeros_like(y)]), operator) is None


def test_single_bright_pixels_are_light_where_nothing_is_blurred() -> None:
    y = torch.from_numpy(frame())[None, None].clone()
    y[..., 20, 20] = 100
    assert hot_pixels(y, pl.Mask(torch.ones(48, 48))) is None


def test_units_of_a_blur_whose_psf_does_not_sum_to_one() -> None:
    """`y = Hx` and `y' = Hx'` with the same H for `x = offset + scale x'`."""
    weights = torch.linspace(0.8, 1.1, 24).expand(1, 20, 24).double()
    blur = pl.SpatiallyVaryingBlur(torch.from_numpy(KERNEL)[None], weights, boundary="zero")
    x = 7 + 3 * torch.rand(2, 1, 20, 24, dtype=torch.float64)
    x[1] *= 50
    problem = pl.Problem(blur.forward(x), blur, pl.Gaussian(torch.tensor([0.1, 4.0])))
    units = Units.of(problem, torch.tensor([0.1, 4.0]))
    assert units is not None
    there = units.problem(problem)
    there_x = (x - units.offset) / units.scale
    assert torch.allclose(there.observed, blur.forward(there_x), atol=1e-12)
    assert torch.allclose(units.back(there_x), x)
    value = problem.data_term.value(0.9 * problem.observed + 0.1 * blur.forward(0 * x), problem.observed)
    moved = (0.9 * problem.observed - units.offset * blur.forward(torch.ones_like(x))) / units.scale
    assert torch.allclose(there.data_term.value(moved, there.observed), value)


def test_flat_pictures_are_not_stretched_to_noise() -> None:
    y = torch.full((1, 1, 16, 16), 5.0, dtype=torch.float64)
    units = Units.of(pl.Problem(y, pl.Mask(torch.ones(16, 16)), pl.Gaussian(0.5)), torch.tensor([0.5]))
    assert units is not None
    assert float(units.noise(torch.tensor([0.5]))) <= 1 / 8


def test_a_pattern_of_pixels_is_not_stretched() -> None:
    y = torch.from_numpy(np.indices((16, 16)).sum(0) % 2)[None, None].double()
    level = torch.tensor([1e-3], dtype=torch.float64)
    units = Units.of(pl.Problem(y, pl.Mask(torch.ones(16, 16)), pl.Gaussian(1e-3)), level)
    assert units is not None
    assert (float(units.offset), float(units.scale)) == (0, 1)


def test_a_callback_sees_the_picture_in_its_own_numbers() -> None:
    seen: list[float] = []
    y = 1000 + frame()

    def look(step: Any) -> None:
        seen.append(float(step.state.x.mean()))

    result = pl.restore(y, KERNEL, denoiser="tv", iterations=3, callback=look)
    torch.testing.assert_close(result.problem.crop_to_observed(result.state.x), result.image, rtol=0, atol=0)
    assert seen[-1] == pytest.approx(float(result.state.x.mean()), rel=1e-9)
    assert seen[-1] * result.before.scale == pytest.approx(y.mean(), rel=1e-4)


def test_a_state_on_another_scale_is_not_gone_on_from() -> None:
    """Its duals and the method belong to a picture between dark and bright: the run would be silently wrong."""
    result = pl.restore(1000 + frame(), KERNEL, method="ladmm", denoiser="tv", iterations=3)
    with pytest.raises(pl.InputError, match=r"goes on from a LADMMState; start=state\.x begins with its picture"):
        pl.solve(result.problem, result.method, 3, start=result.state)
    with pytest.raises(pl.InputError, match="goes on from"):
        pl.restore(
            1000 + frame(), KERNEL, method="ladmm", denoiser="tv", iterations=1,
            callback=lambda step: bool(pl.solve(result.problem, result.method, 3, start=step.state)),
        )  # fmt: skip


def test_a_memory_that_is_too_small_is_no_reason_to_miss_hot_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    operator = pl.as_blur(KERNEL, (48, 48)).operator("replicate")
    monkeypatch.setattr(operator, "forward", forward)
    with pytest.raises(torch.OutOfMemoryError):
        hot_pixels(torch.from_numpy(frame())[None, None], operator)
