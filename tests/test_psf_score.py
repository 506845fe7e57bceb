"""The test of the PSF against noise alone, against PSFs that are known to be wrong, and against explicit kernels."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import conv2d, pad

import pnpladmm as pl
from pnpladmm.blur import as_blur, defocus, motion
from pnpladmm.operators.boundary import Boundary
from pnpladmm.restoration import psf_score as module
from pnpladmm.restoration.psf_score import PsfScore, directions, psf_score

SIDE, LEVEL = 96, 0.01


def edges(side: int) -> torch.Tensor:
    """Discs and bars on a ramp, (1, 1, side, side), float64."""
    rows, columns = torch.meshgrid(*[torch.arange(side, dtype=torch.float64)] * 2, indexing="ij")
    scene = 0.2 + 0.2 * columns / side
    for number in range(12):
        row, column = (37 * number) % side, (53 * number + 11) % side
        inside = (rows - row) ** 2 + (columns - column) ** 2 < (4 + number) ** 2
        scene = torch.where(inside, 0.15 + 0.07 * number, scene)
    return scene[None, None]


def problem(true: torch.Tensor, told: torch.Tensor, boundary: Boundary = "unknown") -> tuple[pl.Problem, torch.Tensor]:
    """The observation of a blur, the other blur, and the scene on its domain."""
    operators = [as_blur(kernel, (SIDE, SIDE)).operator(boundary) for kernel in (true, told)]
    wide, scenes = edges(SIDE + 40), []
    for operator in operators:
        top, left = (20 - first for first in operator.crop_offset or (0, 0))
        rows, columns = operator.input_shape((1, 1, SIDE, SIDE))[2:]
        scenes.append(wide[..., top : top + rows, left : left + columns])
    noise = torch.randn(1, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = operators[0].forward(scenes[0]) + LEVEL * noise
    return pl.Problem(y, operators[1], pl.Gaussian(LEVEL)), scenes[1]


def scored(problem: pl.Problem, image: torch.Tensor, level: float = LEVEL) -> PsfScore:
    return psf_score(problem, image, torch.tensor([level], dtype=torch.float64))


@pytest.mark.parametrize("boundary", ["unknown", "reflect"])
def test_directions_are_convolutions_with_the_changes_of_the_kernel(boundary: Boundary) -> None:
    """Of `k(u)` under `u -> (1 + t) u` that change is `-d(u k)/du`; under a shear `-d(v k)/du`."""
    line = motion(9, 30)
    kernel = line * torch.arange(1, line.shape[-1] + 1)  # not symmetric
    given, image = problem(kernel, kernel, boundary)
    kernel = given.operator.kernels[0, 0]  # type: ignore[attr-defined]
    kernel = kernel.reshape(kernel.shape[-2:])
    down_at, at = (torch.arange(n, dtype=torch.float64) - n // 2 for n in kernel.shape)
    down_at = down_at[:, None]
    wide = pad(image, (1, 1, 1, 1), mode="replicate")
    across, down = (wide[..., 1:-1, 2:] - wide[..., 1:-1, :-2]) / 2, (wide[..., 2:, 1:-1] - wide[..., :-2, 1:-1]) / 2
    expected = [
        conv2d(slope, (-weights * kernel).flip(0, 1)[None, None])
        for slope, weights in ((across, at), (down, down_at), (across, down_at), (down, at))
    ]
    inside = (..., slice(12, -12), slice(12, -12))
    for found, wanted in zip(directions(given, image), expected, strict=False):
        rows, columns = ((n - m) // 2 for n, m in zip(found.shape[-2:], wanted.shape[-2:], strict=True))
        wanted = pad(wanted, (columns, columns, rows, rows))
        torch.testing.assert_close(found[inside], wanted[inside], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("boundary", ["unknown", "circular"])
def test_noise_alone_scores_little(boundary: Boundary) -> None:
    given, scene = problem(defocus(3.0), defocus(3.0), boundary)
    found = scored(given, scene)
    assert 0.05 < float(found.middle) < 1.5
    assert float(found.worst) < 2


@pytest.mark.parametrize(
    ("true", "told", "change"),
    [
        (motion(12, 0), motion(10, 0), 0.2),
        (defocus(4.0), defocus(3.6), 2**0.5 * 0.11),
        (motion(12, 30), motion(12, 40), 2**0.5 * 0.17),
    ],
    ids=["longer", "wider", "turned"],
)
def test_a_wrong_psf_is_found_and_measured(true: torch.Tensor, told: torch.Tensor, change: float) -> None:
    given, scene = problem(true, told)
    found = scored(given, scene)
    assert float(found.middle) > 10
    assert float(found.error) > 0.5
    assert 0.5 * change < float(found.change) < 2 * change


def test_it_does_not_depend_on_the_scale_of_the_picture() -> None:
    given, scene = problem(motion(12, 0), motion(10, 0))
    larger = pl.Problem(1000 * given.observed, given.operator, pl.Gaussian(1000 * LEVEL))
    for one, other in zip(
        vars(scored(given, scene)).values(), vars(scored(larger, 1000 * scene, 1000 * LEVEL)).values(), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=0)


def test_pixels_that_do_not_count_do_not_change_it() -> None:
    given, scene = problem(defocus(3.0), defocus(3.0))
    counts = torch.ones_like(given.observed)
    counts[..., 40:44, 30:50] = 0
    y = torch.where(counts > 0, given.observed, 5.0)
    found = scored(pl.Problem(y, given.operator, pl.WeightedGaussian(counts / LEVEL**2)), scene)
    assert float(found.worst) < 2


def test_large_pictures_are_tested_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    given, scene = problem(motion(12, 0), motion(10, 0))
    whole = scored(given, scene)
    monkeypatch.setattr(module, "LARGEST", 1000)
    monkeypatch.setattr(module, "SIDE", 64)
    parts = scored(given, scene)
    assert float(parts.middle) == pytest.approx(float(whole.middle), rel=0.5)
    assert float(parts.change) == pytest.approx(float(whole.change), rel=0.5)


def test_what_is_no_blur_is_not_tested() -> None:
    y = torch.rand(1, 1, 16, 16, dtype=torch.float64)
    found = scored(pl.Problem(y, pl.Mask(torch.ones(16, 16)), pl.Gaussian(LEVEL)), y)
    assert [float(value) for value in vars(found).values()] == [0.0] * 5
