"""A sharp picture blurred and made noisy: for teaching, tests and planning."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from pnpladmm.blur import Blur
from pnpladmm.operators import Boundary
from pnpladmm.pictures import Picture
from pnpladmm.tensors import InputError, check_positive


@dataclass(frozen=True)
class Simulation:
    """What a camera with this blur would have recorded, and the blur on the recorded pixels."""

    picture: Picture
    blur: Blur


def simulate(
    sharp: Picture,
    blur: Blur,
    noise: float = 0.0,
    gain: float | None = None,
    background: float = 0.0,
    boundary: Boundary = "unknown",
    seed: int = 0,
) -> Simulation:
    """Blur, then noise: Gaussian of standard deviation `noise` (in [0, 1]), or counts of `gain` each on `background`.

    With `unknown` the border, whose light comes from outside the picture, is cut off: the result is smaller by the
    kernel's size less one, and so is the blur that is returned with it. `gain` and `background` are in the picture's
    units ([0, 1]).
    """
    if noise < 0 or background < 0:
        raise InputError(f"noise = {noise}, background = {background}: give numbers that are not negative")
    if gain is None and background:
        raise InputError(f"background = {background}: it needs a gain, what one count adds to a pixel")
    if gain is not None and noise:
        raise InputError(f"noise = {noise} beside a gain: counts carry their own noise, give one of the two")
    clean = blur.operator("replicate" if boundary == "unknown" else boundary).forward(sharp.pixels)
    if boundary == "unknown":
        kh, kw = blur.kernel_size
        height, width = clean.shape[-2:]
        rows = slice(kh - 1 - kh // 2, height - kh // 2)
        columns = slice(kw - 1 - kw // 2, width - kw // 2)
        if rows.start >= rows.stop or columns.start >= columns.stop:
            raise InputError(f"the picture is smaller than the {kh}x{kw} kernels: nothing is left within the border")
        clean = clean[..., rows, columns]
        blur = blur.noted(
            f"cropped to the {clean.shape[-2]}x{clean.shape[-1]} pixels whose light is known",
            weights=blur.weights[:, rows, columns],
        )
        sharp = replace(
            sharp,
            alpha=None if sharp.alpha is None else sharp.alpha[..., rows, columns],
            valid=None,
            blank_values=None,
        )
    generator = torch.Generator().manual_seed(seed)
    if gain is not None:
        check_positive("gain", gain)
        rate = (clean.double() + background).clamp_min(0) / gain
        pixels = (torch.poisson(rate, generator=generator) * gain).to(clean.dtype)
    else:
        pixels = clean + noise * torch.randn(clean.shape, generator=generator, dtype=clean.dtype)
    return Simulation(replace(sharp, pixels=pixels, valid=None, blank_values=None), blur)
