"""BMP, WebP, AVIF and HEIC (with Pillow): 8 bits, grey or RGB. WebP and BMP are written without loss."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pnpladmm.files import optional
from pnpladmm.gate import check_size
from pnpladmm.pictures.checks import read_bytes
from pnpladmm.pictures.raw import Format, Raw
from pnpladmm.tensors import InputError, one_line

QUALITY = 100
"""Of AVIF and HEIC, without subsampling of colour."""
BOX_SIZES = range(16, 80, 4)
"""Of the box at the beginning of AVIF and HEIC files, which names the kinds of the file."""
DEEP = 0x40
"""The bit of an AV1 configuration that says: more than 8 bits."""


class Nothing:
    """These formats hold no metadata of their own beside those that all formats share."""


@dataclass(frozen=True)
class Kind:
    """How Pillow knows a format. It is the reader and the writer of the format."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    """Of `Image.save`."""

    def read(self, path: Path, name: str, max_bytes: int) -> Raw:
        """The picture in a file; animations are refused."""
        from PIL import Image

        from pnpladmm.pictures.pil import raw_of

        self._prepare()
        content = read_bytes(path, name, max_bytes)
        try:
            # The class and not Image.open, whose limit of its own hides why a file is refused.
            Image.preinit()
            Image.init()
            image: Image.Image = Image.OPEN[self.name][0](io.BytesIO(content), str(path))
            check_size(name, (image.height, image.width, len(image.getbands())), 1, max_bytes)
            frames = getattr(image, "n_frames", 1)
            if frames != 1:
                raise InputError(f"{name} holds {frames} pictures: save the one that is meant as PNG")
            image.load()
        except (OSError, SyntaxError, ValueError, EOFError) as error:
            if isinstance(error, InputError):
                raise
            why = one_line(str(error)) or type(error).__name__
            raise InputError(
                f"{name} is a damaged {self.name} file, or one that Pillow does not read ({why}): "
                "get the file again, or convert it to PNG"
            ) from None
        raw = raw_of(image, name)
        deep = content.find(b"av1C")
        if self.name == "AVIF" and 0 < deep < len(content) - 6 and content[deep + 6] & DEEP:
            raw = replace(raw, notes=(*raw.notes, "its samples of more than 8 bits are read as 8 bits"))
        return raw

    def write(self, path: Path, raw: Raw, name: str) -> tuple[list[str], int]:
        """Write samples with 1 or 3 channels."""
        from PIL import Image

        self._prepare()
        samples = raw.samples if raw.alpha is None else np.concatenate([raw.samples, raw.alpha], 1)
        pixels = np.ascontiguousarray(samples[0].transpose(1, 2, 0))
        mode = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[pixels.shape[2]]
        image = Image.frombytes(mode, (pixels.shape[1], pixels.shape[0]), pixels.tobytes())
        metadata, notes = raw.metadata, []
        more: dict[str, Any] = {}
        if self.name == "BMP":
            notes = ["BMP holds no colour profile and no EXIF"] if metadata.icc or metadata.exif else []
        else:
            held = {"icc_profile": metadata.icc, "exif": metadata.exif, "xmp": metadata.xmp}
            more = {key: value for key, value in held.items() if value}
        image.save(path, self.name, **dict(self.options), **more)
        return notes, 0

    def _prepare(self) -> None:
        """HEIC is read by a package of its own."""
        if self.name == "HEIF":
            optional("pillow_heif", "a HEIC file").register_heif_opener()


def _format(name: str, kind: Kind, signatures: tuple[bytes, ...], suffixes: tuple[str, ...], alpha: bool) -> Format:
    return Format(
        name, signatures, suffixes, ("uint8",), Nothing, kind.read, kind.write,
        is_flat=True, holds_alpha=alpha, holds_cmyk=False,
    )  # fmt: skip


def _boxes(*brands: bytes) -> tuple[bytes, ...]:
    """The first bytes of files whose first box names one of these kinds."""
    return tuple(bytes([0, 0, 0, size]) + b"ftyp" + brand for size in BOX_SIZES for brand in brands)


BMP = _format("BMP", Kind("BMP"), (b"BM",), (".bmp",), alpha=False)
WEBP = _format("WebP", Kind("WEBP", (("lossless", True), ("exact", True))), (b"RIFF",), (".webp",), alpha=True)
AVIF = _format(
    "AVIF", Kind("AVIF", (("quality", QUALITY), ("subsampling", "4:4:4"))), _boxes(b"avif", b"avis"), (".avif",), True
)
HEIC = _format(
    "HEIC",
    Kind("HEIF", (("quality", QUALITY), ("chroma", 444))),
    _boxes(b"heic", b"heix", b"heim", b"heis", b"mif1"),
    (".heic", ".heif"),
    alpha=True,
)
FORMATS = (BMP, WEBP, AVIF, HEIC)
