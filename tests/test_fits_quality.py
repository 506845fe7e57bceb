"""Errors, flags and extensions of FITS files as HST, JWST and others write them; what the restored file says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from astropy.io import fits
from astropy.nddata import CCDData, InverseVariance, StdDevUncertainty, VarianceUncertainty

import pnpladmm as pl
from conftest import Run
from picture_cases import refused
from pnpladmm.blur import read_blur
from pnpladmm.pictures import read_picture, write_picture

SIZE = (40, 44)
PSF = np.outer([1, 2, 1], [1, 2, 1]) / 16


def scene(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (100 + 30 * np.cos(np.arange(SIZE[1]) / 4) + rng.normal(0, 2, SIZE)).astype(np.float32)


def write_hst(path: Path, instrument: str = "ACS", chips: int = 2) -> np.ndarray:
    """SCI, ERR and DQ of each chip, as calacs writes them; returns the first chip's flags."""
    flags = np.zeros(SIZE, np.int16)
    flags[3, 4], flags[5, 6], flags[7, 8], flags[9, 10] = 16, 64, 4096, 32 | 256
    primary = fits.PrimaryHDU()
    primary.header["TELESCOP"], primary.header["INSTRUME"] = "HST", instrument
    hdus = [primary]
    for chip in range(1, chips + 1):
        errors = np.full(SIZE, 2.0, np.float32)
        errors[0, 1] = 0
        values = scene(chip)
        values[3, 4] = 1e6
        for name, data in (("SCI", values), ("ERR", errors), ("DQ", flags)):
            hdus.append(fits.ImageHDU(data, name=name, ver=chip))
    fits.HDUList(hdus).writeto(path)
    return flags


def write_jwst(path: Path) -> None:
    """SCI, ERR, DQ (32 bits, unsigned) and WHT; JUMP_DET (4) alone is no reason to leave a pixel out."""
    flags = np.zeros(SIZE, np.uint32)
    flags[2, 3], flags[4, 5], flags[6, 7] = 4, 1, 2**30 | 1
    errors = np.full(SIZE, 2.0, np.float32)
    errors[8, 9] = np.nan
    primary = fits.PrimaryHDU()
    primary.header["TELESCOP"], primary.header["INSTRUME"] = "JWST", "NIRCAM"
    weights = np.ones(SIZE, np.float32)
    weights[10, 11] = 0
    parts = (("SCI", scene()), ("ERR", errors), ("DQ", flags), ("WHT", weights))
    fits.HDUList([primary, *(fits.ImageHDU(data, name=name) for name, data in parts)]).writeto(path)


def dead_of(path: str | Path) -> list[tuple[int, ...]]:
    quality = read_picture(path).quality
    assert quality is not None
    return [] if quality.dead is None else [tuple(p) for p in quality.dead[0, 0].nonzero().tolist()]


def test_errors_and_flags_of_hst(tmp_path: Path) -> None:
    write_hst(tmp_path / "a.fits")
    picture = read_picture(tmp_path / "a.fits")
    assert dead_of(tmp_path / "a.fits") == [(0, 1), (3, 4), (7, 8), (9, 10)]  # a warm pixel (64) counts
    assert picture.quality is not None
    assert picture.quality.variance is not None
    assert float(picture.quality.variance[0, 0, 20, 20]) == 4.0
    assert any("3 pixels (0.17%) are flagged by DQ (all bits but 96)" in note for note in picture.notes)
    assert any("[SCI,2]" in note for note in picture.notes)
    write_hst(tmp_path / "b.fits", instrument="STIS")
    assert (5, 6) in dead_of(tmp_path / "b.fits")


def test_errors_and_flags_of_jwst(tmp_path: Path) -> None:
    write_jwst(tmp_path / "a.fits")
    assert dead_of(tmp_path / "a.fits") == [(4, 5), (6, 7), (8, 9), (10, 11)]
    assert any("DO_NOT_USE" in note for note in read_picture(tmp_path / "a.fits").notes)


@pytest.mark.parametrize("kind", [StdDevUncertainty, VarianceUncertainty, InverseVariance])
def test_astropys_own_files(tmp_path: Path, kind: type) -> None:
    values = {StdDevUncertainty: 2.0, VarianceUncertainty: 4.0, InverseVariance: 0.25}[kind]
    mask = np.zeros(SIZE, bool)
    mask[1, 2] = True
    CCDData(scene(), unit="adu", uncertainty=kind(np.full(SIZE, values)), mask=mask).write(tmp_path / "a.fits")
    quality = read_picture(tmp_path / "a.fits").quality
    assert quality is not None
    assert quality.variance is not None
    assert torch.allclose(quality.variance, torch.tensor(4.0, dtype=torch.float64))
    assert dead_of(tmp_path / "a.fits") == [(1, 2)]


def test_planes_of_another_shape_or_version_are_not_used(tmp_path: Path) -> None:
    parts = [fits.PrimaryHDU(), fits.ImageHDU(scene(), name="SCI")]
    parts += [fits.ImageHDU(np.ones((3, 3)), name="ERR"), fits.ImageHDU(np.ones(SIZE), name="DQ", ver=2)]
    fits.HDUList(parts).writeto(tmp_path / "a.fits")
    assert read_picture(tmp_path / "a.fits").quality is None


def test_restore_uses_them_unless_told_otherwise(tmp_path: Path) -> None:
    write_hst(tmp_path / "a.fits")
    options = {"denoiser": "tv", "iterations": 2}
    found = pl.restore(tmp_path / "a.fits", PSF, **options)
    assert found.noise_model.source == "variance map"
    scale = found.before.scale
    assert abs(float(found.noise) * scale - 2.0) < 1e-6
    assert float(np.abs(np.asarray(found)).max()) < 300  # the hot pixel of 1e6 has not spread
    given = pl.restore(tmp_path / "a.fits", PSF, noise=2.0 / scale, **options)
    assert given.noise_model.source == "given"
    assert float(np.abs(np.asarray(given)).max()) < 300
    other = pl.restore(tmp_path / "a.fits", PSF, variance=9.0, **options)
    assert abs(float(other.noise) * scale - 3.0) < 1e-6


@pytest.mark.parametrize("which", ["[SCI,2]", "[sci, 2]", "[4]"])
def test_an_extension_in_brackets(tmp_path: Path, which: str) -> None:
    write_hst(tmp_path / "a.fits")
    picture = read_picture(f"{tmp_path}/a.fits{which}")
    assert np.allclose(picture.pixels[0, 0, 20:].numpy() * picture.scale, scene(2)[20:])
    assert picture.quality is not None


def test_an_extension_for_psfs_and_maps(tmp_path: Path) -> None:
    turned = np.pad(PSF, ((0, 0), (2, 0)))
    parts = [fits.PrimaryHDU(), fits.ImageHDU(PSF, name="OVERDIST"), fits.ImageHDU(turned, name="DET_DIST")]
    fits.HDUList(parts).writeto(tmp_path / "psf.fits")
    assert read_blur(f"{tmp_path}/psf.fits[DET_DIST]", SIZE).kernel_size == (3, 5)
    (tmp_path / "b.yaml").write_text("background: {kernel: 'psf.fits[2]'}\n")
    assert read_blur(tmp_path / "b.yaml", SIZE).kernel_size == (3, 5)
    with pytest.raises(pl.InputError, match="OVERDIST"):
        read_blur(f"{tmp_path}/psf.fits[NONE]", SIZE)
    variance = fits.HDUList([fits.PrimaryHDU(), fits.ImageHDU(np.full(SIZE, 16.0), name="V")])
    variance.writeto(tmp_path / "v.fits")
    fits.PrimaryHDU(scene()).writeto(tmp_path / "a.fits")
    found = pl.restore(tmp_path / "a.fits", PSF, variance=f"{tmp_path}/v.fits[V]", denoiser="tv", iterations=2)
    assert abs(float(found.noise) * found.before.scale - 4.0) < 1e-5


def test_wrong_extensions_are_one_line(tmp_path: Path) -> None:
    write_hst(tmp_path / "a.fits")
    refused(lambda: read_picture(f"{tmp_path}/a.fits[SCI,9]"), r"choose one of SCI,1, ERR,1, DQ,1")
    refused(lambda: read_picture(f"{tmp_path}/a.fits[0]"), r"choose one of")
    write_picture(tmp_path / "a.png", np.zeros((8, 9)))
    refused(lambda: read_picture(f"{tmp_path}/a.png[1]"), r"PNG files have no extensions")
    (tmp_path / "odd[1].png").write_bytes((tmp_path / "a.png").read_bytes())
    assert read_picture(tmp_path / "odd[1].png").format == "PNG"


def test_the_command_writes_history_and_leaves_the_rest(tmp_path: Path, run: Run) -> None:
    write_hst(tmp_path / "a.fits")
    np.save(tmp_path / "psf.npy", PSF)
    options = ("--blur", "psf.npy", "--denoiser", "tv", "--iterations", "2", "-o", "out.fits")
    code, _, err = run("restore", "a.fits[SCI,2]", *options)
    assert code == 0, err
    job = json.loads((tmp_path / "out.fits.job.json").read_text())
    assert job["job"]["picture"] == "a.fits[SCI,2]"
    code, _, err = run("restore", "--job", "out.fits.job.json")
    assert code == 0, err
    with fits.open(tmp_path / "a.fits") as old, fits.open(tmp_path / "out.fits") as new:
        assert len(old) == len(new)
        for i in (1, 2, 3, 5, 6):
            np.testing.assert_array_equal(old[i].data, new[i].data)
        assert not np.array_equal(old["SCI", 2].data, new["SCI", 2].data)
        told = " ".join(new["SCI", 2].header["HISTORY"])
        assert "restored by pnpladmm" in told
        assert "method SplitDescent, 2 iterations" in told
        assert "noise 2 in the numbers of the file (variance map)" in told
        assert "errors beside the picture are those before" in told
        assert "HISTORY" not in new["SCI", 1].header


@pytest.mark.parametrize("dtype", ["uint16", "int16", "uint8", "int32"])
def test_stars_beyond_the_integers_are_written_as_floats(tmp_path: Path, dtype: str) -> None:
    counts = np.full(SIZE, 100, dtype)
    top = np.iinfo(dtype).max
    counts[5, 6] = top - 5
    hdu = fits.PrimaryHDU(counts)
    hdu.header["OBJECT"] = "M 13"
    hdu.writeto(tmp_path / "a.fits")
    picture = read_picture(tmp_path / "a.fits")
    pixels = picture.pixels.clone()
    pixels[0, 0, 5, 6] *= 2
    written = write_picture(tmp_path / "b.fits", picture.with_pixels(pixels))
    assert written.clipped_samples == 0
    assert "1 samples lie beyond the range" in written.notes[0]
    with fits.open(tmp_path / "b.fits") as new:
        assert new[0].header["OBJECT"] == "M 13"
        assert new[0].data[5, 6] == pytest.approx(2.0 * (top - 5), rel=1e-6)
        assert new[0].data[0, 0] == 100
    assert np.allclose(
        read_picture(tmp_path / "b.fits").pixels[0, 0, 0, 0] * read_picture(tmp_path / "b.fits").scale, 100
    )
