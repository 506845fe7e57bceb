"""PSFs sampled more finely or more coarsely than the picture: brought to its pixels, by the headers or on request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import skimage.data
import tifffile
import torch
from astropy.io import fits
from scipy.special import ndtr

import pnpladmm as pl
import pnpladmm.blur as blurs
from blur_cases import comet, unit
from conftest import Run
from pnpladmm.blur import as_blur, read_blur
from pnpladmm.blur.resampling import resampled
from pnpladmm.pictures import Picture, read_picture
from pnpladmm.pictures.pixel_scale import PixelScale, on_the_sky
from pnpladmm.restoration.sources import shows_sources, too_wide

SIZE = (48, 60)


def light(count: int, step: float, sigma: float, shift: float) -> np.ndarray:
    """The light of a Gaussian in pixels of `step`; the middle of pixel `count // 2` is the origin."""
    edges = (np.arange(count + 1) - count // 2 - 0.5) * step
    return np.diff(ndtr((edges - shift) / sigma))


def gaussian(count: int, step: float, x: float = 0.3, y: float = -0.2) -> np.ndarray:
    """Wider along rows than along columns, and off the centre: no flip or shift leaves it as it is."""
    return np.outer(light(count, step, 1.2, y), light(count, step, 1.6, x))


@pytest.mark.parametrize("factor", [2, 3, 4, 3.93])
@pytest.mark.parametrize("extra", [0, 1])
def test_an_oversampled_gaussian_is_the_gaussian_integrated_over_pixels(factor: float, extra: int) -> None:
    """Odd and even sizes: the centre stays at k // 2, to a millionth of a pixel."""
    count = 2 * int(14 * factor) + 1 + extra
    fine = gaussian(count, 1 / factor)
    coarse = resampled(fine, (1 / factor, 1 / factor))
    expected = gaussian(len(coarse), 1.0)
    assert np.abs(coarse - expected).max() < 1e-5 * expected.max()
    assert abs(coarse.sum() - fine.sum()) < 1e-12
    x = (coarse.sum(0) * (np.arange(len(coarse)) - len(coarse) // 2)).sum() / coarse.sum()
    y = (coarse.sum(1) * (np.arange(len(coarse)) - len(coarse) // 2)).sum() / coarse.sum()
    assert abs(x - 0.3) < 1e-5
    assert abs(y + 0.2) < 1e-5


def test_a_psf_coarser_than_the_picture() -> None:
    wide = np.outer(light(31, 2.0, 5.0, 0.3), light(31, 2.0, 5.0, -0.4))
    fine = resampled(wide, (2.0, 2.0))
    expected = np.outer(light(len(fine), 1, 5.0, 0.3), light(len(fine), 1, 5.0, -0.4))
    assert np.abs(fine - expected).max() < 1e-3 * expected.max()


def test_rows_and_columns_have_their_own_scale() -> None:
    fine = np.outer(light(81, 0.25, 1.2, 0), light(61, 0.5, 1.6, 0))
    coarse = resampled(fine, (0.25, 0.5))
    assert coarse.shape == (21, 31)
    expected = np.outer(light(21, 1, 1.2, 0), light(31, 1, 1.6, 0))
    assert np.abs(coarse - expected).max() < 1e-4 * expected.max()


def test_hard_edges_stay_positive_and_keep_their_light() -> None:
    box = np.zeros((33, 33))
    box[10:23, 12:21] = 1.0
    coarse = resampled(box, (0.3, 0.3))
    assert coarse.min() >= 0
    assert abs(coarse.sum() - box.sum()) < 1e-9


def write_fits(path: Path, data: np.ndarray, **cards: object) -> Path:
    hdu = fits.PrimaryHDU(data.astype(np.float32))
    hdu.header.update(cards)
    hdu.writeto(path)
    return path


FRAMES = {
    "CD": {"CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "CD1_1": 0, "CD1_2": -1 / 3600, "CD2_1": 1 / 3600, "CD2_2": 0},
    "CDELT": {"CTYPE1": "GLON-CAR", "CTYPE2": "GLAT-CAR", "CDELT1": -1 / 3600, "CDELT2": 1 / 3600},
    "CUNIT": {"CTYPE1": "RA---TAN", "CUNIT1": "arcsec", "CUNIT2": "arcsec", "CDELT1": -1.0, "CDELT2": 1.0},
    "PIXSCAL1": {"PIXSCAL1": 1.0, "PIXSCAL2": 1.0},
    "SECPIX": {"SECPIX": 1.0},
    "PIXSCALE": {"PIXSCALE": 1.0},
}


@pytest.mark.parametrize("frame", FRAMES)
def test_scales_in_the_headers_are_compared(tmp_path: Path, frame: str) -> None:
    """A PSF of 0.25 seconds of arc on a frame of 1: the kernel is the Gaussian on the frame's pixels."""
    psf = write_fits(tmp_path / "psf.fits", gaussian(81, 0.25, 0, 0), SECPIX=0.25)
    picture = read_picture(write_fits(tmp_path / "frame.fits", np.ones(SIZE), **FRAMES[frame]))
    scale = picture.metadata.pixel_scale
    assert scale is not None
    assert np.allclose([scale.y, scale.x], 1.0)
    blur = read_blur(psf, SIZE, picture_scale=scale)
    height, width = blur.kernel_size
    expected = unit(np.outer(light(height, 1.0, 1.2, 0), light(width, 1.0, 1.6, 0)))
    assert np.abs(blur.kernels[0, 0].numpy() - expected).max() < 1e-4 * expected.max()
    assert any("0.25 arcsec, the picture's 1 arcsec" in note for note in blur.notes)
    assert any("resampled: a pixel of the PSF is 0.25 pixels" in note for note in blur.notes)


def test_equal_scales_change_nothing_and_absurd_ones_are_refused(tmp_path: Path) -> None:
    kernel = unit(comet(11))
    psf = write_fits(tmp_path / "psf.fits", kernel, SECPIX=0.201)
    blur = read_blur(psf, SIZE, picture_scale=PixelScale(0.2, 0.2, "arcsec"))
    assert np.allclose(blur.kernels[0, 0], kernel.astype(np.float32), atol=1e-7)
    assert not any("resampled" in note for note in blur.notes)
    with pytest.raises(pl.InputError, match=r"psf_scale"):
        read_blur(psf, SIZE, picture_scale=PixelScale(720.0, 720.0, "arcsec"))
    assert read_blur(psf, SIZE, picture_scale=PixelScale(720.0, 720.0, "arcsec"), psf_scale=1).kernel_size == (11, 11)


def test_a_picture_without_a_scale_takes_the_psf_as_it_is_and_says_so(tmp_path: Path) -> None:
    psf = write_fits(tmp_path / "psf.fits", unit(comet(11)), SECPIX=0.25)
    blur = read_blur(psf, SIZE)
    assert blur.kernel_size == (11, 11)
    assert any("taken as equal" in note for note in blur.notes)


@pytest.mark.parametrize(("key", "value"), [("OVERSAMP", 4), ("PSF_SAMP", 0.25)])
def test_samples_per_pixel_of_the_detector(tmp_path: Path, key: str, value: float) -> None:
    psf = write_fits(tmp_path / "psf.fits", gaussian(81, 0.25, 0, 0), **{key: value})
    assert read_blur(psf, SIZE).kernel_size[0] < 25


def test_sizes_in_ome_files(tmp_path: Path) -> None:
    """Beads of 0.05 micrometres a pixel, cells of 0.2; dots per inch mean nothing."""
    sizes = {"PhysicalSizeXUnit": "µm", "PhysicalSizeYUnit": "µm"}
    bead, cells = tmp_path / "bead.ome.tif", tmp_path / "cells.ome.tif"
    fine = gaussian(81, 0.25, 0, 0).astype(np.float32)
    tifffile.imwrite(bead, fine, metadata={"axes": "YX", "PhysicalSizeX": 0.05, "PhysicalSizeY": 0.05, **sizes})
    cell = np.ones(SIZE, np.float32)
    tifffile.imwrite(cells, cell, metadata={"axes": "YX", "PhysicalSizeX": 0.2, "PhysicalSizeY": 0.2, **sizes})
    blur = read_blur(bead, SIZE, picture_scale=read_picture(cells).metadata.pixel_scale)
    assert blur.kernel_size[0] < 25
    assert any("0.05 µm, the picture's 0.2 µm" in note for note in blur.notes)
    for path, dpi in ((bead, 300), (cells, 72)):
        tifffile.imwrite(path.with_suffix(".tif"), fine if path == bead else cell, resolution=(dpi, dpi))
    scale = read_picture(cells.with_suffix(".tif")).metadata.pixel_scale
    assert scale is None
    assert read_blur(bead.with_suffix(".tif"), (96, 96), picture_scale=scale).kernel_size[0] > 50


def test_a_scale_on_request_in_python_in_yaml_and_on_the_command_line(tmp_path: Path, run: Run) -> None:
    fine = gaussian(81, 0.25, 0, 0)
    expected = as_blur(resampled(fine, (0.25, 0.25)), SIZE).kernels
    assert torch.allclose(as_blur(fine, SIZE, psf_scale=0.25).kernels, expected, atol=1e-12)
    np.save(tmp_path / "psf.npy", fine)
    (tmp_path / "psf.yaml").write_text("kernels: psf.npy\npsf_scale: 0.25\n")
    assert torch.allclose(read_blur(tmp_path / "psf.yaml", SIZE).kernels, expected, atol=1e-12)
    np.save(tmp_path / "frame.npy", np.random.default_rng(0).random(SIZE))
    options = ("--blur", "psf.npy", "--psf-scale", "0.25", "--denoiser", "tv", "--iterations", "2", "--noise", "5")
    code, _, err = run("restore", "frame.npy", *options, "-o", "out.npy")
    assert code == 0, err
    assert "resampled: a pixel of the PSF is 0.25 pixels of the picture" in err
    said = pl.restore(np.load(tmp_path / "frame.npy"), fine, psf_scale=0.25, denoiser="tv", iterations=2, noise=5 / 255)
    assert np.allclose(np.load(tmp_path / "out.npy"), np.asarray(said), atol=1e-6)
    code, out, _ = run("inspect", "psf.npy", "--size", "48x60", "--psf-scale", "0.25")
    assert code == 0
    assert "resampled" in out


@pytest.mark.parametrize(
    ("blur", "options", "words"),
    [
        (np.ones((9, 9)), {"psf_scale": 0}, "psf_scale 0: give a number above 0"),
        (np.ones((9, 9)), {"psf_scale": 100}, "a pixel of the PSF would be 100 pixels"),
        (np.ones((9, 9)), {"psf_scale": 0.5, "oversampling": 2}, "psf_scale beside oversampling"),
        ((np.ones((1, 5, 5)), np.ones((1, *SIZE))), {"psf_scale": 0.5}, "kernels with weights"),
        (np.ones(SIZE), {"psf_scale": 0.5, "kind": "gaussian"}, "a map of widths"),
        (as_blur(np.ones((5, 5)), SIZE), {"psf_scale": 0.5}, "a Blur is complete"),
    ],
)
def test_scales_that_make_no_sense(blur: object, options: dict[str, object], words: str) -> None:
    with pytest.raises(pl.InputError, match=words):
        as_blur(blur, SIZE, **options)


def test_headers_with_rubbish_have_no_scale() -> None:
    for value in ("wide", float("nan"), float("inf"), True, None, 0):
        assert on_the_sky({"SECPIX": value, "CTYPE1": "RA---TAN", "CDELT1": value, "CDELT2": value}) is None


def stars(sigma: float, seed: int) -> Picture:
    """A field of 60 stars on a sky with noise."""
    rng = np.random.default_rng(seed)
    sky = np.zeros((160, 160))
    rows, columns = rng.integers(4, 156, (2, 60))
    sky[rows, columns] += 10 ** rng.uniform(2, 4, 60)
    blurred = as_blur(blurs.gaussian(sigma), sky.shape).operator("replicate").forward(torch.from_numpy(sky)[None, None])
    noisy = blurred[0, 0].numpy() + rng.standard_normal(sky.shape)
    return Picture.from_array((noisy / noisy.max()).astype(np.float32))


@pytest.mark.parametrize("sigma", [1.0, 1.6])
def test_a_psf_that_is_too_wide_for_the_stars_is_told(sigma: float) -> None:
    for seed in range(3):
        field = stars(sigma, seed)
        right = blurs.gaussian(sigma).numpy()
        assert too_wide(field, as_blur(right, (160, 160))) is None
        said = too_wide(field, as_blur(resampled(right, (3.0, 3.0)), (160, 160)))
        assert said is not None
        assert f"the PSF is {3 * 2.355 * sigma:.0f}"[:-1] in said
        assert "psf_scale 0." in said
    assert too_wide(Picture.from_array(np.zeros((160, 160), np.float32)), as_blur(right, (160, 160))) is None


def test_frames_of_stars_are_restored_by_the_method_for_stars() -> None:
    blur, frame = as_blur(blurs.gaussian(1.6), (160, 160)), stars(1.6, 0)
    assert shows_sources(frame, blur)
    assert shows_sources(replace(frame, format="FITS"), blur)
    eight_bits = Picture.from_array((255 * np.asarray(frame.pixels[0, 0]).clip(0, 1)).astype(np.uint8))
    assert not shows_sources(eight_bits, blur)
    sky = 0.1 + 1e-3 * np.random.default_rng(0).standard_normal((160, 160))
    assert not shows_sources(replace(Picture.from_array(sky.astype(np.float32)), format="FITS"), blur)
    photograph = skimage.data.camera()[100:260, 100:260].astype(np.float32) / 255
    seen = blur.operator("replicate").forward(torch.from_numpy(photograph)[None, None])[0, 0].numpy()
    seen += 0.01 * np.random.default_rng(0).standard_normal(seen.shape).astype(np.float32)
    for dark in (seen, 1 - seen):
        assert not shows_sources(replace(Picture.from_array(dark), format="FITS"), blur)


def test_what_is_asked_for_decides_on_the_method() -> None:
    size = (96, 96)
    blur, frame = as_blur(blurs.gaussian(1.6), size), stars(1.6, 0)
    frame = replace(frame, pixels=frame.pixels[..., :96, :96].contiguous(), valid=None, format="FITS")
    found = pl.restore(frame, blur, memory="2GB")
    assert isinstance(found.method, pl.Sources)
    assert any("restored by the method sources" in note for note in found.notes)
    assert isinstance(pl.restore(frame, blur, iterations=2).method, pl.Annealed)
    assert isinstance(pl.restore(frame, blur, method="FAST", iterations=2).method, pl.Annealed)
    assert not isinstance(pl.restore(frame, blur, denoiser="tv", iterations=2).method, pl.Sources)


def test_photographs_are_not_told_that_the_psf_is_too_wide() -> None:
    sharp = torch.from_numpy(skimage.data.astronaut()[:256, 100:356, 1] / 255.0)[None, None]
    for kernel in (blurs.defocus(4), blurs.gaussian(3.0), blurs.motion(15, 30)):
        blur = as_blur(kernel, (256, 256))
        blurred = blur.operator("replicate").forward(sharp) + 0.01 * torch.randn(1, 1, 256, 256)
        assert too_wide(Picture.from_array(blurred.float()), blur) is None


@pytest.mark.shared
def test_the_spitzer_frame_and_its_psf() -> None:
    """0.305 against 1.2 seconds of arc: the PSF is 1.6 pixels wide, not 6.3."""
    folder = Path(__file__).parents[2] / "shared" / "astro"
    if not folder.is_dir():
        pytest.skip("no ../shared/astro")
    scale = read_picture(folder / "spitzer_example_image.fits").metadata.pixel_scale
    blur = read_blur(folder / "irac_ch1_flight.fits", (513, 1025), picture_scale=scale)
    assert blur.kernel_size == (21, 21)
