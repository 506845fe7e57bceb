"""A blur that a person writes down, as YAML.

    background: {gaussian: {sigma: 1.0}}        # what acts outside all regions; none if left out
    feather: 6                                  # width of the seams, pixels
    units: pixels                               # or fraction: of the picture's width and height
    regions:                                    # a later region lies over an earlier one
      - rectangle: [10, 20, 200, 120]           # left, top, right, bottom
        motion: {length: 15, angle: 30}         # pixels; degrees, counter-clockwise from the right
      - polygon: [[0, 0], [80, 0], [40, 60]]    # x, y: from the left, from the top
        defocus: {radius: 4}
      - mask: hand.png                          # not 0 is inside; the picture's size
        kernel: psf.tif

or, in place of regions, one of the other forms with its settings, so that one file says it all:

    kernels: beads.tif      kernels: bank.npy       map: depth.npy        blur: field.psf
    positions: beads.csv    labels: segments.png    kind: defocus         index: 0

Files are sought beside the recipe. Regions can have `gaussian: {sigma: [along, across], angle: ..}` too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from pnpladmm.blur.arrays import Array, read_array, reading
from pnpladmm.blur.conditioning import crop_margins, same_size
from pnpladmm.blur.model import Blur
from pnpladmm.blur.readers.bank import FEATHER
from pnpladmm.blur.readers.options import Options, Size
from pnpladmm.blur.readers.single import as_kernel
from pnpladmm.blur.synthesis import defocus, gaussian, motion, soft_regions
from pnpladmm.tensors import InputError

KERNELS = ("motion", "gaussian", "defocus", "kernel")
SHAPES = ("rectangle", "polygon", "mask")
SETTINGS = (
    *("labels", "positions", "kind", "index", "feather", "order", "normalise"),
    *("recentre", "background", "oversampling", "tolerance", "most"),
)
FORMS = ("blur", "kernels", "map")
LARGEST = 1 << 16
"""Bytes; a recipe is a page."""
WIDEST = 500.0
"""Pixels; a longer motion or a wider disc is a slip of the pen."""


def read_recipe(path: Path, options: Options) -> tuple[Path, Options] | Blur:
    """The blur; or, for a recipe that points to another file, that file and the options it is to be read with."""
    recipe = _load(path)
    forms = [form for form in FORMS if form in recipe]
    if not forms:
        return _regions(path, recipe, options)
    if len(forms) > 1 or "regions" in recipe:
        raise InputError(
            f"{path}: {', '.join([*forms, *(['regions'] if 'regions' in recipe else [])])}: give one of them"
        )
    _known(f"{path}", recipe, (*FORMS, *SETTINGS))
    settings = {key: recipe[key] for key in SETTINGS if key in recipe}
    for key in ("labels", "positions"):
        if key in settings:
            settings[key] = _beside(path, key, settings[key])
    if forms[0] == "map" and "kind" not in settings:
        raise InputError(f"{path}: map: say what it holds (kind: gaussian, defocus or motion)")
    target = _beside(path, forms[0], recipe[forms[0]])
    if target.suffix.lower() in (".yaml", ".yml"):
        raise InputError(f"{path}: {forms[0]}: a recipe cannot point to a recipe")
    try:
        return target, options.but(**settings)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _load(path: Path) -> dict[str, Any]:
    import yaml

    if path.stat().st_size > LARGEST:
        raise InputError(f"{path}: {path.stat().st_size >> 10} KiB is too long for a recipe")
    try:
        with reading(path):
            text = path.read_text(encoding="utf-8")
            # A few aliases of aliases unfold to more than any memory holds.
            aliases = any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader))
            recipe = None if aliases else yaml.safe_load(text)
    except InputError as error:
        mark = getattr(getattr(error.__cause__, "problem_mark", None), "line", None)
        where = "" if mark is None else f", line {mark + 1}"
        raise InputError(
            f"{path}: not a recipe (YAML){where}: {getattr(error.__cause__, 'problem', None) or 'unreadable'}"
        ) from None
    if aliases:
        raise InputError(f"{path}: not a recipe: write values out, without aliases (*)")
    if not isinstance(recipe, dict) or not recipe:
        raise InputError(f"{path}: not a recipe: give regions, or a file and its settings")
    return recipe


def _regions(path: Path, recipe: dict[str, Any], options: Options) -> Blur:
    _known(f"{path}", recipe, ("regions", "background", "feather", "units", "order"))
    size = options.needed_size(str(path), "a recipe")
    regions = recipe.get("regions", [])
    if not isinstance(regions, list) or not (regions or "background" in recipe):
        raise InputError(f"{path}: regions: give a list, or a background alone")
    units = recipe.get("units", "pixels")
    if units not in ("pixels", "fraction"):
        raise InputError(f"{path}: units {units!r}: give pixels or fraction")
    feather = _number(
        path, "feather", recipe.get("feather", FEATHER if options.feather is None else options.feather), 0
    )
    notes: list[str] = []
    background = recipe.get("background")
    kernels = [np.ones((1, 1, 1)) if background is None else _kernel(path, "background", background, options, notes)]
    if background is None:
        notes.append("no background: outside the regions the picture is sharp")
    labels = np.zeros(size, dtype=np.int64)
    for number, region in enumerate(regions, 1):
        where = f"region {number}"
        if not isinstance(region, dict):
            raise InputError(f"{path}: {where}: give a shape ({', '.join(SHAPES)}) and a kernel ({', '.join(KERNELS)})")
        _known(f"{path}: {where}", region, (*SHAPES, *KERNELS))
        inside = _shape(path, where, region, size, units)
        if not inside.any():
            notes.append(f"{where} covers no pixel of the picture")
            continue
        labels[inside] = len(kernels)
        kernels.append(_kernel(path, where, {k: region[k] for k in KERNELS if k in region}, options, notes))
    used = np.unique(labels)
    notes.append(f"seams between regions are feathered over {feather:g} pixels")
    bank, cropped = crop_margins(same_size([kernels[i] for i in used]))
    weights = soft_regions(np.searchsorted(used, labels), feather).float()
    order = options.but(order=recipe.get("order", options.order)).order
    source = f"a recipe with {len(regions)} region{'s' if len(regions) != 1 else ''}"
    return Blur(torch.from_numpy(bank), weights, order or "convolve-then-weight", (*notes, *cropped), source)


def _kernel(path: Path, where: str, entry: Any, options: Options, notes: list[str]) -> Array:
    """(C, k, k) of `motion: {..}`, `gaussian: {..}`, `defocus: {..}` or `kernel: file`."""
    if not isinstance(entry, dict) or len(entry) != 1 or next(iter(entry)) not in KERNELS:
        raise InputError(f"{path}: {where}: give one kernel ({', '.join(KERNELS)})")
    ((kind, value),) = entry.items()
    if kind == "kernel":
        file = _beside(path, f"{where}: kernel", value)
        kernel, found = as_kernel(str(file), read_array(file), options.but(feather=None))
        notes.extend(f"{where}: {note}" for note in found)
        return kernel
    if not isinstance(value, dict):
        raise InputError(f"{path}: {where}: {kind}: give its numbers, as {_EXAMPLES[kind]}")
    _known(f"{path}: {where}: {kind}", value, _PARAMETERS[kind])
    needed = _PARAMETERS[kind][0]
    if needed not in value:
        raise InputError(f"{path}: {where}: {kind}: {needed} is missing, as {_EXAMPLES[kind]}")
    name = f"{where}: {kind}: {needed}"
    angle = _number(path, f"{where}: {kind}: angle", value.get("angle", 0.0), -1e6)
    if kind == "gaussian" and isinstance(value["sigma"], list):
        if len(value["sigma"]) != 2:
            raise InputError(f"{path}: {name} {value['sigma']!r}: give one number, or two (along, across)")
        along, across = (_width(path, name, v) for v in value["sigma"])
        return gaussian((along, across), angle).numpy()[None]
    width = _width(path, name, value[needed])
    drawn = motion(width, angle) if kind == "motion" else defocus(width) if kind == "defocus" else gaussian(width)
    return drawn.numpy()[None]


_PARAMETERS = {"motion": ("length", "angle"), "gaussian": ("sigma", "angle"), "defocus": ("radius",)}
_EXAMPLES = {
    "motion": "motion: {length: 15, angle: 30}",
    "gaussian": "gaussian: {sigma: 2}",
    "defocus": "defocus: {radius: 4}",
}


def _shape(path: Path, where: str, region: dict[str, Any], size: Size, units: str) -> Array:
    """Which pixels (H, W) are inside: those whose centre is."""
    shapes = [shape for shape in SHAPES if shape in region]
    if len(shapes) != 1:
        raise InputError(f"{path}: {where}: give one shape ({', '.join(SHAPES)})")
    shape, value = shapes[0], region[shapes[0]]
    height, width = size
    if shape == "mask":
        file = _beside(path, f"{where}: mask", value)
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
    from skimage.draw import polygon2mask

    return np.asarray(polygon2mask(size, points[:, ::-1]))


def _pairs(path: Path, where: str, value: Any) -> Any:
    if not isinstance(value, list) or len(value) != 4:
        raise InputError(f"{path}: {where}: rectangle {value!r}: give [left, top, right, bottom]")
    return [value[:2], value[2:], value[2:]]


def _points(path: Path, where: str, value: Any) -> Array:
    try:
        points = np.array(value, dtype=float)
    except (TypeError, ValueError):
        points = np.empty(0)
    if points.ndim != 2 or points.shape[1] != 2 or len(points) < 3 or not np.isfinite(points).all():
        raise InputError(f"{path}: {where}: give at least three corners [x, y]")
    return points


def _beside(path: Path, key: str, value: Any) -> Path:
    if not isinstance(value, str) or not value:
        raise InputError(f"{path}: {key}: give a file name")
    file = path.parent / value
    if not file.is_file():
        raise InputError(f"{path}: {key}: {value}: no such file beside the recipe")
    return file


def _width(path: Path, name: str, value: Any) -> float:
    width = _number(path, name, value, 0)
    if not 0 < width <= WIDEST:
        raise InputError(f"{path}: {name} {value!r}: give pixels, above 0 and at most {WIDEST:g}")
    return width


def _number(path: Path, name: str, value: Any, least: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= least or value == float("inf"):
        raise InputError(f"{path}: {name} {value!r}: give a number{' of 0 or more' if least == 0 else ''}")
    return float(value)


def _known(where: str, entry: dict[str, Any], keys: tuple[str, ...]) -> None:
    for key in entry:
        if key not in keys:
            raise InputError(f"{where}: {key!r} is not known here: choose from {', '.join(keys)}")
