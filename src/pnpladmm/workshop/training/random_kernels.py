"""Random kernels to train with, thousands at once: camera motion, lenses, diffraction, seeing.

All are non-negative, of sum 1, on 41x41 pixels with their centre in the middle. Each fits into a square of its own
`reach`, the number of pixels from the centre to its border, so that a training can choose kernels by size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST, LARGEST = 2, 20
"""Reaches in pixels: kernels are 5x5 to 41x41."""
SIDE = 2 * LARGEST + 1
SAMPLES = 4
"""Samples per pixel in each direction for shapes with edges."""
POSITIONS = 300
"""Positions of the camera during an exposure."""


@dataclass(frozen=True)
class KernelBank:
    """Kernels, sorted by size."""

    kernels: Tensor
    """(N, 41, 41), float32."""
    reaches: Tensor
    """(N,), not falling."""

    @classmethod
    def drawn(cls, count: int, generator: torch.Generator) -> KernelBank:
        """About `count` kernels of all kinds, on the CPU."""
        kernels, reaches = [], []
        axis = (torch.arange(SIDE) - LARGEST).abs()
        for draw, share in KINDS:
            number = max(1, round(share * count))
            reach = SMALLEST + (LARGEST - SMALLEST) * torch.rand(number, generator=generator)
            whole = reach.round()
            inside = torch.maximum(axis[:, None], axis[None, :]) <= _as_maps(whole)
            drawn = draw(reach, generator).clamp_min(0) * inside
            kernels.append(drawn / drawn.sum((1, 2), keepdim=True))
            reaches.append(whole.long())
        order = torch.cat(reaches).argsort(stable=True)
        return cls(torch.cat(kernels)[order].contiguous(), torch.cat(reaches)[order])

    def count_up_to(self, reach: int) -> int:
        """How many kernels have at most this reach; they are the first ones."""
        return int(torch.searchsorted(self.reaches, reach, right=True))

    def to(self, device: torch.device) -> KernelBank:
        """The kernels on a device; the reaches stay on the CPU, where they are looked up."""
        return KernelBank(self.kernels.to(device), self.reaches)


def camera_path(reach: Tensor, generator: torch.Generator) -> Tensor:
    """The path of a shaken camera, as in experiments/kernels.py: pushed at random, pulled back by the hand."""
    return _drawn_paths(_paths(reach, generator))


def measured_path(reach: Tensor, generator: torch.Generator) -> Tensor:
    """A path as it is measured: as wide as the lens is unsharp, uneven, weak parts lost."""
    sharp = _drawn_paths(_paths(0.85 * reach, generator))
    width = _uniform(reach, 0.3, 1.3, generator).minimum(0.2 * reach)
    kernel = _smoothed(sharp, width)
    kernel = kernel * (1 + 0.25 * torch.randn(kernel.shape, generator=generator))
    lost = _as_maps(_uniform(reach, 0.0, 0.06, generator)) * kernel.amax((1, 2), keepdim=True)
    return kernel - lost


def gaussian(reach: Tensor, generator: torch.Generator) -> Tensor:
    """An anisotropic Gaussian."""
    along = _uniform(reach, 0.22, 0.33, generator) * reach
    across = (along * _uniform(reach, 0.15, 1.0, generator)).clamp_min(0.4)
    x, y = _rotated_axes(reach, generator, 1)
    return torch.exp(-0.5 * ((x / _as_maps(along)) ** 2 + (y / _as_maps(across)) ** 2))


def disc(reach: Tensor, generator: torch.Generator) -> Tensor:
    """A lens out of focus."""
    radius = _as_maps((reach * _uniform(reach, 0.5, 1.0, generator)).clamp_max(10))
    x, y = _rotated_axes(reach, generator, SAMPLES)
    return _pooled(_inside(radius - torch.hypot(x, y)))


def line(reach: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform motion along a straight line, one pixel wide."""
    half = _as_maps(reach * _uniform(reach, 0.4, 1.0, generator))
    x, y = _rotated_axes(reach, generator, SAMPLES)
    return _pooled(_inside(half - x.abs()) * _inside(0.5 - y.abs()))


def airy(reach: Tensor, generator: torch.Generator) -> Tensor:
    """Diffraction at a round aperture: `(2 J_1(r) / r)^2`."""
    x, y = _rotated_axes(reach, generator, 2)
    scale = _as_maps(reach * _uniform(reach, 0.06, 0.2, generator)).clamp_min(0.3)
    r = (torch.hypot(x, y) / scale).clamp_min(1e-3)
    return _pooled((2 * torch.special.bessel_j1(r) / r).square(), 2)


def moffat(reach: Tensor, generator: torch.Generator) -> Tensor:
    """Seeing: `(1 + r^2)^-beta`, a little elongated."""
    width = _as_maps((reach * _uniform(reach, 0.1, 0.3, generator)).clamp_min(0.5))
    beta = _as_maps(_uniform(reach, 1.8, 5.0, generator))
    x, y = _rotated_axes(reach, generator, 1)
    stretch = _as_maps(_uniform(reach, 1.0, 1.6, generator))
    return (1 + (x / width).square() + (y * stretch / width).square()) ** -beta


def aberrations(reach: Tensor, generator: torch.Generator) -> Tensor:
    """A poor lens: four spots of different width and strength, off the centre."""
    total = torch.full((len(reach), SIDE, SIDE), 1e-12)
    for _ in range(4):
        x, y = _rotated_axes(reach, generator, 1)
        shift = _as_maps(0.35 * reach * _uniform(reach, -1, 1, generator))
        along = _as_maps((reach * _uniform(reach, 0.06, 0.22, generator)).clamp_min(0.4))
        across = _as_maps((reach * _uniform(reach, 0.06, 0.22, generator)).clamp_min(0.4))
        strength = _as_maps(_uniform(reach, 0, 1, generator)) ** 2
        total += strength * torch.exp(-0.5 * (((x - shift) / along) ** 2 + (y / across) ** 2))
    return total


KINDS: tuple[tuple[Callable[[Tensor, torch.Generator], Tensor], float], ...] = (
    (camera_path, 0.30),
    (measured_path, 0.13),
    (gaussian, 0.24),
    (disc, 0.10),
    (line, 0.07),
    (airy, 0.04),
    (moffat, 0.07),
    (aberrations, 0.05),
)
"""What is drawn, from reaches (N,) to kernels (N, 41, 41) of any sum, and its share of a bank."""


def _uniform(like: Tensor, low: float, high: float, generator: torch.Generator) -> Tensor:
    """Random numbers, one for each of `like`."""
    return low + (high - low) * torch.rand(len(like), generator=generator)


def _as_maps(numbers: Tensor) -> Tensor:
    """(N,) as (N, 1, 1)."""
    return numbers.view(-1, 1, 1)


def _rotated_axes(reach: Tensor, generator: torch.Generator, samples: int) -> tuple[Tensor, Tensor]:
    """Coordinates in pixels of `samples` per pixel, rotated by a random angle for each kernel."""
    axis = (torch.arange(SIDE * samples) + 0.5) / samples - SIDE / 2
    angle = _as_maps(_uniform(reach, 0, 2 * math.pi, generator))
    x, y = axis[None, None, :], axis[None, :, None]
    return x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin()


def _inside(depth: Tensor) -> Tensor:
    """1 inside and 0 outside an edge, for samples that lie `depth` pixels inside; softened over one sample."""
    return (0.5 + SAMPLES * depth).clamp(0, 1)


def _pooled(samples: Tensor, per_pixel: int = SAMPLES) -> Tensor:
    """The means over the pixels."""
    return F.avg_pool2d(samples.unsqueeze(1), per_pixel).squeeze(1)


def _paths(reach: Tensor, generator: torch.Generator) -> Tensor:
    """Paths (N, positions), complex, with their centre of mass at 0, within the reach."""
    count = (len(reach),)

    def uniform(low: float, high: float) -> Tensor:
        return _uniform(reach, low, high, generator)

    restless, pull, drag, jerks = uniform(0.02, 0.3), uniform(0, 3e-4), uniform(0, 0.02), uniform(0, 0.013)
    position = torch.zeros(count, dtype=torch.complex64)
    velocity = torch.polar(torch.ones(count), uniform(0, 2 * math.pi))
    path = torch.empty(POSITIONS, *count, dtype=torch.complex64)
    for t in range(POSITIONS):
        path[t] = position
        push = torch.complex(*torch.randn(2, *count, generator=generator).unbind())
        turn = torch.polar(torch.ones(count), uniform(-math.pi, math.pi))
        jerk = torch.where(torch.rand(count, generator=generator) < jerks, turn, 1)
        velocity = jerk * ((1 - drag) * velocity + restless * push - pull * position)
        position = position + velocity
    path = path.T
    length = path.diff(dim=1).abs().sum(1)
    path = path * (reach * uniform(0.6, 3.0) / length)[:, None]
    path = path - path.mean(1, keepdim=True)
    most = torch.view_as_real(path).abs().amax((1, 2))
    return path * ((reach - 0.5) / most).clamp_max(1)[:, None]


def _drawn_paths(path: Tensor) -> Tensor:
    """Kernels of paths: each position adds the same light, shared among the four nearest pixels."""
    kernels = torch.zeros(len(path), SIDE * SIDE)
    column, row = path.real + LARGEST, path.imag + LARGEST
    left, top = column.floor().clamp(0, SIDE - 2), row.floor().clamp(0, SIDE - 2)
    across, down = column - left, row - top
    for dy, weight_y in ((0, 1 - down), (1, down)):
        for dx, weight_x in ((0, 1 - across), (1, across)):
            kernels.scatter_add_(1, ((top + dy) * SIDE + left + dx).long(), weight_y * weight_x)
    return kernels.view(-1, SIDE, SIDE)


def _smoothed(kernels: Tensor, width: Tensor) -> Tensor:
    """Convolved with Gaussians of these standard deviations in pixels, (N,)."""
    axis = torch.arange(-5, 6)
    one = torch.exp(-0.5 * (axis / width.clamp_min(0.2)[:, None]) ** 2)
    one = one / one.sum(1, keepdim=True)
    across = F.conv2d(kernels.unsqueeze(0), one[:, None, None, :], padding=(0, 5), groups=len(kernels))
    return F.conv2d(across, one[:, None, :, None], padding=(5, 0), groups=len(kernels)).squeeze(0)
