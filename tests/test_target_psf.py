"""A restored frame seen through a wished PSF."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits

import pnpladmm as pl
from conftest import Run
from pnpladmm.workshop.bench.star_scenes import LEFT, RIGHT, make_scene, point

WISHED = ((1.0, 1.7, 1.7),)
STARS = np.array([[22.3, 24.6, 4e4], [41.0, 40.0, 1e5]])


def test_all_stars_get_the_target_psf_and_keep_their_light(run: Run, tmp_path: Path) -> None:
    """The PSF of the frame changes from left to right and is not round; that of the result does not and is."""
    scene = make_scene("target", 64, STARS, np.zeros((0, 5)), 1)
    fits.writeto(tmp_path / "frame.fits", scene.frame.astype(np.float32))
    fits.writeto(tmp_path / "psf.fits", ((point(LEFT, 0, 0) + point(RIGHT, 0, 0)) / 2).astype(np.float32))
    fits.writeto(tmp_path / "wished.fits", point(WISHED, 0, 0, 9).astype(np.float32))
    files = [str(tmp_path / name) for name in ("frame.fits", "psf.fits", "wished.fits", "sharp.fits")]
    arguments = ["restore", files[0], "--blur", files[1], "--target-psf", files[2], "--method", "sources"]
    code, _, err = run(*arguments, "-o", files[3])
    assert code == 0, err
    assert "seen through the target PSF" in err
    found = fits.getdata(files[3]).astype(float)
    expected = np.zeros((64 + 18, 64 + 18))
    for x, y, flux in STARS:
        row, column = round(y), round(x)
        expected[row : row + 19, column : column + 19] += flux * point(WISHED, y - row, x - column, 9)
    expected = expected[9:-9, 9:-9] + np.median(found)
    left = found - expected
    assert np.abs(left).max() < 0.1 * (expected.max() - np.median(found))
    assert left.sum() == pytest.approx(0, abs=0.02 * STARS[:, 2].sum())


def test_a_target_psf_without_the_sum_1_is_refused() -> None:
    x = np.full((16, 16), 0.5)
    with pytest.raises(pl.InputError, match=r"target_psf|sum"):
        pl.restore(x, np.ones((3, 3)) / 9, noise=0.05, iterations=2, target_psf=pl.Mask(np.ones((16, 16))))
