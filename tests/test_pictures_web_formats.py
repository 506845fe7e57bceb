"""BMP, WebP, AVIF and HEIC: read, written, and the same picture for `restore` and `train`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pnpladmm as pl
from pnpladmm import files
from pnpladmm.pictures import read_picture, write_picture
from pnpladmm.workshop.training import data


def colours(side: int = 24) -> np.ndarray:
    rows, columns = np.mgrid[:side, :side]
    return np.stack([4 * rows + 60, 5 * columns + 40, 3 * rows + 2 * columns + 50], -1).astype(np.uint8)


def has_heic() -> bool:
    try:
        files.optional("pillow_heif")
    except pl.InputError:
        return False
    return True


@pytest.mark.parametrize(("suffix", "error"), [(".bmp", 0), (".webp", 0), (".avif", 3), (".heic", 3)])
def test_pictures_come_back(tmp_path: Path, suffix: str, error: int) -> None:
    if suffix == ".heic" and not has_heic():
        pytest.skip("pillow-heif is not installed")
    sharp = colours()
    path = tmp_path / f"a{suffix}"
    written = write_picture(path, sharp)
    assert (written.dtype, written.clipped_samples) == ("uint8", 0)
    picture = read_picture(path)
    assert picture.dtype == "uint8"
    assert picture.colour == "rgb"
    found = np.moveaxis(picture.pixels[0].numpy() * 255, 0, -1)
    assert np.abs(found - sharp).max() <= error + 1e-4


def test_restore_takes_them_from_file_to_file(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.webp", colours())
    result = pl.restore(tmp_path / "a.webp", np.ones((3, 3)) / 9, noise=0.02, denoiser="tv", iterations=2)
    result.save(tmp_path / "b.webp")
    assert float((read_picture(tmp_path / "b.webp").pixels - result.image).abs().max()) <= 0.51 / 255


def test_alpha_profile_and_exif_are_kept(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x010E] = "a test"
    Image.fromarray(np.dstack([colours(), colours()[..., :1]])).save(tmp_path / "a.webp", lossless=True, exif=exif)
    picture = read_picture(tmp_path / "a.webp")
    write_picture(tmp_path / "b.webp", picture)
    with Image.open(tmp_path / "b.webp") as again:
        assert again.mode == "RGBA"
        assert again.getexif()[0x010E] == "a test"


def test_animations_are_refused(tmp_path: Path) -> None:
    frames = [Image.fromarray(colours()), Image.fromarray(255 - colours())]
    frames[0].save(tmp_path / "a.webp", save_all=True, append_images=frames[1:])
    with pytest.raises(pl.InputError, match="holds 2 pictures"):
        read_picture(tmp_path / "a.webp")


def test_bombs_are_refused_before_they_are_decoded(tmp_path: Path) -> None:
    Image.new("RGB", (2000, 2000)).save(tmp_path / "a.webp", lossless=True)
    with pytest.raises(pl.InputError, match="over the limit"):
        read_picture(tmp_path / "a.webp", max_bytes=10**6)


def test_16_bits_do_not_go_into_8_without_a_word(tmp_path: Path) -> None:
    picture = pl.Picture.from_array(colours().astype(np.uint16) * 200)
    with pytest.raises(pl.InputError, match="cannot hold uint16"):
        write_picture(tmp_path / "a.webp", picture)


def test_train_reads_nothing_that_restore_refuses() -> None:
    known = {suffix for form in pl.pictures.files.FORMATS.values() for suffix in form.suffixes}
    assert set(data.SUFFIXES) <= known


def test_without_its_package_heic_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pillow_heif", None)
    (tmp_path / "a.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    with pytest.raises(pl.InputError, match=r"pip install 'pnpladmm\[heic\]'"):
        read_picture(tmp_path / "a.heic")
