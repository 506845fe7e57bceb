"""A blur from the shaken picture alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pnpladmm as pl
from pnpladmm.blur.arrays import Array
from pnpladmm.estimate.blind_canvas import canvas_of, derivatives, divergence
from pnpladmm.estimate.blind_kernel import centred, cleaned, fit_kernel
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
        (shapes()[:40, :40], {"side": 21}, "side = 21: at most 13"),
    ],
)
def test_what_shows_no_blur_is_refused(picture: Array, options: dict, words: str) -> None:
    with pytest.raises(pl.InputError, match=words):
        pl.estimate_blur(picture, "blind", **options)


def test_a_sharp_picture_has_a_point_as_kernel_and_it_says_so() -> None:
    blur = pl.estimate_blur(shaken(shapes(), np.ones((1, 1))), "blind", side=11)
    assert blur.estimate is not None
    assert any("a point" in warning for warning in blur.estimate.warnings)
