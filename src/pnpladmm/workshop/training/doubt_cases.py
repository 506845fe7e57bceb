"""Cases to learn the doubt from: pictures with a known blur, and the PSF that is told, right or wrong.

Everything follows from the number of the case. The pictures are training photographs and the tuning crops, never those
that are scored; one in eight is text, a field of stars, or spots on a smooth background.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont
from scipy.ndimage import convolve
from torch import Tensor

from pnpladmm.blur import Blur, as_blur, common_size, defocus, gaussian, motion
from pnpladmm.blur.arrays import Array
from pnpladmm.pictures import Picture
from pnpladmm.workshop.bench.inputs import cells
from pnpladmm.workshop.experiments.dataset import load_dataset
from pnpladmm.workshop.training.random_kernels import LARGEST, camera_path, measured_path

SEED = 70000
MARGIN = 44
"""The largest PSF has at most so many more pixels than one."""
SIDES = (128, 128, 128, 128, 192, 72, 48)
LEVELS = (0.3, 0.5, 1.0, 1.5, 2.0, 2.0, 2.0, 3.0, 5.0, 8.0)
"""Noise before the picture is stored, of 255."""
QUALITIES = (95, 90, 85, 75, 60)
KINDS = {
    "right": 0.29,
    "width": 0.11,
    "length": 0.11,
    "angle": 0.11,
    "shift": 0.02,
    "noise": 0.05,
    "cut": 0.05,
    "region": 0.09,
    "regions right": 0.03,
    "other": 0.03,
    "mirror": 0.01,
    "measured": 0.06,
    "varying": 0.04,
}
"""What is wrong with the PSF, and in which share of the cases."""


@dataclass(frozen=True)
class DoubtCase:
    """An observation, the blur that is told, and the truth."""

    kind: str
    name: str
    picture: Picture
    told: Blur
    right: Blur
    sharp: Tensor
    reach: int
    """The result may be shifted by so many pixels, because the PSF shifts it."""


Source = tuple[str, Path | Tensor]


def sources(folder: Path, count: int) -> list[Source]:
    """`count` pictures of the folder, and the tuning crops."""
    names = sorted(path for path in folder.iterdir() if path.suffix in (".avif", ".png", ".jpg"))
    order = np.random.default_rng(5).permutation(len(names))[:count]
    photographs: list[Source] = [(names[i].stem, names[i]) for i in order]
    return photographs + [(s.name, s.sharp.double()) for s in load_dataset("tune", 2 / 255, size=256).samples]


def doubt_case(number: int, pictures: Sequence[Source]) -> DoubtCase:
    """The case of this number."""
    rng = np.random.default_rng(SEED + number)
    side = int(rng.choice(SIDES))
    kind, right, told, reach = _pair(rng, side)
    name, scene = _scene(rng, side, number, pictures)
    if rng.random() < 0.2:
        scene = scene.mean(1, keepdim=True)
    noise = float(rng.choice(LEVELS))
    high, wide = (k - 1 for k in right.kernel_size)
    top, left = (scene.shape[-2] - side - high) // 2, (scene.shape[-1] - side - wide) // 2
    scene = scene[..., top : top + side + high, left : left + side + wide]
    draw = torch.Generator().manual_seed(number)
    grain = torch.randn(1, scene.shape[1], side, side, generator=draw, dtype=torch.float64)
    y = right.operator("unknown").forward(scene) + noise / 255 * grain
    picture = _stored(y, rng, noise)
    sharp = scene[..., high // 2 : high // 2 + side, wide // 2 : wide // 2 + side]
    return DoubtCase(kind, name, picture, told, right, sharp, reach)


def _stored(y: Tensor, rng: np.random.Generator, noise: float) -> Picture:
    """As a file holds it: PNG, or JPEG in one of five cases with weak noise."""
    samples = (255 * y[0].permute(1, 2, 0).clamp(0, 1)).round().to(torch.uint8).numpy()
    samples = samples[..., 0] if samples.shape[-1] == 1 else np.ascontiguousarray(samples)
    quality = int(rng.choice(QUALITIES)) if rng.random() < 0.2 and noise <= 3 else None
    stream = io.BytesIO()
    if quality is None:
        Image.fromarray(samples).save(stream, "PNG")
    else:
        Image.fromarray(samples).save(stream, "JPEG", quality=quality, subsampling=int(rng.choice([0, 2])))
    return Picture.from_pil(Image.open(io.BytesIO(stream.getvalue())))


# What is seen.


def _scene(rng: np.random.Generator, side: int, number: int, pictures: Sequence[Source]) -> tuple[str, Tensor]:
    """The name of a scene, and the scene (1, 3, at least side + MARGIN)."""
    which = rng.random()
    if which < 0.05:
        return "text", _text(side + MARGIN, rng)
    if which < 0.09:
        return "stars", _stars(side + MARGIN, rng)
    if which < 0.12:
        return "spots", _spots(side + MARGIN, rng)
    tuning = rng.random() <= 0.25
    name, source = pictures[-1 - int(rng.integers(20))] if tuning else pictures[number % len(pictures)]
    return name, _photograph(source, side + MARGIN, rng)


def _photograph(source: Path | Tensor, side: int, rng: np.random.Generator) -> Tensor:
    if isinstance(source, Tensor):
        scene = source
    else:
        with Image.open(source) as image:
            samples = np.asarray(image.convert("RGB"))
        scene = torch.from_numpy(samples.copy()).permute(2, 0, 1)[None].double() / 255
    least = side / min(scene.shape[-2:])
    if isinstance(source, Path) and least < 0.8 and rng.random() < 0.8:  # shown smaller than it was taken
        scene = F.interpolate(scene, scale_factor=float(rng.uniform(least * 1.01, 0.8)), mode="area")
    height, width = scene.shape[-2:]
    side = min(side, height, width)
    best, most = scene, -1.0
    for _ in range(3 if rng.random() < 0.7 else 1):  # rather a place where there is something
        top, left = int(rng.integers(height - side + 1)), int(rng.integers(width - side + 1))
        part = scene[..., top : top + side, left : left + side]
        if (detail := float((part[..., 1:] - part[..., :-1]).abs().mean())) > most:
            best, most = part, detail
    return best


def _text(side: int, rng: np.random.Generator) -> Tensor:
    dark = rng.random() < 0.8
    page = Image.new("L", (side, side), 235 if dark else 25)
    pen, row = ImageDraw.Draw(page), 2
    while row < side:
        size = int(rng.integers(9, 22))
        left = int(rng.integers(0, 8))
        words = "".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz ABCD 0123,."), 40))
        pen.text((left, row), words, fill=20 if dark else 240, font=ImageFont.load_default(size))
        row += int(size * 1.5)
    return (torch.from_numpy(np.asarray(page).copy()).double()[None, None] / 255).expand(1, 3, -1, -1).clone()


def _stars(side: int, rng: np.random.Generator) -> Tensor:
    sky = torch.full((1, 1, side, side), 0.04, dtype=torch.float64)
    for _ in range(int(rng.integers(5, 120))):
        row, column = rng.integers(side, size=2)
        sky[0, 0, row, column] += float(min(40.0, 0.2 * rng.pareto(1.1) + 0.1))
    clouds = F.interpolate(torch.from_numpy(rng.random((1, 1, 4, 4))), (side, side), mode="bicubic")
    return (sky + 0.02 * clouds).clamp(0, 12).expand(1, 3, -1, -1).clone() / 6


def _spots(side: int, rng: np.random.Generator) -> Tensor:
    clouds = F.interpolate(torch.from_numpy(rng.random((1, 1, 8, 8))), (side, side), mode="bicubic").clamp(0, 1)
    return (0.2 * clouds + _stars(side, rng)[:, :1]).clamp(0, 1).expand(1, 3, -1, -1).clone()


# The PSF that the picture has, and the one that is told.


def _pair(rng: np.random.Generator, side: int) -> tuple[str, Blur, Blur, int]:
    """What is wrong, the right blur, the one that is told, and how far the result may be shifted."""
    size = (side, side)
    kind = str(rng.choice(list(KINDS), p=list(KINDS.values())))
    error = float(rng.choice([-1, 1]) * rng.uniform(0.04, 0.22))
    if rng.random() < 0.1:
        error *= 2
    if kind == "width":
        radius, is_disc = float(rng.uniform(1.0, 3)), rng.random() < 0.5
        right, told = ((defocus(1.6 * r) if is_disc else gaussian(r)).numpy() for r in (radius, radius * (1 + error)))
    elif kind in ("length", "angle"):
        length, angle = float(rng.uniform(5, 20)), float(rng.uniform(0, 180))
        right = motion(length, angle).numpy()
        told = (motion(length * (1 + error), angle) if kind == "length" else motion(length, angle + 90 * error)).numpy()
    else:
        right = _kernel(rng)
        if kind in ("region", "regions right"):
            return kind, *_regions(kind, rng, size), 0
        if kind == "varying":
            return kind, *_varying(rng, side), 1
        right, told = _wrong(kind, right, rng)
    return kind, as_blur(right, size), as_blur(told, size), 2 if kind in ("shift", "measured") else 0


def _wrong(kind: str, right: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    if kind == "right":
        return right, right
    if kind == "shift":
        return right, np.pad(right, ((1, 1), (2, 0)))
    if kind == "noise":
        size = float(rng.uniform(0.01, 0.07)) * right.max()
        return right, _whole(np.clip(right + size * rng.standard_normal(right.shape), 0, None))
    if kind == "cut":
        radius, share = right.shape[0] // 2, float(rng.uniform(0.2, 0.5))
        kept = max(1, radius - max(1, round(share * radius)))
        return right, _whole(right[radius - kept : radius + kept + 1, radius - kept : radius + kept + 1])
    if kind == "other":
        return right, _kernel(rng)
    if kind == "mirror":
        right = _shake(rng)
        return right, np.ascontiguousarray(right[:, ::-1])
    right = _shake(rng, rng.random() < 0.4)
    return right, _measured(right, rng)


def _measured(right: Array, rng: np.random.Generator) -> Array:
    """A PSF as it is measured: a little turned and stretched, maybe smoothed, uneven, and without its weakest parts."""
    told = _turned(right, float(rng.normal(0, 2)), (float(1 + rng.normal(0, 0.03)), float(1 + rng.normal(0, 0.03))))
    if rng.random() < 0.5:
        told = convolve(told, gaussian(float(rng.uniform(0.25, 0.6)), size=5).numpy(), mode="constant")
    told = told * (1 + 0.15 * rng.standard_normal(told.shape))
    return _whole(np.clip(told - float(rng.uniform(0, 0.04)) * told.max(), 0, None))


def _regions(kind: str, rng: np.random.Generator, size: tuple[int, int]) -> tuple[Blur, Blur]:
    """Two to six regions; one of them may be told wrong: another PSF, the same turned and stretched, or shifted."""
    count = int(rng.integers(2, 7))
    kernels = [torch.from_numpy(_kernel(rng)) for _ in range(count + 1)]
    labels = cells(count, size, torch.device("cpu"), torch.Generator().manual_seed(int(rng.integers(1 << 30))))
    weights = torch.stack([(labels == i).double() for i in range(count)])
    if kind == "region" and rng.random() < 0.4:
        degrees, scale = float(rng.uniform(-25, 25)), float(rng.uniform(0.8, 1.25))
        kernels[count] = torch.from_numpy(_turned(kernels[0].numpy(), degrees, (scale, scale)))
    if kind == "region" and rng.random() < 0.3:
        shift = int(rng.integers(2, 6))
        kernels[count] = F.pad(kernels[0], (2 * shift, 0, shift, shift))
    bank = common_size(kernels)
    told = torch.cat([bank[count:], bank[1:count]]) if kind == "region" else bank[:count]
    return Blur(bank[:count], weights), Blur(told, weights)


def _varying(rng: np.random.Generator, side: int) -> tuple[Blur, Blur]:
    """A shake that differs a little from corner to corner, told as their mean."""
    kernel, spread = _shake(rng, rng.random() < 0.4), float(rng.uniform(0.5, 3))
    corners = [
        torch.from_numpy(_turned(kernel, float(rng.normal(0, spread)), (float(1 + rng.normal(0, 0.03)),) * 2))
        for _ in range(4)
    ]
    along = torch.linspace(0, 1, side, dtype=torch.float64)
    weights = torch.stack([a[:, None] * b[None] for a in (along, 1 - along) for b in (along, 1 - along)])
    bank = common_size(corners)
    return Blur(bank, weights), as_blur(bank.mean(0).numpy(), (side, side))


def _kernel(rng: np.random.Generator) -> Array:
    """A PSF of one of five kinds."""
    kind = rng.integers(5)
    if kind == 4:
        return _shake(rng)
    if kind == 3:
        found = gaussian((float(rng.uniform(1.5, 3)), float(rng.uniform(0.8, 1.4))), float(rng.uniform(0, 180)))
    elif kind == 2:
        found = motion(float(rng.uniform(5, 20)), float(rng.uniform(0, 180)))
    elif kind == 1:
        found = defocus(float(rng.uniform(1.5, 5)))
    else:
        found = gaussian(float(rng.uniform(0.8, 3)))
    kernel: Array = found.numpy()
    return kernel


def _shake(rng: np.random.Generator, measured: bool = False) -> Array:
    draw = torch.Generator().manual_seed(int(rng.integers(1 << 31)))
    reach = torch.tensor([float(rng.uniform(4, 13))])
    kernel = (measured_path if measured else camera_path)(reach, draw)[0].clamp_min(0)
    radius = math.ceil(float(reach))
    kernel = kernel[LARGEST - radius : LARGEST + radius + 1, LARGEST - radius : LARGEST + radius + 1]
    found: Array = (kernel / kernel.sum()).double().numpy()
    return found


def _turned(kernel: Array, degrees: float, scale: tuple[float, float]) -> Array:
    """The kernel turned and stretched, on 3 more pixels at each side."""
    kernel, angle = np.pad(kernel, 3), math.radians(degrees)
    rows = [
        [math.cos(angle) / scale[0], -math.sin(angle) / scale[0], 0],
        [math.sin(angle) / scale[1], math.cos(angle) / scale[1], 0],
    ]
    places = F.affine_grid(torch.tensor([rows], dtype=torch.float64), [1, 1, *kernel.shape], align_corners=False)
    turned = F.grid_sample(torch.from_numpy(kernel)[None, None], places, align_corners=False, mode="bicubic")
    return _whole(turned[0, 0].clamp_min(0).numpy())


def _whole(kernel: Array) -> Array:
    found: Array = kernel / kernel.sum()
    return found
