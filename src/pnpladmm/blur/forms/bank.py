"""A bank of kernels and a map that says which acts where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from pnpladmm.blur.arrays import Array, check_numbers, read_labels
from pnpladmm.blur.conditioning import condition
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import Options, Size
from pnpladmm.blur.synthesis import soft_regions
from pnpladmm.tensors import InputError

FEATHER = 2.0
"""Pixels; the width of seams unless told otherwise. Hard seams show in restorations."""


def kernel_bank(name: str, kernels: Array, options: Options) -> Blur:
    """Kernels (P, k, k) or (P, C, k, k), `options.labels` (H, W) of 0 .. P-1, seams `feather` pixels wide."""
    if isinstance(options.labels, Path):
        where, labels = str(options.labels), read_labels(options.labels)
    else:
        where = f"{name}: labels"
        labels = check_numbers(where, options.labels)
    bank, notes = condition(
        name, kernels, options.normalise, options.recentre, options.background, scale=options.scales()
    )
    regions = label_map(where, labels, len(bank), notes)
    options.matching_size(where, "labels", (regions.shape[0], regions.shape[1]))
    feather = feather_width(name, options, (regions.shape[0], regions.shape[1]))
    notes.append(seam_note(feather))
    unused = sorted(set(range(len(bank))) - set(np.unique(regions).tolist()))
    if unused:
        notes.append(f"kernels {', '.join(map(str, unused))} have no pixel in the label map and are left out")
        kept = np.setdiff1d(np.arange(len(bank)), unused)
        bank, regions = bank[kept], np.searchsorted(kept, regions)
    return Blur(
        torch.from_numpy(bank),
        soft_regions(regions, feather).float(),
        options.order or "convolve-then-weight",
        tuple(notes),
        f"a bank of {len(bank)} kernels and a label map",
    )


def feather_width(name: str, options: Options, size: Size) -> float:
    """Width of the seams in pixels; at most half the picture."""
    if options.feather is None:
        return FEATHER
    if options.feather > max(size) / 2:
        raise InputError(
            f"{name}: feather {options.feather:g}: give pixels, at most half the picture ({max(size) / 2:g})"
        )
    return options.feather


def seam_note(feather: float) -> str:
    """What the notes say about seams."""
    return f"seams between regions are feathered over {feather:g} pixels"


def label_map(name: str, labels: Array, count: int, notes: list[str]) -> Array:
    """Whole numbers 0 .. count-1, (H, W). Grey values that stand for labels are put in order."""
    if labels.ndim == 3 and labels.shape[-1] in (2, 3, 4):
        colours = labels[..., :-1] if labels.shape[-1] in (2, 4) else labels
        if not (colours == colours[..., :1]).all():
            raise InputError(f"{name}: the label map is coloured: give one channel of whole numbers 0 to {count - 1}")
        labels = colours[..., 0]
    if labels.ndim != 2:
        raise InputError(
            f"{name}: the label map has shape {labels.shape}: give (H, W); weights go with kernels: (kernels, weights)"
        )
    values = np.unique(labels)
    if (values != np.round(values)).any():
        raise InputError(f"{name}: the label map holds {values[values != np.round(values)][0]:g}: give whole numbers")
    if values[0] >= 0 and values[-1] < count:
        return labels.astype(np.int64)
    if len(values) != count:
        raise InputError(
            f"{name}: the label map has {len(values)} labels from {values[0]:g} to {values[-1]:g} "
            f"for {count} kernels: give 0 to {count - 1}"
        )
    notes.append(
        f"labels {', '.join(f'{v:g}' for v in values[:8])}{' ...' if count > 8 else ''} stand for 0 to {count - 1}"
    )
    return np.searchsorted(values, labels)
