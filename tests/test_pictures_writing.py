"""Writing a picture: from one format to another, what is lost is said or refused, and no crash spoils the old file."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo

import pnpladmm as pl
from picture_cases import SRGB_PROFILE, H, W, exif_block, noise, refused, smooth
from pnpladmm.pictures import Picture, check_output, files, read_picture, write_picture, write_png

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
    refused(lambda: write_picture(tmp_path / "c.tif", "words"), "no array of numbers|type str")


def test_metadata_cross_from_format_to_format(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Image.fromarray(smooth()).save(path, icc_profile=SRGB_PROFILE, dpi=(300, 300), exif=exif_block(), xmp=b"<x/>")
    for suffix in (".png", ".tif", ".jpg"):
        copy = tmp_path / f"b{suffix}"
        written = write_picture(copy, read_picture(path))
        assert ("GPS" in " ".join(written.notes)) == (suffix == ".tif")
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
        (
            "a.jpg",
            deep,
            "JPEG cannot hold uint16 samples: write PNG or .*; in Python: allow_loss=True writes uint8$",
        ),
        ("a.png", real, "PNG cannot hold float32"),
        ("a.jpg", seen, "JPEG cannot hold alpha: write PNG or TIFF; in Python: allow_loss=True leaves it out$"),
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


def test_an_output_that_cannot_be_written_is_found_before_the_work(tmp_path: Path) -> None:
    """Nothing is left behind by the check: no temporary file, and no folder that was missing."""
    picture = Picture.from_array(noise((H, W, 3)))
    (tmp_path / "file").write_text("here")
    (tmp_path / "folder.png").mkdir()
    before = sorted(tmp_path.rglob("*"))
    for name, words in {
        tmp_path / "file" / "x.png": "cannot be written .Not a directory.: give another place",
        tmp_path / "file" / "deep" / "x.png": "cannot be written .Not a directory",
        tmp_path / "folder.png": "is a folder: give the name of a file",
        tmp_path / ("x" * 300) / "x.png": "cannot be written",
    }.items():
        refused(lambda n=name: check_output(n, picture), words)
    if Path("/proc").is_dir():  # a folder that nobody may write to
        refused(lambda: check_output("/proc/x.png", picture), "/proc/x.png cannot be written")
        refused(lambda: check_output("/proc/none/x.png", picture), "/proc/none/x.png cannot be written")
    check_output(tmp_path / "new" / "deep" / "x.png", picture)
    check_output(tmp_path / "x.png", picture)
    assert sorted(tmp_path.rglob("*")) == before


def test_samples_without_data_are_said_where_a_format_cannot_mark_them(tmp_path: Path) -> None:
    real = noise((H, W), "float32")
    real[2, 3] = np.nan
    np.save(tmp_path / "a.npy", real)
    picture = read_picture(tmp_path / "a.npy")
    written = write_picture(tmp_path / "a.png", picture, allow_loss=True)
    assert "1 samples without data" in " ".join(written.notes)
    write_picture(tmp_path / "b.tif", picture)
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "b.tif"), real)


# Written beside and renamed


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif", ".fits", ".npy"])
def test_a_crash_while_writing_leaves_the_old_file(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"a{suffix}"
    picture = Picture.from_array(noise((H, W)))
    write_picture(path, picture)
    old = path.read_bytes()
    form = next(form for form in files.FORMATS.values() if suffix in form.suffixes)

    def crash(place: Path, raw: object, name: str) -> None:
        form.write(place, raw, name)
        os.truncate(place, 40)
        raise KeyboardInterrupt

    monkeypatch.setitem(files.FORMATS, form.name, dataclasses.replace(form, write=crash))
    with pytest.raises(KeyboardInterrupt):
        write_picture(path, picture.with_pixels(picture.pixels / 2))
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_writing_keeps_the_mode_and_follows_no_link(tmp_path: Path) -> None:
    target, link = tmp_path / "a.png", tmp_path / "b.png"
    picture = Picture.from_array(noise((H, W)))
    write_picture(target, picture)
    target.chmod(0o600)
    write_picture(target, picture)
    assert target.stat().st_mode & 0o777 == 0o600
    before = target.read_bytes()
    for to in (target, tmp_path / "nowhere.png"):
        link.unlink(missing_ok=True)
        link.symlink_to(to)
        refused(lambda: write_picture(link, Picture.from_array(noise((H, W)) * 0)), "is a link")
    assert target.read_bytes() == before
    assert not (tmp_path / "nowhere.png").exists()


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


def test_a_cropped_picture_says_what_happened_to_the_files_own_metadata(tmp_path: Path) -> None:
    """From PNG to PNG: a text chunk belongs to the picture of the old size. Without one there is nothing to say."""
    blur = torch.full((3, 3), 1 / 9)
    said = "the file's own metadata belong to a picture of another size and are left out"
    for text, notes in ((None, ()), ("a caption", (said,))):
        info = PngInfo()
        if text is not None:
            info.add_text("Title", text)
        Image.fromarray(noise((H, W))).save(tmp_path / "a.png", pnginfo=info)
        done = pl.simulate(tmp_path / "a.png", blur)
        assert done.picture.notes == notes
        assert write_picture(tmp_path / "b.png", done.picture).notes == ()
        kept = pl.simulate(tmp_path / "a.png", blur, boundary="zero").picture
        write_picture(tmp_path / "c.png", kept)
        assert Image.open(tmp_path / "c.png").info.get("Title") == text
