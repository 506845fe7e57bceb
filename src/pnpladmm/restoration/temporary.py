"""Stands in for `pnpladmm.blur.as_blur` until that is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from pnpladmm.blur import Blur, read_blur, soft_regions
from pnpladmm.tensors import InputError


def as_blur(thing: Any, size: tuple[int, int], *, labels: Any = None, positions: Any = None) -> Blur:
    """A file, a Blur, a PSF, or a stack with weights or labels."""
    if isinstance(thing, str | Path):
        return read_blur(thing, size, labels=labels, positions=positions)
    if isinstance(thing, Blur):
        return thing
    weights = None
    if isinstance(thing, tuple) and len(thing) == 2:
        thing, weights = thing
    try:
        kernels = torch.as_tensor(np.asarray(thing), dtype=torch.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"blur is a {type(thing).__name__}: give an array of the PSF, a Blur, an operator or a file"
        ) from None
    if kernels.ndim == 0:
        raise InputError(f"blur is a {type(thing).__name__}: give an array of the PSF, a Blur, an operator or a file")
    if kernels.ndim == 2:
        return Blur(kernels[None], torch.ones(1, *size))
    if labels is not None:
        weights = soft_regions(np.asarray(labels), 0)
    if weights is None:
        raise InputError(f"blur has shape {tuple(kernels.shape)}: say where each kernel acts, (kernels, weights)")
    return Blur(kernels, torch.as_tensor(weights))
