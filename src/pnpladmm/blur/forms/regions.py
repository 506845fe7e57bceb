"""Regions of the picture, each with its own kernel, and a background where no region is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from pnpladmm.blur.arrays import Array
from pnpladmm.blur.conditioning import crop_margins, same_size
from pnpladmm.blur.forms.bank import feather_width, seam_note
from pnpladmm.blur.forms.kernel import uniform_kernel
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import Options, Size
from pnpladmm.blur.synthesis import soft_regions
from pnpladmm.tensors import InputError


def from_regions(
    regions: Sequence[tuple[Array, Array]], background: Array | None, options: Options, notes: list[str], source: str
) -> Blur:
    """Masks (H, W) with kernels (C, k, k); a later region lies over an earlier one. No background: sharp there."""
    size = options.needed_size(source, "a blur of regions")
    if background is None:
        notes.append("no background: outside the regions the picture is sharp")
    kernels = [np.ones((1, 1, 1)) if background is None else background]
    labels = np.zeros(size, dtype=np.int64)
    for inside, kernel in regions:
        labels[inside] = len(kernels)
        kernels.append(kernel)
    used = np.unique(labels)
    feather = feather_width(source, options, size)
    notes.append(seam_note(feather))
    bank, cropped = crop_margins(same_size([kernels[i] for i in used]))
    weights = soft_regions(np.searchsorted(used, labels), feather).float()
    return Blur(torch.from_numpy(bank), weights, options.order or "convolve-then-weight", (*notes, *cropped), source)


def check_region_options(name: str, options: Options) -> None:
    """Refuse options that say where kernels act, or what an array is: regions say it themselves."""
    for option in ("labels", "positions", "kind", "index"):
        if getattr(options, option) is not None:
            raise InputError(f"{name}: {option}: regions say themselves which kernel acts where: leave {option} out")


def region_options(options: Options) -> Options:
    """The options that condition the kernel of one region, without those that say where it acts."""
    return Options(
        size=options.size,
        normalise=options.normalise,
        recentre=options.recentre,
        background=options.background,
        oversampling=options.oversampling,
        psf_scale=options.psf_scale,
        picture_scale=options.picture_scale,
    )


def region_kernel(where: str, blur: Blur) -> Array:
    """The kernel (C, k, k) of a region from a blur that was read for it."""
    kernel = uniform_kernel(blur)
    if kernel is None:
        raise InputError(f"{where}: {blur.source} varies over the picture: give a region one kernel")
    return kernel


def polygon_mask(size: Size, points: Array) -> Array:
    """Which pixels (H, W) have their centre inside the polygon with corners (N, 2) as x, y."""
    from skimage.draw import polygon2mask

    return np.asarray(polygon2mask(size, points[:, ::-1]))
