"""PSFEx files for the tests, and what their coefficients mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from astropy.io import fits

from blur_cases import comet_at

ZERO, SCALE = (29.0, 25.5), (30.0, 24.0)


def planes_at(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Six smooth functions of the offset (pixels, x right, y down), one a coefficient: 1, x, x^2, y, x y, y^2."""
    base = comet_at(u, v, 1.5)
    return np.stack(
        [
            base,
            0.10 * (comet_at(u, v, 1.8, turn=60) - base),
            0.05 * (comet_at(u, v, 1.6, turn=90) - base),
            0.12 * (comet_at(u, v, 1.7, tail=3.5) - base),
            0.06 * (comet_at(u, v, 1.9) - base),
            -0.04 * (comet_at(u, v, 1.7, turn=200) - base),
        ]
    )


def polynomial(row: int, column: int) -> np.ndarray:
    """PSFEx's terms for a source in this pixel, counted from 0 here and from 1 in the file."""
    x, y = (column + 1 - ZERO[0]) / SCALE[0], (row + 1 - ZERO[1]) / SCALE[1]
    return np.array([1, x, x**2, y, x * y, y**2])


def write_psfex(
    path: Path, step: float, side: int, factor: float = 1.0, chips: int = 1, **changes: object
) -> np.ndarray:
    """A table as PSFEx 3 writes it; returns the planes."""
    v, u = (np.mgrid[:side, :side] - side // 2) * step
    planes = (factor * planes_at(u, v)).astype(np.float32)
    column = fits.Column("PSF_MASK", f"{planes.size}E", dim=f"({side},{side},6)", array=planes[None])
    tables = []
    for _ in range(chips):
        table = fits.BinTableHDU.from_columns([column], name="PSF_DATA")
        cards = {
            "LOADED": 80,
            "ACCEPTED": 70,
            "CHI2": 1.1,
            "POLNAXIS": 2,
            "POLGRP1": 1,
            "POLNAME1": "X_IMAGE",
            "POLZERO1": ZERO[0],
            "POLSCAL1": SCALE[0],
            "POLGRP2": 1,
            "POLNAME2": "Y_IMAGE",
            "POLZERO2": ZERO[1],
            "POLSCAL2": SCALE[1],
            "POLNGRP": 1,
            "POLDEG1": 2,
            "PSF_FWHM": 3.6,
            "PSF_SAMP": step,
            "PSFNAXIS": 3,
            "PSFAXIS1": side,
            "PSFAXIS2": side,
            "PSFAXIS3": 6,
            **changes,
        }
        for key, value in cards.items():
            if value is not None:
                table.header[key] = value
        tables.append(table)
    fits.HDUList([fits.PrimaryHDU(), *tables]).writeto(path)
    return planes
