"""What is measured on: synthetic pictures, kernels and weights, or samples of the experiments' dataset."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpladmm.blur.synthesis import gaussian
from pnpladmm.data_terms import Gaussian
from pnpladmm.denoisers import load_denoiser
from pnpladmm.denoisers.base import Denoiser
from pnpladmm.denoisers.shipped import is_installed
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.solvers import Problem
from pnpladmm.workshop.bench.report import Options

Weights: TypeAlias = Literal["segments", "dense"]

PHOTOGRAPH = "motorcycle_left.png"
FEATHER = 7
"""Pixels over which the weight of a segment falls from 1 to 0."""


def make_kernels(count: int, side: int, seed: int = 0) -> Tensor:
    """(P, k, k) float32: Gaussians of random width and angle, sum 1."""
    draw = torch.rand(count, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    widths = (0.6 + (side / 8 - 0.6) * draw[:, :2]).tolist()
    angles = (180 * draw[:, 2]).tolist()
    kernels = [gaussian((a, b), angle, side) for (a, b), angle in zip(widths, angles, strict=True)]
    return torch.stack(kernels).float()


def make_weights(kind: Weights, count: int, size: tuple[int, int], device: torch.device, seed: int = 0) -> Tensor:
    """(P, H, W) float32, non-negative, of sum 1 at each pixel.

    `segments`: cells around P random points, with soft borders; each weight is 0 on most of the picture.
    `dense`: smooth fields that are nowhere 0.
    """
    generator = torch.Generator().manual_seed(seed)
    if count == 1:
        return torch.ones(1, *size, device=device)
    if kind == "dense":
        coarse = torch.randn(1, count, 6, 6, generator=generator).to(device)
        return F.interpolate(coarse, size, mode="bicubic", align_corners=True)[0].softmax(0)
    labels = cells(count, size, device, generator)
    weights = torch.stack([_soften((labels == i).float()) for i in range(count)])
    return weights / weights.sum(0)


def _soften(mask: Tensor) -> Tensor:
    """(H, W) averaged over a window: exactly 0 outside the segment and its soft border."""
    return F.avg_pool2d(mask[None, None], FEATHER, 1, FEATHER // 2, count_include_pad=False)[0, 0]


def cells(count: int, size: tuple[int, int], device: torch.device, generator: torch.Generator) -> Tensor:
    """(H, W): the number of the nearest of `count` points, which lie on a jittered grid."""
    rows = max(1, round(math.sqrt(count * size[0] / size[1])))
    columns = math.ceil(count / rows)
    jitter = 0.1 + 0.8 * torch.rand(count, 2, generator=generator)
    index = torch.arange(count)
    # The last row of the grid may have fewer points, which are spread over its width.
    row, column = index // columns, index % columns
    in_row = torch.where(row == row[-1], count - columns * row[-1], columns)
    y = ((row + jitter[:, 0]) * size[0] / (int(row[-1]) + 1)).tolist()
    x = ((column + jitter[:, 1]) * size[1] / in_row).tolist()
    nearest = torch.full(size, torch.inf, device=device)
    labels = torch.zeros(size, dtype=torch.int64, device=device)
    vertical, horizontal = (torch.arange(n, device=device).float() for n in size)
    for i in range(count):
        distance = (vertical[:, None] - y[i]) ** 2 + (horizontal - x[i]) ** 2
        labels = torch.where(distance < nearest, i, labels)
        nearest = torch.minimum(nearest, distance)
    return labels


def make_picture(size: tuple[int, int], device: torch.device, seed: int = 0) -> Tensor:
    """(3, H, W) in [0, 1]: flat cells of two sizes with soft texture, so that there are edges and smooth parts."""
    generator = torch.Generator().manual_seed(seed)
    picture = torch.zeros(3, *size, device=device)
    for count in (8, 64):
        colours = torch.rand(count, 3, generator=generator).to(device)
        picture += colours[cells(count, size, device, generator)].permute(2, 0, 1) / 2
    grain = torch.randn(1, 3, max(2, size[0] // 4), max(2, size[1] // 4), generator=generator).to(device)
    picture += 0.05 * F.interpolate(grain, size, mode="bicubic", align_corners=True)[0]
    return picture.clamp(0, 1)


def make_problem(
    size: tuple[int, int],
    kernels: int,
    sigma: float,
    device: torch.device,
    *,
    pictures: int = 1,
    side: int = 33,
    weights: Weights = "segments",
    sharp: Tensor | None = None,
) -> tuple[Problem, Tensor]:
    """A problem and its sharp pictures (synthetic unless given), each with its own circular blur."""
    banks = torch.stack([make_kernels(kernels, side, seed) for seed in range(pictures)])
    fields = torch.stack([make_weights(weights, kernels, size, device, seed) for seed in range(pictures)])
    if sharp is None:
        sharp = torch.stack([make_picture(size, device, seed) for seed in range(pictures)])
    blur = SpatiallyVaryingBlur(banks.to(device), fields)
    noise = torch.randn(sharp.shape, generator=torch.Generator().manual_seed(pictures)).to(device)
    observed = blur.forward(sharp) + sigma * noise
    levels = torch.full((pictures,), sigma, dtype=torch.float64, device=device)
    return Problem(observed, blur, Gaussian(levels)), sharp


def photograph(size: tuple[int, int], device: torch.device) -> Tensor:
    """(1, 3, H, W) in [0, 1]: the middle of a photograph of 500x741 pixels from scikit-image."""
    import skimage.data

    from pnpladmm.pictures import read_picture

    pixels = read_picture(Path(skimage.data.__file__).parent / PHOTOGRAPH).pixels
    top, left = ((there - wanted) // 2 for there, wanted in zip(pixels.shape[-2:], size, strict=True))
    return pixels[..., top : top + size[0], left : left + size[1]].to(device, torch.float32)


def load_samples(options: Options, sigma: float, count: int, size: int) -> tuple[Problem, Tensor, str]:
    """The first `count` test samples of the experiments' dataset as one problem, the sharp pictures, and their source.

    A stored dataset has its own noise level. Without pycocotools the pictures are those of scikit-image, by default.
    """
    from pnpladmm.workshop.experiments.dataset import load_dataset, read_dataset, stack

    if options.data is not None and not (options.data / "instances_test.json").is_file():
        dataset = read_dataset(options.data)
    else:
        own = options.data is None and (options.quick or find_spec("pycocotools") is None)
        dataset = load_dataset("test", sigma, count=count, folder="embedded" if own else options.data, size=size)
    samples = dataset.samples[:count]
    problem, sharp = stack(samples, options.device)
    return problem, sharp, f"{samples[0].origin.source}, test"


def noise_of(problem: Problem) -> Tensor:
    """Noise level of each picture: (B,), float64, on the pictures' device."""
    assert isinstance(problem.data_term, Gaussian)
    sigma = torch.as_tensor(problem.data_term.sigma, dtype=torch.float64, device=problem.observed.device)
    return sigma.reshape(-1).expand(problem.pictures).clone()


def choose_denoiser(options: Options) -> str:
    """The name or file that was given; by default light, and on a GPU drunet if it is installed."""
    if options.denoiser is not None:
        return options.denoiser
    large = options.device.type == "cuda" and not options.quick and is_installed("drunet")
    return "drunet" if large else "light"


def open_denoiser(options: Options) -> tuple[Denoiser, str]:
    """The denoiser on the device, and its name without a folder."""
    chosen = choose_denoiser(options)
    return load_denoiser(chosen, str(options.device)), Path(chosen).stem
