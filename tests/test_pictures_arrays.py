"""Arrays, tensors and PIL images as pictures, and back as what they were."""

from __future__ import annotations

from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image, ImageOps

from picture_cases import SRGB_PROFILE, H, W, exif_block, jpeg, noise, refused, smooth
from pnpladmm.pictures import Picture, read_picture, write_picture

SHAPES = {
    "HW": (H, W),
    "HWC": (H, W, 3),
    "CHW": (3, H, W),
    "BHW": (5, H, W),
    "BHWC": (2, H, W, 3),
    "BCHW": (2, 3, H, W),
}


@pytest.mark.parametrize("axes", SHAPES)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "float32", "float64"])
def test_arrays_come_back_as_they_were(axes: str, dtype: str) -> None:
    values = noise(SHAPES[axes], dtype)
    picture = Picture.from_array(values, axes)
    sizes = dict(zip(axes, values.shape, strict=True))
    assert picture.pixels.shape == tuple(sizes.get(axis, 1) for axis in "BCHW")
    back = picture.with_pixels(picture.pixels.clone()).to_array()
    assert back.dtype == values.dtype
    np.testing.assert_array_equal(back, values)
    # One pixel of one page and channel lies where the letters say.
    place = {"B": sizes.get("B", 1) - 1, "C": sizes.get("C", 1) - 1, "H": 2, "W": 7}
    expected = values[tuple(place[axis] for axis in axes)]
    assert float(picture.pixels[place["B"], place["C"], 2, 7] * picture.scale) == pytest.approx(
        float(expected), rel=1e-6
    )


def test_axes_are_found_or_asked_for() -> None:
    found = {
        (H, W): "HW", (H, W, 3): "HWC", (H, W, 1): "HWC", (3, H, W): "CHW", (2, 3, H, W): "BCHW", (4, 4, 4): "HWC",
    }  # fmt: skip
    for shape, axes in found.items():
        assert Picture.from_array(np.zeros(shape)).axes == axes
    assert Picture.from_array(torch.zeros(4, 4, 4)).axes == "CHW"
    assert Picture.from_array([[0.0, 1.0], [0.5, 0.25]]).axes == "HW"
    refused(lambda: Picture.from_array(np.zeros((5, H, W))), r"\(5, 9, 13\).*axes='BHW' or axes='CHW'")
    refused(lambda: Picture.from_array(np.zeros((2, H, W, 3))), r"\(2, 9, 13, 3\).*axes='BHWC'")
    refused(lambda: Picture.from_array(np.zeros((H, W)), "HWC"), r"\(9, 13\), axes 'HWC'")
    refused(lambda: Picture.from_array(np.zeros((H, W)), "WH"), "axes 'WH': give one of HW")
    refused(lambda: Picture.from_array("words"), "array")
    refused(lambda: Picture.from_array([[1.0], [1.0, 2.0]]), "no array of numbers")
    refused(lambda: Picture.from_array(torch.zeros(2, 3, H, W, dtype=torch.bfloat16)), "bfloat16")
    refused(lambda: Picture.from_array(np.zeros((H, W), bool)), "bool")


def test_nan_in_an_array_comes_back() -> None:
    values = noise((H, W), "float32")
    values[2, 3] = np.nan
    picture = Picture.from_array(values)
    assert picture.valid is not None
    assert int((~picture.valid).sum()) == 1
    np.testing.assert_array_equal(picture.to_array(), values)


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.npy", "a.fits"])
def test_arrays_are_written_as_they_are(tmp_path: Path, name: str) -> None:
    for values in (noise((H, W), "uint16"), noise((H, W, 3)), np.moveaxis(noise((H, W, 3)), -1, 0)):
        write_picture(tmp_path / name, values)
        back = read_picture(tmp_path / name)
        assert back.dtype == values.dtype.name
        assert torch.equal(back.pixels, Picture.from_array(values).pixels)


def test_floats_and_tensors_are_written_as_deep_as_the_format_holds(tmp_path: Path) -> None:
    values = noise((H, W, 3), "float32")
    assert write_picture(tmp_path / "a.png", values).dtype == "uint16"
    expected = np.rint(values * np.float32(65535)).astype(np.uint16)
    np.testing.assert_array_equal(imagecodecs.png_decode((tmp_path / "a.png").read_bytes()), expected)
    assert write_picture(tmp_path / "a.jpg", torch.rand(1, 3, 24, 40)).dtype == "uint8"
    write_picture(tmp_path / "a.tif", torch.from_numpy(values).permute(2, 0, 1))
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "a.tif"), values)
    refused(lambda: write_picture(tmp_path / "b.png", values * 255), r"floats up to 25\d.*divide")
    refused(lambda: write_picture(tmp_path / "b.png", torch.rand(2, 3, 8, 8)), "one page, the picture has 2")
    refused(lambda: write_picture(tmp_path / "b.png", np.zeros((5, H, W))), "axes='BHW'")
    assert not (tmp_path / "b.png").exists()


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "CMYK", "I;16", "I", "F", "P", "1"])
def test_pil_images(mode: str) -> None:
    image = Image.fromarray(smooth()).convert("L" if mode in ("I;16", "I", "F") else mode)
    if mode in ("I;16", "I", "F"):
        dtype = {"I;16": "uint16", "I": "int32", "F": "float32"}[mode]
        image = Image.fromarray(np.asarray(image).astype(dtype) * {"I;16": 200, "I": 70_000, "F": 0.003}[mode])
        assert image.mode == mode
    picture = Picture.from_pil(image)
    assert (picture.alpha is not None) == (mode in ("LA", "RGBA"))
    expected = np.asarray(image.convert({"P": "RGB", "1": "L"}.get(mode, mode)))
    np.testing.assert_array_equal(picture.to_array().squeeze(), expected.squeeze())


def test_what_is_no_pil_image_is_refused(tmp_path: Path) -> None:
    refused(lambda: Picture.from_pil(Image.new("LAB", (3, 4))), "mode LAB")
    refused(lambda: Picture.from_pil(smooth()), "not a PIL image")  # type: ignore[arg-type]
    (tmp_path / "a.jpg").write_bytes(jpeg()[:-60])
    refused(lambda: Picture.from_pil(Image.open(tmp_path / "a.jpg")), "damaged file")


def test_pil_images_keep_profile_exif_resolution_and_are_turned(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Image.fromarray(smooth()).save(path, icc_profile=SRGB_PROFILE, exif=exif_block(6), dpi=(300, 150), quality=95)
    picture = Picture.from_pil(Image.open(path))
    assert picture.format == "JPEG"
    shown = np.asarray(ImageOps.exif_transpose(Image.open(path)))
    np.testing.assert_array_equal(picture.to_array(), shown)
    assert picture.pixel_size == pytest.approx((0.0254 / 150, 0.0254 / 300))
    write_picture(tmp_path / "b.png", picture)
    image = Image.open(tmp_path / "b.png")
    assert image.info["icc_profile"] == SRGB_PROFILE
    assert (image.getexif()[271], image.getexif()[274]) == ("Maker", 1)
    assert image.getexif().get_ifd(34665)[40962] == 24
