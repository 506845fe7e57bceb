"""Restorations that go wrong are restored again more gently, or the picture itself comes back, and it is said."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import skimage.data
import torch
from PIL import Image

import pnpladmm as pl
from conftest import Run
from pnpladmm.blur import Blur, as_blur, defocus, gaussian, motion
from pnpladmm.restoration.never_worse import never_worse, raised, with_known_error
from pnpladmm.restoration.noise_model import NoiseModel
from pnpladmm.restoration.policy import Prepared
from pnpladmm.restoration.psf_error import DOUBTFUL, doubt, evidence, expected_gain, known_error
from pnpladmm.restoration.psf_score import psf_score
from pnpladmm.restoration.signs import detail_of, signs_of
from pnpladmm.solvers import make_method

SIDE = 72


@cache
def scene(side: int) -> torch.Tensor:
    pixels = skimage.data.coffee()[60 : 60 + side, 160 : 160 + side] / 255
    return torch.from_numpy(pixels).permute(2, 0, 1)[None]


def observed(kernel: torch.Tensor, noise: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
    """A blurred, noisy picture of SIDE pixels, whose border has light from outside, and the sharp one."""
    radius = kernel.shape[-1] // 2
    wide = scene(SIDE + 2 * radius)
    inside = (..., slice(radius, -radius), slice(radius, -radius))
    clean = pl.SpatiallyVaryingBlur(kernel[None], torch.ones(1, *wide.shape[-2:]), "zero").forward(wide)[inside]
    generator = torch.Generator().manual_seed(0)
    return clean + noise / 255 * torch.randn(clean.shape, generator=generator, dtype=clean.dtype), wide[inside]


def score(image: torch.Tensor, sharp: torch.Tensor) -> float:
    return -10 * float((image.double().clamp(0, 1) - sharp).square().mean().log10())


@pytest.mark.parametrize("kernel", [gaussian(1.6), motion(15, 30), defocus(4.0)], ids=["gaussian", "motion", "disc"])
def test_the_right_psf_is_not_doubted(kernel: torch.Tensor) -> None:
    y, sharp = observed(kernel)
    found = pl.restore(y, kernel)
    assert found.warnings == ()
    assert float(found.noise_model.blur_error) == 0
    assert score(found.image, sharp) > score(y, sharp) + 5
    given = pl.restore(y, kernel, noise=found.noise_model.white)
    assert torch.equal(given.image, found.image)


WRONG = {
    "a disc of 5.5 for one of 4": (defocus(4.0), defocus(5.5)),
    "another width": (gaussian(1.6), gaussian(3.5)),
    "turned": (motion(15, 30), motion(15, 120)),
    "mirrored": (motion(15, 30), motion(15, 150)),
    "longer": (motion(12, 30), motion(16, 30)),
}


@pytest.mark.parametrize(("true", "given"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_psf_is_told_and_does_little_harm(true: torch.Tensor, given: torch.Tensor) -> None:
    y, sharp = observed(true)
    found = pl.restore(y, given)
    assert any("the PSF does not fit" in words for words in found.warnings)
    assert score(found.image, sharp) > score(y, sharp) - 2  # unguarded they lose 5 to 14 dB


def test_too_little_strength_is_told_and_answered() -> None:
    kernel = gaussian(1.6)
    y, sharp = observed(kernel)
    found = pl.restore(y, kernel, strength=0.1)
    assert found.warnings
    assert score(found.image, sharp) > score(y, sharp)


def test_a_small_picture_of_noise_comes_back_as_it_was() -> None:
    y = torch.rand(1, 1, 7, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = pl.restore(y, torch.ones(3, 3) / 9, noise=0.01)
    assert found.status is pl.Status.WITHDRAWN
    assert found.certificate.level.value == "outside"
    torch.testing.assert_close(found.image, y.to(found.image), rtol=0, atol=0)
    assert len(found.warnings) == 1
    assert "picture itself" in found.warnings[0]


def test_each_picture_of_a_batch_is_judged_alone() -> None:
    kernel = gaussian(1.6)
    y, _ = observed(kernel)
    noise = torch.rand(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    found = pl.restore(torch.cat([y, noise]), kernel, noise=[2 / 255, 2 / 255])
    alone = pl.restore(y, kernel, noise=2 / 255)
    torch.testing.assert_close(found.image[:1], alone.image, rtol=0, atol=1e-5)
    assert found.statuses[0] is pl.Status.FINISHED
    assert float(found.noise_model.blur_error[0]) == 0
    assert found.statuses[1] is pl.Status.WITHDRAWN
    torch.testing.assert_close(found.image[1:], noise.to(found.image), rtol=0, atol=0)


def test_who_stops_the_second_look_gets_a_stopped_run() -> None:
    """Else Ctrl-C would be lost: the next pictures would be restored, and the picture itself written."""
    y, _ = observed(motion(15, 30))
    looks: list[int] = []

    def stop(step: pl.Progress) -> bool:
        looks.append(step.iteration)
        return looks.count(2) == 2

    found = pl.restore(y, motion(15, 120), callback=stop)
    assert looks.count(1) == 2
    assert found.status is pl.Status.STOPPED
    assert not torch.equal(found.image, y.to(found.image))


def test_a_run_that_fails_leaves_its_neighbours_their_second_look() -> None:
    y = torch.rand(2, 1, 7, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    level, operator = torch.full((2,), 0.01, dtype=torch.float64), as_blur(torch.ones(3, 3), (7, 7)).operator()
    prepared = Prepared(pl.Problem(y, operator, pl.Gaussian(level)), level, NoiseModel("given", level), ())
    denoiser = pl.load_denoiser("light")

    def attempt(prepared: Prepared) -> tuple[pl.Result, tuple[str, ...]]:
        method = make_method("fast", denoiser, prepared.problem, prepared.noise)
        statuses = (pl.Status.NON_FINITE, pl.Status.FINISHED)
        return replace(pl.solve(prepared.problem, method), statuses=statuses), ()

    found = never_worse(attempt, prepared)
    assert found.prepared.noise[0] == level[0]
    assert found.prepared.noise[1] > level[1]
    assert not found.withdrawn[0]


def test_the_state_of_a_withdrawn_picture_is_the_picture_itself() -> None:
    y = torch.rand(1, 1, 7, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = pl.restore(y, torch.ones(3, 3) / 9, noise=0.01)
    assert found.status is pl.Status.WITHDRAWN
    torch.testing.assert_close(found.problem.crop_to_observed(found.state.x), found.image, rtol=0, atol=1e-12)


def test_the_command_line_writes_the_picture_itself_and_says_so(run: Run) -> None:
    y, _ = observed(defocus(4.0))
    samples = (y[0].permute(1, 2, 0).clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    Image.fromarray(samples).save("y.png")
    np.save("psf.npy", defocus(7.0).numpy())
    code, _, err = run("restore", "y.png", "--blur", "psf.npy", "--out", "x.png")
    assert code == 1
    assert "withdrawn" in err
    np.testing.assert_array_equal(np.asarray(Image.open("x.png")), samples)


@pytest.mark.parametrize("noise", ["auto", 5 / 255])
def test_the_right_psf_on_a_jpeg_gets_no_warning(noise: str | float) -> None:
    kernel = gaussian(1.6)
    y, sharp = observed(kernel, 5.0)
    samples = (y[0].permute(1, 2, 0).clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    buffer = io.BytesIO()
    Image.fromarray(samples).save(buffer, "JPEG", quality=90)
    found = pl.restore(Image.open(io.BytesIO(buffer.getvalue())), kernel, noise)
    assert found.warnings == ()
    assert score(found.image, sharp) > score(y, sharp) + 1


def test_an_uncertain_blur_is_trusted_less() -> None:
    kernel = motion(12, 30)
    y, _ = observed(kernel)
    blur: Blur = as_blur(kernel, (SIDE, SIDE))
    results = [pl.restore(y, blur.noted(uncertainty=u), 2 / 255).noise_model for u in (None, 0.1, 0.3)]
    errors = [float(model.blur_error) for model in results]
    assert errors[0] == 0
    assert errors[2] == pytest.approx(3 * errors[1], rel=1e-6)
    problem = pl.Problem(y, blur.operator(), pl.Gaussian(2 / 255))
    white = torch.tensor([2 / 255], dtype=torch.float64)
    assert errors[1] == pytest.approx(float(known_error(0.1, detail_of(problem), white)), rel=1e-3)


def test_an_error_of_the_psf_adds_to_the_variance_of_each_pixel() -> None:
    y = torch.rand(1, 1, 8, 8, dtype=torch.float64)
    precision = torch.linspace(0, 400, 64, dtype=torch.float64).reshape(8, 8)
    level = torch.tensor([0.1], dtype=torch.float64)
    for term, noise in ((pl.Gaussian(0.1), 0.1**-2), (pl.WeightedGaussian(precision), precision)):
        before = Prepared(pl.Problem(y, pl.Mask(torch.ones(8, 8)), term), level, NoiseModel("given", level), ())
        after = raised(before, torch.tensor([0.05], dtype=torch.float64))
        found = after.problem.data_term.precision_of(y).expand_as(y)
        expected = 1 / (1 / torch.as_tensor(noise, dtype=torch.float64) + 0.05**2)  # 0 stays 0
        torch.testing.assert_close(found[0, 0], expected.expand(8, 8))
        assert float(after.noise) == pytest.approx((0.1**2 + 0.05**2) ** 0.5)
        assert float(after.model.level) == pytest.approx(float(after.noise))
    assert with_known_error(before, None) is before


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_evidence_does_not_depend_on_the_scale_of_the_picture(scale: float) -> None:
    kernel = gaussian(1.6)
    y, sharp = observed(kernel)
    ringing = sharp + 0.3 * torch.randn(sharp.shape, generator=torch.Generator().manual_seed(1), dtype=sharp.dtype)
    operator = pl.SpatiallyVaryingBlur(kernel[None], torch.ones(1, SIDE, SIDE), "reflect")

    def known(image: torch.Tensor, scale: float) -> torch.Tensor:
        level = torch.tensor([scale * 2 / 255], dtype=torch.float64)
        problem = pl.Problem(scale * y, operator, pl.Gaussian(float(level)))
        signs = signs_of(problem, scale * image, 3 * level)
        assert signs is not None
        return evidence(signs, psf_score(problem, scale * image, 3 * level), level, 8)

    for image in (sharp, ringing):
        torch.testing.assert_close(known(image, scale), known(image, 1.0), rtol=1e-6, atol=1e-6)
    assert float(doubt(known(sharp, scale))) < DOUBTFUL < 1 < float(doubt(known(ringing, scale)))
    assert float(expected_gain(known(sharp, scale))) > float(expected_gain(known(ringing, scale)))
