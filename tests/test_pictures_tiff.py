"""TIFF files of every kind, those of microscopes included, come back sample by sample and tag by tag."""

from __future__ import annotations

import struct
from fractions import Fraction
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image

from picture_cases import SRGB_PROFILE, H, W, again, exif_block, noise, smooth
from pnpladmm.pictures import Resolution, read_picture, write_picture
from pnpladmm.pictures.samples import to_samples


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
    # The GPS position is not kept, and that is said.
    assert not new.getexif().get_ifd(34853)
    assert "GPS" in read_picture(path).notes[0]
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
