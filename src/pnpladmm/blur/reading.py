"""Blur files in and out: `read_blur` finds the reader that fits, `write_blur` saves what it read."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from pnpladmm.blur.arrays import Array, check_numbers, fits_module, read_archive, read_array, reading, sniff
from pnpladmm.blur.conditioning import same_size
from pnpladmm.blur.model import Blur
from pnpladmm.blur.readers.bank import kernel_bank
from pnpladmm.blur.readers.grid import grid_archive, grid_fits, is_regular, psf_grid
from pnpladmm.blur.readers.maps import map_archive, vector_map, width_map
from pnpladmm.blur.readers.options import Kind, Options
from pnpladmm.blur.readers.psfex import is_psfex, psfex
from pnpladmm.blur.readers.recipe import read_recipe
from pnpladmm.blur.readers.scattered import read_positions, scattered_psfs
from pnpladmm.blur.readers.single import single_kernel
from pnpladmm.blur.readers.weighted import NAMES, weighted_kernels
from pnpladmm.operators.blur import Order
from pnpladmm.tensors import InputError

MAPS = ("sigma", "radius", "motion")
COMPRESSIBLE = 1 << 25
"""Bytes; larger weights are written as they are: packing smooth maps takes long and saves little."""
STACKS = (".tif", ".tiff", ".npy", ".fits", ".fit")


def read_blur(
    path: str | Path,
    size: tuple[int, int] | None = None,
    *,
    labels: str | Path | None = None,
    positions: str | Path | None = None,
    kind: Kind | None = None,
    index: int | None = None,
    feather: float | None = None,
    order: Order | None = None,
    normalise: bool = True,
    recentre: bool = False,
    background: float | str | None = None,
    oversampling: float | tuple[float, float] | None = None,
    tolerance: float = 0.01,
    most: int | None = None,
) -> Blur:
    """The blur in a file, whatever it is, for a picture of `size` (H, W).

    One kernel (PNG, TIFF, NPY, FITS, MAT); a bank of kernels with `labels`; kernels and weights (NPZ, MAT); a grid of
    PSFs (NPZ, STDPSF and WebbPSF FITS); a stack of PSFs with `positions`; PSFEx; a map (`kind`); a YAML recipe.
    A stack finds its places in the CSV of its name beside it, a bank its map in `NAME.labels.png` or `.npy`.
    `bank.mat#3` is `index=3`. The other settings are those of `readers.options.Options`.
    """
    path = Path(path)
    numbered = re.fullmatch(r"(.+)#(\d+)", str(path))
    if numbered and index is None and not path.exists():
        path, index = Path(numbered[1]), int(numbered[2])
    options = Options(
        size=size,
        labels=None if labels is None else Path(labels),
        positions=None if positions is None else Path(positions),
        kind=kind,
        index=index,
        feather=feather,
        order=order,
        normalise=normalise,
        recentre=recentre,
        background=background,
        oversampling=oversampling,
        tolerance=tolerance,
        most=most,
    )
    blur = _read(path, options)
    kh, kw = blur.kernel_size
    height, width = blur.size
    if kh > height or kw > width:
        raise InputError(
            f"{path}: kernels are {kh}x{kw}, the picture {height}x{width}: a kernel must fit into the picture"
        )
    return blur


def write_blur(path: str | Path, blur: Blur) -> None:
    """Kernels, weights, order, and where they came from as NPZ, which `read_blur` reads back exactly."""
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise InputError(f"{path}: blurs are written as .npz")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        save = np.savez_compressed if blur.weights.nbytes < COMPRESSIBLE else np.savez
        with beside.open("wb") as file:
            save(
                file,
                kernels=blur.kernels.cpu().numpy(),
                weights=blur.weights.cpu().numpy(),
                order=np.array(blur.order),
                source=np.array(blur.source),
            )
        os.replace(beside, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        beside.unlink(missing_ok=True)


def _read(path: Path, options: Options) -> Blur:
    form = sniff(path)
    if form in ("npz", "mat", "hdf"):
        return _from_archive(path, read_archive(path), options)
    if form == "fits":
        return _from_fits(path, options)
    if form != "text":
        return _from_array(path, read_array(path), options)
    if path.suffix.lower() in (".yaml", ".yml"):
        found = read_recipe(path, options)
        return found if isinstance(found, Blur) else _read(*found)
    if path.suffix.lower() == ".csv":
        stack = next((path.with_suffix(s) for s in STACKS if path.with_suffix(s).is_file()), None)
        if stack is None:
            raise InputError(f"{path}: no stack of PSFs beside it: {path.stem}.tif, .npy or .fits")
        return _read(stack, options.but(positions=path))
    raise InputError(f"{path}: unknown format: give PNG, TIFF, NPY, NPZ, FITS, MAT, .psf or a YAML recipe")


def _from_array(path: Path, array: Array, options: Options) -> Blur:
    """A bare array: what it is shows in its axes and in what was said beside it."""
    name = str(path)
    if options.kind == "motion":
        return vector_map(name, array, options)
    if options.kind is not None:
        return width_map(name, array, options.kind, options)
    options, notes = _companions(path, array, options)
    if options.positions is not None:
        places, found = read_positions(options.positions)
        blur = _at_places(name, array, places, options)
        return blur.noted(*notes, *found)
    if options.labels is not None:
        return kernel_bank(name, array, options).noted(*notes)
    if array.ndim >= 3 and not _coloured(array):
        array = _chosen(name, array, options)
    return single_kernel(name, array, options)


def _from_archive(path: Path, arrays: dict[str, Any], options: Options) -> Blur:
    name = str(path)
    if any(a in arrays and b in arrays for a, b in NAMES):
        return weighted_kernels(name, arrays, options)
    if "psfs" in arrays:
        psfs, places, options = grid_archive(name, arrays, options)
        return _at_places(name, psfs, places, options)
    if any(key in arrays for key in MAPS) or {"dx", "dy"} <= set(arrays):
        numbers = {k: check_numbers(f"{name}: {k}", arrays[k]) for k in (*MAPS, "dx", "dy") if k in arrays}
        return map_archive(name, numbers, options)
    banks = [k for k in ("kernels", "kernel", "psf", "PSF", "k", "h") if k in arrays]
    numeric = [
        k for k, v in arrays.items() if v.dtype == object or (v.dtype.kind in "biuf" and v.ndim >= 2 and v.size > 1)
    ]
    if not banks and len(numeric) != 1:
        raise InputError(
            f"{name}: holds {', '.join(arrays) or 'nothing'}: give kernels and weights, psfs and positions, "
            "sigma, radius, dx and dy, or one kernel"
        )
    key = (banks or numeric)[0]
    value = arrays[key]
    if value.dtype == object:
        cells = [check_numbers(f"{name}: {key}", cell) for cell in value.ravel()]
        if options.index is not None and options.index < len(cells):
            return single_kernel(name, cells[options.index], options)
        array = same_size(cells)
        array = array[:, 0] if array.shape[1] == 1 else array
    else:
        array = check_numbers(f"{name}: {key}", value)
    if "labels" in arrays and options.labels is None:
        return kernel_bank(name, array, options, check_numbers(f"{name}: labels", arrays["labels"]))
    return _from_array(path, array, options)


def _from_fits(path: Path, options: Options) -> Blur:
    fits = fits_module()
    with reading(path), fits.open(path, memmap=False, ignore_missing_end=True) as hdus:
        table = any(is_psfex(hdu) for hdu in hdus)
        header = hdus[0].header
    if table:
        return psfex(path, options)
    if ("DET_YX0" in header and "OVERSAMP" in header) or "NXPSFS" in header:
        return grid_fits(path, options)
    if path.suffix.lower() == ".psf":
        raise InputError(f"{path}: has no table with a column PSF_MASK: not a PSFEx file")
    return _from_array(path, read_array(path), options)


def _at_places(name: str, psfs: Array, places: Array, options: Options) -> Blur:
    """PSFs with places: a grid if they form one, else scattered."""
    if psfs.ndim not in (3, 4):
        raise InputError(f"{name}: the PSFs have shape {psfs.shape}: give (N, k, k)")
    if len(psfs) == len(places) and len(places) > 3 and is_regular(places) and min(np.ptp(places, axis=0)) > 0:
        return psf_grid(name, psfs, places, options)
    return scattered_psfs(name, psfs, places, options)


def _companions(path: Path, array: Array, options: Options) -> tuple[Options, list[str]]:
    """Files beside a stack that say where its kernels act, unless something was said already."""
    if array.ndim < 3 or options.labels or options.positions or options.index is not None:
        return options, []
    table = path.with_suffix(".csv")
    if table.is_file():
        return options.but(positions=table), [f"places from {table.name} beside it"]
    for suffix in (".labels.png", ".labels.npy"):
        labels = path.with_name(path.stem + suffix)
        if labels.is_file():
            return options.but(labels=labels), [f"label map from {labels.name} beside it"]
    return options, []


def _coloured(array: Array) -> bool:
    """Is (a, b, c) one kernel with colours last, rather than a stack?"""
    return array.ndim == 3 and array.shape[-1] <= 4 < min(array.shape[:2])


def _chosen(name: str, array: Array, options: Options) -> Array:
    count = len(array)
    if options.index is None and count > 1:
        raise InputError(
            f"{name}: holds {count} kernels: say where each acts (labels: a map; positions: a CSV of x, y), "
            f"or choose one (index 0 to {count - 1})"
        )
    index = options.index or 0
    if index >= count or index < 0:
        raise InputError(f"{name}: kernel {index}: the file holds {count}, counted from 0")
    chosen: Array = array[index]
    if chosen.ndim == 3:  # (C, k, k)
        chosen = np.moveaxis(chosen, 0, -1)
    return chosen
