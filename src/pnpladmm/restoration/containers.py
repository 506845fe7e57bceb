"""Pictures in the containers of other libraries: xarray's DataArray, astropy's NDData and CCDData.

Neither library is imported before its container arrives. What a container says besides its values is used: names of
axes, mask, uncertainty, world coordinates. `rebuild` makes a container of the same kind from the restored array.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pnpladmm.pictures.arrays import Array
from pnpladmm.pictures.pixel_scale import PixelScale, on_the_sky
from pnpladmm.tensors import InputError

ROWS = ("y", "row", "rows", "height", "lat", "latitude")
COLUMNS = ("x", "col", "column", "columns", "width", "lon", "longitude")
CHANNELS = ("c", "channel", "channels", "band", "bands", "colour", "color", "rgb")
PAGES = ("z", "t", "time", "b", "batch", "page", "pages", "frame", "frames", "plane", "slice")
LETTERS = {
    name: letter for letter, names in zip("HWCB", (ROWS, COLUMNS, CHANNELS, PAGES), strict=True) for name in names
}
"""The names of dimensions, in lower case, that are understood, and their letter in `axes`."""


@dataclass(frozen=True)
class Unpacked:
    """What a container holds."""

    values: Array
    rebuild: Callable[[Array], Any]
    """From the restored array, whose axes are those of `values`, to a container of the same kind."""
    axes: str | None = None
    mask: Array | None = None
    """True on pixels that do not count, in the shape of `values`."""
    variance: Array | None = None
    """In the numbers of `values`, squared; NaN where there is no data."""
    pixel_scale: PixelScale | None = None
    notes: tuple[str, ...] = ()


def unpacked(thing: Any) -> Unpacked | None:
    """The contents of a container; None for anything else."""
    if _is(thing, "xarray", "DataArray"):
        return _of_data_array(thing)
    if _is(thing, "astropy.nddata", "NDData"):
        return _of_nddata(thing)
    return None


def _is(thing: object, module: str, name: str) -> bool:
    """Is it of this class? Where its module was not imported, it cannot be."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(thing, getattr(loaded, name))


def _of_data_array(given: Any) -> Unpacked:
    letters = [LETTERS.get(str(name).lower()) for name in given.dims]
    known = None not in letters and len(set(letters)) == len(letters) and {"H", "W"} <= set(letters)
    if not known:  # names of the user's own: the shape decides, as for arrays
        return Unpacked(np.asarray(given.values), lambda array: _with_values(given, array))
    order = sorted(range(len(letters)), key=lambda i: "BCHW".index(letters[i] or ""))
    ordered = given.transpose(*(given.dims[i] for i in order))
    return Unpacked(
        np.asarray(ordered.values),
        lambda array: _with_values(ordered, array).transpose(*given.dims),
        axes="".join(letters[i] or "" for i in order),
    )


def _with_values(given: Any, array: Array) -> Any:
    """The DataArray with other values; without coordinates along axes whose length changed."""
    if array.shape == given.shape:
        return given.copy(data=array)
    if array.ndim != len(given.dims):
        raise InputError(f"the result has shape {array.shape}, the DataArray {given.shape}: use numpy.asarray(result)")
    changed = {name for name, new, old in zip(given.dims, array.shape, given.shape, strict=True) if new != old}
    coords = {name: c for name, c in given.coords.items() if not changed & set(c.dims)}
    return type(given)(array, dims=given.dims, coords=coords, attrs=given.attrs, name=given.name)


def _of_nddata(given: Any) -> Unpacked:
    values = np.asarray(given.data)
    mask = None if given.mask is None else np.broadcast_to(np.asarray(given.mask) != 0, values.shape)
    variance, notes = _variance(given)

    def rebuild(array: Array) -> Any:
        if array.shape != values.shape:  # mask, errors and coordinates are those of the old pixels
            return type(given)(array, unit=given.unit, meta=given.meta)
        return type(given)(
            array, uncertainty=given.uncertainty, mask=given.mask, wcs=given.wcs, meta=given.meta, unit=given.unit
        )

    return Unpacked(values, rebuild, None, mask, variance, _pixel_scale(given), notes)


def _variance(given: Any) -> tuple[Array | None, tuple[str, ...]]:
    """The variance of an NDData in its own unit, squared, and a note."""
    if given.uncertainty is None:
        return None, ()
    from astropy.nddata import VarianceUncertainty

    try:
        found = given.uncertainty.represent_as(VarianceUncertainty)
        array = found.array
        if given.unit is not None and found.unit is not None:
            array = (found.array * found.unit).to_value(given.unit**2)
        variance = np.broadcast_to(np.asarray(array, float), given.data.shape)
    except (TypeError, ValueError, AttributeError):  # a kind of uncertainty that has no variance
        return None, (f"{type(given.uncertainty).__name__} is no standard deviation or variance: not used",)
    note = "the uncertainty is that before the restoration, which correlates neighbours"
    good = np.isfinite(variance) & (variance > 0)
    return np.where(good, variance, np.nan), (note,)


def _pixel_scale(given: Any) -> PixelScale | None:
    """The size of a pixel on the sky, by the header and the world coordinates."""
    header = dict(given.meta) if isinstance(given.meta, Mapping) else {}
    if hasattr(given.wcs, "to_header"):
        header |= dict(given.wcs.to_header(relax=True))
    return on_the_sky(header)
