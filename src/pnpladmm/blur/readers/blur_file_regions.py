"""The regions of a YAML blur file: shapes, kernels, and the numbers in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pnpladmm.blur.arrays import Array, read_array
from pnpladmm.blur.forms.regions import polygon_mask, region_kernel, region_options
from pnpladmm.blur.options import Options, Size
from pnpladmm.blur.registry import read_file
from pnpladmm.blur.synthesis import defocus, gaussian, motion
from pnpladmm.gate import shown
from pnpladmm.locks import check_inside
from pnpladmm.pictures.selection import without_selection
from pnpladmm.tensors import InputError

SUFFIXES = (".yaml", ".yml")
KERNELS = ("motion", "gaussian", "defocus", "kernel")
SHAPES = ("rectangle", "polygon", "mask")
WIDEST = 500.0
"""Pixels; a longer motion or a wider disc is a typing error."""
MOST = 1e6
"""The largest number in a blur file."""


def kernel(path: Path, where: str, entry: Any, options: Options, notes: list[str]) -> Array:
    """(C, k, k) of `motion: {..}`, `gaussian: {..}`, `defocus: {..}` or `kernel: file`."""
    if not isinstance(entry, dict) or len(entry) != 1 or next(iter(entry)) not in KERNELS:
        raise InputError(f"{path}: {where}: give one kernel ({', '.join(KERNELS)})")
    ((kind, value),) = entry.items()
    if kind == "kernel":
        file = blur_beside(path, f"{where}: kernel", value)
        blur = read_file(file, region_options(options))
        notes.extend(f"{where}: {note}" for note in blur.notes)
        return region_kernel(f"{path}: {where}: {file.name}", blur)
    if not isinstance(value, dict):
        raise InputError(f"{path}: {where}: {kind}: give its numbers, as {_EXAMPLES[kind]}, or auto")
    check_keys(f"{path}: {where}: {kind}", value, _PARAMETERS[kind])
    needed = _PARAMETERS[kind][0]
    if needed not in value:
        raise InputError(f"{path}: {where}: {kind}: {needed} is missing, as {_EXAMPLES[kind]}")
    name = f"{where}: {kind}: {needed}"
    angle = number(path, f"{where}: {kind}: angle", value.get("angle", 0.0), -1e6)
    if kind == "gaussian" and isinstance(value["sigma"], list):
        if len(value["sigma"]) != 2:
            raise InputError(f"{path}: {name} {shown(value['sigma'])}: give one number, or two (along, across)")
        along, across = (_width(path, name, v) for v in value["sigma"])
        _check_fits(f"{path}: {name}", 8 * max(along, across), options)
        return gaussian((along, across), angle).numpy()[None]
    width = _width(path, name, value[needed])
    if kind != "motion":
        _check_fits(f"{path}: {name}", (8 if kind == "gaussian" else 2) * width, options)
    drawn = motion(width, angle) if kind == "motion" else defocus(width) if kind == "defocus" else gaussian(width)
    return drawn.numpy()[None]


def _check_fits(name: str, side: float, options: Options) -> None:
    """Refuse, before it is drawn, a kernel that is larger than the picture."""
    if options.size is not None and side - 2 > max(options.size):
        height, width = options.size
        raise InputError(
            f"{name}: the kernel would be {side:.0f} pixels wide, the picture is {height}x{width}: it must fit into it"
        )


_PARAMETERS = {"motion": ("length", "angle"), "gaussian": ("sigma", "angle"), "defocus": ("radius",)}
_EXAMPLES = {
    "motion": "motion: {length: 15, angle: 30}",
    "gaussian": "gaussian: {sigma: 2}",
    "defocus": "defocus: {radius: 4}",
}


def inside(path: Path, where: str, region: dict[str, Any], size: Size, units: str) -> Array:
    """Which pixels (H, W) are inside: those whose centre is."""
    shapes = [shape for shape in SHAPES if shape in region]
    if len(shapes) != 1:
        raise InputError(f"{path}: {where}: give one shape ({', '.join(SHAPES)})")
    shape, value = shapes[0], region[shapes[0]]
    height, width = size
    if shape == "mask":
        file = file_beside(path, f"{where}: mask", value)
        mask = read_array(file)
        mask = mask.max(-1) if mask.ndim == 3 else mask
        if mask.shape != size:
            raise InputError(
                f"{file}: the mask is {'x'.join(map(str, mask.shape))}, the picture {height}x{width}: they must match"
            )
        return mask != 0
    points = _points(path, f"{where}: {shape}", value if shape == "polygon" else _pairs(path, where, value))
    if units == "fraction":  # 0 is the outer edge of the first pixel, 1 that of the last
        points = points * np.array([width, height]) - 0.5
    if shape == "rectangle":
        (left, top), (right, bottom) = points.min(0), points.max(0)
        x, y = np.arange(width), np.arange(height)
        return np.outer((y >= top) & (y <= bottom), (x >= left) & (x <= right))
    return polygon_mask(size, points)


def _pairs(path: Path, where: str, value: Any) -> Any:
    if not isinstance(value, list) or len(value) != 4:
        raise InputError(f"{path}: {where}: rectangle {shown(value)}: give [left, top, right, bottom]")
    return [value[:2], value[2:], value[2:]]


def _points(path: Path, where: str, value: Any) -> Array:
    try:
        points = np.array(value, dtype=float)
    except (TypeError, ValueError, OverflowError):
        points = np.empty(0)
    if points.ndim != 2 or points.shape[1] != 2 or len(points) < 3 or not (np.abs(points) <= MOST).all():
        raise InputError(f"{path}: {where}: give at least three corners [x, y]")
    return points


def blur_beside(path: Path, key: str, value: Any) -> Path:
    """A file to read a blur from: not another blur file, so that none can point to itself."""
    file = file_beside(path, key, value)
    if file.suffix.lower() in SUFFIXES:
        raise InputError(f"{path}: {key}: a blur file cannot point to a blur file")
    return file


def file_beside(path: Path, key: str, value: Any) -> Path:
    """A file that a blur file names."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise InputError(f"{path}: {key}: give a file name")
    file = path.parent / value
    if not _is_file(without_selection(file)):
        raise InputError(f"{path}: {key}: {shown(value)}: no such file; paths are relative to the blur file")
    advice = "a blur file may come from a stranger; copy it there"
    check_inside(without_selection(file), path.parent, f"{path}: {key}", advice)
    return file


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or no name at all
        return False


def _width(path: Path, name: str, value: Any) -> float:
    width = number(path, name, value, 0)
    if not 0 < width <= WIDEST:
        raise InputError(f"{path}: {name} {shown(value)}: give pixels, above 0 and at most {WIDEST:g}")
    return width


def number(path: Path, name: str, value: Any, least: float) -> float:
    """A finite number, not below `least`."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= least or not value <= MOST:
        raise InputError(f"{path}: {name} {shown(value)}: give a number{' of 0 or more' if least == 0 else ''}")
    return float(value)


def check_keys(where: str, entry: dict[str, Any], keys: tuple[str, ...]) -> None:
    """Refuse keys that have no meaning here."""
    for key in entry:
        if key not in keys:
            raise InputError(f"{where}: {shown(key)} is not known here: choose from {', '.join(keys)}")
