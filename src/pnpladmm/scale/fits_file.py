"""FITS files written from a picture that need not fit into memory, with the header of the file that was read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pnpladmm.files import StrictFile, optional, replacing
from pnpladmm.pictures.arrays import Array

BLOCK = 2880
"""Bytes; header and data are filled up to a multiple of it."""
ROWS = 512
"""Rows that are written at once."""
NOT_KEPT = ("BSCALE", "BZERO", "BLANK", "CHECKSUM", "DATASUM", "DATAMIN", "DATAMAX")
"""Cards of the old header that are about its samples."""


def write_fits(path: Path, picture: Array, header: Any) -> None:
    """Write samples (C, H, W) as the primary image; unsigned integers as FITS has them, with BZERO."""
    fits = optional("astropy.io.fits", "FITS")
    size, kind = picture.dtype.itemsize, picture.dtype.kind
    offset = 1 << (8 * size - 1) if kind == "u" and size > 1 else -128 if (kind, size) == ("i", 1) else 0
    shape = picture.shape if len(picture) > 1 else picture.shape[1:]
    cards = [("SIMPLE", True), ("BITPIX", (-8 if kind == "f" else 8) * size), ("NAXIS", len(shape))]
    cards += [(f"NAXIS{i}", n) for i, n in enumerate(reversed(shape), 1)]
    new = fits.Header(cards)
    old = fits.Header() if header is None else header.copy(strip=True)
    for card in NOT_KEPT:
        old.remove(card, ignore_missing=True, remove_all=True)
    new.extend(old, update=False)
    if offset:
        new["BSCALE"], new["BZERO"] = 1, offset
    new.add_history("restored with pnpladmm, in parts")
    stored = np.dtype(f">f{size}" if kind == "f" else "u1" if size == 1 else f">i{size}")
    with replacing(path) as beside, StrictFile(beside) as file:
        file.write(new.tostring(sep="", endcard=True, padding=True).encode("ascii"))
        for plane in picture:
            for first in range(0, len(plane), ROWS):
                part = plane[first : first + ROWS]
                file.write((part.astype(np.int64) - offset if offset else part).astype(stored).tobytes())
        file.write(bytes(-picture.nbytes % BLOCK))
