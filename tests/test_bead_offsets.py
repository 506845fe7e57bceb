"""Beads on a camera's offset: found and taken off, alone and in banks, with the noise around them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile

from pnpladmm.blur import Blur, as_blur, gaussian, read_blur
from pnpladmm.blur.describe import fwhm

SIZE = (96, 100)


def bead(side: int, sigma: float, offset: float, height: float, seed: int = 0) -> np.ndarray:
    """16-bit counts: a Gaussian bead, an offset, and noise of 3 counts."""
    y, x = np.mgrid[:side, :side] - side // 2
    light = height * np.exp(-(x**2 + y**2) / (2 * sigma**2))
    return np.clip(light + offset + 3 * np.random.default_rng(seed).standard_normal((side, side)), 0, 65535).astype(
        "u2"
    )


def check(blur: Blur, sigma: float, tolerance: float = 0.02) -> None:
    """The kernel is the Gaussian: its width, its sum within 3 sigma, and nothing far out."""
    kernel = blur.kernels[0, 0].numpy()
    k = kernel.shape[0] // 2
    y, x = np.mgrid[: kernel.shape[0], : kernel.shape[1]]
    near = np.hypot(y - k, x - kernel.shape[1] // 2) <= 3 * sigma
    assert kernel[near].sum() == pytest.approx(1, abs=tolerance)
    assert fwhm(kernel) == pytest.approx(fwhm(gaussian(sigma).numpy()), rel=0.05)


@pytest.mark.parametrize(
    ("side", "sigma", "offset", "height"),
    [(41, 2.0, 100, 500), (33, 1.5, 400, 300), (65, 2.0, 100, 200), (21, 2.0, 1000, 1000), (41, 1.5, 100, 60)],
)
def test_the_offset_is_found_and_the_cure_works(
    tmp_path: Path, side: int, sigma: float, offset: float, height: float
) -> None:
    """93 to 100 % of the kernel's sum is offset: as it is, hardly any blur would be left."""
    tifffile.imwrite(tmp_path / "bead.tif", bead(side, sigma, offset, height))
    (tmp_path / "bead.yaml").write_text("kernels: bead.tif\nbackground: border\n")
    found = read_blur(tmp_path / "bead.tif", SIZE)
    check(found, sigma, 0.05)
    assert any("a camera's offset is subtracted (background: 0 keeps it)" in note for note in found.notes)
    cured = read_blur(tmp_path / "bead.yaml", SIZE)
    assert np.array_equal(cured.kernels, found.kernels)
    kept = read_blur(tmp_path / "bead.tif", SIZE, background=0)
    assert kept.kernel_size == (side, side)
    assert not any("offset" in note for note in kept.notes)


def test_each_bead_of_a_bank_has_its_own_offset() -> None:
    bank = np.stack([bead(33, 2.0, 100, 500, 1), bead(33, 2.0, 300, 500, 2)]).astype(float)
    found = as_blur(bank, SIZE, positions=[[20, 20], [70, 60]])
    psf = found.psf_at(20, 20)[0].numpy()
    assert psf[psf.shape[0] // 2 - 6 : psf.shape[0] // 2 + 7].sum() == pytest.approx(1, abs=0.03)


def test_psfs_without_an_offset_stay_as_they_are() -> None:
    wide = gaussian(2.0, size=9).numpy()  # cut off early: its rim is bright, and not constant
    two = np.pad(np.ones((5, 5)), 2)
    ramp = np.outer(np.arange(1.0, 10.0), np.ones(9))
    for kernel in (wide, two, ramp, np.ones((9, 9)), gaussian(3.0).numpy()):
        blur = as_blur(kernel, SIZE)
        assert not any("offset" in note for note in blur.notes)
