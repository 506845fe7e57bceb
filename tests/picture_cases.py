"""What the tests of picture files share: random samples, a copy made by reading and writing, and small files."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from pnpladmm.pictures import read_picture, write_picture
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
    assert written.clipped_samples == 0
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


def png(
    extra: Sequence[tuple[bytes, bytes]] = (), size: tuple[int, int] = (W, H), bits: int = 8, kind: int = 0
) -> bytes:
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


def refused(call: Callable[[], object], words: str) -> None:
    """One line, with these words."""
    with pytest.raises(InputError, match=words) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
