"""`pl.restore(file, file, **options)` and `pnpladmm restore` are the same to the last bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

import pnpladmm as pl
from conftest import Run, picture

SIZE = 40


def pixels() -> np.ndarray:
    """(H, W) in [0, 1]: blurred by hand, noisy, with a saturated spot."""
    sharp = picture(SIZE)[0, 0].numpy()
    blurred = sum(np.roll(sharp, shift, (0, 1)) for shift in ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0))) / 5
    noisy = blurred + 0.012 * np.random.default_rng(0).standard_normal(sharp.shape)
    noisy[20:22, 5:9] = 1.2
    return np.clip(noisy, 0, 1)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    y = pixels()
    colour = np.stack([y, 0.9 * y, 0.7 * y + 0.1], -1)
    Image.fromarray((255 * colour).astype(np.uint8)).save(tmp_path / "a.png")
    Image.fromarray((255 * colour).astype(np.uint8)).save(tmp_path / "a.jpg", quality=92)
    tifffile.imwrite(tmp_path / "a.tif", (65535 * y).astype(np.uint16))
    pages = np.stack([y, y[::-1], np.clip(1.4 * y, 0, 1)])
    tifffile.imwrite(tmp_path / "pages.tif", (65535 * pages).astype(np.uint16), photometric="minisblack")
    fits = pytest.importorskip("astropy.io.fits")
    counts = (5000 * y + 300).astype(np.float32)
    counts[3, 4] = np.nan
    fits.writeto(tmp_path / "a.fits", counts)
    np.save(tmp_path / "a.npy", y.astype(np.float32))
    kernel = np.zeros((3, 3))
    kernel[1] = kernel[:, 1] = 1 / 5
    np.save(tmp_path / "psf.npy", kernel)
    mask = np.zeros((SIZE, SIZE), np.uint8)
    mask[10:12, 30] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    np.save(tmp_path / "variance.npy", np.full((SIZE, SIZE), (0.012 * 65535) ** 2) * (1 + mask / 255))
    return tmp_path


TV: dict[str, Any] = {"denoiser": "tv", "iterations": 3}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "PNG": ("a.png", {}),
    "JPEG": ("a.jpg", {}),
    "16-bit TIFF": ("a.tif", {}),
    "pages of a 16-bit TIFF": ("pages.tif", {}),
    "FITS": ("a.fits", {}),
    "NPY": ("a.npy", TV),
    "JPEG with total variation": ("a.jpg", TV),
    "pages with total variation": ("pages.tif", TV),
    "noise": ("a.png", {**TV, "noise": 4.0}),
    "linear light": ("a.png", {**TV, "linear": True}),
    "JPEG in linear light": ("a.jpg", {**TV, "linear": True, "method": "LADMM"}),
    "mask": ("pages.tif", {**TV, "mask": "mask.png"}),
    "saturated pixels as well": ("a.png", {**TV, "saturation": False}),
    "counts": ("a.fits", {**TV, "gain": 2.0, "background": 200.0}),
    "variance": ("a.tif", {**TV, "variance": "variance.npy", "strength": 1.5}),
    "certified iterations after it": ("a.tif", {**TV, "certify": 3}),
    "circular": ("a.png", {**TV, "boundary": "circular", "method": "certified"}),
}


def flags(options: dict[str, Any]) -> list[str]:
    """The same options on the command line."""
    words: list[str] = []
    for name, value in options.items():
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            words += [f"--{name}", str(value)]
    return words


@pytest.mark.parametrize("name", CASES)
def test_python_and_the_command_line_write_the_same_pixels(name: str, run: Run, files: Path) -> None:
    file, options = CASES[name]
    out = f"command{Path(file).suffix}"
    code, told, err = run("restore", file, "--blur", "psf.npy", "-o", out, "--json", *flags(options))
    in_python = {**options, "noise": options["noise"] / 255} if "noise" in options else options
    result = pl.restore(file, "psf.npy", **in_python)
    assert code == int(result.status is pl.Status.WITHDRAWN), err
    result.save(f"python{Path(file).suffix}")
    assert Path(f"python{Path(file).suffix}").read_bytes() == Path(out).read_bytes()
    command, python = (pl.read_picture(f"{n}{Path(file).suffix}").pixels for n in ("command", "python"))
    assert torch.equal(command, python)
    if not file.endswith(".jpg"):  # which changes the samples again
        np.testing.assert_array_equal(pl.read_picture(out).to_array(), np.asarray(result))
    done = json.loads(told)["done"][0]
    assert done["notes"][: len(result.notes)] == list(result.notes)
    assert done["warnings"] == list(result.warnings)
    assert done["noise"] == pytest.approx(255 * float(result.noise.max()), abs=1e-4)
    # It was restored, not copied.
    assert float((python - pl.read_picture(file).pixels).abs().max()) > 0.01


def test_forms_of_the_same_file(files: Path) -> None:
    """A path, text, the picture that was read, and what Pillow opens."""
    for name in ("a.png", "a.jpg", "a.tif"):
        expected = pl.restore(files / name, files / "psf.npy", **TV)
        others = [str(files / name), pl.read_picture(files / name), Image.open(files / name)]
        for other in others:
            found = pl.restore(other, np.load(files / "psf.npy"), **TV)
            assert torch.equal(found.image, expected.image), type(other)
            np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_an_array_is_restored_by_the_rules_of_files(files: Path) -> None:
    """The samples of a 16-bit file: saturation, scale and type are the same; JPEG is not known any more."""
    samples = tifffile.imread(files / "a.tif")
    of_file = pl.restore(files / "a.tif", files / "psf.npy", **TV)
    of_array = pl.restore(samples, files / "psf.npy", **TV)
    assert any("do not count" in note for note in of_array.notes)
    assert torch.equal(of_array.image, of_file.image)
    np.testing.assert_array_equal(np.asarray(of_array), np.asarray(of_file))


def test_the_noise_of_a_jpeg_follows_its_quantisation(files: Path) -> None:
    """Also of one that PIL has opened; a file without compression has what is estimated."""
    y = np.full((SIZE, SIZE), 0.4) + 0.2 * (np.mgrid[:SIZE, :SIZE].sum(0) % 7 == 0)
    found, quick = {}, {"denoiser": "soft", "iterations": 2}
    for quality in (95, 70, 30):
        path = files / f"{quality}.jpg"
        Image.fromarray((255 * y).astype(np.uint8)).save(path, quality=quality)
        found[quality] = pl.restore(path, files / "psf.npy", **quick)
        opened = pl.restore(Image.open(path), files / "psf.npy", **quick)
        assert torch.equal(opened.image, found[quality].image)
    levels = {quality: 255 * float(result.noise) for quality, result in found.items()}
    # The nine first steps of libjpeg's table for brightness have a mean of 13.1 at quality 50.
    for quality, step in ((95, 11 / 9), (70, 71 / 9), (30, 197 / 9)):
        alone = float(pl.restore(found[quality].before.to_array(), files / "psf.npy", **quick).noise) * 255
        assert levels[quality] == pytest.approx(np.hypot(alone, 1.6 + 0.29 * step), rel=1e-6)
    assert any("JPEG errors" in note for note in found[70].notes)


def test_pages_are_restored_one_by_one(files: Path) -> None:
    """Each page as if it were alone, whatever its neighbours are."""
    together = pl.restore(files / "pages.tif", files / "psf.npy", **TV)
    assert together.image.shape == (3, 1, SIZE, SIZE)
    assert len(together.statuses) == len(together.certificates) == len(together.checks) == len(together.noise) == 3
    assert together.history.x_change.shape == (3, 3)
    for i, page in enumerate(tifffile.imread(files / "pages.tif")):
        alone = pl.restore(page, files / "psf.npy", **TV)
        assert torch.equal(together.image[i : i + 1], alone.image)
        assert float(together.noise[i]) == float(alone.noise)
        torch.testing.assert_close(together.history.x_change[:, i], alone.history.x_change[:, 0])


def test_pages_that_an_interrupt_left_out_stay_as_they_were(files: Path) -> None:
    before = pl.read_picture(files / "pages.tif").pixels
    calls = []

    def stop(step: pl.Progress) -> bool:
        calls.append(step.iteration)
        return len(calls) == 4

    result = pl.restore(files / "pages.tif", files / "psf.npy", method="ladmm", callback=stop, **TV)
    assert result.status is pl.Status.STOPPED
    assert torch.equal(result.image[2], before[2])
    assert not torch.equal(result.image[1], before[1])
    assert len(result.certificates) == 3
    assert bool(torch.isnan(result.history.x_change[:, 2]).all())
