"""How well a network restores blurred pictures: the validation of a training in the loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pnpladmm.data_terms import Gaussian
from pnpladmm.denoisers import as_denoiser
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.solvers import Annealed, Problem, solve
from pnpladmm.workshop.training.data import CropStore
from pnpladmm.workshop.training.random_blurs import BlurSource, random_weights

SIDE = 256
"""Side of the crops in pixels."""
MAX_PICTURES = 40
REACH, MAX_KERNELS = 16, 5
"""The largest kernels, 33x33 pixels, and how many of them; pictures have 2 to 5."""
BORDER = 17
"""Pixels at the border that PSNR leaves out."""


def restored_psnr(
    folder: Path,
    denoise: Callable[[Tensor, Any], Tensor],
    settings: Mapping[float, Mapping[str, Tensor | float]],
    calls: int,
    source: BlurSource,
) -> tuple[dict[str, float], int]:
    """Restore blurred crops by the annealed method as it is shipped.

    Parameters
    ----------
    folder : Path
        Clean pictures with sides of at least 256 pixels.
    denoise : callable
        The denoiser.
    settings : mapping
        The method's parameters by noise level (of 255).
    calls : int
        Denoiser calls.
    source : BlurSource
        Where the kernels come from.

    Returns
    -------
    dict, int
        Mean PSNR in dB by noise level, and the number of pictures. The same crops, blurs and noise at each call.
    """
    store = CropStore.from_folder(folder, 3, SIDE, source.device)
    count = min(MAX_PICTURES, len(store))
    generator = torch.Generator(source.device).manual_seed(0)
    clean = store.crops(count, SIDE, generator).contiguous()
    kernels = replace(source, pictures=count).kernels(REACH, MAX_KERNELS, generator)
    counts = 2 + torch.arange(count, device=source.device) % (MAX_KERNELS - 1)
    blur = SpatiallyVaryingBlur(kernels, random_weights(kernels, counts, SIDE, 5, generator))
    blurred = blur.forward(clean)
    error = torch.empty_like(blurred).normal_(generator=generator)
    inner = slice(BORDER, -BORDER)
    found = {}
    for noise, row in settings.items():
        problem = Problem(blurred + noise / 255 * error, blur, Gaussian(noise / 255))
        with torch.no_grad():
            method = Annealed.from_settings(as_denoiser(denoise), problem, _detached(row), calls)
            image = solve(problem, method, record=False).image
        squared = (image - clean)[..., inner, inner].square().mean((1, 2, 3))
        found[f"{noise:g}"] = round(float((-10 * squared.log10()).mean()), 3)
    return found, count


def _detached(row: Mapping[str, Tensor | float]) -> dict[str, Tensor | float]:
    return {name: value.detach() if isinstance(value, Tensor) else value for name, value in row.items()}
