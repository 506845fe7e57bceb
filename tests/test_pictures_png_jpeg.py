"""PNG and JPEG files come back as they were, with all that belongs to them, and the way up that they are shown."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image, ImageOps
from PIL.TiffImagePlugin import IFDRational

from picture_cases import SRGB_PROFILE, H, W, again, exif_block, jpeg, noise, png, smooth
from pnpladmm.pictures import read_picture
from pnpladmm.pictures.samples import to_samples

# PNG


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png_keeps_every_sample(tmp_path: Path, dtype: str, channels: int) -> None:
    samples = noise((H, W, channels), dtype)
    path = tmp_path / "a.png"
    path.write_bytes(imagecodecs.png_encode(samples.squeeze()))
    picture = read_picture(path)
    colours = 3 if channels >= 3 else 1
    assert picture.pixels.shape == (1, colours, H, W)
    assert picture.dtype == dtype
    assert picture.scale == np.iinfo(dtype).max
    assert (picture.alpha is not None) == (channels in (2, 4))
    assert picture.pixels.dtype is torch.float32
    assert 0 <= float(picture.pixels.min()) <= float(picture.pixels.max()) <= 1
    np.testing.assert_array_equal(imagecodecs.png_decode(again(path).read_bytes()), samples.squeeze())


def test_png_16_bit_is_exact_for_every_value(tmp_path: Path) -> None:
    samples = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    (tmp_path / "a.png").write_bytes(imagecodecs.png_encode(samples))
    np.testing.assert_array_equal(imagecodecs.png_decode(again(tmp_path / "a.png").read_bytes()), samples)


@pytest.mark.parametrize("transparent", [False, True])
def test_png_palette_becomes_the_same_rgb(tmp_path: Path, transparent: bool) -> None:
    palette = Image.fromarray(smooth()).quantize(16)
    path = tmp_path / "a.png"
    palette.save(path, **({"transparency": bytes([0, 128, 255])} if transparent else {}))
    expected = np.asarray(Image.open(path).convert("RGBA" if transparent else "RGB"))
    picture = read_picture(path)
    assert "palette" in picture.notes[0]
    np.testing.assert_array_equal(np.asarray(Image.open(again(path))), expected)


def test_png_of_one_bit_is_shown_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(noise((H, W)) > 127).save(path)
    assert "1-bit" in read_picture(path).notes[0]
    np.testing.assert_array_equal(np.asarray(Image.open(again(path))) > 0, np.asarray(Image.open(path)))


def test_png_keeps_profile_resolution_exif_and_texts(tmp_path: Path) -> None:
    from PIL.PngImagePlugin import PngInfo

    texts = PngInfo()
    texts.add_text("Title", "a title")
    texts.add_text("Comment", "long " * 50, zip=True)
    texts.add_itxt("XML:com.adobe.xmp", '<x tiff:Orientation="1"/>')
    path = tmp_path / "a.png"
    image = Image.fromarray(smooth())
    image.save(path, icc_profile=SRGB_PROFILE, dpi=(300, 150), exif=exif_block(), pnginfo=texts)
    old, new = Image.open(path), Image.open(again(path))
    old.load(), new.load()
    assert new.info["icc_profile"] == SRGB_PROFILE
    assert new.info["dpi"] == old.info["dpi"]
    assert new.info["Title"] == "a title"
    assert new.info["Comment"] == "long " * 50
    assert dict(new.getexif()) == dict(old.getexif())
    picture = read_picture(path)
    assert picture.metadata.icc == SRGB_PROFILE
    assert picture.metadata.xmp == b'<x tiff:Orientation="1"/>'
    assert picture.pixel_size == (1 / 11811, 1 / 5906)


# JPEG


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3), ("CMYK", 4)])
def test_jpeg_shows_the_same(tmp_path: Path, mode: str, channels: int) -> None:
    path = tmp_path / "a.jpg"
    Image.fromarray(smooth(channels).squeeze(), mode).save(path, quality=98, subsampling=0)
    picture = read_picture(path)
    assert picture.pixels.shape == (1, channels, 24, 40)
    assert picture.colour == {"L": "grey", "RGB": "rgb", "CMYK": "cmyk"}[mode]
    old, new = Image.open(path), Image.open(again(path))
    assert new.mode == mode
    assert np.abs(np.asarray(new).astype(int) - np.asarray(old)).max() <= 4
    assert np.abs(np.asarray(new).astype(int) - np.asarray(old)).mean() < 1


def test_jpeg_keeps_profile_resolution_exif_xmp_and_comment(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    profile = SRGB_PROFILE + bytes(70_000)  # longer than one segment
    Image.fromarray(smooth()).save(
        path, icc_profile=profile, dpi=(300, 200), exif=exif_block(), comment=b"words", xmp=b"<x/>", quality=95
    )
    old, new = Image.open(path), Image.open(again(path))
    assert new.info["icc_profile"] == profile == read_picture(path).metadata.icc
    assert new.info["dpi"] == (300, 200)
    assert new.info["comment"] == b"words"
    assert new.info["xmp"] == b"<x/>"
    assert dict(new.getexif()) == dict(old.getexif())
    assert new.getexif().get_ifd(34665) == old.getexif().get_ifd(34665)
    assert new.getexif().get_ifd(34853) == {1: "N"}


def test_jpeg_segments_that_are_left_out_are_said(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    data = jpeg()
    path.write_bytes(data[:2] + b"\xff\xe2" + struct.pack(">H", 10) + b"MPF\0abcd" + data[2:])
    assert "APP2 MPF" in read_picture(path).notes[0]
    path.with_suffix(".png").write_bytes(png([(b"abCD", b"x")]))
    assert "abCD" in read_picture(path.with_suffix(".png")).notes[0]


# Orientation


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".tif"])
def test_orientation_is_applied_and_reset(tmp_path: Path, suffix: str, orientation: int) -> None:
    path = tmp_path / f"a{suffix}"
    if suffix == ".tif":
        extra = [(274, 3, 1, orientation, True)]
        tifffile.imwrite(path, smooth(), photometric="rgb", extratags=extra, resolution=(300, 150), resolutionunit=2)
    else:
        Image.fromarray(smooth()).save(path, exif=exif_block(orientation), quality=95, subsampling=0, dpi=(300, 150))
    shown = np.asarray(ImageOps.exif_transpose(Image.open(path)))
    picture = read_picture(path)
    np.testing.assert_array_equal(to_samples(picture.pixels, "uint8", 255)[0][0].transpose(1, 2, 0), shown)
    copy = Image.open(again(path))
    assert copy.getexif().get(274, 1) == 1
    now = np.asarray(ImageOps.exif_transpose(copy)).astype(int)
    assert np.abs(now - shown).max() <= (4 if suffix == ".jpg" else 0)
    expected = (150, 300) if orientation >= 5 else (300, 150)
    assert tuple(round(float(v)) for v in copy.info["dpi"]) == expected
    if suffix != ".tif":
        nested = copy.getexif().get_ifd(34665)
        assert (nested[40962], nested[40963]) == copy.size
        assert nested[33434] == pytest.approx(0.01)


@pytest.mark.parametrize("packet", [b'<x tiff:Orientation="6"/>', b"<tiff:Orientation>6</tiff:Orientation>"])
def test_orientation_in_xmp_is_reset_too(tmp_path: Path, packet: bytes) -> None:
    path = tmp_path / "a.jpg"
    Image.fromarray(smooth()).save(path, exif=exif_block(6), xmp=packet)
    assert Image.open(again(path)).info["xmp"] == packet.replace(b"6", b"1")


def test_thumbnail_of_the_old_picture_is_not_kept(tmp_path: Path) -> None:
    block = exif_block(6).removeprefix(b"Exif\0\0")
    # A second directory behind the first: that is where EXIF keeps its thumbnail.
    order = "<" if block[:2] == b"II" else ">"
    (first,) = struct.unpack_from(order + "I", block, 4)
    (count,) = struct.unpack_from(order + "H", block, first)
    with_thumbnail = bytearray(block + b"\0" * (len(block) % 2))
    struct.pack_into(order + "I", with_thumbnail, first + 2 + 12 * count, len(with_thumbnail))
    with_thumbnail += struct.pack(order + "HHHIHHI", 1, 259, 3, 1, 6, 0, 0)
    path = tmp_path / "a.jpg"
    Image.fromarray(smooth()).save(path, exif=b"Exif\0\0" + bytes(with_thumbnail))
    assert Image.open(path).getexif().get_ifd(-1)  # Pillow's name for it
    assert not Image.open(again(path)).getexif().get_ifd(-1)


def test_exif_with_unknown_exposure_survives(tmp_path: Path) -> None:
    """Cameras write 0/0 for what they do not know."""
    exif = Image.Exif()
    exif[271], exif[274] = "Maker", 6
    exif.get_ifd(34665)[33434] = IFDRational(7, 99)
    block = exif.tobytes().replace(struct.pack(">II", 7, 99), bytes(8))
    assert block != exif.tobytes()
    path = tmp_path / "a.jpg"
    Image.fromarray(smooth()).save(path, exif=block)
    for suffix in (".jpg", ".png", ".tif"):
        copy = Image.open(again(path, suffix))
        assert copy.getexif()[271] == "Maker"
        assert math.isnan(copy.getexif().get_ifd(34665)[33434])
