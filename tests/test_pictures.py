"""Picture files: what goes in comes out, with all that belongs to it; what is no picture is refused in one line."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import io
import os
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
import torch
from astropy.io import fits
from PIL import Image, ImageCms, ImageOps

from pnpladmm.pictures import Picture, Resolution, files, read_picture, write_picture, write_png
from pnpladmm.pictures.samples import natural_scale, to_samples
from pnpladmm.tensors import InputError

SRGB_PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
H, W = 9, 13


def noise(shape: tuple[int, ...], dtype: str = "uint8", seed: int = 0) -> np.ndarray:
    """Random samples with the extremes of the type among them."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return rng.random(shape).astype(kind)
    info = np.iinfo(kind)
    samples = rng.integers(info.min, info.max, shape, dtype=kind, endpoint=True)
    samples.flat[0], samples.flat[-1] = info.min, info.max
    return samples


def smooth(channels: int = 3) -> np.ndarray:
    """8-bit (H, W, C) that JPEG keeps well, different along each axis and in each corner."""
    y, x = np.mgrid[0:24, 0:40]
    return np.stack([40 + 4 * x + 2 * y - 10 * c for c in range(channels)], -1).astype(np.uint8)


def again(path: Path, suffix: str | None = None) -> Path:
    """Read, "restore" with the identity, and write; the path of the copy."""
    picture = read_picture(path)
    suffix = suffix or "".join(path.suffixes)
    copy = path.with_name("copy" + suffix)
    written = write_picture(copy, picture.with_pixels(picture.pixels.clone()))
    assert written.clipped == 0
    return copy


def exif_block(orientation: int = 1) -> bytes:
    exif = Image.Exif()
    exif[274] = orientation
    exif[271] = "Maker"
    exif[306] = "2024:01:02 03:04:05"
    exif[33432] = "Someone"
    exif.get_ifd(34665)[33434] = 0.01  # exposure time
    exif.get_ifd(34665)[40962] = 40
    exif.get_ifd(34665)[40963] = 24
    exif.get_ifd(34853)[1] = "N"
    return b"Exif\0\0" + exif.tobytes().removeprefix(b"Exif\0\0")


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


def test_samples_without_data_are_said_where_a_format_cannot_mark_them(tmp_path: Path) -> None:
    real = noise((H, W), "float32")
    real[2, 3] = np.nan
    np.save(tmp_path / "a.npy", real)
    picture = read_picture(tmp_path / "a.npy")
    written = write_picture(tmp_path / "a.png", picture, allow_loss=True)
    assert "1 samples without data" in " ".join(written.notes)
    write_picture(tmp_path / "b.tif", picture)
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "b.tif"), real)


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


# TIFF


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32", "float64"]
)
@pytest.mark.parametrize("layout", ["grey", "rgb", "planar rgb", "rgba", "grey alpha", "5 channels", "stack", "5D"])
def test_tiff_keeps_every_sample(tmp_path: Path, dtype: str, layout: str) -> None:
    path = tmp_path / "a.tif"
    shape, options, expected, alpha = {
        "grey": ((H, W), {"photometric": "minisblack"}, (1, 1), False),
        "rgb": ((H, W, 3), {"photometric": "rgb"}, (1, 3), False),
        "planar rgb": ((3, H, W), {"photometric": "rgb", "planarconfig": "separate"}, (1, 3), False),
        "rgba": ((H, W, 4), {"photometric": "rgb", "extrasamples": ["unassalpha"]}, (1, 3), True),
        "grey alpha": (
            (H, W, 2), {"photometric": "minisblack", "planarconfig": "contig", "extrasamples": [2]}, (1, 1), True
        ),
        "5 channels": (
            (H, W, 5), {"photometric": "minisblack", "planarconfig": "contig", "extrasamples": [0] * 4}, (1, 5), False
        ),
        "stack": ((7, H, W), {"photometric": "minisblack"}, (7, 1), False),
        "5D": ((2, 3, 2, H, W), {"photometric": "minisblack", "metadata": {"axes": "TZCYX"}}, (6, 2), False),
    }[layout]  # fmt: skip
    samples = noise(shape, dtype)
    tifffile.imwrite(path, samples, **options)
    picture = read_picture(path)
    assert picture.pixels.shape == (*expected, H, W)
    assert (picture.alpha is not None) == alpha
    assert picture.dtype == dtype
    assert picture.notes == ()
    copy = again(path)
    with tifffile.TiffFile(path) as old, tifffile.TiffFile(copy) as new:
        assert new.series[0].axes == old.series[0].axes
        assert new.pages[0].photometric == old.pages[0].photometric
        assert new.pages[0].planarconfig == old.pages[0].planarconfig
        assert new.pages[0].extrasamples == old.pages[0].extrasamples
        assert new.pages[0].description == old.pages[0].description
        written = new.series[0].asarray()
    assert written.dtype == samples.dtype
    np.testing.assert_array_equal(written, samples)


@pytest.mark.parametrize("compression", ["lzw", "zlib", "packbits", "zstd", "lzma"])
@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("bigtiff", [False, True])
def test_tiff_keeps_its_coding(tmp_path: Path, compression: str, byteorder: str, bigtiff: bool) -> None:
    path = tmp_path / "a.tif"
    samples = noise((3, 40, 50), "uint16")
    predictor = compression in ("lzw", "zlib")
    tifffile.imwrite(
        path, samples, photometric="minisblack", compression=compression, predictor=predictor, tile=(16, 32),
        byteorder=byteorder, bigtiff=bigtiff,
    )  # fmt: skip
    with tifffile.TiffFile(path) as old, tifffile.TiffFile(again(path)) as new:
        for name in ("compression", "predictor", "tile", "is_tiled"):
            assert getattr(new.pages[0], name) == getattr(old.pages[0], name)
        assert (new.byteorder, new.is_bigtiff, len(new.pages)) == (byteorder, bigtiff, 3)
        np.testing.assert_array_equal(new.asarray(), samples)


def test_tiff_with_lossy_coding_is_written_without_loss(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, smooth(), photometric="rgb", compression="jpeg")
    picture = read_picture(path)
    written = write_picture(tmp_path / "b.tif", picture)
    assert "Deflate" in written.notes[0]
    np.testing.assert_array_equal(tifffile.imread(written.path), tifffile.imread(path))


def test_tiff_where_0_is_white(tmp_path: Path) -> None:
    samples = noise((H, W), "uint16")
    tifffile.imwrite(tmp_path / "a.tif", samples, photometric="miniswhite")
    picture = read_picture(tmp_path / "a.tif")
    assert float(picture.pixels[0, 0, 0, 0]) == 1  # samples[0, 0] is 0
    with tifffile.TiffFile(again(tmp_path / "a.tif")) as new:
        assert new.pages[0].photometric == 0
        np.testing.assert_array_equal(new.asarray(), samples)


@pytest.mark.parametrize("bits", [1, 10, 12])
def test_tiff_with_packed_bits(tmp_path: Path, bits: int) -> None:
    path = tmp_path / "a.tif"
    samples = noise((H, 16), "uint16") >> (16 - bits)
    if bits == 1:
        tifffile.imwrite(path, samples.astype(bool))
    else:
        packed = imagecodecs.packints_encode(samples, bits)
        _write_strip(path, H, 16, bits, bytes(packed))
    picture = read_picture(path)
    assert f"{bits}-bit" in picture.notes[0]
    assert (float(picture.pixels.min()), float(picture.pixels.max())) == (0, 1)
    np.testing.assert_array_equal(tifffile.imread(again(path)), samples * 255 if bits == 1 else samples)


def _write_strip(path: Path, height: int, width: int, bits: int, data: bytes) -> None:
    tags = [(256, width), (257, height), (258, bits), (259, 1), (262, 1), (273, 8), (277, 1), (278, height)]
    tags.append((279, len(data)))
    data += b"\0" * (len(data) % 2)
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", t, 4, 1, v) for t, v in tags)
    path.write_bytes(b"II*\0" + struct.pack("<I", 8 + len(data)) + data + directory + b"\0\0\0\0")


def test_tiff_palette_becomes_the_same_rgb(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    Image.fromarray(smooth()).quantize(16).save(path)
    picture = read_picture(path)
    assert (picture.dtype, picture.colour) == ("uint8", "rgb")
    np.testing.assert_array_equal(tifffile.imread(again(path)), np.asarray(Image.open(path).convert("RGB")))


def test_tiff_cmyk(tmp_path: Path) -> None:
    samples = noise((H, W, 4), "uint16")
    tifffile.imwrite(tmp_path / "a.tif", samples, photometric="separated")
    assert read_picture(tmp_path / "a.tif").colour == "cmyk"
    np.testing.assert_array_equal(tifffile.imread(again(tmp_path / "a.tif")), samples)


@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("bigtiff", [False, True])
def test_tiff_keeps_profile_resolution_exif_and_texts(tmp_path: Path, byteorder: str, bigtiff: bool) -> None:
    path = tmp_path / "a.tif"
    image = Image.fromarray(smooth())
    exif = Image.Exif()
    exif.load(exif_block())
    exif.endian = byteorder
    image.save(path, exif=exif, icc_profile=SRGB_PROFILE, dpi=(300, 150), description="words", artist="Someone")
    if bigtiff:
        image.save(path, exif=exif, icc_profile=SRGB_PROFILE, dpi=(300, 150), description="words", big_tiff=True)
    old, new = Image.open(path), Image.open(again(path))
    assert new.info["icc_profile"] == SRGB_PROFILE
    assert new.info["dpi"] == (300, 150)
    for tag in (270, 271, 306, 33432):
        assert new.tag_v2[tag] == old.tag_v2[tag]
    assert new.getexif().get_ifd(34665)[33434] == pytest.approx(0.01)
    assert new.getexif().get_ifd(34853)[1] == "N"
    # Every page of a stack has its own.
    assert read_picture(path).metadata.resolution == Resolution(Fraction(300), Fraction(150), "inch")


def test_tiff_keeps_the_tags_of_each_page(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    samples = noise((3, H, W), "uint16")
    with tifffile.TiffWriter(path) as file:
        for i, page in enumerate(samples):
            file.write(page, description=f"page {i}", metadata=None, extratags=[(285, 2, 0, f"name {i}", True)])
    copy = again(path)
    with tifffile.TiffFile(copy) as new:
        assert [p.description for p in new.pages] == ["page 0", "page 1", "page 2"]
        assert [p.tags[285].value for p in new.pages] == ["name 0", "name 1", "name 2"]
        np.testing.assert_array_equal(np.stack([p.asarray() for p in new.pages]), samples)


@pytest.mark.parametrize("axes", ["ZYX", "CZYX", "TZCYX", "TCYX", "YXS", "CYX"])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_ome_tiff(tmp_path: Path, axes: str, compression: str | None) -> None:
    path = tmp_path / "a.ome.tif"
    shape = tuple({"T": 2, "Z": 4, "C": 2, "Y": H, "X": W, "S": 3}[axis] for axis in axes)
    samples = noise(shape, "uint16")
    metadata = {
        "axes": axes, "PhysicalSizeX": 0.0650001, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 0.07,
        "PhysicalSizeYUnit": "µm", "PhysicalSizeZ": 0.3, "PhysicalSizeZUnit": "µm",
        "Channel": {"Name": ["DAPI", "GFP"]},
    }  # fmt: skip
    photometric = "rgb" if "S" in axes else "minisblack"
    tifffile.imwrite(path, samples, ome=True, metadata=metadata, photometric=photometric, compression=compression)
    picture = read_picture(path)
    assert picture.pixel_size == pytest.approx((0.0650001e-6, 0.07e-6), rel=1e-12)
    channels = {"C": 2, "S": 3}.get(next((a for a in axes if a in "CS"), ""), 1)
    assert picture.pixels.shape == (samples.size // (channels * H * W), channels, H, W)
    with tifffile.TiffFile(path) as old, tifffile.TiffFile(again(path)) as new:
        assert new.is_ome
        assert new.ome_metadata == old.ome_metadata
        assert new.series[0].axes == axes
        np.testing.assert_array_equal(new.asarray(), samples)
    # Channels and pages lie where the file says.
    if axes == "TZCYX":
        np.testing.assert_array_equal(to_samples(picture.pixels[5, 1], "uint16", 65535)[0], samples[1, 1, 1])


def test_ome_planes_in_another_order(tmp_path: Path) -> None:
    """DimensionOrder XYZCT with planes scattered over the file: they return to their places."""
    path = tmp_path / "a.ome.tif"
    samples = noise((3, H, W), "uint16")
    data = "".join(f'<TiffData IFD="{2 - i}" FirstZ="{i}" FirstC="0" FirstT="0" PlaneCount="1"/>' for i in range(3))
    xml = (
        '<?xml version="1.0" encoding="UTF-8"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">'
        '<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint16" SizeX="13" SizeY="9" '
        f'SizeZ="3" SizeC="1" SizeT="1"><Channel ID="Channel:0:0" SamplesPerPixel="1"/>{data}</Pixels></Image></OME>'
    )
    with tifffile.TiffWriter(path) as file:
        for i, page in enumerate(samples[::-1]):
            file.write(page, description=xml if i == 0 else None, metadata=None)
    np.testing.assert_array_equal(tifffile.imread(path), samples)
    np.testing.assert_array_equal(tifffile.imread(again(path)), samples)


@pytest.mark.parametrize("axes", ["YX", "ZYX", "ZCYX", "TZCYX", "YXS"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_imagej_tiff(tmp_path: Path, axes: str, dtype: str) -> None:
    if axes == "YXS" and dtype != "uint8":
        dtype = "uint16"
    path = tmp_path / "a.tif"
    shape = tuple({"T": 2, "Z": 4, "C": 2, "Y": H, "X": W, "S": 3}[axis] for axis in axes)
    samples = noise(shape, dtype)
    metadata = {
        "axes": axes, "unit": "um", "spacing": 0.3, "finterval": 2.0, "Info": "taken by someone",
        "Labels": [f"plane {i}" for i in range(4)], "Ranges": (0.0, 200.0, 1.0, 100.0),
    }  # fmt: skip
    tifffile.imwrite(path, samples, imagej=True, resolution=(1 / 0.065, 1 / 0.07), metadata=metadata)
    picture = read_picture(path)
    assert picture.pixel_size == pytest.approx((0.065e-6, 0.07e-6), rel=1e-6)
    with tifffile.TiffFile(path) as old, tifffile.TiffFile(again(path)) as new:
        assert new.is_imagej
        assert new.imagej_metadata == old.imagej_metadata
        assert new.pages[0].tags[282].value == old.pages[0].tags[282].value
        assert new.series[0].axes == axes
        np.testing.assert_array_equal(new.asarray(), samples)


def test_imagej_lookup_table_is_a_display_colour(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    samples = noise((H, W))
    table = np.zeros((3, 256), np.uint16)
    table[1] = 257 * np.arange(256)
    tifffile.imwrite(
        path, samples, photometric="palette", colormap=table, description="ImageJ=1.53t\nunit=micron\n", metadata=None
    )
    picture = read_picture(path)
    assert (picture.colour, picture.pixels.shape[1]) == ("grey", 1)
    with tifffile.TiffFile(again(path)) as new:
        np.testing.assert_array_equal(new.pages[0].asarray(), samples)
        np.testing.assert_array_equal(new.pages[0].colormap, table)


def test_imagej_stack_described_by_its_first_page(tmp_path: Path) -> None:
    """What ImageJ writes beyond 4 GB: one directory, all planes behind it."""
    path = tmp_path / "a.tif"
    samples = noise((5, H, W), "uint16").astype(">u2")
    text = b"ImageJ=1.53t\nimages=5\nslices=5\n\0"
    tags = [(256, 4, 1, W), (257, 4, 1, H), (258, 3, 1, 16), (259, 3, 1, 1), (262, 3, 1, 1)]
    tags += [(270, 2, len(text), 300), (273, 4, 1, 400), (277, 3, 1, 1), (278, 4, 1, H), (279, 4, 1, 2 * H * W)]
    entries = b"".join(
        struct.pack(">HHI", t, k, n) + (struct.pack(">HH", v, 0) if k == 3 else struct.pack(">I", v))
        for t, k, n, v in tags
    )
    head = b"MM\0*" + struct.pack(">IH", 8, len(tags)) + entries + b"\0\0\0\0"
    path.write_bytes(head.ljust(300, b"\0") + text.ljust(100, b"\0") + samples.tobytes())
    np.testing.assert_array_equal(tifffile.imread(path), samples)
    assert read_picture(path).pixels.shape == (5, 1, H, W)
    np.testing.assert_array_equal(tifffile.imread(again(path)), samples)


def test_tiff_pyramid_is_read_at_full_size(tmp_path: Path) -> None:
    path = tmp_path / "a.ome.tif"
    samples = noise((32, 32), "uint16")
    with tifffile.TiffWriter(path, ome=True) as file:
        file.write(samples, subifds=1, photometric="minisblack")
        file.write(samples[::2, ::2], subfiletype=1, photometric="minisblack")
    assert "pyramid" in read_picture(path).notes[0]
    np.testing.assert_array_equal(tifffile.imread(again(path)), samples)


def test_tiff_thumbnail_and_private_tags_are_left_out_and_said(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as file:
        extra = [(65001, 2, 0, "private", True)]
        file.write(noise((32, 32)), photometric="minisblack", metadata=None, extratags=extra)
        file.write(noise((8, 8)), photometric="minisblack", metadata=None, subfiletype=1)
    notes = read_picture(path).notes
    assert "thumbnails" in notes[0]
    assert "65001" in notes[1]


# FITS


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
    assert written.clipped > 0


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
    header = fits.Header([("OBJECT", "M 31")])
    fits.HDUList([fits.PrimaryHDU(), fits.CompImageHDU(samples, header, "SCI")]).writeto(tiles)
    assert "tile" in read_picture(tiles).notes[0]
    with fits.open(again(tiles)) as new:
        assert new["SCI"].header["OBJECT"] == "M 31"
        np.testing.assert_array_equal(new["SCI"].data, samples)


def test_fits_without_astropy_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fits.PrimaryHDU(noise((H, W), "float32")).writeto(tmp_path / "a.fits")
    monkeypatch.setitem(sys.modules, "astropy.io", None)
    refused(lambda: read_picture(tmp_path / "a.fits"), r"a\.fits.*pip install pnpladmm\[astro\]")


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
    written = write_picture(tmp_path / "c.png", Picture.from_array(batch[:1], "uint8"))
    assert written.dtype == "uint8"
    assert Picture.from_array(torch.rand(3, 4, 4)).pixels.shape == (1, 3, 4, 4)
    assert Picture.from_array(np.random.default_rng(0).random((3, 4, 4))).pixels.shape == (1, 4, 3, 4)
    eight = Picture.from_array(grey).with_depth("uint8")
    assert (eight.dtype, eight.scale) == ("uint8", 255)
    refused(lambda: Picture.from_array(np.zeros((9, 9, 9))), r"shape \(9, 9, 9\)")
    refused(lambda: Picture.from_array(np.zeros((9, 9), np.int64)), "int64")
    refused(lambda: Picture.from_array(np.zeros((0, 9), np.uint8)), r"\(0, 9\)")
    refused(lambda: Picture.from_array(grey, "uint7"), "uint7")
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
    picture = Picture.from_array(pixels, "uint8")
    assert picture.clipped == 3
    written = write_picture(tmp_path / "a.png", picture)
    assert written.clipped == 3
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


# From one format to another


def test_native_metadata_go_only_with_the_picture_they_describe(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", noise((H, W, 4)), photometric="rgb", extrasamples=[2], description="words")
    picture = read_picture(tmp_path / "a.tif")
    for changed in (
        dataclasses.replace(picture, alpha=None),
        dataclasses.replace(picture, pixels=picture.pixels[..., :5], alpha=None),
        picture.with_depth("uint16"),
    ):
        assert "metadata" in write_picture(tmp_path / "b.tif", changed).notes[0]
        back = read_picture(tmp_path / "b.tif")
        torch.testing.assert_close(back.pixels, changed.pixels)
        assert back.dtype == changed.dtype
    refused(lambda: write_picture(tmp_path / "c.tif", picture.pixels), "is a Tensor")  # type: ignore[arg-type]


def test_metadata_cross_from_format_to_format(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Image.fromarray(smooth()).save(path, icc_profile=SRGB_PROFILE, dpi=(300, 300), exif=exif_block(), xmp=b"<x/>")
    for suffix in (".png", ".tif", ".jpg"):
        copy = tmp_path / f"b{suffix}"
        write_picture(copy, read_picture(path))
        # And on from there, through every pair.
        for last in (".png", ".tif", ".jpg"):
            end = tmp_path / f"c{last}"
            write_picture(end, read_picture(copy))
            image = Image.open(end)
            image.load()
            assert image.info["icc_profile"] == SRGB_PROFILE
            assert [round(float(v)) for v in image.info["dpi"]] == [300, 300]
            assert image.getexif()[271] == "Maker"
            assert image.getexif().get_ifd(34665)[33434] == pytest.approx(0.01)
            assert read_picture(end).metadata.xmp == b"<x/>"


def test_pixels_cross_from_format_to_format(tmp_path: Path) -> None:
    samples = noise((H, W, 4), "uint16")
    (tmp_path / "a.png").write_bytes(imagecodecs.png_encode(samples))
    write_picture(tmp_path / "b.tif", read_picture(tmp_path / "a.png"))
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "b.tif"), samples)
    write_picture(tmp_path / "c.png", read_picture(tmp_path / "b.tif"))
    np.testing.assert_array_equal(imagecodecs.png_decode((tmp_path / "c.png").read_bytes()), samples)
    opaque = dataclasses.replace(read_picture(tmp_path / "a.png"), alpha=None)
    for suffix in (".fits", ".npy", ".fits.gz", ".ome.tif"):
        write_picture(tmp_path / f"d{suffix}", opaque)
        picture = read_picture(tmp_path / f"d{suffix}")
        assert (picture.dtype, picture.colour) == ("uint16", "rgb")
        assert torch.equal(picture.pixels, opaque.pixels)
    channels = Picture.from_array(noise((2, 5, H, W), "uint16"))
    write_picture(tmp_path / "e.tif", channels)
    assert torch.equal(read_picture(tmp_path / "e.tif").pixels, channels.pixels)
    write_picture(tmp_path / "e.ome.tiff", channels)
    assert torch.equal(read_picture(tmp_path / "e.ome.tiff").pixels, channels.pixels)


def test_pixel_size_crosses_to_ome(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", noise((H, W)), imagej=True, resolution=(10, 10), metadata={"unit": "um"})
    picture = read_picture(tmp_path / "a.tif")
    write_picture(tmp_path / "b.ome.tif", picture.with_depth("uint16"))
    assert read_picture(tmp_path / "b.ome.tif").pixel_size == pytest.approx((1e-7, 1e-7))
    written = write_picture(tmp_path / "c.png", picture)
    assert "metadata that only the old file could hold" in written.notes[0]
    assert read_picture(tmp_path / "c.png").pixel_size == pytest.approx((1e-7, 1e-7))


def test_what_a_format_cannot_hold_is_refused(tmp_path: Path) -> None:
    deep = Picture.from_array(noise((H, W, 3), "uint16"))
    seen = dataclasses.replace(Picture.from_array(noise((H, W, 3))), alpha=torch.ones(1, 1, H, W))
    real = Picture.from_array(noise((H, W), "float32"))
    cases = [
        ("a.jpg", deep, "JPEG cannot hold uint16"),
        ("a.png", real, "PNG cannot hold float32"),
        ("a.jpg", seen, "JPEG cannot hold alpha"),
        ("a.fits", Picture.from_array(noise((H, W), "float16")), "FITS cannot hold float16"),
        ("a.png", Picture.from_array(noise((2, 1, H, W))), "PNG holds one page, the picture has 2"),
        ("a.png", Picture.from_array(noise((1, 5, H, W))), "PNG cannot hold 5 channels"),
        ("a.xyz", deep, "no suffix that names a format"),
        ("a", deep, "no suffix that names a format"),
        ("a.png.gz", deep, "no suffix that names a format"),
    ]
    for name, picture, words in cases:
        refused(lambda p=picture, n=name: write_picture(tmp_path / n, p), words)
        assert not (tmp_path / name).exists()
    assert write_picture(tmp_path / "a.jpg", deep, allow_loss=True).dtype == "uint8"
    assert "alpha is left out" in write_picture(tmp_path / "a.jpg", seen, allow_loss=True).notes
    assert write_picture(tmp_path / "a.png", real, allow_loss=True).dtype == "uint16"
    (tmp_path / "folder.png").mkdir()
    refused(lambda: write_picture(tmp_path / "folder.png", deep), "is a folder")
    refused(lambda: write_picture(tmp_path / "a.png" / "b.png", deep), "cannot be written")


# Written beside and renamed


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif", ".fits", ".npy"])
def test_a_crash_while_writing_leaves_the_old_file(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"a{suffix}"
    picture = Picture.from_array(noise((H, W)))
    write_picture(path, picture)
    old = path.read_bytes()
    module, name = {
        ".png": ("png", "write"), ".jpg": ("jpeg", "write"), ".tif": ("tiff_write", "write"),
        ".fits": ("fits", "write"), ".npy": ("npy", "write"),
    }[suffix]  # fmt: skip
    real = getattr(getattr(files, module), name)

    def crash(place: Path, *rest: object, **named: object) -> None:
        real(place, *rest, **named)
        os.truncate(place, 40)
        raise KeyboardInterrupt

    monkeypatch.setattr(getattr(files, module), name, crash)
    with pytest.raises(KeyboardInterrupt):
        write_picture(path, picture.with_pixels(picture.pixels / 2))
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_writing_keeps_mode_and_link(tmp_path: Path) -> None:
    target, link = tmp_path / "a.png", tmp_path / "b.png"
    picture = Picture.from_array(noise((H, W)))
    write_picture(target, picture)
    target.chmod(0o600)
    link.symlink_to(target)
    write_picture(link, picture)
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600


def test_write_png_of_a_tensor(tmp_path: Path) -> None:
    write_png(tmp_path / "new" / "a.png", torch.tensor([[[[0.0, 0.5, 2.0]]]]))
    assert np.asarray(Image.open(tmp_path / "new" / "a.png")).tolist() == [[0, 128, 255]]
    refused(lambda: write_png(tmp_path / "b.png", torch.zeros(1, 2, 3, 3)), r"\(1, 2, 3, 3\)")


def test_the_format_is_that_of_the_content(tmp_path: Path) -> None:
    Image.fromarray(smooth()).save(tmp_path / "a.tif", "PNG")
    assert read_picture(tmp_path / "a.tif").pixels.shape == (1, 3, 24, 40)


def test_importing_stays_fast() -> None:
    code = (
        "import sys, pnpladmm.pictures\n"
        "print([m for m in ('tifffile', 'astropy', 'imagecodecs', 'PIL', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Bad files


def refused(call: Callable[[], object], words: str) -> None:
    """One line, with these words."""
    with pytest.raises(InputError, match=words) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600


def png(extra: list[tuple[bytes, bytes]] = [], size: tuple[int, int] = (W, H), bits: int = 8, kind: int = 0) -> bytes:  # noqa: B006
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    rows = b"".join(b"\0" + row.tobytes() for row in noise((H, W)))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", *size, bits, kind, 0, 0, 0))
    body = b"".join(chunk(*e) for e in extra) + chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + head + body + chunk(b"IEND", b"")


def jpeg() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(smooth()).save(buffer, "JPEG")
    return buffer.getvalue()


def tiff(**options: object) -> bytes:
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, noise((64, 64), "uint16"), **{"photometric": "minisblack", **options})
    return buffer.getvalue()


def fits_file(samples: np.ndarray | None = None, **cards: object) -> bytes:
    hdu = fits.PrimaryHDU(noise((64, 64), "int16") if samples is None else samples)
    buffer = io.BytesIO()
    hdu.writeto(buffer)
    content = buffer.getvalue().decode("latin1")
    for name, value in cards.items():
        card = f"{name:<8}= {value!s:>20}".ljust(80)
        content = re.sub(f"{name:<8}=.{{71}}", card, content) if f"{name:<8}=" in content else content
    return content.encode("latin1")


def npy(array: np.ndarray, **options: object) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def npy_head(shape: str, dtype: str = "<f4") -> bytes:
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode()


def tiff_head(width: int, height: int, bits: int = 8, **more: int) -> bytes:
    tags = {256: width, 257: height, 258: bits, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: 4}
    tags |= {int(tag[1:]): value for tag, value in more.items()}
    entries = b"".join(struct.pack("<HHII", t, 4, 1, v) for t, v in sorted(tags.items()))
    return b"II*\0" + struct.pack("<I", 12) + b"abcd" + struct.pack("<H", len(tags)) + entries + b"\0\0\0\0"


def loop_of_pages() -> bytes:
    data = bytearray(tiff_head(2, 2))
    struct.pack_into("<I", data, len(data) - 4, 12)
    return bytes(data)


def two_sizes() -> bytes:
    buffer = io.BytesIO()
    with tifffile.TiffWriter(buffer) as file:
        file.write(noise((8, 8)), metadata=None)
        file.write(noise((9, 9)), metadata=None)
    return buffer.getvalue()


def jpeg_with_size(width: int, height: int) -> bytes:
    data = bytearray(jpeg())
    at = data.index(b"\xff\xc0")
    struct.pack_into(">HH", data, at + 5, height, width)
    return bytes(data)


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "is empty"),
    "text": (lambda: b"hello, I am a picture", "no picture that we know"),
    "gif": (lambda: b"GIF89a" + bytes(30), "GIF file"),
    "webp": (lambda: b"RIFF\0\0\0\0WEBP", "WebP file"),
    "heic": (lambda: b"\0\0\0\x18ftypheic" + bytes(20), "HEIC"),
    "npz": (lambda: b"PK\x03\x04" + bytes(30), "NPZ"),
    "png: signature only": (lambda: png()[:8], "cut off"),
    "png: cut in the pixels": (lambda: png()[:60], "cut off"),
    "png: without its end": (lambda: png()[:-12], "cut off"),
    "png: a wrong byte": (lambda: png()[:50] + b"\x55" + png()[51:], "wrong checksum"),
    "png: a bomb": (lambda: png(size=(200_000, 200_000)), "over the limit of 2 GiB"),
    "png: no pixels": (lambda: png(size=(0, 7)), "at least one pixel"),
    "png: too few rows": (lambda: png(size=(W, 2 * H)), "damaged"),
    "png: colour type 7": (lambda: png(kind=7), "colour type 7"),
    "png: animated": (lambda: png([(b"acTL", struct.pack(">II", 2, 0))]), "animated"),
    "png: 3 bits": (lambda: png(bits=3), "of 3 bits"),
    "jpeg: cut in the header": (lambda: jpeg()[:100], "cut off"),
    "jpeg: cut in the pixels": (lambda: jpeg()[:-60], "cut off"),
    "jpeg: start only": (lambda: b"\xff\xd8\xff\xe0", "cut off"),
    "jpeg: no marker": (lambda: b"\xff\xd8\xff\xe0\0\x04ab" + bytes(40), "no JPEG marker"),
    "jpeg: no pixels": (lambda: jpeg_with_size(0, 5), "at least one pixel"),
    "jpeg: a bomb": (lambda: jpeg_with_size(65535, 65535), "over the limit"),
    "jpeg: 12 bits": (lambda: bytes(imagecodecs.jpeg_encode(_twelve_bits(), bitspersample=12)), "12 bits"),
    "tiff: header only": (lambda: b"II*\0\x08\0\0\0", "TIFF"),
    "tiff: four bytes": (lambda: b"II*\0", "TIFF"),
    "tiff: cut": (lambda: tiff()[: len(tiff()) // 2], "TIFF|cut off"),
    "tiff: cut in deflate": (lambda: tiff(compression="zlib")[:-900], "TIFF|cut off"),
    "tiff: a bomb": (lambda: tiff_head(2**31 - 1, 2**31 - 1), "over the limit"),
    "tiff: more pixels than bytes": (lambda: tiff_head(20_000, 20_000), "cut off"),
    "tiff: no pixels": (lambda: tiff_head(0, 5), "at least one pixel|TIFF"),
    "tiff: 24 bits": (lambda: tiff_head(1, 1, 24), "24|TIFF"),
    "tiff: pages in a loop": (loop_of_pages, "TIFF"),
    "tiff: two sizes": (two_sizes, "2 pictures of different kinds"),
    "tiff: CIELab": (lambda: tiff_head(1, 1, 8, t262=8), "CIELAB"),
    "tiff: raw camera": (lambda: tiff_head(2, 2, 8, t262=32803), "CFA"),
    "tiff: a palette without colours": (lambda: tiff_head(2, 2, 8, t262=3), "without colours|TIFF"),
    "tiff: complex": (lambda: _imwrite(np.ones((8, 8), np.complex64)), "complex64"),
    "tiff: only NaN": (lambda: _imwrite(np.full((8, 8), np.nan, np.float32)), "no pixel with data"),
    "fits: cut": (lambda: fits_file()[:5000], "cut off"),
    "fits: header only": (lambda: fits_file()[:200], "FITS"),
    "fits: BITPIX 64": (lambda: fits_file(np.ones((4, 4), np.int64)), "BITPIX 64"),
    "fits: absurd": (lambda: fits_file(NAXIS1=2**40, NAXIS2=2**40), "over the limit|FITS"),
    "fits: negative size": (lambda: fits_file(NAXIS1=-5), "FITS|at least one"),
    "fits: no image": (lambda: fits_file(np.ones(5, np.int16)), "no image of two axes"),
    "fits: only NaN": (lambda: fits_file(np.full((8, 8), np.nan, np.float32)), "no pixel with data"),
    "gzip: not FITS": (lambda: gzip.compress(b"hello"), "holds no FITS"),
    "gzip: cut": (lambda: gzip.compress(fits_file())[:-40], "cut off"),
    "gzip: damaged": (lambda: b"\x1f\x8b" + bytes(30), "gzip"),
    "npy: pickle": (lambda: npy(np.array([[{}]], object), allow_pickle=True), "type object"),
    "npy: text": (lambda: npy(np.array([["a"]])), "type str"),
    "npy: integers of 64 bits": (lambda: npy(np.ones((4, 4), np.int64)), "int64"),
    "npy: complex": (lambda: npy(np.ones((4, 4), np.complex64)), "complex64"),
    "npy: one axis": (lambda: npy(np.ones(4, np.float32)), r"\(4,\)"),
    "npy: five axes": (lambda: npy(np.ones((1, 1, 1, 2, 2), np.float32)), r"\(1, 1, 1, 2, 2\)"),
    "npy: nothing": (lambda: npy(np.ones((0, 4), np.float32)), "at least one pixel"),
    "npy: pages or channels": (lambda: npy(np.ones((9, 9, 9), np.float32)), "pages or channels"),
    "npy: cut": (lambda: npy(np.ones((40, 40), np.float32))[:-100], "cut off"),
    "npy: absurd": (lambda: npy_head("(1000000, 1000000)"), "over the limit"),
    "npy: negative": (lambda: npy_head("(-3, 4)"), "at least one pixel"),
    "npy: no header": (lambda: b"\x93NUMPY\x01\x00\x10\x00{'descr", "damaged NPY"),
    "npy: a header that is code": (lambda: npy_head("__import__('os')"), "damaged NPY"),
    "npy: only NaN": (lambda: npy(np.full((4, 4), np.nan)), "no pixel with data"),
}  # fmt: skip


def _twelve_bits() -> np.ndarray:
    return noise((16, 16), "uint16") >> 4


def _imwrite(samples: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, samples)
    return buffer.getvalue()


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    make, words = BAD[name]
    path = tmp_path / "bad file"
    path.write_bytes(make())
    refused(lambda: read_picture(path), words)
    refused(lambda: read_picture(path), "bad file")
    assert not caplog.records


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    refused(lambda: read_picture(tmp_path), "is a folder")
    refused(lambda: read_picture(tmp_path / "none.png"), "or not there")
    refused(lambda: read_picture(tmp_path / "two\nlines.png"), "two lines.png is no file")
    path = tmp_path / "a.png"
    path.write_bytes(png())
    refused(lambda: read_picture(path, max_bytes=100), "over the limit")


@pytest.mark.parametrize("make", [png, jpeg, tiff, fits_file, lambda: npy(noise((8, 8)))])
def test_damaged_files_are_read_or_refused_never_worse(tmp_path: Path, make: Callable[[], bytes]) -> None:
    """A byte changed here and there, or the end missing: a picture or an InputError, nothing else."""
    rng = np.random.default_rng(0)
    whole = make()
    path = tmp_path / "a"
    for trial in range(60):
        data = bytearray(whole)
        if trial % 3 == 0:
            del data[int(rng.integers(len(data))) :]
        else:
            for at in rng.integers(min(len(data), 400 if trial % 3 == 1 else len(data)), size=3):
                data[at] = int(rng.integers(256))
        path.write_bytes(bytes(data))
        with contextlib.suppress(InputError):
            read_picture(path, max_bytes=2**24)
