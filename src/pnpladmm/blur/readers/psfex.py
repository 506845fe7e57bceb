"""PSFEx `.psf` files: a PSF that varies as a polynomial of the place.

A FITS table with one row and a column PSF_MASK of (ncoeff, h, w) planes. At a source in column X, row Y,
counted from 1, with `x = (X - POLZERO1) / POLSCAL1` and y likewise,

    PSF = sum_k x^i y^j PSF_MASK[k],    k: 1, x, .., x^d, y, x y, .., y^d   (d = POLDEG1).

One sample is PSF_SAMP detector pixels. PSFEx itself takes detector pixels from it by a Lanczos-3 interpolation at
their centres (the pixel's own response is in the model), the source at sample `w // 2`; so does this reader.
The weights are polynomials, divided by the sum of the PSF at each place: negative somewhere, and not summing to one.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from pnpladmm.blur.arrays import Array, check_numbers, reading
from pnpladmm.blur.conditioning import check_kernels, condition, crop_margins, spread
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import Options
from pnpladmm.blur.readers.fits_summary import fits_summary
from pnpladmm.blur.registry import READERS, SIGNATURE
from pnpladmm.blur.sniffing import has_format
from pnpladmm.gate import Field, check_size, shown, take
from pnpladmm.pictures.fits_structure import checked_content, opened
from pnpladmm.tensors import InputError

LANCZOS = 3
FIELDS = {
    "POLNAXIS": Field(int, 0, 100, default=0),
    "POLNGRP": Field(int, 0, 100, default=1),
    "POLDEG1": Field(int, 0, 20, default=0),
    "PSF_SAMP": Field(float, 0, 20, default=1.0),
    "ACCEPTED": Field(int, 0, 10**9, default=0),
}
"""What PSFEx writes about its polynomial."""
TINY = 1e-9
PLACE = Field(float, -1e9, 1e9)
AXIS = Field(int, 1, 10**6)
MOST_UNEVEN = 5.0
"""The largest sum over the field by the smallest: beyond it the polynomial does not describe this field."""


@READERS.register("psfex")
class PsfexReader:
    """FITS files with a column PSF_MASK, and all that are called .psf."""

    generality: ClassVar[int] = SIGNATURE

    def matches(self, path: Path) -> bool:
        """Is there a table with PSFEx's column, or a FITS file with PSFEx's suffix?"""
        return "PSF_MASK" in fits_summary(path).columns or (path.suffix.lower() == ".psf" and has_format(path, "fits"))

    def read(self, path: Path, options: Options) -> Blur:
        """The blur of one chip."""
        return read_psfex(path, options)


def read_psfex(path: Path, options: Options) -> Blur:
    """The blur of one chip (`index`) of a PSFEx file on a picture of the given size."""
    size = options.needed_size(str(path), "a PSFEx model")
    options.refuse_scale(str(path), "a PSFEx model (its PSF_SAMP)")
    with reading(path), opened(checked_content(path, str(path)), str(path)) as hdus:
        tables = [hdu for hdu in hdus if is_psfex(hdu)]
        if not tables:
            raise InputError(f"{path}: has no table with a column PSF_MASK: not a PSFEx file")
        if len(tables) > 1 and options.index is None:
            raise InputError(f"{path}: holds {len(tables)} chips: say which (index, from 0)")
        if options.index is not None and not 0 <= options.index < len(tables):
            raise InputError(f"{path}: chip {options.index}: the file holds {len(tables)}, counted from 0")
        table = tables[options.index or 0]
        header, planes = table.header, check_numbers(f"{path}: PSF_MASK", table.data["PSF_MASK"][0])
    said = {key: take(str(path), header, key, field) for key, field in FIELDS.items()}
    planes = _shaped(str(path), header, planes)
    degree, zero, scale = _polynomial(str(path), header, said, len(planes))
    step = said["PSF_SAMP"]
    if step == 0 and not planes.any():
        raise InputError(f"{path}: the model is empty: PSFEx accepted {said['ACCEPTED']} stars")
    if not 0.05 <= step <= 20:
        raise InputError(f"{path}: PSF_SAMP is {step:g}: a sample is a fraction of a pixel to a few pixels")
    check_kernels(str(path), (len(planes), *(int(n * step) + 1 for n in planes.shape[1:])))
    check_size(f"{path}: its weights", (len(planes), *map(len, options.places(size))), 4)
    notes = [f"polynomial of degree {degree} in the place, PSF_SAMP {step:.4g}: resampled to pixels (Lanczos-3)"]
    kernels, weights = resample(planes, step)[:, None], polynomials(degree, zero, scale, options.places(size))
    if options.recentre:
        raise InputError(f"{path}: PSFEx models are centred by PSFEx: do not recentre")
    weights = _normalised(str(path), kernels, weights, options, notes)
    _, found = condition(
        str(path), np.tensordot(weights.mean((1, 2), dtype=float), kernels, 1), normalise=False, crop=False
    )
    kernels, cropped = crop_margins(kernels)
    notes += found + cropped
    blur = Blur(
        torch.from_numpy(kernels),
        torch.from_numpy(weights),
        options.order or "weight-then-convolve",
        tuple(notes),
        f"a PSFEx model of degree {degree}",
    )
    if degree:
        return blur.noted(f"weights are signed: {float(weights.min()):.3g} to {float(weights.max()):.3g}")
    return blur


def is_psfex(hdu: Any) -> bool:
    """Is this HDU a table with PSFEx's column?"""
    columns = getattr(hdu, "columns", None)
    return columns is not None and "PSF_MASK" in columns.names and len(hdu.data) > 0


def polynomials(degree: int, zero: Array, scale: Array, places: tuple[Array, Array]) -> Array:
    """Weights (ncoeff, H, W) float32: `x^i y^j` at every pixel, x fastest, in PSFEx's order."""
    rows, columns = places
    x = (columns + 1 - zero[0]) / scale[0]  # FITS counts pixels from 1
    y = (rows + 1 - zero[1]) / scale[1]
    terms = [(i, j) for j in range(degree + 1) for i in range(degree + 1 - j)]
    return np.stack([np.outer(y**j, x**i).astype(np.float32) for i, j in terms])


def resample(planes: Array, step: float) -> Array:
    """Planes (n, h, w) with a sample every `step` pixels, at the centres of detector pixels: (n, kh, kw).

    The source is at sample `w // 2` and becomes the centre. Pixels beyond the samples are 0.
    """
    rows, columns = (_lanczos(n, step) for n in planes.shape[1:])
    result: Array = np.einsum("ah,nhw,bw->nab", rows, planes, columns)
    return result


def _lanczos(count: int, step: float) -> Array:
    """(k, count): interpolation from samples to pixels; every row sums to 1, as PSFEx normalises them."""
    if step == 1:  # the samples are the pixels
        return np.eye(count + 1 - count % 2, count)
    centre = count // 2
    half = int(centre * step + 1e-9)
    at = centre + np.arange(-half, half + 1) / step
    at = at[at <= count - 1 + 1e-9]
    distance = at[:, None] - np.arange(count)
    matrix = np.sinc(distance) * np.sinc(distance / LANCZOS) * (np.abs(distance) < LANCZOS)
    matrix /= matrix.sum(1, keepdims=True)
    return np.pad(matrix, [(0, 2 * half + 1 - len(at)), (0, 0)])


def _shaped(name: str, header: Any, planes: Array) -> Array:
    axes = [take(name, header, key, AXIS) for key in ("PSFAXIS1", "PSFAXIS2", "PSFAXIS3") if key in header]
    if len(axes) >= 2:
        shape = (axes[2] if len(axes) > 2 else 1, axes[1], axes[0])
        if math.prod(shape) != planes.size:
            raise InputError(f"{name}: PSF_MASK holds {planes.size} values, PSFAXIS1 .. 3 say {shape[::-1]}")
        return planes.reshape(shape)
    if planes.ndim == 2:
        return planes[None]
    if planes.ndim != 3:
        raise InputError(f"{name}: PSF_MASK has shape {planes.shape}: give (ncoeff, h, w)")
    return planes


def _polynomial(name: str, header: Any, said: dict[str, Any], count: int) -> tuple[int, Array, Array]:
    """Degree, zero points and scales for (x, y)."""
    dimensions = said["POLNAXIS"]
    if dimensions == 0:
        degree = 0
        zero, scale = np.zeros(2), np.ones(2)
    elif dimensions == 2 and said["POLNGRP"] == 1:
        names = [str(header.get(f"POLNAME{i}", "")).upper() for i in (1, 2)]
        if not all(n.startswith(letter) and n.endswith("IMAGE") for n, letter in zip(names, "XY", strict=True)):
            raise InputError(
                f"{name}: the PSF varies with {shown(' and '.join(names))}: only X_IMAGE and Y_IMAGE are known"
            )
        degree = said["POLDEG1"]
        zero, scale = (
            np.array([take(name, header, f"{key}{i}", PLACE) for i in (1, 2)]) for key in ("POLZERO", "POLSCAL")
        )
        if (np.abs(scale) < TINY).any():
            raise InputError(f"{name}: POLSCAL is {scale.min():g}: the place is not defined")
    else:
        raise InputError(
            f"{name}: the PSF varies with {dimensions} quantities in {said['POLNGRP']} groups: "
            "only the place (x, y, in one group) is known"
        )
    if count != (degree + 1) * (degree + 2) // 2:
        raise InputError(
            f"{name}: {count} planes for a polynomial of degree {degree}: {(degree + 1) * (degree + 2) // 2} needed"
        )
    return degree, zero, scale


def _normalised(name: str, kernels: Array, weights: Array, options: Options, notes: list[str]) -> Array:
    """Weights with which the PSF sums to 1 at every place: a star keeps its flux wherever it lies.

    PSFEx fits shapes; that the sum of its polynomial varies over the field is an error of the fit, or light that its
    stamps cut off.
    """
    sums = np.tensordot(kernels.sum((1, 2, 3)).astype(np.float32), weights, 1)
    if not options.normalise:
        notes.append(f"the PSF sums to {spread(sums)} over the field, kept as it is")
        return weights
    lowest, highest = float(sums.min()), float(sums.max())
    if lowest <= 0 or highest > MOST_UNEVEN * lowest:
        raise InputError(
            f"{name}: the PSF sums to {lowest:.3g} to {highest:.3g} over the field: it must be above 0 everywhere; "
            "does the model belong to a picture of this size?"
        )
    if max(abs(lowest - 1), abs(highest - 1)) > 1e-3:
        notes.append(f"normalised at every place: divided by its sum, {spread(sums)} over the field")
    result: Array = (weights / sums).astype(np.float32)
    return result
