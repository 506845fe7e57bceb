"""FITS files come back byte for byte, scaled, masked or packed as they were."""

from __future__ import annotations

import dataclasses
import gzip
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from astropy.io import fits

from picture_cases import H, W, again, noise, refused
from pnpladmm.pictures import read_picture, write_picture


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint16", "int32", "uint32", "float32", "float64"])
@pytest.mark.parametrize("extension", [False, True])
def test_fits_is_kept_byte_for_byte(tmp_path: Path, dtype: str, extension: bool) -> None:
    path = tmp_path / "a.fits"
    samples = noise((H, W), dtype)
    header = fits.Header([("OBJECT", "M 31", "a galaxy"), ("CRPIX1", 3.5), ("EXPTIME", 30.0)])
    header.add_history("flat-fielded")
    table = fits.BinTableHDU.from_columns([fits.Column("flux", "E", array=np.arange(3.0))])
    if extension:
        hdus = [fits.PrimaryHDU(), fits.ImageHDU(samples, header, name="SCI"), table]
    else:
        hdus = [fits.PrimaryHDU(samples, header), table]
    fits.HDUList(hdus).writeto(path)
    picture = read_picture(path)
    assert picture.dtype == dtype
    assert picture.pixels.dtype is (torch.float64 if dtype in ("int32", "uint32", "float64") else torch.float32)
    copy = again(path)
    assert copy.read_bytes() == path.read_bytes()
    # And with other pixels the rest stays.
    write_picture(copy, picture.with_pixels(picture.pixels / 2))
    with fits.open(copy) as new:
        image = new[int(extension)]
        assert image.header["OBJECT"] == "M 31"
        assert image.data.dtype.newbyteorder("=") == np.dtype(dtype)
        half = np.rint(samples / 2) if np.dtype(dtype).kind != "f" else samples / 2
        np.testing.assert_allclose(image.data, half, rtol=1e-6, atol=1 if np.dtype(dtype).kind != "f" else 0)
        np.testing.assert_array_equal(new[-1].data["flux"], np.arange(3.0))


@pytest.mark.parametrize("bitpix", [8, 16, 32])
def test_fits_scaled_integers(tmp_path: Path, bitpix: int) -> None:
    path = tmp_path / "a.fits"
    stored = noise((H, W), {8: "uint8", 16: "int16", 32: "int32"}[bitpix])
    hdu = fits.PrimaryHDU(stored)
    hdu.header["BSCALE"], hdu.header["BZERO"] = 0.013, -7.25
    path.write_bytes(b"")
    with path.open("wb") as file:
        head = hdu.header.tostring().encode()
        body = stored.astype(stored.dtype.newbyteorder(">")).tobytes()
        file.write(head + body.ljust(-(-len(body) // 2880) * 2880, b"\0"))
    picture = read_picture(path)
    physical = 0.013 * stored.astype(float) - 7.25
    np.testing.assert_allclose(picture.pixels[0, 0].numpy() * picture.scale, physical, rtol=1e-15, atol=1e-12)
    assert np.log2(picture.scale) % 1 == 0
    assert again(path).read_bytes() == path.read_bytes()
    written = write_picture(tmp_path / "b.fits", picture.with_pixels(picture.pixels * 4))
    assert written.clipped_samples == 0
    assert "written as floats" in written.notes[0]
    with fits.open(tmp_path / "b.fits") as new:
        assert new[0].header["BITPIX"] == (-64 if bitpix == 32 else -32)
        assert not {"BSCALE", "BZERO"} & set(new[0].header)
        np.testing.assert_allclose(new[0].data, 4 * physical, rtol=1e-6)


def test_fits_blank_and_nan_are_masked_and_come_back(tmp_path: Path) -> None:
    whole = noise((H, W), "int16")
    whole[whole == -32768] = 0
    whole[2, 3] = -32768
    hdu = fits.PrimaryHDU(whole)
    hdu.header["BLANK"] = -32768
    hdu.writeto(tmp_path / "a.fits")
    real = noise((H, W), "float32") * 1000
    real[2, 3], real[4, 5] = np.nan, np.inf
    fits.PrimaryHDU(real).writeto(tmp_path / "b.fits")
    for name, bad in (("a.fits", [(2, 3)]), ("b.fits", [(2, 3), (4, 5)])):
        picture = read_picture(tmp_path / name)
        assert picture.valid is not None
        assert [tuple(p) for p in (~picture.valid[0, 0]).nonzero().tolist()] == bad
        assert bool(torch.isfinite(picture.pixels).all())
        assert again(tmp_path / name).read_bytes() == (tmp_path / name).read_bytes()
    # Without the mask, what was restored there is written.
    filled = dataclasses.replace(read_picture(tmp_path / "b.fits"), valid=None)
    write_picture(tmp_path / "c.fits", filled)
    assert np.isfinite(fits.getdata(tmp_path / "c.fits")).all()


def test_fits_cubes(tmp_path: Path) -> None:
    fits.PrimaryHDU(noise((3, H, W), "float32")).writeto(tmp_path / "colour.fits")
    spectral = fits.PrimaryHDU(noise((3, H, W), "float32"))
    spectral.header["CTYPE3"] = "FREQ"
    spectral.writeto(tmp_path / "spectral.fits")
    fits.PrimaryHDU(noise((2, 5, H, W), "uint16")).writeto(tmp_path / "cube.fits")
    for name, shape in (("colour", (1, 3)), ("spectral", (3, 1)), ("cube", (10, 1))):
        path = tmp_path / f"{name}.fits"
        assert read_picture(path).pixels.shape == (*shape, H, W)
        assert again(path).read_bytes() == path.read_bytes()


def test_fits_checksums_stay_true(tmp_path: Path) -> None:
    path = tmp_path / "a.fits"
    hdus = [fits.PrimaryHDU(), fits.ImageHDU(noise((H, W), "uint16"), name="SCI")]
    fits.HDUList(hdus).writeto(path, checksum=True)
    picture = read_picture(path)
    copy = tmp_path / "b.fits"
    write_picture(copy, picture.with_pixels(picture.pixels * 0.5))
    with fits.open(copy, checksum=True) as new:  # warns, and warnings are looked for, where a sum is wrong
        new.verify("exception")
        for hdu in new:
            assert hdu.verify_checksum() == 1
            assert hdu.verify_datasum() == 1


def test_fits_packed_by_gzip_or_tiles(tmp_path: Path) -> None:
    samples = noise((H, W), "uint16")
    plain = tmp_path / "a.fits"
    fits.PrimaryHDU(samples).writeto(plain)
    packed = tmp_path / "b.fits.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert gzip.decompress(again(packed).read_bytes()) == plain.read_bytes()
    tiles = tmp_path / "c.fits"
    samples = np.zeros((300, 300), "uint16")  # far smaller in the file than decoded
    samples[7, 9] = 40_000
    header = fits.Header([("OBJECT", "M 31")])
    fits.HDUList([fits.PrimaryHDU(), fits.CompImageHDU(samples, header, "SCI")]).writeto(tiles)
    assert "tile" in read_picture(tiles).notes[0]
    with fits.open(again(tiles)) as new:
        assert new["SCI"].header["OBJECT"] == "M 31"
        np.testing.assert_array_equal(new["SCI"].data, samples)


def test_fits_without_astropy_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fits.PrimaryHDU(noise((H, W), "float32")).writeto(tmp_path / "a.fits")
    monkeypatch.setitem(sys.modules, "astropy.io.fits", None)
    refused(lambda: read_picture(tmp_path / "a.fits"), r"a\.fits.*pip install 'pnpladmm\[astro\]'")
