"""`as_blur` makes a `Blur` of objects in memory, conditioned as files are."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from pnpladmm.blur.arrays import Array, check_numbers, read_array, to_array
from pnpladmm.blur.forms.array import from_array, stacked
from pnpladmm.blur.forms.kernel import single_kernel
from pnpladmm.blur.forms.regions import (
    check_region_options,
    from_regions,
    polygon_mask,
    region_kernel,
    region_options,
)
from pnpladmm.blur.forms.weighted import weighted_kernels
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import Options, Settings
from pnpladmm.blur.readers.archives import from_named
from pnpladmm.blur.reading import fitting, read_blur
from pnpladmm.blur.registry import read_file
from pnpladmm.tensors import InputError, type_words

WHAT = (
    "give a PSF (k, k), kernels (P, k, k) with labels or positions, (kernels, weights), "
    "a list of (polygon, kernel), a Blur, or a file"
)


def as_blur(thing: Any, size: tuple[int, int] | None = None, **settings: Unpack[Settings]) -> Blur:
    """A blur from what people have in memory, or from a file.

    Parameters
    ----------
    thing : array, tensor, nested list, tuple, list, dict, Blur, str or Path
        - a PSF (k, k), or (k, k, 3) with a kernel for each colour; also (1, 3, k, k);
        - kernels (P, k, k) or (P, C, k, k), or a list of kernels, with `labels`, `positions` or `index`;
        - a tuple (kernels, weights) with weights (P, H, W), or (kernels, labels) with a label map (H, W);
        - a dict of named arrays, as NPZ files hold them: `kernels` and `weights`, `kernels` and `labels`, `psfs` and
          `positions`, `sigma`, `radius`, `dx` and `dy` ...;
        - a list of pairs (polygon, kernel) or (mask, kernel): polygons (N, 2) as x, y in pixels, masks (H, W), a later
          pair over an earlier one. A pair (None, kernel) is the background; without it the rest is sharp;
        - an array (H, W) with `kind`: a map;
        - a `Blur`, whose size is checked;
        - a path: as `read_blur`.
    size : (int, int), optional
        (H, W) of the picture; needed where the weights do not say it.
    **settings
        `labels`, `positions`, `kind`, `index`, `feather`, `order`, `normalise`, `recentre`, `background`,
        `oversampling`, `psf_scale`, `picture_scale`, `pixels`, `tolerance`, `most`: see `Options`.

    Returns
    -------
    Blur
        Its kernels are normalised and checked as those of files are; the notes say what was done. Kernels that
        come with weights are taken as they are.

    Raises
    ------
    InputError
        In one line that says what to give.

    Examples
    --------
    >>> import numpy as np, pnpladmm.blur as blur
    >>> one = blur.as_blur(np.ones((3, 5)), (48, 64))
    >>> float(one.kernels.sum()), one.kernel_size
    (1.0, (3, 5))
    >>> pair = [blur.gaussian(1.0).numpy(), blur.motion(9, 30).numpy()]
    >>> left_and_right = np.repeat([[0, 1]], 48, axis=0).repeat(32, axis=1)
    >>> blur.as_blur(pair, labels=left_and_right).source
    'a bank of 2 kernels and a label map'
    """
    if isinstance(thing, str | os.PathLike):
        return read_blur(Path(thing), size, **settings)
    options = Options(size=size, **settings)
    if isinstance(thing, Blur):
        said = [name for name, value in settings.items() if value is not None]
        if said:
            raise InputError(f"blur: a Blur is complete: leave out {', '.join(said)}")
        return fitting("blur", thing, options)
    return fitting("blur", _from_memory(thing, options), options)


def _from_memory(thing: Any, options: Options) -> Blur:
    if isinstance(thing, Mapping):
        return from_named("blur", thing, options)
    if isinstance(thing, list | tuple) and thing:
        if all(_is_pair(item) for item in thing):
            return _from_pairs(thing, options)
        if _has_weights(thing, options):
            return _from_kernels_and_weights(thing, options)
        if _dimensions(thing[0]) >= 2:
            return from_array("blur", *stacked("blur", thing, options))
    array = to_array("blur", thing)
    if array.dtype.kind in "OUSV":
        raise InputError(f"blur: {type_words(thing)} is no blur: {WHAT}")
    return from_array("blur", check_numbers("blur", array), options)


def _dimensions(thing: Any) -> int:
    """Number of axes of a numeric array; -1 for anything else."""
    if isinstance(thing, str | os.PathLike | Blur | Mapping) or thing is None:
        return -1
    try:
        array = to_array("blur", thing)
    except InputError:
        return -1
    return array.ndim if array.dtype.kind in "biufc" else -1


def _is_pair(item: Any) -> bool:
    """Is it (polygon or mask or None, kernel)?"""
    if not isinstance(item, list | tuple) or len(item) != 2:
        return False
    where, kernel = item
    is_place = where is None or isinstance(where, str | os.PathLike) or _dimensions(where) == 2
    return is_place and (isinstance(kernel, str | os.PathLike | Blur) or _dimensions(kernel) in (2, 3))


def _has_weights(thing: Sequence[Any], options: Options) -> bool:
    """Is it (kernels, weights) or (kernels, labels), rather than a list of kernels?"""
    if len(thing) != 2 or any(v is not None for v in (options.labels, options.positions, options.index)):
        return False
    first, second = (_dimensions(item) for item in thing)
    if first not in (2, 3, 4) or second not in (2, 3, 4):
        return False
    return first > 2 or to_array("blur", thing[1]).shape[-2:] == options.size


def _from_kernels_and_weights(thing: Sequence[Any], options: Options) -> Blur:
    kernels, weights = (
        check_numbers(f"blur: {name}", a) for name, a in zip(("kernels", "weights"), thing, strict=True)
    )
    if weights.ndim == 2 and kernels.ndim > 2 and len(kernels) > 1:
        return from_array("blur", kernels, options.but(labels=weights))
    return weighted_kernels("blur", {"kernels": kernels, "weights": weights}, options)


def _from_pairs(pairs: Sequence[Any], options: Options) -> Blur:
    check_region_options("blur", options)
    if options.size is None:
        raise InputError("blur: regions fit any picture: give the picture's size (height, width)")
    background: Array | None = None
    regions: list[tuple[Array, Array]] = []
    notes: list[str] = []
    for count, (place, kernel) in enumerate(pairs, 1):
        where = "background" if place is None else f"region {count}"
        if place is None and background is not None:
            raise InputError("blur: two pairs (None, kernel): give one background")
        found = _region_kernel(f"blur: {where}", kernel, options)
        notes.extend(f"{where}: {note}" for note in found.notes)
        bank = region_kernel(f"blur: {where}", found)
        if place is None:
            background = bank
            continue
        inside = _mask(f"blur: {where}", place, options.size)
        if inside.any():
            regions.append((inside, bank))
        else:
            notes.append(f"{where} covers no pixel of the picture")
    count = len(pairs) - (background is not None)
    return from_regions(regions, background, options, notes, f"{count} region{'s' if count != 1 else ''}")


def _region_kernel(name: str, kernel: Any, options: Options) -> Blur:
    if isinstance(kernel, Blur):
        return kernel
    options = region_options(options)
    if isinstance(kernel, str | os.PathLike):
        return read_file(Path(kernel), options)
    array = check_numbers(name, kernel)
    return single_kernel(name, array, options)


def _mask(name: str, place: Any, size: tuple[int, int]) -> Array:
    """A mask (H, W) of a region: a mask of this shape is returned unchanged, a polygon (N, 2) is filled."""
    array = read_array(Path(place)) if isinstance(place, str | os.PathLike) else check_numbers(name, place)
    if array.shape == size:
        inside: Array = array != 0
        return inside
    if array.ndim == 2 and array.shape[1] == 2 and len(array) >= 3:
        return polygon_mask(size, array)
    raise InputError(f"{name}: shape {array.shape}: give a mask {size[0]}x{size[1]}, or at least three corners (x, y)")
