"""A blur from the shaken picture alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pnpladmm as pl
from pnpladmm.blur.arrays import Array
from pnpladmm.estimate import blind
from pnpladmm.estimate.blind_canvas import canvas_of, derivatives, divergence
from pnpladmm.estimate.blind_check import sharpens
from pnpladmm.estimate.blind_field import aligned, changes, joined, windows_of
from pnpladmm.estimate.blind_kernel import centred, cleaned, fit_kernel
from pnpladmm.estimate.blind_refine import refined
from pnpladmm.estimate.blind_scales import Step
from pnpladmm.estimate.blind_window import Found
from pnpladmm.estimate.psf_field import relative_l2

SIZE = 144


def shapes(seed: int = 0) -> Array:
    """A picture of overlapping discs and boxes."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:SIZE, :SIZE]
    picture = np.full((SIZE, SIZE), 0.4)
    for _ in range(40):
        cy, cx, r, level = *rng.uniform(0, SIZE, 2), rng.uniform(5, 22), rng.uniform(0.05, 0.9)
        inside = (
            np.hypot(y - cy, x - cx) < r if rng.random() < 0.5 else (abs(y - cy) < r) & (abs(x - cx) < r * rng.random())
        )
        picture[inside] = level
    return picture


def hook() -> Array:
    """A kernel without any symmetry: a turned or mirrored one would be another."""
    kernel = np.zeros((11, 11))
    kernel[2:9, 3] = 1.0
    kernel[8, 3:9] = 1.0
    kernel[2, 3] = 3.0
    return kernel / kernel.sum()


def shaken(picture: Array, kernel: Array, noise: float = 0.005) -> Array:
    from scipy.ndimage import convolve, gaussian_filter

    blurred = convolve(gaussian_filter(picture, 0.6), kernel, mode="reflect")
    return blurred + noise * np.random.default_rng(1).standard_normal(picture.shape)


def best_error(found: Array, truth: Array) -> float:
    """The relative l2 error at the best shift: a blind kernel may lie anywhere."""
    pad = np.pad(truth, (found.shape[0] - truth.shape[0]) // 2)
    reach = range(-4, 5)
    return min(float(relative_l2(np.roll(found, (i, j), (0, 1))[None], pad[None])[0]) for i in reach for j in reach)


def test_the_kernel_of_a_shaken_picture_is_found() -> None:
    y = (shaken(shapes(), hook()).clip(0, 1) * 255).round().astype(np.uint8)
    steps: list[tuple[str, float]] = []
    blur = pl.estimate_blur(y, "blind", side=17, callback=lambda *step: steps.append(step))
    found = blur.kernels[0, 0].numpy()
    assert best_error(found, hook()) < 0.35
    assert best_error(found[::-1, ::-1], hook()) > 0.6
    assert blur.estimate is not None
    assert blur.estimate.way == "blind"
    assert not blur.estimate.warnings
    assert [share for _, share in steps] == sorted(share for _, share in steps)


def test_the_kernel_of_known_edges_is_exact() -> None:
    picture, kernel = torch.from_numpy(shapes()).float(), hook()
    from scipy.ndimage import convolve

    y = torch.from_numpy(convolve(shapes(), kernel)).float()
    counts = torch.ones(SIZE, SIZE, dtype=torch.bool)
    counts[40:44, 60:64] = False
    y[40:44, 60:64] = 5.0  # would spoil the fit
    canvas = canvas_of(y, counts, 11)
    sharp = canvas_of(picture, torch.ones_like(counts), 11)
    start = torch.zeros(11, 11)
    start[5, 5] = 1
    found = fit_kernel(canvas, derivatives(sharp.y), start, 1e-6).double().numpy()
    # `fit_kernel` moves the centroid to the middle.
    expected = centred(torch.from_numpy(kernel)).numpy()
    assert relative_l2(found[None], expected[None])[0] < 0.02


def test_refining_brings_back_faint_parts() -> None:
    kernel = hook()
    kernel[2, 4:10] = kernel[2:5, 9] = 0.007
    kernel /= kernel.sum()
    y = shaken(shapes(), kernel, 0.003)
    canvas = canvas_of(torch.from_numpy(0.2 * (y - y.mean()) / y.std()).float(), torch.ones(SIZE, SIZE) > 0, 15)
    whole = np.pad(kernel, 2)
    faint = (whole > 0) & (whole < 0.05 * whole.max())
    start = torch.from_numpy(np.where(faint, 0, whole) / whole[~faint].sum()).float()
    found = refined(canvas, start).double().numpy()
    moved = min(
        (np.roll(found, (i, j), (0, 1)) for i in range(-3, 4) for j in range(-3, 4)),
        key=lambda k: float(((k - whole) ** 2).sum()),
    )
    assert moved[faint].sum() > 0.5 * whole[faint].sum()
    assert moved[whole == 0].sum() < 0.01
    assert relative_l2(moved[None], whole[None])[0] < 0.15


def test_divergence_is_the_adjoint() -> None:
    generator = torch.Generator().manual_seed(0)
    x, u, v = (torch.randn(6, 7, generator=generator, dtype=torch.float64) for _ in range(3))
    dx, dy = derivatives(x)
    assert float((dx * u + dy * v).sum()) == pytest.approx(float((x * divergence(u, v)).sum()), rel=1e-12)


def test_small_apart_and_negative_values_are_no_kernel() -> None:
    kernel = torch.zeros(9, 9)
    kernel[4, 3:6] = 1.0
    kernel[0, 0], kernel[4, 6], kernel[8, 8] = 0.2, -0.5, 0.01
    found = cleaned(kernel)
    assert torch.equal(found > 0, kernel == 1)
    assert float(found.sum()) == pytest.approx(1)
    assert float(cleaned(torch.zeros(5, 5))[2, 2]) == 1


@pytest.mark.parametrize(
    ("picture", "options", "words"),
    [
        (np.full((64, 64), 90, np.uint8), {}, "flat"),
        (
            np.random.default_rng(0).normal(120, 10, (96, 96)).clip(0, 255).astype(np.uint8),
            {},
            "no edges above its noise",
        ),
        (np.full((64, 64), 255, np.uint8), {}, "below saturation"),
        (shapes()[:64, :64], {"side": 31}, "side = 31: at most 21"),
        (shapes()[:40, :30], {}, "40x30 pixels: a blind estimate needs 48"),
    ],
)
def test_what_shows_no_blur_is_refused(picture: Array, options: dict, words: str) -> None:
    with pytest.raises(pl.InputError, match=words):
        pl.estimate_blur(picture, "blind", **options)


def test_a_sharp_picture_has_a_point_as_kernel_and_it_says_so() -> None:
    blur = pl.estimate_blur(shaken(shapes(), np.ones((1, 1))), "blind", side=11)
    assert blur.estimate is not None
    assert any("a point" in warning for warning in blur.estimate.warnings)


def test_a_kernel_that_does_not_help_is_seen_and_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    y = shaken(shapes(), hook())
    counts = np.ones((96, 96), bool)
    assert sharpens(y[:96, :96], counts, hook(), 0.3, "cpu")
    assert not sharpens(y[:96, :96], counts, np.full((9, 9), 1 / 81), 0.3, "cpu")
    useless = Found([Step(1.0, torch.from_numpy(hook()).float())], 0.1, sharpens=False)
    assert useless.confidence == 0
    monkeypatch.setattr(blind, "find_kernel", lambda *_: useless)
    monkeypatch.setattr(blind, "finished", lambda name, picture, counts, found, device: found)
    with pytest.raises(pl.InputError, match="no blur was found that makes it sharper"):
        pl.estimate_blur(y, "blind", side=11)


def test_windows_cover_the_picture_and_lie_half_a_window_apart() -> None:
    assert windows_of((383, 900)) is None
    windows = windows_of((400, 700))
    assert windows is not None
    assert len(windows.places) == 2 * 4
    boxes = [windows.box(i, (400, 700)) for i in range(8)]
    assert {(b[0].stop - b[0].start, b[1].stop - b[1].start) for b in boxes} == {(256, 256)}
    assert (boxes[0][0].start, boxes[0][1].start) == (0, 0)
    assert (boxes[-1][0].stop, boxes[-1][1].stop) == (400, 700)


def test_kernels_of_windows_are_moved_to_one_place_and_doubtful_ones_replaced() -> None:
    windows = windows_of((520, 520))
    assert windows is not None
    base = np.pad(hook(), 5)
    moves = np.random.default_rng(2).integers(-3, 4, (9, 2))
    kernels = np.stack([np.roll(base, move, (0, 1)) for move in moves])
    trust = np.full(9, 0.9)
    placed = aligned(kernels, trust, windows.nearness())
    assert all(np.array_equal(k, placed[0]) for k in placed)
    placed[4] = np.rot90(placed[4])
    trust[4] = 0.1
    field = joined(placed, trust, windows.nearness())
    np.testing.assert_allclose(field[4], placed[0], rtol=1e-12, atol=1e-15)
    assert relative_l2(field[:1], placed[:1])[0] < 0.02


def test_a_field_is_taken_where_windows_differ_by_more_than_their_errors() -> None:
    windows = windows_of((520, 520))
    assert windows is not None
    rng = np.random.default_rng(3)
    base = np.pad(hook(), 5)
    alike = np.stack([base + 0.005 * rng.standard_normal(base.shape) for _ in range(9)])
    differences = np.array([relative_l2(*(base[None] + 0.005 * rng.standard_normal((2, 1, *base.shape))))[0]] * 9)
    assert not changes(alike, differences, windows.nearness())[1]
    turned = np.stack([np.rot90(base, i) for i in range(9)])
    assert changes(turned, differences, windows.nearness())[1]


def test_a_field_of_kernels_and_the_place_without_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = {0: hook(), 1: np.rot90(hook())}

    def found(name: str, picture: Array, counts: Array, sides: tuple[int, ...], tell: object, device: str) -> Found:
        if picture[:256].std() == 0:
            raise pl.InputError("flat")
        kernel = kernels[int(picture.max() > 0.6)]
        return Found([Step(1.0, torch.from_numpy(kernel.copy()).float())], 0.05)

    monkeypatch.setattr(blind, "find_kernel", found)
    monkeypatch.setattr(blind, "finished", lambda name, picture, counts, found, device: found)
    rng = np.random.default_rng(0)
    picture = 0.5 * rng.random((400, 700))
    picture[:, 450:] += 0.4
    picture[144:, :256] = 0.5
    blur = pl.estimate_blur(picture, "blind")
    assert blur.estimate is not None
    assert "this picture does not show enough edges in the lower left; blur taken from its neighbours" in (
        blur.estimate.warnings
    )
    assert best_error(blur.psf_at(60, 60)[0].numpy(), hook()) < 0.3
    assert best_error(blur.psf_at(300, 640)[0].numpy(), np.rot90(hook())) < 0.3


def test_scores_allow_a_shift() -> None:
    from scipy.ndimage import gaussian_filter, shift

    from pnpladmm.workshop.bench.shaken import best_shift_psnr

    truth = gaussian_filter(shapes(), 2)
    moved = shift(truth, (3.25, -2.5), order=3, mode="nearest")
    assert best_shift_psnr(moved, truth, 12) > 60
    assert best_shift_psnr(moved[:, ::-1], truth, 12) < 25
    noisy = moved + 0.01 * np.random.default_rng(0).standard_normal(truth.shape)
    assert 39.5 < best_shift_psnr(noisy, truth, 12) < 42
