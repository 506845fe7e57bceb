"""One kernel for the whole picture: the picture of a point."""

from __future__ import annotations

import numpy as np
import torch

from pnpladmm.blur.arrays import Array
from pnpladmm.blur.conditioning import at_pixel_centres, condition
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import Options
from pnpladmm.tensors import InputError


def single_kernel(name: str, array: Array, options: Options, with_alpha: bool = True) -> Blur:
    """(k, k), or (k, k, 3) with a kernel for each colour. The centre is index `k // 2`.

    `with_alpha`: the last of 2 or 4 channels is alpha, as in pictures of kernels; else it is a kernel, too.

    Oversampled kernels are taken at the centres of the detector's pixels, their origin in the middle.
    """
    size = options.needed_size(name, "one kernel")
    notes: list[str] = []
    kernel = channels_first(name, array, notes, with_alpha)
    kh, kw = kernel.shape[-2:]
    factors = options.factors()
    if factors is None and options.scales() is None and (kh >= size[0] and kw >= size[1]) and kh * kw > 1:
        raise InputError(
            f"{name}: is {kh}x{kw}, as large as the picture: a kernel is smaller; "
            "for a map say what it holds (kind: gaussian, defocus or motion)"
        )
    kernel = at_pixel_centres(kernel[None], factors, notes)
    bank, done = condition(
        name, kernel, options.normalise, options.recentre, options.background, scale=options.scales()
    )
    return Blur(
        torch.from_numpy(bank),
        torch.ones(1, *map(len, options.places(size))),
        options.order or "convolve-then-weight",
        (*notes, *done),
        "one kernel",
    )


def uniform_kernel(blur: Blur) -> Array | None:
    """The kernel (C, k, k) of a blur that is the same everywhere; None if it varies."""
    weights = blur.weights.flatten(1).double()
    if bool((weights.amin(1) != weights.amax(1)).any()):
        return None
    return np.tensordot(weights[:, 0].numpy(), blur.kernels.numpy(), 1)


def has_colours_last(array: Array) -> bool:
    """Is (a, b, c) one kernel with colours last, rather than a stack?"""
    return array.ndim == 3 and array.shape[-1] <= 4 < min(array.shape[:2])


def channels_first(name: str, array: Array, notes: list[str], with_alpha: bool = True) -> Array:
    """(k, k), (1, k, k), (k, k, 1), (k, k, 3) or, with alpha dropped, (k, k, 2 or 4), as (C, k, k)."""
    if array.ndim == 3 and array.shape[0] == 1:
        return array
    if array.ndim == 2:
        return array[None]
    if array.ndim != 3 or array.shape[-1] > 4:
        raise InputError(f"{name}: has shape {array.shape}: give one kernel (k, k)")
    channels = np.moveaxis(array, -1, 0)
    if with_alpha and len(channels) in (2, 4):
        channels = channels[:-1]
        notes.append("the alpha channel is ignored")
    if all(np.array_equal(channels[0], c) for c in channels[1:]):
        return channels[:1]
    notes.append(f"a kernel for each of {len(channels)} channels")
    return channels
