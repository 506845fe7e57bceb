"""A blur given pixel by pixel: a map of Gaussian widths, of defocus radii, or of motion vectors.

The map is quantised to a bank of kernels. A value between two levels is their linear mix, so seams do not show.
Levels are added until the mix is within `tolerance` of the true kernel, or until there are `most` of them. The
remaining error is measured on the map's own values and reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import torch

from pnpladmm.blur.arrays import Array, check_numbers
from pnpladmm.blur.conditioning import crop_margins, relative_errors, resized, same_size, spread
from pnpladmm.blur.interpolation import hats
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import Kind, Options
from pnpladmm.blur.synthesis import defocus, gaussian, motion
from pnpladmm.gate import check_size
from pnpladmm.tensors import InputError

Kernel: TypeAlias = Callable[[float], Array]

WIDEST = 200.0
"""Pixels; a map with larger values is in other units."""
SHARP = 0.02
"""Widths below this are no blur at all."""
WIDTH_KERNELS, MOTION_KERNELS = 32, 64
"""The largest number of kernels unless told otherwise. Vectors have two components, so they need more."""
FEWEST_VECTORS = 8
"""Fewer nodes than this cannot surround the vectors of a map, however wide the grid."""
ROW = 1_000_003
"""Combines the two indices of a node into one number; larger than any index."""
SAMPLES = 40
"""Number of values of the map at which the error is measured."""


def width_map(name: str, values: Array, kind: Kind, options: Options) -> Blur:
    """(H, W) of standard deviations (`gaussian`) or radii (`defocus`), in pixels; 0 is sharp."""
    options.refuse_scale(name, "a map of widths")
    values = values[..., 0] if values.ndim == 3 and values.shape[-1] == 1 else values
    if values.ndim != 2:
        raise InputError(f"{name}: a map of widths has shape {values.shape}: give (H, W)")
    _check(name, values, float(values.min()), float(values.max()))
    side = 2 * math.ceil((4 if kind == "gaussian" else 1) * float(values.max()) - 0.5) + 1
    _check_fits(name, (side, side), values)
    options.matching_size(name, "map values", (values.shape[0], values.shape[1]))
    make = _gaussian if kind == "gaussian" else _disc
    levels, error = _levels(values, make, options)
    check_size(f"{name}: its weights", (len(levels), *values.shape), 4)
    bank = same_size([make(level) for level in levels])
    bank, _ = crop_margins(bank)
    weights = hats(values, levels)
    what = "standard deviations" if kind == "gaussian" else "radii"
    note = f"{what} of {spread(values, '.3g')} pixels quantised to {len(levels)} kernels, {_report(error)}"
    return _blur(bank, weights, options, note, f"a map of {kind} blur")


def motion_map(name: str, dx: Array, dy: Array, options: Options) -> Blur:
    """(H, W) each: the path of the motion at each pixel in pixels, x to the right, y down; its sign does not matter."""
    if dx.shape != dy.shape or dx.ndim != 2:
        raise InputError(f"{name}: motion has dx of shape {dx.shape} and dy of {dy.shape}: give two (H, W)")
    options.refuse_scale(name, "a map of motion")
    length = np.hypot(dx, dy)
    _check(name, length, float(length.min()), float(length.max()))
    _check_fits(name, (int(np.abs(dy).max()) + 1, int(np.abs(dx).max()) + 1), length)
    options.matching_size(name, "motion vectors", (dx.shape[0], dx.shape[1]))
    step = _vector_step(dx, dy, options)
    nodes, weights = _vector_weights(dx, dy, step)
    bank = same_size([_line(*node) for node in nodes])
    error = _motion_error(dx, dy, nodes, weights, bank)
    bank, _ = crop_margins(bank)
    grid = f"{len(nodes)} vectors {step:.3g} pixels apart"
    note = f"motion of {spread(length, '.3g')} pixels quantised to {grid}, {_report(error)}"
    return _blur(bank, weights, options, note, "a map of motion blur")


def from_named_maps(name: str, arrays: Mapping[str, Any], options: Options) -> Blur:
    """Named arrays `sigma`, `radius`, `motion`, or `dx` and `dy`."""
    numbers = {k: check_numbers(f"{name}: {k}", arrays[k]) for k in ("sigma", "radius", "motion") if k in arrays}
    if "sigma" in numbers:
        return width_map(name, numbers["sigma"], "gaussian", options)
    if "radius" in numbers:
        return width_map(name, numbers["radius"], "defocus", options)
    if "motion" in numbers:
        return vector_map(name, numbers["motion"], options)
    dx, dy = (check_numbers(f"{name}: {k}", arrays[k]) for k in ("dx", "dy"))
    return motion_map(name, dx, dy, options)


def vector_map(name: str, vectors: Array, options: Options) -> Blur:
    """Motion vectors (2, H, W) or (H, W, 2), x first."""
    if vectors.ndim == 3 and vectors.shape[0] == 2:
        return motion_map(name, vectors[0], vectors[1], options)
    if vectors.ndim == 3 and vectors.shape[-1] == 2:
        return motion_map(name, vectors[..., 0], vectors[..., 1], options)
    raise InputError(f"{name}: motion has shape {vectors.shape}: give (2, H, W) or (H, W, 2), x first")


def _blur(bank: Array, weights: Array, options: Options, note: str, source: str) -> Blur:
    return Blur(
        torch.from_numpy(bank), torch.from_numpy(weights), options.order or "convolve-then-weight", (note,), source
    )


def _check(name: str, values: Array, low: float, high: float) -> None:
    if low < 0:
        raise InputError(f"{name}: the map has widths down to {low:g}: they are pixels, 0 or more")
    if high > WIDEST:
        raise InputError(f"{name}: the map has widths up to {high:g}: they are pixels, at most {WIDEST:g}")


def _check_fits(name: str, side: tuple[int, int], values: Array) -> None:
    """Refuse, before any is drawn, kernels that are larger than the picture."""
    if side[0] > values.shape[0] or side[1] > values.shape[1]:
        raise InputError(
            f"{name}: kernels are {side[0]}x{side[1]}, the picture {values.shape[0]}x{values.shape[1]}: "
            "a kernel must fit into the picture"
        )


def _gaussian(sigma: float) -> Array:
    return gaussian(max(sigma, SHARP)).numpy()


def _disc(radius: float) -> Array:
    return defocus(max(radius, SHARP)).numpy()


def _line(dx: float, dy: float) -> Array:
    length = float(np.hypot(dx, dy))
    if length < SHARP:
        return np.ones((1, 1))
    # Angles are counter-clockwise as the picture is seen, and rows run down.
    return motion(length, float(np.degrees(np.arctan2(-dy, dx)))).numpy()


def _levels(values: Array, make: Kernel, options: Options) -> tuple[Array, Array]:
    """The fewest levels that keep the error below the tolerance, and the error at samples of the map."""
    most = options.most or WIDTH_KERNELS
    low, high = float(values.min()), float(values.max())
    make = cache(make)
    samples = np.quantile(values, np.linspace(0, 1, SAMPLES))
    count = min(2, most) if high > low else 1
    while True:
        # A step in a kernel's width matters relative to the width; 0.5 pixel stands for the detector's own width.
        levels = np.exp(np.linspace(np.log(low + 0.5), np.log(high + 0.5), count)) - 0.5
        levels[0], levels[-1] = low, high
        error = _mix_error(samples, levels, make)
        if error.max() <= options.tolerance or count >= most or count == 1:
            return levels, error
        count = min(count + max(1, count // 4), most)


def _mix_error(samples: Array, levels: Array, make: Kernel) -> Array:
    shares = hats(samples, levels)  # (levels, samples)
    bank = same_size([make(v) for v in levels] + [make(v) for v in samples])[:, 0]
    mixed = np.einsum("ls,lij->sij", shares, bank[: len(levels)])
    return relative_errors(mixed, bank[len(levels) :])


def _vector_step(dx: Array, dy: Array, options: Options) -> float:
    """The widest grid of vectors within the tolerance; else the finest that has no more nodes than allowed."""
    most = max(options.most or MOTION_KERNELS, FEWEST_VECTORS)
    # The search needs the step only, so a thinned map will do.
    every = tuple(slice(None, None, max(1, n // 128)) for n in dx.shape)
    dx, dy = dx[every], dy[every]
    step, fits = 0.25, 0.0
    for step in 4.0 * 0.8 ** np.arange(13):
        nodes, weights = _vector_weights(dx, dy, step)
        if len(nodes) > most:
            break
        fits = step
        bank = same_size([_line(*node) for node in nodes])
        if _motion_error(dx, dy, nodes, weights, bank).max() <= options.tolerance:
            break
    while not fits:  # long paths in all directions
        step *= 1.25
        fits = step if len(_vector_weights(dx, dy, step)[0]) <= most else 0.0
    return float(fits)


def _vector_weights(dx: Array, dy: Array, step: float) -> tuple[list[tuple[float, float]], Array]:
    """Bilinear shares of the vectors' neighbours on a grid of `step`; v and -v are one node."""
    i, j = np.floor(dx / step).astype(int), np.floor(dy / step).astype(int)
    a, b = dx / step - i, dy / step - j
    keys, shares = [], []
    for di, dj, share in ((0, 0, (1 - a) * (1 - b)), (1, 0, a * (1 - b)), (0, 1, (1 - a) * b), (1, 1, a * b)):
        m, n = i + di, j + dj
        flip = (n < 0) | ((n == 0) & (m < 0))
        keys.append(np.where(flip, -m, m) * ROW + np.where(flip, -n, n))
        shares.append(share)
    table = np.stack(keys)
    live = np.stack(shares) > 1e-6
    nodes = np.unique(table[live])
    weights = np.zeros((len(nodes), *dx.shape), np.float32)
    for key, share, used in zip(keys, shares, live, strict=True):
        index = np.clip(np.searchsorted(nodes, key), 0, len(nodes) - 1)
        found = np.where(used, share, 0)
        np.put_along_axis(
            weights, index[None], np.take_along_axis(weights, index[None], 0) + found[None].astype(np.float32), 0
        )
    weights /= weights.sum(0)
    vectors = []
    for key in nodes.tolist():
        m = round(key / ROW)
        vectors.append((float(m * step), float((key - m * ROW) * step)))
    return vectors, weights


def _motion_error(dx: Array, dy: Array, nodes: list[tuple[float, float]], weights: Array, bank: Array) -> Array:
    order = np.argsort(np.hypot(dx, dy), axis=None)
    picks = order[np.linspace(0, len(order) - 1, SAMPLES).astype(int)]
    shares = weights.reshape(len(nodes), -1)[:, picks]
    true = same_size([bank[0], *(_line(dx.flat[p], dy.flat[p]) for p in picks)])[1:, 0]
    mixed = np.einsum("ls,lij->sij", shares, bank[:, 0])
    size = (max(mixed.shape[1], true.shape[1]), max(mixed.shape[2], true.shape[2]))
    return relative_errors(resized(mixed, size), resized(true, size))


def _report(error: Array) -> str:
    advice = "; allow more kernels (most) for less" if error.max() > 0.05 else ""
    return f"error {100 * error.mean():.2g} % of the kernel (at most {100 * error.max():.2g} %{advice})"
