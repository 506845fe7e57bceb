"""From a picture and its blur to the sharp picture, in Python."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skimage.data
import torch

import pnpladmm as pl
from conftest import picture
from pnpladmm.blur import gaussian, motion
from pnpladmm.denoisers import Tikhonov
from pnpladmm.jobs import Job
from pnpladmm.metrics import psnr
from pnpladmm.restoration import Options
from pnpladmm.restoration.policy import unsaturated
from pnpladmm.solvers import METHODS, make_method, settings
from pnpladmm.solvers.certificate import Level

SIGMA = 4 / 255
KERNEL = motion(9, 30)


def scene(size: int = 96) -> torch.Tensor:
    pixels = skimage.data.astronaut()[20 : 20 + size, 150 : 150 + size] / 255
    return torch.from_numpy(pixels).permute(2, 0, 1).float()[None]


def observed(size: int = 96, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, pl.Blur]:
    """The blurred crop, the sharp crop, and the blur on it: light enters from outside."""
    sharp = pl.Picture.from_array(scene(size))
    blur = pl.Blur(KERNEL[None], torch.ones(1, size, size))
    done = pl.simulate(sharp, blur, SIGMA, seed=seed)
    margin = KERNEL.shape[0] // 2
    return done.picture.pixels, sharp.pixels[..., margin:-margin, margin:-margin], done.blur


def test_the_default_restores_on_the_pictures_own_domain() -> None:
    y, sharp, blur = observed()
    result = pl.restore(y, blur, noise=SIGMA)
    assert result.image.shape == y.shape
    assert result.status is pl.Status.FINISHED
    assert float(psnr(result.image, sharp)) > float(psnr(y, sharp)) + 3
    assert int(result.history.denoiser_calls[-1]) == 8


@pytest.mark.parametrize("method", [name for name in METHODS.names() if name != "sources"])  # that one is for stars
def test_every_method_by_name_with_total_variation(method: str) -> None:
    y, sharp, blur = observed(64)
    done = pl.restore(y, blur, SIGMA, method, "tv", iterations=20)
    assert float(psnr(done.image, sharp)) > float(psnr(y, sharp)) + (0.5 if method != "certified" else 0.2)


def test_picture_and_blur_in_every_form(tmp_path: Path) -> None:
    y, _, blur = observed(64)
    expected = pl.restore(y, blur, SIGMA, denoiser="tv", iterations=3).image
    pl.write_blur(tmp_path / "blur.npz", blur)
    array = y[0].permute(1, 2, 0).numpy()
    np.save(tmp_path / "y.npy", array)
    for one in (array, pl.Picture.from_array(array), tmp_path / "y.npy", str(tmp_path / "y.npy")):
        for other in (blur, blur.operator("unknown"), tmp_path / "blur.npz"):
            found = pl.restore(one, other, SIGMA, denoiser="tv", iterations=3).image
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_automatic_noise_is_reported_and_close() -> None:
    y, _, blur = observed()
    done = pl.restore(y, blur, denoiser="tv", iterations=2)
    assert done.noise == pytest.approx(SIGMA, rel=0.1)
    assert any(note.endswith("of 255 (estimated)") for note in done.notes)


def test_strength_smooths() -> None:
    y, _, blur = observed(64)

    def roughness(strength: float) -> float:
        image = pl.restore(y, blur, SIGMA, strength=strength).image
        return float(image.diff(dim=-1).abs().mean())

    assert roughness(0.5) > roughness(1.0) > roughness(2.0)


def test_dead_pixels_do_not_spoil_the_picture() -> None:
    y, sharp, blur = observed()
    valid = torch.rand(y.shape[-2:], generator=torch.Generator().manual_seed(3)) > 0.02
    broken = torch.where(valid, y, torch.tensor(5.0))
    good = pl.restore(broken, blur, SIGMA, mask=~valid)
    assert "do not count" in " ".join(good.notes)
    assert float(psnr(good.image, sharp)) > float(psnr(pl.restore(y, blur, SIGMA).image, sharp)) - 1
    bad = pl.restore(broken, blur, SIGMA).image
    assert float(psnr(bad, sharp)) < float(psnr(good.image, sharp)) - 5


def test_saturated_pixels_are_found() -> None:
    pixels = (np.clip(picture(32)[0, 0].numpy(), 0, 0.99) * 255).astype(np.uint8)
    pixels[4:6, 7] = 255
    valid = unsaturated(pl.Picture.from_array(pixels))
    assert valid is not None
    assert int((~valid).sum()) == 2
    assert unsaturated(pl.Picture.from_array(np.full((8, 8), 255, np.uint8))) is None
    assert unsaturated(pl.Picture.from_array(pixels / 255.0)) is None


def test_a_map_of_the_noise_is_used() -> None:
    """Half of the picture is much noisier: knowing it helps."""
    y, sharp, blur = observed()
    sigma = torch.full(y.shape[-2:], 0.01)
    sigma[:, 40:] = 0.15
    y = y + (sigma**2 - SIGMA**2).clamp_min(0).sqrt() * torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    known = pl.restore(y, blur, variance=(sigma**2)[None, None]).image
    unknown = pl.restore(y, blur, noise="auto").image
    assert float(psnr(known, sharp)) > float(psnr(unknown, sharp))


def test_the_level_of_a_map_is_that_of_the_pixels_that_count() -> None:
    """A mosaic may be empty for the most part, with any variance there."""
    y = observed(64)[0]
    valid = torch.zeros_like(y, dtype=torch.bool)
    valid[..., 16:40, 16:40] = True
    variance = torch.where(valid, SIGMA**2, torch.nan)
    found = pl.restore(y, np.ones((3, 3)), denoiser="tv", mask=~valid, variance=variance, iterations=2)
    assert float(found.noise_model.white) == pytest.approx(SIGMA, rel=1e-6)


def test_counts() -> None:
    sharp = pl.Picture.from_array(scene(96))
    blur = pl.Blur(gaussian(1.5)[None], torch.ones(1, 96, 96))
    done = pl.simulate(sharp, blur, gain=1 / 300, background=0.05)
    margin = blur.kernel_size[0] // 2
    reference = sharp.pixels[..., margin:-margin, margin:-margin]
    counts = {"gain": 1 / 300, "background": 0.05}
    before = float(psnr(done.picture.pixels - 0.05, reference))
    for method, denoiser in (("fast", "light"), ("ladmm", "tv")):
        found = pl.restore(done.picture, done.blur, "auto", method, denoiser, **counts, iterations=12)
        assert float(psnr(found.image, reference)) > before + 1, method


def test_unknown_border_beats_circular_by_a_decibel_at_the_border() -> None:
    y, sharp, blur = observed(128)
    band = torch.ones(y.shape[-2:], dtype=torch.bool)
    band[12:-12, 12:-12] = False
    quality = {}
    for boundary in ("unknown", "circular"):
        image = pl.restore(y, blur, SIGMA, boundary=boundary).image
        quality[boundary] = -10 * float(torch.log10((image - sharp)[..., band].square().mean()))
    assert quality["unknown"] > quality["circular"] + 1


@pytest.mark.parametrize(("method", "denoiser"), [("fast", "light"), ("fast", "tv"), ("admm", "tv"), ("fista", "tv")])
def test_pictures_of_a_batch_do_not_depend_on_their_neighbours(method: str, denoiser: str) -> None:
    """Estimated noise, settings, norm and all."""
    first, _, blur = observed(48)
    second = first.flip(-1) + 0.05 * torch.randn(first.shape, generator=torch.Generator().manual_seed(5))
    together = pl.restore(torch.cat([first, second]), blur, "auto", method, denoiser, iterations=4)
    for i, y in enumerate((first, second)):
        alone = pl.restore(y, blur, "auto", method, denoiser, iterations=4)
        torch.testing.assert_close(together.image[i : i + 1], alone.image, atol=1e-5, rtol=0)
        assert float(together.noise[i]) == pytest.approx(float(alone.noise))


def test_one_noise_level_for_each_picture() -> None:
    y, _, blur = observed(64)
    both = pl.restore(torch.cat([y, y]), blur, torch.tensor([SIGMA, 3 * SIGMA]), denoiser="tv", iterations=4).image
    assert not torch.equal(both[0], both[1])
    torch.testing.assert_close(
        both[:1], pl.restore(y, blur, SIGMA, denoiser="tv", iterations=4).image, atol=1e-6, rtol=0
    )


def test_super_resolution_and_compressed_sensing_come_back_whole() -> None:
    sharp = picture(64).float()
    blur = pl.SpatiallyVaryingBlur(gaussian(1.0)[None], torch.ones(1, 64, 64))
    for operator in (pl.Decimation(2) @ blur, pl.SubsampledTransform((64, 64), 0.5)):
        y = operator.forward(sharp)
        result = pl.restore(y, operator, 0.01, denoiser="tv", iterations=20)
        assert result.image.shape == sharp.shape
        start = pl.Problem(y, operator, pl.Gaussian(0.01)).default_start()
        assert float(psnr(result.image, sharp)) > float(psnr(start, sharp)) + 3


def test_super_resolution_of_a_crop_starts_from_the_enlarged_picture() -> None:
    sharp = picture(64).float()
    operator = pl.Decimation(2) @ pl.SpatiallyVaryingBlur(gaussian(1.0)[None], torch.ones(1, 56, 56), "unknown")
    margin = operator.inner.crop_offset
    assert margin is not None
    scene = sharp[..., : operator.inner.scene[0], : operator.inner.scene[1]]
    start = pl.Problem(operator.forward(scene), operator, pl.Gaussian(0.01)).default_start()
    assert start.shape == scene.shape
    assert float(psnr(start, scene)) > 18  # laid into the middle without enlarging it would be 10


@pytest.mark.parametrize("method", ["ista", "fista"])
def test_steps_follow_the_strongest_pixel_of_a_noise_map(method: str) -> None:
    y, sharp, blur = observed(64)
    variance = torch.full(y.shape[-2:], 0.05**2)
    variance[::3] = SIGMA**2
    done = pl.restore(y, blur, "auto", method, "tv", variance=variance.numpy(), iterations=60)
    assert done.status is not pl.Status.DIVERGED
    assert float(psnr(done.image, sharp)) > float(psnr(y, sharp)) - 1


def test_residual_of_counts_is_judged_by_their_own_noise() -> None:
    """Bright and dark halves: with the true picture the residual is noise, whatever its level."""
    from pnpladmm.restoration import check_residual

    blur = pl.SpatiallyVaryingBlur(gaussian(1.0)[None], torch.ones(1, 64, 64))
    sharp = torch.full((1, 1, 64, 64), 0.02, dtype=torch.float64)
    sharp[..., 32:] = 0.9
    torch.manual_seed(0)
    y = torch.poisson((blur.forward(sharp) + 0.05) * 500) / 500
    check = check_residual(pl.Problem(y, blur, pl.Poisson(1 / 500, 0.05)), sharp)[0]
    assert check.problems == ()
    assert check.size == pytest.approx(1, abs=0.05)


def test_nan_and_dead_pixels_from_python() -> None:
    y, sharp, blur = observed(64)
    valid = torch.ones_like(y, dtype=torch.bool)
    valid[..., 10:12, 20] = False
    broken = torch.where(valid, y, torch.nan)
    variance = torch.where(valid, SIGMA**2, 0.0)
    for options in ({"noise": "auto"}, {"noise": SIGMA}, {"variance": variance}):
        found = pl.restore(broken, blur, denoiser="tv", mask=~valid, iterations=20, **options).image
        assert float(psnr(found, sharp)) > float(psnr(y, sharp)) + 1
    # NaN says itself that there is no data.
    options = {"denoiser": "tv", "iterations": 5}
    assert torch.equal(
        pl.restore(broken, blur, SIGMA, **options).image,
        pl.restore(broken, blur, SIGMA, mask=~valid, **options).image,
    )


BAD = {
    "noise as text": ({"noise": "5"}, "noise '5'"),
    "noise missing": ({"noise": None}, "noise is a NoneType"),
    "saturation a word": ({"saturation": "no"}, "saturation = 'no': give True or False"),
    "linear a word": ({"linear": "yes"}, "linear = 'yes': give True or False"),
    "callback a number": ({"callback": 3}, "callback is an int: give a function"),
    "method a number": ({"method": 5}, "method is an int: give one of"),
    "method missing": ({"method": None}, "method is a NoneType"),
    "denoiser a number": ({"denoiser": 5}, "denoiser is an int"),
    "variance of another size": (
        {"noise": "auto", "variance": torch.ones(3, 3)},
        r"the variance map has shape \(3, 3\)",
    ),
    "method": ({"method": "magic"}, "method 'magic'"),
    "noise": ({"noise": -1.0}, "noise = -1.0"),
    "strength": ({"strength": 0.0}, "strength = 0.0"),
    "boundary": ({"boundary": "none"}, "boundary 'none'"),
    "mask of another size": ({"mask": torch.ones(3, 3)}, r"the mask has shape \(3, 3\)"),
    "mask of everything": ({"mask": torch.ones(54, 54)}, "leaves no pixel"),
    "variance": ({"noise": "auto", "variance": torch.zeros(1, 1, 1, 1)}, "not above 0"),
    "gain": ({"noise": "auto", "gain": 0.0}, "gain = 0.0"),
    "denoiser": ({"denoiser": "bm4d"}, "denoiser 'bm4d'"),
    "gain of ADMM": ({"method": pl.ADMM(pl.load_denoiser("tv"), 0.1, 1.0), "noise": "auto", "gain": 0.0}, "gain = 0.0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options_are_one_line(name: str) -> None:
    y, _, blur = observed(64)
    options, message = BAD[name]
    with pytest.raises(pl.InputError, match=message) as caught:
        pl.restore(y, blur, **{"noise": SIGMA, "denoiser": "tv", "iterations": 2, **options})
    assert "\n" not in str(caught.value)


def test_bad_pictures_and_blurs_are_one_line() -> None:
    y, _, blur = observed(64)
    with pytest.raises(pl.InputError, match="picture is a list"):
        pl.restore([1, 2], blur, SIGMA)
    with pytest.raises(pl.InputError, match="blur"):
        pl.restore(y, 3, SIGMA)
    with pytest.raises(pl.InputError, match="the blur is for 54x54, the picture is 54x53"):
        pl.restore(y[..., 1:], blur, SIGMA)


def test_certified_iterations_after_fast() -> None:
    """Without a named denoiser they are proved and keep what the annealed method found."""
    y, sharp, blur = observed(64)
    quick = pl.restore(y, blur, SIGMA)
    assert quick.certificate.level is Level.OUTSIDE
    after = pl.restore(y, blur, SIGMA, certify=30)
    assert after.certificate.level is Level.PROVED
    assert after.status.label == "converged"
    (note,) = (note for note in after.notes if "certified iterations after 8 of Annealed" in note)
    assert note.endswith("with the prior ridge, which also holds the picture near the one it began with")
    assert float(psnr(after.image, sharp)) > float(psnr(quick.image, sharp)) - 0.2
    named = pl.restore(y, blur, SIGMA, denoiser="light", certify=5)
    assert named.certificate.level is Level.ASSUMED
    assert len(named.history) == 5
    assert any(note.endswith("with the prior light") for note in named.notes)
    prior = pl.restore(y, blur, SIGMA, denoiser="ridge", certify=30)  # not what the annealed calls have
    assert torch.equal(prior.image, after.image)
    with pytest.raises(pl.InputError, match="certify = -1"):
        pl.restore(y, blur, SIGMA, certify=-1)


@pytest.mark.parametrize(
    ("options", "precision"),
    [({}, None), ({"method": "certified", "iterations": 1}, torch.float32), ({"certify": 1}, torch.float32)],
)
def test_networks_whose_iterations_are_to_converge_compute_in_float32(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], precision: torch.dtype | None
) -> None:
    asked = []

    def load(name: str, device: str | None, precision: torch.dtype | None) -> pl.Denoiser:
        asked.append(precision)
        return pl.load_denoiser(name, device, precision)

    monkeypatch.setattr(import_module("pnpladmm.restoration.run"), "load_denoiser", load)
    y, _, blur = observed(32)
    pl.restore(y, blur, SIGMA, denoiser="light", **options)
    assert asked == [precision]


def test_every_method_minimises_the_same_energy_with_a_convex_prior() -> None:
    """`lambda = L_x sigma_d^2` is that of the total variation, also in certified iterations after another method."""
    y, _, blur = observed(64)
    problem = pl.Problem(y, blur.operator("unknown"), pl.Gaussian(SIGMA))
    tv = pl.load_denoiser("tv")
    for name in ("fast", "ladmm", "certified", "ista", "fista", "primal-dual"):
        method = make_method(name, tv, problem, torch.tensor([SIGMA], dtype=torch.float64), strength=1.5)
        if name == "fast":  # without a denoiser, so without a sigma_d
            weight = torch.as_tensor(method.weight)
        else:
            weight = torch.as_tensor(method.prior_weight) * torch.as_tensor(method.sigma_d) ** 2
        assert float(weight) == pytest.approx(1.5**2 * settings.TV_WEIGHT / tv.weight, rel=1e-9), name


def test_richardson_lucy_stops_before_it_fits_the_noise() -> None:
    sigma = 20 / 255
    y, sharp, blur = observed(96)
    noisy = y + sigma * torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    result = pl.restore(noisy, blur, sigma, "richardson-lucy")
    assert len(result.history) < 10
    assert float(psnr(result.image, sharp)) > float(psnr(noisy, sharp)) - 1


def test_a_failed_run_says_so_first_and_is_not_saved(tmp_path: Path) -> None:
    y, _, blur = observed(32)
    method = pl.LADMM(Tikhonov(weight=1e-3), 0.01, beta=1 / SIGMA**2, L_x=0.2 / SIGMA**2)
    failed = pl.restore(y, blur, SIGMA, method, iterations=2000)
    assert failed.status is pl.Status.DIVERGED
    said = f"diverged: {pl.Status.DIVERGED.advice}"
    assert failed.warnings[0] == said
    assert failed.warnings.count(said) == 1
    with pytest.raises(pl.InputError) as caught:
        failed.save(tmp_path / "x.tif")
    assert str(caught.value) == f"picture: {said}"
    assert not list(tmp_path.iterdir())
    good = pl.restore(y, blur, SIGMA, denoiser="tv", iterations=3)
    assert not any("diverged" in warning for warning in good.warnings)
    good.save(tmp_path / "x.tif")


def test_the_scale_of_the_noise_is_the_callers() -> None:
    """Python counts from 0 to 1, a job from 0 to 255; only there is a level of white and more allowed."""
    of_job = Job("y.tif", "k.npy", "x.tif", noise=300.0).options()
    assert of_job.levels is not None
    assert of_job.levels.tolist() == [300 / 255]
    with pytest.raises(pl.InputError, match=r"noise = 300, for pictures in \[0, 1\]: give a number below 1$"):
        Options(noise=300.0)
    with pytest.raises(pl.InputError, match=r"for 2\.5 of 255 write noise=2\.5/255"):
        Options(noise=2.5)
    with pytest.raises(pl.InputError, match="noise = -3: "):  # as it was given, not divided by 255
        Job("y.tif", "k.npy", "x.tif", noise=-3)
