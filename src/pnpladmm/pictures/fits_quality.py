"""Errors and flags beside the picture in a FITS file: what HST, JWST, Gemini, DESI and astropy call them.

| extension | holds | used as |
|---|---|---|
| ERR, ERROR, UNCERT, SIGMA | standard deviation (UNCERT: what its UTYPE says) | variance |
| VAR, VARIANCE | variance | variance |
| IVAR, INVVAR | inverse variance | variance |
| DQ, MASK | flags | pixels that do not count |
| WHT | weight, often exposure time | 0: no data |

Where an error is 0, negative or not finite there is no data. In flags of JWST and Roman bit 1 (DO_NOT_USE) decides, the
others only describe. For HST warm and unstable pixels count, as AstroDrizzle has them by default; anything else that
is not 0 does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pnpladmm.pictures.arrays import Array

ERRORS = ("ERR", "ERROR", "UNCERT", "SIGMA")
VARIANCES = ("VAR", "VARIANCE")
INVERSE = ("IVAR", "INVVAR")
FLAGS = ("DQ", "MASK")
UTYPES = {"STDDEVUNCERTAINTY": 1, "VARIANCEUNCERTAINTY": 2, "INVERSEVARIANCE": -2}
DO_NOT_USE = 1
HARMLESS_OF_HST = {"ACS": 32 | 64, "WFC3": 32 | 64, "WFPC2": 0}
"""Bits that AstroDrizzle lets count: unstable and warm pixels."""


def planes_beside(hdus: Any, index: int, shape: tuple[int, ...]) -> dict[str, Any]:
    """Names and HDUs of errors and flags that belong to the image with this number: same version, same shape."""
    version = hdus[index].ver
    found: dict[str, Any] = {}
    for number, hdu in enumerate(hdus):
        name = str(hdu.name).strip().upper()
        known = name in (*ERRORS, *VARIANCES, *INVERSE, *FLAGS, "WHT")
        if known and number != index and hdu.is_image and hdu.ver == version and tuple(hdu.shape or ()) == shape:
            found.setdefault(name, hdu)
    return found


def variance_and_dead(
    planes: dict[str, tuple[Array, Any]], primary: Any
) -> tuple[Array | None, Array | None, tuple[str, ...]]:
    """The variance (None where no plane holds it), True on pixels that do not count, and notes.

    `planes` are values and header of what `planes_beside` found, `primary` is the file's first header.
    """
    variance: Array | None = None
    dead: Array | None = None
    notes: list[str] = []
    for name in (*ERRORS, *VARIANCES, *INVERSE):
        if name in planes:
            variance = _variance(name, *planes[name])
            good = np.isfinite(variance) & (variance > 0)
            if not good.any():
                notes.append(f"its {name} extension holds no number above 0 and is left out")
                variance = None
                continue
            level = float(np.sqrt(np.median(variance[good])))
            notes.append(f"errors from its {name} extension, {level:.4g} at the median, where no other noise is given")
            dead = _joined(dead, ~good, f"have no error in {name}", notes)
            variance = np.where(good, variance, 1.0)
            break
    for name in FLAGS:
        if name in planes:
            flagged, which = _flagged(planes[name][0], primary)
            dead = _joined(dead, flagged, f"are flagged by {name}{which}", notes)
    if "WHT" in planes:
        dead = _joined(dead, ~(planes["WHT"][0] > 0), "have weight 0 in WHT", notes)
    return variance, dead, tuple(notes)


def _variance(name: str, values: Array, header: Any) -> Array:
    values = values.astype(np.float64)
    kind = 2 if name in VARIANCES else -2 if name in INVERSE else 1
    if name == "UNCERT":
        kind = UTYPES.get(str(header.get("UTYPE", "")).strip().upper(), 1)
    with np.errstate(all="ignore"):
        good = np.where(values > 0, values, np.nan)
        return good**2 if kind == 1 else good if kind == 2 else 1 / good


def _flagged(flags: Array, primary: Any) -> tuple[Array, str]:
    """True on flagged pixels, and which bits decide."""
    bits = flags.astype(np.int64) if flags.dtype.kind in "iu" else (np.nan_to_num(flags) != 0).astype(np.int64)
    telescope = str(primary.get("TELESCOP", "")).strip().upper()
    if telescope in ("JWST", "ROMAN"):
        return (bits & DO_NOT_USE) != 0, " (bit 1, DO_NOT_USE)"
    harmless = HARMLESS_OF_HST.get(str(primary.get("INSTRUME", "")).strip().upper(), 0) if telescope == "HST" else 0
    return (bits & ~harmless) != 0, f" (all bits but {harmless})" if harmless else ""


def _joined(dead: Array | None, more: Array, words: str, notes: list[str]) -> Array | None:
    count = int(more.sum())
    if not count:
        return dead
    notes.append(f"{count} pixels ({count / more.size:.2%}) {words} and do not count")
    return more if dead is None else dead | more
