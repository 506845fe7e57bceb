"""PSFs on a regular grid of places: this package's NPZ, and the FITS files that photutils reads.

Between grid points the PSF is the bilinear mix of its four neighbours, beyond the grid that of the nearest
edge, as photutils' GriddedPSFModel has it; the mix is that of the source's own place (weight, then convolve).

- NPZ: `psfs` (N, k, k) with `positions` (N, 2) as x, y, or (ny, nx, k, k) with `x` (nx) and `y` (ny); pixels from
  0. With `oversampling` (a number, or y, x) their origin is the middle and they are surface brightness, as in
  photutils; without, they are kernels with their centre at `k // 2`.
- STDPSF (STScI): planes with y slowest, positions from 1, four samples a pixel. Files of several detectors (WFPC2,
  WFC3/UVIS, ACS/WFC, NIRCam) need `index`: the detector, from left to right, then from low to high y.
- WebbPSF / STPSF: `DET_YXn` holds (y, x) (photutils up to 3.0 reads them the wrong way round). Since WebbPSF
  1.3 the planes are written sorted by y, then x, while the keys stay in the order of computation.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pnpladmm.blur.arrays import Array, check_numbers, fits_module, reading
from pnpladmm.blur.conditioning import as_bank, condition, crop_margins, sampled, spread
from pnpladmm.blur.model import Blur
from pnpladmm.blur.readers.options import Options, Size
from pnpladmm.tensors import InputError

SEVERAL_DETECTORS = {36: (2, 2, 800), 56: (1, 2, 2048), 90: (1, 2, 2048), 200: (4, 2, 2048)}
"""STDPSF files that hold the PSFs of more than one detector, by their planes: detectors across, up, pixels of each."""


def grid_archive(name: str, arrays: dict[str, Any], options: Options) -> tuple[Array, Array, Options]:
    """PSFs (N, [C,] k, k), positions (N, 2) as (x, y), and the options with the file's oversampling."""
    psfs = check_numbers(f"{name}: psfs", arrays["psfs"])
    if "positions" in arrays:
        positions = check_numbers(f"{name}: positions", arrays["positions"])
    elif "x" in arrays and "y" in arrays:
        x, y = (check_numbers(f"{name}: {k}", arrays[k]).ravel() for k in ("x", "y"))
        if psfs.ndim >= 4 and psfs.shape[:2] == (len(y), len(x)):
            psfs = psfs.reshape(-1, *psfs.shape[2:])
            x, y = np.tile(x, len(y)), np.repeat(y, len(x))
        if len(x) != len(y):
            raise InputError(f"{name}: {len(x)} x and {len(y)} y for psfs of shape {psfs.shape}: they must match")
        positions = np.stack([x, y], 1)
    else:
        raise InputError(f"{name}: psfs without places: add positions (N, 2) as x, y, or x and y")
    if positions.ndim != 2 or positions.shape[1] != 2 or len(positions) != len(psfs):
        raise InputError(f"{name}: {len(psfs)} psfs, positions of shape {positions.shape}: give (N, 2) as x, y")
    if "oversampling" in arrays and options.oversampling is None:
        factors = check_numbers(f"{name}: oversampling", arrays["oversampling"]).ravel().tolist()
        options = options.but(oversampling=factors[0] if len(factors) == 1 else tuple(factors))
    return psfs, positions, options


def grid_fits(path: Path, options: Options) -> Blur:
    """A STDPSF or WebbPSF grid."""
    fits = fits_module()
    with reading(path), fits.open(path, memmap=False, ignore_missing_end=True) as hdus:
        header, data = hdus[0].header, hdus[0].data
    name = str(path)
    psfs = check_numbers(name, data)
    psfs = psfs[None] if psfs.ndim == 2 else psfs
    if psfs.ndim != 3:
        raise InputError(f"{name}: the PSFs have shape {psfs.shape}: give (N, k, k)")
    if "NXPSFS" in header:
        positions, chosen = _stdpsf(name, header, len(psfs), options.index)
        psfs, oversampling, source = psfs[chosen], 4.0, "a STDPSF grid"
    else:
        positions, oversampling, source = _webbpsf(name, header, len(psfs)), float(header["OVERSAMP"]), "a WebbPSF grid"
    factors = options.oversampling or oversampling
    return psf_grid(name, psfs, positions, options.but(oversampling=factors), f"{source} (photutils)")


def is_regular(positions: Array) -> bool:
    """Do the places (N, 2) form a full rectangular grid, each once?"""
    x, y = np.unique(positions[:, 0]), np.unique(positions[:, 1])
    return len(positions) == len(x) * len(y) == len(np.unique(positions, axis=0))


def psf_grid(name: str, psfs: Array, positions: Array, options: Options, source: str = "a grid of PSFs") -> Blur:
    """The blur of PSFs (N, [C,] k, k) at places (N, 2) that form a rectangular grid."""
    size = options.needed_size(name, "a grid of PSFs")
    if not is_regular(positions):
        raise InputError(f"{name}: {len(positions)} places do not form a rectangular grid")
    factors = options.factors()
    if factors is None:
        bank, notes = condition(name, psfs, options.normalise, options.recentre, options.background)
    else:
        bank, notes = _sampled_bank(name, psfs, factors, options)
    x, y = np.unique(positions[:, 0]), np.unique(positions[:, 1])
    order = np.lexsort((positions[:, 0], positions[:, 1]))  # y slowest, as the weights below
    bank, weights = bank[order], bilinear(x, y, size)
    used = np.abs(weights).max((1, 2)) > 0
    if not used.all():
        notes.append(f"{int((~used).sum())} of {len(used)} PSFs have no part in this picture and are left out")
        bank, weights = bank[used], weights[used]
    if x[0] > size[1] - 1 or x[-1] < 0 or y[0] > size[0] - 1 or y[-1] < 0:
        notes.append(
            f"the grid (x {spread(x)}, y {spread(y)}) lies outside the {size[0]}x{size[1]} picture: check its origin"
        )
    return Blur(
        torch.from_numpy(bank),
        torch.from_numpy(weights),
        options.order or "weight-then-convolve",
        tuple(notes),
        f"{source}, {len(y)}x{len(x)} places",
    )


def bilinear(x: Array, y: Array, size: Size) -> Array:
    """Weights (ny * nx, H, W) float32 of grid points on every pixel; y slowest."""
    rows, columns = hats(y, size[0]), hats(x, size[1])
    return np.einsum("jh,iw->jihw", rows, columns).reshape(-1, *size)


def hats(nodes: Array, count: int) -> Array:
    """(n, count) float32: hat functions of sorted nodes at 0 .. count-1, constant beyond the ends."""
    at = np.arange(count, dtype=float)
    return np.stack([np.interp(at, nodes, unit) for unit in np.eye(len(nodes))]).astype(np.float32)


def _sampled_bank(name: str, psfs: Array, factors: tuple[float, float], options: Options) -> tuple[Array, list[str]]:
    bank = as_bank(name, sampled(as_bank(name, psfs), factors))
    notes = [f"{factors[0]:g}x{factors[1]:g} samples a pixel, taken at the centres of detector pixels"]
    if options.recentre:
        bank, done = condition(name, bank, normalise=False, recentre=True)
        notes += done
    sums = bank.sum((-2, -1))
    mean, product = float(sums.mean()), factors[0] * factors[1]
    if options.normalise and not 0.8 < mean < 1.25:
        # Files whose samples sum to 1 are common; photutils wants them to sum to the product of the factors.
        factor, why = (
            (product, "samples summed to 1") if 0.8 < mean * product < 1.25 else (1 / mean, "to a mean sum of 1")
        )
        bank = bank * factor
        notes.append(f"normalised: multiplied by {factor:.4g} ({why}), so that brightness is kept")
        sums = sums * factor
    notes.append(f"PSFs sum to {spread(sums)} inside their stamps")
    bank, cropped = crop_margins(bank)
    return bank, notes + cropped


def _stdpsf(name: str, header: Any, count: int, detector: int | None) -> tuple[Array, Array]:
    """Places (N, 2) of one detector's PSFs, and which planes they are."""
    nx, ny = int(header["NXPSFS"]), int(header["NYPSFS"])
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
    if len(values) != count or None in values:
        raise InputError(f"{name}: the header has no {count} coordinates {key}..: not a STDPSF grid")
    return np.array(values, dtype=float) - 1


def _webbpsf(name: str, header: Any, count: int) -> Array:
    places = []
    for i in range(count):
        text = str(header.get(f"DET_YX{i}", ""))
        numbers = re.findall(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?", text)
        if len(numbers) != 2:
            raise InputError(f"{name}: DET_YX{i} is {text!r}: {count} PSFs need a place (y, x) each")
        places.append((float(numbers[1]), float(numbers[0])))
    positions = np.array(places)
    version = re.match(r"(\d+)\.(\d+)", str(header.get("VERSION", "")))
    if version and (int(version[1]), int(version[2])) >= (1, 3):
        positions = positions[np.lexsort((positions[:, 0], positions[:, 1]))]
    return positions
