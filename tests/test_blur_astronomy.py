"""PSF models of astronomers' tools against those tools: photutils' own evaluation, PSFEx's published formula."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from astropy.io import fits
from astropy.nddata import NDData
from photutils.psf import GriddedPSFModel

from blur_cases import (
    SIZE,
    check_shows,
    comet,
    comet_at,
    one_thread,  # noqa: F401
    placed,
    unit,
)
from pnpladmm.blur import Blur, read_blur
from pnpladmm.tensors import InputError
from psfex_cases import planes_at, polynomial, write_psfex

X, Y = (4.0, 27.0, 55.0), (3.0, 41.0)
PLACES = [(1, 1), (10, 20), (29, 40), (41, 4), (24, 27), (46, 58)]
"""(row, column): on the grid, between its points, and beyond them."""


def samples(x: float, y: float, oversampling: int = 4, side: int = 49) -> np.ndarray:
    """An oversampled PSF that depends on the place, as surface brightness, its origin in the middle."""
    v, u = (np.mgrid[:side, :side] - (side - 1) / 2) / oversampling
    return comet_at(u, v, 1.0 + x / 120, turn=15 + y)


def model(oversampling: int = 4, side: int = 49) -> GriddedPSFModel:
    places = list(product(X, Y))
    data = np.stack([samples(x, y, oversampling, side) for x, y in places])
    return GriddedPSFModel(NDData(data, meta={"grid_xypos": places, "oversampling": oversampling}))


def evaluated(tool: GriddedPSFModel, row: int, column: int) -> np.ndarray:
    """The tool's picture of a star of flux 1 in this pixel."""
    y, x = np.mgrid[: SIZE[0], : SIZE[1]]
    return tool.evaluate(x.astype(float), y.astype(float), 1.0, float(column), float(row))


def check_grid(blur: Blur, tool: GriddedPSFModel) -> None:
    assert blur.order == "weight-then-convolve"
    for row, column in PLACES:
        check_shows(blur, row, column, evaluated(tool, row, column), tolerance=1e-4)


@pytest.mark.parametrize("side", [49, 48])
def test_a_grid_in_npz_is_photutils_model(tmp_path: Path, side: int) -> None:
    tool = model(side=side)
    np.savez(tmp_path / "grid.npz", psfs=tool.data, positions=tool.grid_xypos, oversampling=4)
    blur = read_blur(tmp_path / "grid.npz", SIZE)
    check_grid(blur, tool)
    assert any("samples per pixel" in note for note in blur.notes)


def test_a_grid_of_kernels_by_rows_and_columns(tmp_path: Path) -> None:
    kernels = np.stack([[unit(comet(11, 1 + x / 120, turn=15 + y)) for x in X] for y in Y])
    np.savez(tmp_path / "grid.npz", psfs=kernels, x=X, y=Y)
    blur = read_blur(tmp_path / "grid.npz", SIZE)
    check_shows(blur, 41, 27, placed(kernels[1, 1], 41, 27))
    check_shows(blur, 22, 55, placed(kernels[:, 2].mean(0), 22, 55))


def write_webbpsf(path: Path, tool: GriddedPSFModel, version: str | None, key_order: str) -> None:
    """As WebbPSF's `psf_grid(save=True)` writes it: keys (y, x) in the order of computation, x slowest; planes in
    that order too up to version 1.2, sorted by y then x (photutils' order) since 1.3."""
    computed = list(product(X, Y))
    planes = tool.data if key_order == "sorted" else np.stack([samples(x, y) for x, y in computed])
    hdu = fits.PrimaryHDU(planes)
    hdu.header["OVERSAMP"] = 4
    for i, (x, y) in enumerate(computed):
        hdu.header[f"DET_YX{i}"] = str((y, x))
    if version:
        hdu.header["VERSION"] = version
    hdu.writeto(path)


@pytest.mark.parametrize(("version", "order"), [("1.2.1", "computed"), (None, "computed"), ("2.2.0", "sorted")])
def test_webbpsf_grid(tmp_path: Path, version: str | None, order: str) -> None:
    tool = model()
    write_webbpsf(tmp_path / "grid.fits", tool, version, order)
    check_grid(read_blur(tmp_path / "grid.fits", SIZE), tool)


def test_stdpsf_grid_against_photutils_reader(tmp_path: Path) -> None:
    planes = np.stack([samples(x, y) for y in Y for x in X])
    hdu = fits.PrimaryHDU(planes.astype(np.float32))
    hdu.header["NXPSFS"], hdu.header["NYPSFS"] = len(X), len(Y)
    for i, x in enumerate(X, 1):
        hdu.header[f"IPSFX{i:02d}"] = int(x) + 1
    for i, y in enumerate(Y, 1):
        hdu.header[f"JPSFY{i:02d}"] = int(y) + 1
    path = tmp_path / "grid.fits"
    hdu.writeto(path)
    check_grid(read_blur(path, SIZE), GriddedPSFModel.read(path, format="stdpsf"))


@pytest.mark.parametrize(("index", "detector"), [(3, 1), (2, 2), (0, 3), (1, 4)])
def test_stdpsf_of_several_detectors(tmp_path: Path, index: int, detector: int) -> None:
    """WFPC2's: 3x3 places on each of four detectors of 800 pixels; photutils numbers them in its own way."""
    nodes = [1, 400, 800, 801, 1200, 1600]
    planes = np.stack([samples(x / 30, y / 10, side=25) for y in nodes for x in nodes])
    hdu = fits.PrimaryHDU(planes.astype(np.float32))
    hdu.header["NXPSFS"] = hdu.header["NYPSFS"] = 6
    for i, node in enumerate(nodes, 1):
        hdu.header[f"IPSFX{i:02d}"] = hdu.header[f"JPSFY{i:02d}"] = node
    path = tmp_path / "grid.fits"
    hdu.writeto(path)
    tool = GriddedPSFModel.read(path, format="stdpsf", detector_id=detector)
    blur = read_blur(path, SIZE, index=index)
    check_shows(blur, 29, 40, evaluated(tool, 29, 40), tolerance=1e-4)


def test_samples_that_sum_to_one_are_scaled_and_reported(tmp_path: Path) -> None:
    tool = model()
    np.savez(tmp_path / "grid.npz", psfs=tool.data / 16, positions=tool.grid_xypos, oversampling=4)
    blur = read_blur(tmp_path / "grid.npz", SIZE)
    check_grid(blur, tool)
    assert any("multiplied by 16" in note for note in blur.notes)


# --- PSFEx --------------------------------------------------------------------------------------------------


def psfex_pixel(local: np.ndarray, step: float, dx: int, dy: int) -> float:
    """PSFEx's own resampling of a local PSF at one detector pixel: Lanczos-3, weights of sum 1, along each axis."""

    def taps(offset: int) -> list[tuple[int, float]]:
        at, n = len(local) // 2 + offset / step, len(local)
        if not 0 <= at <= n - 1:
            return []
        found = []
        for i in range(max(0, int(at) - 4), min(n, int(at) + 6)):
            t = at - i
            if abs(t) < 1e-5:
                found.append((i, 1.0))
            elif abs(t) < 3:
                found.append((i, 3 * np.sin(np.pi * t) * np.sin(np.pi * t / 3) / (np.pi * t) ** 2))
        total = sum(w for _, w in found)
        return [(i, w / total) for i, w in found]

    return sum(a * b * local[i, j] for i, a in taps(dy) for j, b in taps(dx))


@pytest.mark.parametrize(("step", "side"), [(1.0, 25), (0.65, 45), (0.5, 50), (1.3, 21)])
def test_psfex(tmp_path: Path, step: float, side: int) -> None:
    planes = write_psfex(tmp_path / "field.psf", step, side)
    blur = read_blur(tmp_path / "field.psf", SIZE)
    assert blur.order == "weight-then-convolve"
    assert len(blur.kernels) == 6
    assert (blur.weights < 0).any()
    rows, columns = np.mgrid[: SIZE[0], : SIZE[1]]
    for row, column in PLACES:
        terms = polynomial(row, column)
        # The model's functions themselves, at the centres of pixels.
        truth = np.tensordot(terms, planes_at(columns - column, rows - row), 1)
        check_shows(blur, row, column, truth)
        # PSFEx's resampling of the file's samples: much closer, up to the factor that the notes report.
        local = np.tensordot(terms, planes.astype(float), 1)
        psf = blur.psf_at(row, column)[0].numpy()
        half = np.array(psf.shape) // 2
        own = [
            [psfex_pixel(local, step, x - half[1], y - half[0]) for x in range(psf.shape[1])]
            for y in range(psf.shape[0])
        ]
        own = np.array(own) * psf.sum() / np.sum(own)
        assert np.abs(psf - own).max() < 1e-4 * psf.max()


def test_psfex_flux_is_normalised_once_and_said(tmp_path: Path) -> None:
    write_psfex(tmp_path / "a.psf", 0.65, 45, factor=0.65**2)  # samples of sum 1 instead of pixels of sum 1
    blur = read_blur(tmp_path / "a.psf", SIZE)
    assert any("normalised at every place: divided by its sum, 0.42" in note for note in blur.notes)
    assert float(blur.psf_at(20, 30).sum()) == pytest.approx(1, abs=1e-5)
    raw = read_blur(tmp_path / "a.psf", SIZE, normalise=False)
    assert float(raw.psf_at(20, 30).sum()) == pytest.approx(0.65**2, rel=0.01)


def test_psfex_sums_that_vary_over_the_field_are_one_at_every_place(tmp_path: Path) -> None:
    """A polynomial whose sum varies by 10 % keeps the shape of its PSF at every place, with flux 1."""
    planes = write_psfex(tmp_path / "a.psf", 1.0, 25)
    with fits.open(tmp_path / "a.psf", mode="update") as hdus:
        hdus[1].data["PSF_MASK"][0][1] += (0.05 * planes[0]).astype(np.float32)
    blur = read_blur(tmp_path / "a.psf", SIZE)
    (note,) = [note for note in blur.notes if "normalised at every place" in note]
    low, high = (float(n) for n in note.partition("sum, ")[2].removesuffix(" over the field").split(" to "))
    assert high - low > 0.08
    raw = read_blur(tmp_path / "a.psf", SIZE, normalise=False)
    for row, column in PLACES:
        psf, kept = blur.psf_at(row, column), raw.psf_at(row, column)
        assert float(psf.sum()) == pytest.approx(1, abs=1e-5)
        assert torch.allclose(psf, kept / kept.sum(), atol=1e-6)


def test_psfex_models_that_are_empty_or_of_another_field_are_refused(tmp_path: Path) -> None:
    """PSFEx writes a file even where it accepted no star: PSF_SAMP 0 and planes of 0."""
    write_psfex(tmp_path / "a.psf", 1.0, 25, factor=0.0, PSF_SAMP=0.0, ACCEPTED=0)
    with pytest.raises(InputError, match="PSFEx accepted 0 stars"):
        read_blur(tmp_path / "a.psf", SIZE)
    planes = write_psfex(tmp_path / "b.psf", 1.0, 25)
    with fits.open(tmp_path / "b.psf", mode="update") as hdus:
        hdus[1].data["PSF_MASK"][0][1] = planes[0]
    with pytest.raises(InputError, match="must be above 0 everywhere"):
        read_blur(tmp_path / "b.psf", SIZE)


def test_psfex_constant_and_several_chips(tmp_path: Path) -> None:
    v, u = np.mgrid[:21, :21] - 10
    base = comet_at(u, v, 1.5).astype(np.float32)
    column = fits.Column("PSF_MASK", "441E", dim="(21,21,1)", array=base[None, None])
    table = fits.BinTableHDU.from_columns([column], name="PSF_DATA")
    table.header["POLNAXIS"], table.header["PSF_SAMP"] = 0, 1.0
    fits.HDUList([fits.PrimaryHDU(), table]).writeto(tmp_path / "c.psf")
    blur = read_blur(tmp_path / "c.psf", SIZE)
    assert len(blur.kernels) == 1
    check_shows(blur, 20, 30, placed(unit(base), 20, 30))
    write_psfex(tmp_path / "two.psf", 1.0, 21, chips=2)
    assert len(read_blur(tmp_path / "two.psf", SIZE, index=1).kernels) == 6
