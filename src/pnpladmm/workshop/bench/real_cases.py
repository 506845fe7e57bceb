"""Pictures as files hold them for the benchmark `real`: 8 bits, JPEG, PSFs that do not fit, real camera shake.

Every case follows from its number. The border of each observation has light from outside the picture.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pnpladmm.blur import Blur, as_blur, common_size, defocus, gaussian, motion
from pnpladmm.blur.arrays import Array
from pnpladmm.blur.resampling import resampled
from pnpladmm.pictures import Picture, read_picture
from pnpladmm.places import shared_folder
from pnpladmm.workshop.bench.inputs import cells
from pnpladmm.workshop.experiments.dataset import load_dataset

NOISE = 2.0
"""Of 255, before the picture is stored."""
QUALITIES = (95, 85, 70, 98, 92, 90, 88, 80, 77, 75, 65, 60, 50)
"""The three of the first table, and ten others."""
STRETCH = 1.1
ERRORS = (
    *(f"{kind} {percent:+d} %" for kind in ("width", "length", "angle") for percent in (-20, -10, -5, 5, 10, 20)),
    "shift of 1 pixel",
    "noise in the PSF",
    "cut too small",
    "one of five regions wrong",
)
REGIONS = 5


@dataclass(frozen=True)
class Case:
    """An observation with the blur that is told, and the truth."""

    table: str
    kind: str
    name: str
    picture: Picture
    blur: Blur
    sharp: Tensor
    right: Blur
    """The blur that it has."""
    reach: int = 0
    """The result may be shifted by so many pixels, because a shifted PSF shifts it."""


def sharp_crops(folder: Path | None, count: int | None = None, size: int = 256) -> list[tuple[str, Tensor]]:
    """Names and sharp test crops (1, 3, size, size), float64: COCO's where they are, else those of scikit-image."""
    dataset = load_dataset("test", NOISE / 255, count=count, folder=folder, size=size)
    return [(sample.name, sample.sharp.double()) for sample in dataset.samples]


def format_cases(crops: list[tuple[str, Tensor]], side: int) -> Iterator[Case]:
    """Each crop as PNG, as JPEG of each quality, and as PNG with a PSF that is told 10 % too large."""
    for number, (name, sharp) in enumerate(crops):
        kernel = random_psf(np.random.default_rng(number))
        right = as_blur(kernel, (side, side))
        samples, inner = observe(sharp, right, side, seed=number)
        for quality in (None, *QUALITIES):
            kind = "PNG" if quality is None else f"JPEG {quality}"
            yield Case("formats", kind, name, stored(samples, quality, number), right, inner, right)
        wrong = as_blur(resampled(kernel, (STRETCH, STRETCH)), (side, side))
        yield Case("formats", "PNG, PSF 10 % too large", name, stored(samples), wrong, inner, right)


def error_cases(crops: list[tuple[str, Tensor]], side: int, count: int) -> Iterator[Case]:
    """`count` cases with a wrong PSF, each kind of error in turn; for every fifth of them one with the right PSF."""
    for number in range(count):
        name, sharp = crops[number % len(crops)]
        rng = np.random.default_rng(1000 + number)
        kind = ERRORS[number % len(ERRORS)]
        right, wrong = psf_pair(kind, side, rng)
        samples, inner = observe(sharp, right, side, seed=1000 + number)
        reach = 2 if kind.startswith("shift") else 0
        yield Case("PSF errors", kind, name, stored(samples), wrong, inner, right, reach)
        if number % 5 == 0:
            yield Case("PSF errors", "right", name, stored(samples), right, inner, right)


def shaken_cases() -> Iterator[Case]:
    """The photographs of Levin et al. 2009 with real camera shake and measured kernels, where they are."""
    folder = shared_folder("levin2009")
    if folder is None:
        return
    for path in sorted(folder.glob("im*_kernel*_img.png")):
        scene, kernel = path.stem.split("_")[:2]
        picture, sharp = read_picture(path), read_picture(folder / "gt" / f"{scene}.png").pixels.double()
        psf = read_picture(folder / "gt" / f"{kernel}.png").pixels[0].mean(0).double().numpy()
        size = picture.pixels.shape[-2], picture.pixels.shape[-1]
        # Some of the kernels are stored turned by half a turn.
        both = [as_blur(np.ascontiguousarray(k), size) for k in (psf, psf[::-1, ::-1])]
        fits = [aligned_error(b.operator("replicate").forward(sharp), picture.pixels.double(), 9) for b in both]
        right = both[int(fits[1] < fits[0])]
        yield Case("camera shake", "Levin et al. 2009", path.stem, picture, right, sharp, right, 9)


def aligned_error(x: Tensor, reference: Tensor, reach: int, border: int = 17) -> float:
    """The least mean squared error over shifts by whole pixels up to `reach`, inside a border."""
    border = max(border, reach)
    inner = reference[..., border:-border, border:-border]
    height, width = inner.shape[-2:]
    errors = [
        float((x[..., top : top + height, left : left + width].clamp(0, 1) - inner).square().mean())
        for top in range(border - reach, border + reach + 1)
        for left in range(border - reach, border + reach + 1)
    ]
    return min(errors)


def random_psf(rng: np.random.Generator) -> Array:
    """A PSF of one of four kinds."""
    kind = rng.integers(4)
    if kind == 0:
        return _numpy(gaussian(float(rng.uniform(1, 2.5))))
    if kind == 1:
        return _numpy(defocus(float(rng.uniform(2, 4.5))))
    if kind == 2:
        return _numpy(motion(float(rng.uniform(6, 18)), float(rng.uniform(0, 180))))
    return _numpy(gaussian((float(rng.uniform(1.5, 3)), float(rng.uniform(0.8, 1.4))), float(rng.uniform(0, 180))))


def psf_pair(kind: str, side: int, rng: np.random.Generator) -> tuple[Blur, Blur]:
    """The blur that a picture has, and the one that is told."""
    size = (side, side)
    if kind == "one of five regions wrong":
        kernels = [torch.from_numpy(random_psf(rng)) for _ in range(REGIONS + 1)]
        seed = torch.Generator().manual_seed(int(rng.integers(1 << 30)))
        labels = cells(REGIONS, size, torch.device("cpu"), seed)
        weights = torch.stack([(labels == i).double() for i in range(REGIONS)])
        bank = common_size(kernels)
        told = torch.cat([bank[REGIONS:], bank[1:REGIONS]])
        return Blur(bank[:REGIONS], weights), Blur(told, weights)
    name, _, size_of_error = kind.partition(" ")
    factor = 1 + int(size_of_error.split()[0]) / 100 if name in ("width", "length", "angle") else 1.0
    right, wrong = _kernels(name, factor, rng)
    return as_blur(right, size), as_blur(wrong, size)


def _kernels(name: str, factor: float, rng: np.random.Generator) -> tuple[Array, Array]:
    if name == "width":
        radius, is_disc = float(rng.uniform(1.2, 2.8)), rng.random() < 0.5
        right, wrong = (_numpy(defocus(1.6 * r) if is_disc else gaussian(r)) for r in (radius, factor * radius))
        return right, wrong
    if name in ("length", "angle"):
        length, angle = float(rng.uniform(6, 18)), float(rng.uniform(0, 180))
        if name == "length":
            return _numpy(motion(length, angle)), _numpy(motion(factor * length, angle))
        return _numpy(motion(length, angle)), _numpy(motion(length, angle + 90 * (factor - 1)))
    right = random_psf(rng)
    if name == "shift":
        return right, np.pad(right, ((1, 1), (2, 0)))
    if name == "noise":
        wrong = np.clip(right + 0.05 * right.max() * rng.standard_normal(right.shape), 0, None)
        return right, wrong / wrong.sum()
    radius = right.shape[0] // 2
    cut = max(1, radius - max(1, round(0.4 * radius)))
    wrong = right[radius - cut : radius + cut + 1, radius - cut : radius + cut + 1]
    return right, wrong / wrong.sum()


def _numpy(kernel: Tensor) -> Array:
    found: Array = kernel.numpy()
    return found


def observe(sharp: Tensor, blur: Blur, side: int, seed: int, noise: float = NOISE) -> tuple[Array, Tensor]:
    """The samples (side, side, 3) of a blurred and noisy crop, and the sharp crop that they show."""
    high, wide = (k - 1 for k in blur.kernel_size)
    top, left = (sharp.shape[-2] - side - high) // 2, (sharp.shape[-1] - side - wide) // 2
    scene = sharp[..., top : top + side + high, left : left + side + wide]
    white = torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    y = blur.operator("unknown").forward(scene) + noise / 255 * white
    samples = (255 * y[0].permute(1, 2, 0).clamp(0, 1)).round().to(torch.uint8).numpy()
    return np.ascontiguousarray(samples), scene[..., high // 2 : high // 2 + side, wide // 2 : wide // 2 + side]


def stored(samples: Array, quality: int | None = None, number: int = 0) -> Picture:
    """As a file holds them: PNG, or JPEG with half or full resolution of colour, plain, progressive or optimised."""
    stream = io.BytesIO()
    if quality is None:
        Image.fromarray(samples).save(stream, "PNG")
    else:
        options = ({}, {"progressive": True}, {"optimize": True}, {"subsampling": 0})[number % 4]
        Image.fromarray(samples).save(stream, "JPEG", quality=quality, **options)
    return Picture.from_pil(Image.open(io.BytesIO(stream.getvalue())))
