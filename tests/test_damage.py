"""Damage that decoders do not tell, and layouts that a round trip must not change."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import skimage.data
import tifffile
import torch
from astropy.io import fits
from PIL import Image

import pnpladmm as pl
from gate_cases import little_memory, refused  # noqa: F401
from pnpladmm.pictures.jpeg_jumps import jump
from pnpladmm.tensors import InputError


def jpeg_tiff(path: Path, tile: tuple[int, int] | None = None) -> None:
    rng = np.random.default_rng(0)
    ramp = np.add.outer(np.arange(120) * 1.3, np.arange(160) * 0.8)[..., None]
    pixels = np.clip(ramp + rng.normal(0, 8, (120, 160, 3)), 0, 255).astype(np.uint8)
    tifffile.imwrite(path, pixels, photometric="rgb", compression="jpeg", tile=tile)


@pytest.mark.parametrize("tile", [None, (64, 64)])
def test_cut_jpeg_in_tiff_is_refused(tile: tuple[int, int] | None, tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    jpeg_tiff(path, tile)
    assert pl.read_picture(path).pixels.shape == (1, 3, 120, 160)
    whole = path.read_bytes()
    for kept in np.linspace(1, len(whole) - 1, 25).astype(int):
        path.write_bytes(whole[:kept])
        refused(lambda: pl.read_picture(path))


def test_damaged_jpeg_data_are_refused_or_a_warning(tmp_path: Path) -> None:
    pixels = np.clip(np.add.outer(np.arange(96) * 2, np.arange(128)), 0, 255).astype(np.uint8)
    pixels = pixels + np.random.default_rng(0).integers(0, 9, pixels.shape).astype(np.uint8)
    path = tmp_path / "a.jpg"
    Image.fromarray(pixels).save(path, quality=90)
    whole = path.read_bytes()
    assert not pl.read_picture(path).notes
    path.write_bytes(whole[: 2 * len(whole) // 3] + b"\xff\xd9")
    refused(lambda: pl.read_picture(path), "damaged JPEG")
    path.write_bytes(whole[:-2] + bytes(range(40)) + b"\xff\xd9")
    assert "may be damaged" in pl.read_picture(path).notes[0]
    result = pl.restore(path, np.ones((3, 3)), noise=0.02, denoiser="tv", iterations=2)
    assert "may be damaged" in result.warnings[0]
    assert not any("may be damaged" in note for note in result.notes)


@pytest.mark.parametrize("side", [8, 16])
@pytest.mark.parametrize("shift", [(9, 9, 9), (-20, -20, -20), (0, 0, 30)])
def test_a_shift_from_one_block_on_is_found(shift: tuple[int, int, int], side: int) -> None:
    pixels = skimage.data.astronaut()[:384, :, :].astype(int)
    assert jump(pixels.astype(np.uint8)) is None
    damaged = pixels.copy()
    damaged[5 * side : 6 * side, 9 * side :] += shift
    damaged[6 * side :] += shift
    assert jump(damaged.clip(0, 255).astype(np.uint8)) == (5 * side, 9 * side)
    # A straight edge over the whole width is no damage.
    pixels[6 * side :] += shift
    assert jump(pixels.clip(0, 255).astype(np.uint8)) is None


def test_shifted_jpegs_are_told(tmp_path: Path) -> None:
    """Of files with one wrong bit that no decoder remarks: those that shift a large part of the picture."""
    path, rng = tmp_path / "a.jpg", np.random.default_rng(0)
    Image.fromarray(skimage.data.astronaut()).save(path, quality=85)
    whole = path.read_bytes()
    sharp = pl.read_picture(path)
    assert not sharp.notes
    shifted = told = 0
    for _ in range(60):
        damaged = bytearray(whole)
        damaged[int(rng.integers(whole.rfind(b"\xff\xda") + 20, len(whole) - 2))] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with suppress(InputError):
            found = pl.read_picture(path)
            moved = ((found.pixels - sharp.pixels).abs() > 4 / 255).float().mean() > 0.05
            warned = any("may be damaged" in note for note in found.notes)
            shifted, told = shifted + bool(moved and not warned), told + bool(moved and warned)
    assert told >= 4
    assert told >= 0.3 * (told + shifted)


@pytest.mark.parametrize("packed", [False, True])
def test_checksums_of_fits_files(packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.fits"
    values = np.random.default_rng(0).normal(100, 5, (24, 30)).astype(np.int16)
    hdus = [fits.PrimaryHDU(), fits.CompImageHDU(values)] if packed else [fits.PrimaryHDU(values)]
    fits.HDUList(hdus).writeto(path, checksum=True)
    assert not any("damaged" in note for note in pl.read_picture(path).notes)
    content = bytearray(path.read_bytes())
    at = content.rfind(b"END" + 77 * b" ")
    place = at - at % 2880 + 2880 + (900 if packed else 100)
    content[place] ^= 4
    path.write_bytes(content)
    assert "may be damaged: the checksum of the data of HDU" in pl.read_picture(path).notes[0]
    content[place] ^= 4
    path.write_bytes(content.replace(b"conforms to FITS", b"conforms to fits", 1))
    assert "may be damaged" in pl.read_picture(path).notes[0]


@pytest.mark.parametrize("pages", [1, 3])
@pytest.mark.parametrize("kind", ["palette", "planar", "planar pages"])
def test_tiff_layouts_survive(kind: str, pages: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shape = {"palette": (16, 18), "planar": (3, 16, 18), "planar pages": (2, 16, 18)}[kind]
    pixels = rng.integers(0, 255, (pages, *shape), dtype=np.uint8)
    pixels = pixels[0] if pages == 1 else pixels
    options = {
        "palette": {"photometric": "palette", "colormap": rng.integers(0, 65535, (3, 256), dtype=np.uint16)},
        "planar": {"photometric": "rgb", "planarconfig": "separate"},
        "planar pages": {"photometric": "minisblack", "planarconfig": "separate"},
    }[kind]
    tifffile.imwrite(tmp_path / "a.tif", pixels, **options)
    first = pl.read_picture(tmp_path / "a.tif")
    pl.write_picture(tmp_path / "b.tif", first)
    second = pl.read_picture(tmp_path / "b.tif")
    assert torch.equal(first.pixels, second.pixels)
    assert first.colour == second.colour
