"""Kernels and weight maps, complete: this package's NPZ, the paper's `basis`/`kmap`, deepinv's `filters`/`multipliers`.

All three mean true convolution. They differ in the order, the axes, and the centre of even kernels:

- `kernels` (P, k, k) or (P, C, k, k), `weights` (P, H, W), `order` (a string): what `write_blur` writes, with
  `uncertainty` (a number) and `estimate` (JSON) of a blur that was estimated;
- `basis` (P, k, k), `kmap` (P, H, W): convolve, then weight;
- `filters` (1, c, K, k, k), `multipliers` (1, c, K, H, W): weight, then convolve; an even kernel has its
  centre at `k // 2 - 1`. With `mask_first` false in the file (newer deepinv) it is the paper's order.

Values are taken as they are: weights may be negative and PSFs need not sum to 1. The notes say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch

from pnpladmm.blur.arrays import Array, check_numbers, to_array
from pnpladmm.blur.conditioning import as_bank, crop_margins, same_size, spread
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import Options
from pnpladmm.blur.trust import Estimate
from pnpladmm.operators.blur import Order
from pnpladmm.tensors import InputError

NAMES = (("kernels", "weights"), ("basis", "kmap"), ("filters", "multipliers"))


def weighted_kernels(name: str, arrays: Mapping[str, Any], options: Options) -> Blur:
    """The blur in an NPZ or MAT file with one of the pairs of `NAMES`."""
    options.refuse_scale(name, "kernels with weights")
    pair = next(p for p in NAMES if p[0] in arrays and p[1] in arrays)
    kernels, weights = (_numbers(f"{name}: {key}", arrays[key]) for key in pair)
    exact = to_array(name, arrays[pair[1]]).dtype == np.float64 and "order" in arrays
    notes: list[str] = []
    order: Order = "convolve-then-weight"
    if pair[0] == "filters":
        order = "convolve-then-weight" if not _flag(arrays.get("mask_first", True)) else "weight-then-convolve"
        kernels, weights = _deepinv(name, kernels, weights, notes)
    else:
        kernels, weights = _aligned(name, pair, kernels, weights, notes)
    if "order" in arrays:
        order = _order(name, arrays["order"])
    order = options.order or order
    kernels = as_bank(name, kernels.astype(np.float64))
    weights = _fit(name, weights, kernels, options, notes).astype(np.float64 if exact else np.float32, copy=False)
    # What `write_blur` wrote comes back as it was; others lose margins that are exactly 0.
    kernels, cropped = (kernels, []) if "order" in arrays else crop_margins(kernels, share=0)
    source = str(arrays.get("source", f"{pair[0]} and {pair[1]}"))
    blur = Blur(torch.from_numpy(kernels), torch.from_numpy(weights), order, (), source)
    return _trusted(name, arrays, blur.noted(*notes, *cropped, *weight_notes(blur)))


def _trusted(name: str, arrays: Mapping[str, Any], blur: Blur) -> Blur:
    """The blur with how far it is to be trusted, where the file says so; the warnings of an estimate are notes."""
    if "uncertainty" in arrays:
        value = check_numbers(f"{name}: uncertainty", arrays["uncertainty"])
        if value.size != 1:
            raise InputError(f"{name}: uncertainty has shape {value.shape}: give one number")
        blur = blur.noted(uncertainty=float(value.item()))
    if "estimate" in arrays:
        estimate = Estimate.from_text(str(np.asarray(arrays["estimate"]).ravel()[0]))
        blur = blur.noted(estimate.sentence(), *estimate.warnings, estimate=estimate)
    return blur


def weight_notes(blur: Blur) -> list[str]:
    """What is unusual about weights: signs, sums; and how the PSF's sum varies over the field."""
    notes = []
    weights = blur.weights
    if bool((weights < 0).any()):
        notes.append(f"weights are signed: {float(weights.min()):.3g} to {float(weights.max()):.3g}")
    sums = torch.einsum("phw,pc->chw", weights, blur.kernels.sum((-2, -1)).to(weights.dtype))
    if float((sums - 1).abs().max()) > 1e-3:
        notes.append(
            f"the PSF sums to {spread(sums.numpy())} over the field, kept as it is: the brightness changes by as much"
        )
    return notes


def _numbers(name: str, array: Any) -> Array:
    array = to_array(name, array)
    if array.dtype == object:  # MATLAB's cells
        return same_size([check_numbers(name, cell) for cell in array.ravel()])
    return check_numbers(name, array, single=True)


def _aligned(name: str, pair: tuple[str, str], kernels: Array, weights: Array, notes: list[str]) -> tuple[Array, Array]:
    """Both with P first. MATLAB users put it last; a leading batch axis of 1 is removed."""
    if weights.ndim == 4 and len(weights) == 1:
        weights = weights[0]
        kernels = kernels[0] if kernels.ndim > 3 and len(kernels) == 1 else kernels
    if weights.ndim == 2:
        weights = weights[None]
    if weights.ndim != 3 or kernels.ndim not in (2, 3, 4):
        raise InputError(
            f"{name}: {pair[0]} have shape {kernels.shape}, {pair[1]} {weights.shape}: give (P, k, k) and (P, H, W)"
        )
    kernels = kernels[None] if kernels.ndim == 2 else kernels
    if len(kernels) == len(weights):
        return kernels, weights
    if kernels.shape[-1] == weights.shape[-1] and kernels.ndim == 3:
        notes.append(f"axes taken as (k, k, {kernels.shape[-1]}) and (H, W, {kernels.shape[-1]})")
        return np.moveaxis(kernels, -1, 0), np.moveaxis(weights, -1, 0)
    raise InputError(f"{name}: {pair[0]}: {len(kernels)}, {pair[1]}: {len(weights)}: they must match")


def _deepinv(name: str, kernels: Array, weights: Array, notes: list[str]) -> tuple[Array, Array]:
    """(1, c, K, k, k) and (1, c, K, H, W) as (P, C, k, k) and (P, H, W)."""
    if kernels.ndim != 5 or weights.ndim != 5:
        raise InputError(
            f"{name}: filters have shape {kernels.shape}, multipliers {weights.shape}: "
            "give (1, c, K, k, k) and (1, c, K, H, W)"
        )
    if len(kernels) != 1 or len(weights) != 1:
        raise InputError(f"{name}: holds blurs for {max(len(kernels), len(weights))} pictures: give them one by one")
    if kernels.shape[2] != weights.shape[2]:
        raise InputError(f"{name}: filters: {kernels.shape[2]}, multipliers: {weights.shape[2]}: they must match")
    bank, maps = np.moveaxis(kernels[0], 1, 0), np.moveaxis(weights[0], 1, 0)  # (K, c, ...)
    even = tuple(k % 2 == 0 for k in bank.shape[-2:])
    if any(even):
        bank = np.pad(bank, [(0, 0), (0, 0), (int(even[0]), 0), (int(even[1]), 0)])
        notes.append("even kernels have their centre at k/2 - 1 in deepinv: padded so that it stays there")
    if maps.shape[1] == 1:
        return bank, maps[:, 0]
    # A map for each channel: one term per channel, whose kernel is 0 in the others.
    count, channels = len(maps), maps.shape[1]
    wide = np.zeros((count, channels, channels, *bank.shape[-2:]))
    for c in range(channels):
        wide[:, c, c] = bank[:, c if bank.shape[1] > 1 else 0]
    notes.append(f"multipliers differ by channel: {count} terms became {count * channels}")
    return wide.reshape(count * channels, channels, *bank.shape[-2:]), maps.reshape(-1, *maps.shape[-2:])


def _fit(name: str, weights: Array, kernels: Array, options: Options, notes: list[str]) -> Array:
    """Weights on the picture. Those of a scene with its border (deepinv's `valid`) lose the border."""
    height, width = weights.shape[-2:]
    kh, kw = kernels.shape[-2:]
    if options.size is not None and (height - kh + 1, width - kw + 1) == options.size and kh * kw > 1:
        top, left = kh - 1 - kh // 2, kw - 1 - kw // 2
        notes.append(
            f"weights of the {height}x{width} scene cropped to the {options.size[0]}x{options.size[1]} picture"
        )
        return weights[:, top : top + options.size[0], left : left + options.size[1]]
    options.matching_size(name, "weights", (height, width))
    return weights


def _flag(value: Any) -> bool:
    return bool(np.asarray(value).ravel()[0])


def _order(name: str, value: Any) -> Order:
    text = str(np.asarray(value).ravel()[0])
    if text not in ("convolve-then-weight", "weight-then-convolve"):
        raise InputError(f"{name}: order {text!r}: give convolve-then-weight or weight-then-convolve")
    return cast(Order, text)
