"""PSFs with the places where they were seen: a grid if the places form one, else scattered."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pnpladmm.blur.arrays import Array, check_numbers
from pnpladmm.blur.forms.grid import is_regular, psf_grid
from pnpladmm.blur.forms.scattered import scattered_psfs
from pnpladmm.blur.interpolation import check_places
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import FileOrArray, Options
from pnpladmm.gate import read_text, shown
from pnpladmm.tensors import InputError

ONE_BASED = ("IMAGE",)
"""Columns that end so (X_IMAGE, XWIN_IMAGE: SExtractor's) count pixels from 1."""
LARGEST_TABLE, LONGEST_LINE, MOST_LINES = 1 << 24, 10_000, 100_000
"""Bytes, characters of a line, and lines."""


def psfs_at(name: str, psfs: Array, places: Array, options: Options) -> Blur:
    """The blur of PSFs (N, [C,] k, k) seen at places (N, 2) as (x, y), pixels from 0."""
    if psfs.ndim not in (3, 4):
        raise InputError(f"{name}: the PSFs have shape {psfs.shape}: give (N, k, k)")
    check_places(name, places)
    if len(psfs) == len(places) and len(places) > 3 and is_regular(places) and min(np.ptp(places, axis=0)) > 0:
        return psf_grid(name, psfs, places, options)
    return scattered_psfs(name, psfs, places, options)


def from_named_psfs(name: str, arrays: Mapping[str, Any], options: Options) -> Blur:
    """The blur of named arrays `psfs` and `positions`, or `x` and `y`, with `oversampling` if it is there.

    `psfs` (N, k, k) with `positions` (N, 2) as x, y, or (ny, nx, k, k) with `x` (nx) and `y` (ny); pixels from
    0. With `oversampling` (a number, or y, x) their origin is the middle and they are surface brightness, as in
    photutils; without, they are kernels with their centre at `k // 2`.
    """
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
    return psfs_at(name, psfs, positions, options)


def read_positions(given: FileOrArray) -> tuple[Array, list[str]]:
    """Places (N, 2) as (x, y), pixels from 0: an array, or a CSV whose header names x and y (or SExtractor's names)."""
    if isinstance(given, str | Path):
        return _read_table(Path(given))
    places = check_numbers("positions", given)
    if places.ndim != 2 or places.shape[1] != 2:
        raise InputError(f"positions: shape {places.shape}: give (N, 2), x and y of each PSF")
    return places, []


def _read_table(path: Path) -> tuple[Array, list[str]]:
    """Places of a CSV, and a note if its columns count from 1."""
    text = read_text(path, LARGEST_TABLE, "a table of places (CSV)")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        raise InputError(f"{path}: holds no places: give a CSV with columns x, y")
    if max(map(len, lines)) > LONGEST_LINE or len(lines) > MOST_LINES:
        raise InputError(
            f"{path}: lines of {max(map(len, lines))} characters, {len(lines)} of them: no table of places"
        )
    delimiter = next((d for d in (",", ";", "\t") if d in lines[0]), None)
    rows = [line.split() for line in lines] if delimiter is None else list(csv.reader(lines, delimiter=delimiter))
    if not rows or not rows[0]:
        raise InputError(f"{path}: holds no places: give a CSV with columns x, y")
    header = [cell.strip().strip('"') for cell in rows[0]]
    x, y = (_column(header, letter) for letter in "xy")
    if x is None or y is None:
        raise InputError(f"{path}: has columns {shown(', '.join(header[:6]))}: name two of them x and y")
    places = []
    for number, row in enumerate(rows[1:], 2):
        try:
            places.append((float(row[x]), float(row[y])))
        except (ValueError, IndexError):
            raise InputError(f"{path}: line {number} has no numbers for x and y: {shown(' '.join(row))}") from None
    if not places or not np.isfinite(places).all():
        raise InputError(f"{path}: holds no places, or places that are not finite")
    positions = np.array(places)
    if header[x].upper().endswith(ONE_BASED):
        return positions - 1, [f"{header[x]}, {header[y]} count pixels from 1: 1 subtracted"]
    return positions, []


def _column(header: list[str], letter: str) -> int | None:
    """The column called x, X, x_pixel, XWIN_IMAGE ...; the shortest such name wins."""
    names = [
        (len(h), i)
        for i, h in enumerate(header)
        if h.lower() == letter or h.lower().startswith((f"{letter}_", f"{letter}win_", f"{letter}["))
    ]
    return min(names)[1] if names else None
