"""A sharp picture blurred and made noisy: for teaching, tests and planning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pnpladmm.blur import Blur
from pnpladmm.operators import Boundary
from pnpladmm.pictures import Picture
from pnpladmm.restoration.inputs import BlurLike, PictureLike, as_given, blur_for
from pnpladmm.restoration.options import check_scale, one_gain
from pnpladmm.restoration.policy import unit_of
from pnpladmm.tensors import InputError, check_positive, type_words


@dataclass(frozen=True)
class Simulation:
    """What a camera with this blur would have recorded, and the blur on the recorded pixels."""

    picture: Picture
    blur: Blur


def simulate(
    picture: PictureLike,
    blur: BlurLike,
    noise: float = 0.0,
    gain: float | None = None,
    background: float = 0.0,
    boundary: Boundary = "unknown",
    seed: int = 0,
    *,
    labels: Any = None,
    positions: Any = None,
    psf_scale: float | None = None,
    electrons_per_count: float | None = None,
    axes: str | None = None,
) -> Simulation:
    """Blur a sharp picture, then add noise.

    Parameters
    ----------
    picture, blur, labels, positions, psf_scale, axes
        As in `restore`, but no operators.
    noise : float
        Standard deviation of Gaussian noise: 1 is white, and in files of floats 1.
    gain, background : float
        Counts instead: what one electron adds, and the level below them, in the numbers of the file or array.
    electrons_per_count : float, optional
        The inverse of `gain`.
    boundary : {"unknown", "circular", "replicate", "reflect", "zero"}
        With `unknown` the border, whose light comes from outside the picture, is cut off: the result is smaller by
        the size of the kernels less one, and so is the blur that is returned with it.
    seed : int
        Of the noise.

    Returns
    -------
    Simulation
        With `picture`, which `restore` takes, and `blur`.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> done = pl.simulate(torch.rand(32, 32), torch.ones(5, 5) / 25, noise=0.01)
    >>> done.picture.pixels.shape, done.blur.size
    (torch.Size([1, 1, 28, 28]), (28, 28))
    """
    gain = one_gain(gain, electrons_per_count)
    return simulate_with(
        1.0, picture, blur, noise, gain, background, boundary, seed, labels, positions, psf_scale, axes
    )


def simulate_with(
    noise_white: float,
    picture: PictureLike,
    blur: BlurLike,
    noise: float,
    gain: float | None,
    background: float,
    boundary: Boundary,
    seed: int,
    labels: Any = None,
    positions: Any = None,
    psf_scale: float | None = None,
    axes: str | None = None,
) -> Simulation:
    """`simulate` with noise on the scale where white is `noise_white`: 255 on the command line."""
    _check(noise, gain, background, noise_white)
    noise = noise / noise_white
    sharp = as_given(picture, axes).picture
    model = blur_for(blur, sharp, labels, positions, psf_scale)
    if not isinstance(model, Blur):
        raise InputError(f"blur is {type_words(model)}: give a Blur, an array of the PSF or a blur file")
    clean = model.operator("replicate" if boundary == "unknown" else boundary).forward(sharp.pixels)
    if boundary == "unknown":
        clean, sharp, model = _without_border(clean, sharp, model)
    generator = torch.Generator().manual_seed(seed)
    if gain is not None:
        count, level = gain / sharp.scale, background / sharp.scale
        rate = (clean.double() + level).clamp_min(0) / count
        pixels = (torch.poisson(rate, generator=generator) * count).to(clean.dtype)
    else:
        noise = noise / unit_of(sharp)
        pixels = clean + noise * torch.randn(clean.shape, generator=generator, dtype=clean.dtype)
    return Simulation(replace(sharp, pixels=pixels, valid=None, blank_values=None, quality=None), model)


def _check(noise: float, gain: float | None, background: float, white: float) -> None:
    if noise < 0 or background < 0:
        raise InputError(f"noise = {noise}, background = {background}: give numbers that are not negative")
    check_scale(noise, white)
    if gain is None and background:
        raise InputError(f"background = {background}: it needs a gain, what one count adds to a pixel")
    if gain is not None and noise:
        raise InputError(f"noise = {noise} beside a gain: counts carry their own noise, give one of the two")
    if gain is not None:
        check_positive("gain", gain)


def _without_border(clean: Tensor, sharp: Picture, blur: Blur) -> tuple[Tensor, Picture, Blur]:
    """Cut off the pixels that light from outside the picture reaches."""
    kh, kw = blur.kernel_size
    height, width = clean.shape[-2:]
    rows = slice(kh - 1 - kh // 2, height - kh // 2)
    columns = slice(kw - 1 - kw // 2, width - kw // 2)
    if rows.start >= rows.stop or columns.start >= columns.stop:
        raise InputError(f"the picture is smaller than the {kh}x{kw} kernels: nothing is left within the border")
    clean = clean[..., rows, columns]
    note = f"cropped to the {clean.shape[-2]}x{clean.shape[-1]} pixels whose light is known"
    alpha = None if sharp.alpha is None else sharp.alpha[..., rows, columns]
    metadata, notes = sharp.metadata, sharp.notes
    if metadata.native is not None:
        metadata = replace(metadata, native=None)
        notes = (*notes, "the file's own metadata belong to a picture of another size and are left out")
    sharp = replace(sharp, pixels=clean, alpha=alpha, valid=None, blank_values=None, metadata=metadata, notes=notes)
    return clean, sharp, blur.noted(note, weights=blur.weights[:, rows, columns])
