"""Bad picture files: what is no picture, or a damaged one, is refused in one line."""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import struct
from collections.abc import Callable
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
from astropy.io import fits

from picture_cases import H, W, jpeg, noise, png, refused
from pnpladmm.pictures import read_picture
from pnpladmm.tensors import InputError


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
    "text": (lambda: b"hello, I am a picture", "not a picture in a known format"),
    "gif": (lambda: b"GIF89a" + bytes(30), "GIF file"),
    "webp": (lambda: b"RIFF\0\0\0\0WEBP", "damaged WEBP file"),
    "a sound": (lambda: b"RIFF\0\0\0\0WAVE" + bytes(30), "damaged WEBP file"),
    "heic": (lambda: b"\0\0\0\x18ftypheic" + bytes(20), "HEIC|HEIF"),
    "avif": (lambda: b"\0\0\0\x18ftypavif" + bytes(20), "damaged AVIF file"),
    "bmp": (lambda: b"BM" + bytes(40), "damaged BMP file"),
    "video": (lambda: b"\0\0\0\x18ftypmp42" + bytes(20), "video"),
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
    "jpeg: no marker": (lambda: b"\xff\xd8\xff\xe0\0\x04ab" + bytes(40), "is a JPEG that Pillow does not read"),
    "jpeg: no pixels": (lambda: jpeg_with_size(0, 5), "is a JPEG that Pillow does not read"),
    "jpeg: a bomb": (lambda: jpeg_with_size(65535, 65535), "over the limit"),
    "jpeg: 12 bits": (lambda: bytes(imagecodecs.jpeg_encode(_twelve_bits(), bitspersample=12)), "12-bit"),
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
    "fits: absurd": (lambda: fits_file(NAXIS1=2**40, NAXIS2=2**40), "over the limit|NAXIS1 is"),
    "fits: negative size": (lambda: fits_file(NAXIS1=-5), "NAXIS1 is -5"),
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
    refused(lambda: read_picture(tmp_path / "none.png"), "no such file")
    refused(lambda: read_picture(tmp_path / "two\nlines.png"), "two lines.png: no such file")
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
