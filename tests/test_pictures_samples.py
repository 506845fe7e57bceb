"""From samples to pixels and back: arrays, scales, rounding, clipping and linear light."""

from __future__ import annotations

import struct
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
import torch
from astropy.io import fits

from picture_cases import H, W, again, noise, png, refused
from pnpladmm.pictures import Picture, read_picture, write_picture
from pnpladmm.pictures.samples import natural_scale, to_samples

# NPY and arrays


@pytest.mark.parametrize("dtype", ["uint8", "<u2", ">u2", "int16", "uint32", "float16", "float32", ">f4", "float64"])
@pytest.mark.parametrize("shape", [(H, W), (H, W, 3), (3, H, W), (2, 3, H, W), (5, 31, H, W)])
def test_npy_keeps_every_sample(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    path = tmp_path / "a.npy"
    np.save(path, noise(shape, np.dtype(dtype).name).astype(dtype))
    assert read_picture(path).pixels.shape[2:] == (H, W)
    assert again(path).read_bytes() == path.read_bytes()


def test_npy_in_fortran_order(tmp_path: Path) -> None:
    samples = np.asfortranarray(noise((H, W), "float32"))
    np.save(tmp_path / "a.npy", samples)
    np.testing.assert_array_equal(np.load(again(tmp_path / "a.npy")), samples)


def test_pictures_of_arrays(tmp_path: Path) -> None:
    grey, colour = noise((H, W), "uint16"), noise((H, W, 3))
    assert Picture.from_array(grey).pixels.shape == (1, 1, H, W)
    assert Picture.from_array(colour).colour == "rgb"
    batch = torch.rand(2, 3, H, W)
    picture = Picture.from_array(batch)
    assert torch.equal(picture.pixels, batch)
    assert (picture.dtype, picture.scale) == ("float32", 1)
    write_picture(tmp_path / "a.png", Picture.from_array(grey))
    np.testing.assert_array_equal(imagecodecs.png_decode((tmp_path / "a.png").read_bytes()), grey)
    write_picture(tmp_path / "b.tif", picture)
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "b.tif"), batch.permute(0, 2, 3, 1).numpy())
    written = write_picture(tmp_path / "c.png", Picture.from_array(batch[:1]).with_depth("uint8"))
    assert written.dtype == "uint8"
    assert Picture.from_array(torch.rand(3, 4, 4)).pixels.shape == (1, 3, 4, 4)
    assert Picture.from_array(np.random.default_rng(0).random((3, 4, 4))).pixels.shape == (1, 4, 3, 4)
    eight = Picture.from_array(grey).with_depth("uint8")
    assert (eight.dtype, eight.scale) == ("uint8", 255)
    refused(lambda: Picture.from_array(np.zeros((9, 9, 9))), r"shape \(9, 9, 9\)")
    refused(
        lambda: Picture.from_array(np.zeros((9, 9), np.int64)),
        "array: int64 has no known white level: convert to uint8",
    )
    refused(lambda: Picture.from_array(np.zeros((0, 9), np.uint8)), r"\(0, 9\)")
    refused(lambda: Picture.from_array(grey).with_depth("uint7"), "uint7")
    refused(lambda: picture.with_pixels(batch[:1]), "do not fit")
    refused(lambda: picture.with_pixels(batch / 0), "finite")


# Scales, rounding, clipping


def test_float_scales_are_powers_of_two() -> None:
    for largest, scale in (
        (1.0, 1),
        (0.3, 1),
        (1 / 256, 1),
        (1.04, 1),
        (1.6, 2),
        (2.0, 2),
        (65535.0, 65536),
        (3e-17, 2.0**-54),
    ):
        samples = np.array([[[[0.0, largest, -largest / 3]]]], np.float32)
        assert natural_scale(samples) == scale
    assert natural_scale(np.zeros((1, 1, 2, 2))) == 1
    values = (noise((H, W), "float32") - 0.2) * 12345.678
    picture = Picture.from_array(values)
    assert picture.scale == 1  # arrays of floats are pixels already


def test_float_files_beyond_one_come_back_exactly(tmp_path: Path) -> None:
    values = (noise((H, W), "float32") - 0.2) * np.float32(12345.678)
    tifffile.imwrite(tmp_path / "a.tif", values)
    picture = read_picture(tmp_path / "a.tif")
    assert picture.scale == 16384
    assert float(picture.pixels.abs().max()) <= 1
    np.testing.assert_array_equal(tifffile.imread(again(tmp_path / "a.tif")), values)


def test_integers_are_rounded_half_to_even_and_clipped_never_wrapped(tmp_path: Path) -> None:
    pixels = torch.tensor([[[[-0.5, 0.5 / 255, 1.5 / 255, 2.5 / 255, 1.0, 1.2, 300.0]]]], dtype=torch.float64)
    picture = Picture.from_array(pixels).with_depth("uint8")
    assert picture.clipped_samples == 3
    written = write_picture(tmp_path / "a.png", picture)
    assert written.clipped_samples == 3
    assert imagecodecs.png_decode((tmp_path / "a.png").read_bytes()).tolist() == [[0, 0, 2, 2, 255, 255, 255]]
    for dtype in ("int16", "uint32", "int32"):
        samples, clipped = to_samples(torch.tensor([[[[-9.0, 9.0]]]]), dtype, float(np.iinfo(dtype).max))
        assert samples.ravel().tolist() == [np.iinfo(dtype).min, np.iinfo(dtype).max]
        assert clipped == 2
    assert to_samples(torch.tensor([1e9]), "float16", 1.0)[0].tolist() == [65504.0]


# Linear light


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32"])
def test_linear_light_and_back_is_exact(dtype: str) -> None:
    count = 65536 if dtype != "uint8" else 256
    samples = np.linspace(0, np.iinfo(dtype).max, count).astype(dtype).reshape(1, 1, 1, -1)
    picture = Picture.from_array(samples)
    linear = picture.to_linear()
    assert linear.linear
    assert linear.to_linear() is linear
    back, clipped = to_samples(linear.from_linear().pixels, dtype, picture.scale)
    assert clipped == 0
    np.testing.assert_array_equal(back, samples)


def test_srgb_is_that_of_the_standard() -> None:
    from skimage.color import rgb2xyz

    values = np.linspace(0, 1, 4096)
    grey = np.repeat(values.reshape(1, -1, 1), 3, -1)
    expected = rgb2xyz(grey)[0, :, 1]  # the luminance of grey is its light
    light = Picture.from_array(torch.from_numpy(values).reshape(1, 1, 1, -1)).to_linear().pixels.ravel().numpy()
    np.testing.assert_allclose(light, expected, atol=2e-7)
    negative = Picture.from_array(-torch.rand(1, 1, 3, 3)).to_linear()
    assert bool((negative.pixels <= 0).all())


def test_linear_light_is_written_as_the_file_had_it(tmp_path: Path) -> None:
    samples = noise((H, W, 3), "uint16")
    (tmp_path / "a.png").write_bytes(imagecodecs.png_encode(samples))
    write_picture(tmp_path / "b.png", read_picture(tmp_path / "a.png").to_linear())
    np.testing.assert_array_equal(imagecodecs.png_decode((tmp_path / "b.png").read_bytes()), samples)


def _profile(curve: bytes, grey: bool = False) -> bytes:
    names = [b"kTRC"] if grey else [b"rTRC", b"gTRC", b"bTRC"]
    start = 132 + 12 * len(names)
    table = struct.pack(">I", len(names))
    table += b"".join(struct.pack(">4sII", name, start, len(curve)) for name in names)
    head = struct.pack(">I", start + len(curve)).ljust(16, b"\0") + (b"GRAY" if grey else b"RGB ")
    return head.ljust(128, b"\0") + table + curve


CURVES = {
    "gamma": b"curv" + struct.pack(">IIH", 0, 1, 563) + b"\0\0",
    "linear": b"curv" + struct.pack(">II", 0, 0),
    "table": b"curv" + struct.pack(">II1024H", 0, 1024, *(round(65535 * (i / 1023) ** 1.8) for i in range(1024))),
    "parameters": b"para"
    + struct.pack(">IHH5i", 0, 3, 0, *(round(65536 * v) for v in (2.4, 0.948, 0.052, 0.077, 0.04))),
}


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("grey", [False, True])
def test_linear_light_follows_the_profile(tmp_path: Path, name: str, grey: bool) -> None:
    samples = noise((H, W) if grey else (H, W, 3), "uint16")
    tifffile.imwrite(tmp_path / "a.tif", samples, iccprofile=_profile(CURVES[name], grey))
    picture = read_picture(tmp_path / "a.tif")
    x = picture.pixels.double().numpy()
    expected = {
        "gamma": x ** (563 / 256), "linear": x, "table": x**1.8,
        "parameters": np.where(x < 0.04, 0.077 * x, (0.948 * x + 0.052) ** 2.4),
    }[name]  # fmt: skip
    np.testing.assert_allclose(picture.to_linear().pixels.numpy(), expected, atol=3e-5)
    write_picture(tmp_path / "b.tif", picture.to_linear())
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "b.tif"), samples)


def test_linear_light_follows_png_gamma(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png([(b"gAMA", struct.pack(">I", 50000))]))
    picture = read_picture(path)
    torch.testing.assert_close(picture.to_linear().pixels, picture.pixels**2)
    path.write_bytes(png([(b"cICP", bytes([9, 16, 0, 1]))]))
    refused(lambda: read_picture(path).to_linear(), "cICP transfer 16")


def test_linear_light_is_refused_where_it_makes_no_sense(tmp_path: Path) -> None:
    fits.PrimaryHDU(noise((H, W), "uint16")).writeto(tmp_path / "a.fits")
    refused(lambda: read_picture(tmp_path / "a.fits").to_linear(), "linear light already")
    tifffile.imwrite(tmp_path / "b.tif", noise((H, W, 4)), photometric="separated")
    refused(lambda: read_picture(tmp_path / "b.tif").to_linear(), "CMYK")
    tifffile.imwrite(tmp_path / "c.tif", 100 * noise((H, W), "float32"))
    refused(lambda: read_picture(tmp_path / "c.tif").to_linear(), "no sRGB")
    lut = struct.pack(">I", 200).ljust(16, b"\0") + b"RGB "
    lut = lut.ljust(128, b"\0") + struct.pack(">I4sII", 1, b"A2B0", 144, 8) + bytes(56)
    tifffile.imwrite(tmp_path / "d.tif", noise((H, W, 3)), iccprofile=lut)
    refused(lambda: read_picture(tmp_path / "d.tif").to_linear(), "ICC profile without plain tone curves")
