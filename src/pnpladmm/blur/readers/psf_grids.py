"""PSF grids in FITS files, as photutils reads them: STDPSF and WebbPSF.

- STDPSF (STScI): planes with y slowest, positions from 1, four samples per pixel. Files of several detectors (WFPC2,
  WFC3/UVIS, ACS/WFC, NIRCam) need `index`: the detector, from left to right, then from low to high y.
- WebbPSF / STPSF: `DET_YXn` holds (y, x) (photutils up to 3.0 reads them the wrong way round). Since WebbPSF
  1.3 the planes are written sorted by y, then x, while the keys stay in the order of computation.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pnpladmm.blur.arrays import Array, check_numbers, reading
from pnpladmm.blur.forms.grid import psf_grid
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import Options
from pnpladmm.blur.readers.fits_summary import fits_summary
from pnpladmm.blur.registry import READERS, SIGNATURE
from pnpladmm.gate import Field, shown, take
from pnpladmm.pictures.fits_structure import checked_content, opened
from pnpladmm.tensors import InputError

SEVERAL_DETECTORS = {36: (2, 2, 800), 56: (1, 2, 2048), 90: (1, 2, 2048), 200: (4, 2, 2048)}
"""STDPSF files that hold the PSFs of more than one detector, by their planes: detectors across, up, pixels of each."""

FARTHEST = 1e9
"""Pixels."""
COUNT = Field(int, 1, 1000)
SAMPLES = Field(float, 1, 1000)
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?"


@READERS.register("stdpsf")
class StdpsfReader:
    """STDPSF grids, told by NXPSFS."""

    generality: ClassVar[int] = SIGNATURE

    def matches(self, path: Path) -> bool:
        """Is it a FITS file with NXPSFS in its first header?"""
        return "NXPSFS" in fits_summary(path).header

    def read(self, path: Path, options: Options) -> Blur:
        """The grid of one detector."""
        name = str(path)
        header, psfs = _header_and_psfs(path)
        positions, chosen = _stdpsf(name, header, len(psfs), options.index)
        options = options.but(oversampling=options.oversampling or 4.0)
        return psf_grid(name, psfs[chosen], positions, options, "a STDPSF grid (photutils)")


@READERS.register("webbpsf")
class WebbpsfReader:
    """WebbPSF and STPSF grids, told by DET_YX0 and OVERSAMP."""

    generality: ClassVar[int] = SIGNATURE

    def matches(self, path: Path) -> bool:
        """Is it a FITS file with DET_YX0 and OVERSAMP, and not STDPSF's NXPSFS, in its first header?"""
        header = fits_summary(path).header
        return "DET_YX0" in header and "OVERSAMP" in header and "NXPSFS" not in header

    def read(self, path: Path, options: Options) -> Blur:
        """The grid."""
        name = str(path)
        header, psfs = _header_and_psfs(path)
        positions = _webbpsf(name, header, len(psfs))
        options = options.but(oversampling=options.oversampling or take(name, header, "OVERSAMP", SAMPLES))
        return psf_grid(name, psfs, positions, options, "a WebbPSF grid (photutils)")


def _header_and_psfs(path: Path) -> tuple[Any, Array]:
    """The first header, and its planes as (N, k, k)."""
    with reading(path), opened(checked_content(path, str(path)), str(path)) as hdus:
        header, data = hdus[0].header, hdus[0].data
    psfs = check_numbers(str(path), data)
    psfs = psfs[None] if psfs.ndim == 2 else psfs
    if psfs.ndim != 3:
        raise InputError(f"{path}: the PSFs have shape {psfs.shape}: give (N, k, k)")
    return header, psfs


def _stdpsf(name: str, header: Any, count: int, detector: int | None) -> tuple[Array, Array]:
    """Places (N, 2) of one detector's PSFs, and which planes they are."""
    nx, ny = take(name, header, "NXPSFS", COUNT), take(name, header, "NYPSFS", COUNT)
    if nx * ny != count:
        raise InputError(f"{name}: {count} PSFs for a grid of {ny}x{nx}: they must match")
    x, y = _nodes(name, header, "IPSFX", "ABCD", nx), _nodes(name, header, "JPSFY", "AB", ny)
    planes = np.arange(count).reshape(ny, nx)
    if count in SEVERAL_DETECTORS:
        across, up, side = SEVERAL_DETECTORS[count]
        if detector is None or not 0 <= detector < across * up:
            raise InputError(f"{name}: holds {across * up} detectors: say which (index 0 to {across * up - 1})")
        row, column = divmod(detector, across)
        rows, columns = (slice(i * n, (i + 1) * n) for i, n in ((row, ny // up), (column, nx // across)))
        x, y, planes = x[columns] - column * side, y[rows] - row * side, planes[rows, columns]
    return np.stack([np.tile(x, len(y)), np.repeat(y, len(x))], 1), planes.ravel()


def _nodes(name: str, header: Any, key: str, lines: str, count: int) -> Array:
    """Coordinates of a STDPSF grid along one axis, counted from 0: a key each, or five to a line."""
    if f"{key}01" in header:
        values = [header.get(f"{key}{i:02d}") for i in range(1, count + 1)]
    else:
        values = " ".join(str(header.get(f"{key}{letter}5", "")) for letter in lines).split()
    try:
        nodes = np.array([float(value) for value in values if not isinstance(value, bool)])
    except (TypeError, ValueError):
        nodes = np.zeros(0)
    if len(nodes) != count or not (np.abs(nodes) < FARTHEST).all():
        raise InputError(f"{name}: the header has no {count} coordinates {key}..: not a STDPSF grid")
    return nodes - 1


def _webbpsf(name: str, header: Any, count: int) -> Array:
    places = []
    for i in range(count):
        text = str(header.get(f"DET_YX{i}", ""))
        numbers = [float(found) for found in re.findall(NUMBER, text)]
        if len(numbers) != 2 or max(map(abs, numbers)) > FARTHEST:
            raise InputError(f"{name}: DET_YX{i} is {shown(text)}: {count} PSFs need a place (y, x) each")
        places.append((numbers[1], numbers[0]))
    positions = np.array(places)
    version = re.match(r"(\d{1,6})\.(\d{1,6})", str(header.get("VERSION", "")))
    if version and (int(version[1]), int(version[2])) >= (1, 3):
        positions = positions[np.lexsort((positions[:, 0], positions[:, 1]))]
    return positions
