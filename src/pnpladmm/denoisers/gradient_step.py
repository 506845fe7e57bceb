"""Denoisers that are gradient steps: proximal operators wherever their curvature says so (design fact 8).

    D(x) = x - gamma grad g(x),    g(x) = 1/2 ||x - N(x)||^2 = 1/2 ||R(x)||^2,    grad g = J_R^T R

Where the largest eigenvalue of `gamma` times the Hessian of `g` stays below 1, `D = prox_phi` with

    phi(D(v)) = gamma g(v) - 1/2 ||v - D(v)||^2,

which is known along the iterations, because each picture there is `D(v)` of a known `v` (docs/proof.md).

Everything a picture goes through on its way into the network is linear and enters `g`, so that `D` is a gradient step
on the picture's own domain to the last digit: with `A` = extend by 0 to the stride, or copy a channel into the n of a
colour network, and `M` = leave the extension out, `g(x) = 1/(2n) ||M R(A x)||^2`, `grad g = 1/n A^T J_R^T M R(A x)`.
`A^T A = n`, so that `A` adds nothing to the curvature. Replicating the border would: a pixel that stands for eight
columns has eight times the curvature (3 was measured at the border of pictures where crops had 1).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import EllipsisType
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from pnpladmm.denoisers.base import Promise
from pnpladmm.denoisers.network import GPU_PIXELS, SIGMA_MAX, NetworkDenoiser, _checked_sigma, full_precision
from pnpladmm.denoisers.ritz import Ritz, largest_eigenvalue
from pnpladmm.denoisers.smooth_unet import Linearisation, SmoothUNet
from pnpladmm.tensors import InputError, PerPicture, squared_norm, version_of

FIRST_PRODUCTS = 20
"""Products with the Hessian at the first measurement of a run, from a random start."""
LATER_PRODUCTS = 4
"""And at later ones, from the last one's eigenvector: one costs as much as a call."""
TILE = 2048
"""Longest side in pixels that is processed at once, 5 GB in float32 (8 GB for the Hessian)."""


class GradientStepDenoiser(NetworkDenoiser):
    """`D = Id - gamma grad g` with a smooth network for each number of channels.

    Parameters
    ----------
    networks, name, sigma_max, scale, device:
        As for `NetworkDenoiser`; the network is homogeneous, so nothing needs scaling.
    relaxation:
        `gamma` in (0, 1]: `D_gamma = gamma D + (1 - gamma) Id`, its curvature is gamma times as large. By default
        what the weights say.
    precision:
        float32 by default, everywhere: on GPUs with TF32 off, since what is checked is smaller than its rounding.
    tile:
        Longest side in pixels to process at once. `g` is a sum over tiles, each computed with all that it depends on
        around it, so tiles change nothing but rounding.
    """

    def __init__(
        self,
        networks: Mapping[int, SmoothUNet],
        *,
        relaxation: float | None = None,
        name: str = "gradient step",
        sigma_max: float = SIGMA_MAX,
        scale: float = 1.0,
        device: torch.device | str | None = None,
        precision: torch.dtype | None = None,
        tile: int = TILE,
    ) -> None:
        """Take the networks over, as `NetworkDenoiser` does."""
        if relaxation is None:
            relaxation = min((float(network.relaxation) for network in networks.values()), default=1.0)
        if not (0 < relaxation <= 1):
            raise InputError(f"relaxation = {relaxation}: give a number above 0 and up to 1")
        super().__init__(
            networks,
            promise=Promise.GRADIENT_STEP,
            name=name,
            sigma_max=sigma_max,
            scale=scale,
            device=device,
            precision=precision or torch.float32,
        )
        self.relaxation = relaxation
        self._smooth = dict(networks)
        self._tile = tile
        self._last: tuple[weakref.ref[Tensor], int, Tensor, Tensor] | None = None

    def __call__(self, x: Tensor, sigma: PerPicture, /) -> Tensor:
        """`D_sigma(x)`, x (B, C, H, W) of float32 or float64; a sigma of 0 returns the picture itself."""
        sigmas = self._check(x, sigma)
        gradient = torch.empty_like(x, memory_format=torch.contiguous_format)
        energies = torch.empty(len(x), dtype=torch.float64, device=x.device)
        with torch.no_grad(), full_precision():
            for part in self._parts(x):
                energy, slope = self._differentiate(x[part], sigmas[part])
                gradient[part], energies[part] = slope.to(x), energy.to(x.device)
        self._last = (weakref.ref(x), version_of(x), sigmas, energies)
        return x.detach() - self.relaxation * gradient

    def prior(self, x: Tensor, v: Tensor | None, sigma: PerPicture, /) -> Tensor | None:
        """`phi(x) = gamma g(v) - 1/2 ||v - x||^2` for `x = D(v)`, (B,) float64; None without a `v`."""
        if v is None:
            return None
        return self.relaxation * self.energy(v, sigma) - squared_norm(v.double() - x.double()) / 2

    def energy(self, v: Tensor, sigma: PerPicture) -> Tensor:
        """`g(v)`, (B,) float64; free where `v` is what was denoised last."""
        sigmas = self._check(v, sigma)
        if self._last is not None:
            last, version, last_sigmas, energies = self._last
            if last() is v and version == version_of(v) and torch.equal(last_sigmas, sigmas):
                return energies
        energies = torch.empty(len(v), dtype=torch.float64, device=v.device)
        with torch.no_grad(), full_precision():
            for part in self._parts(v):
                energies[part] = self._differentiate(v[part], sigmas[part])[0].to(v.device)
        return energies

    def curvature(self, v: Tensor, sigma: PerPicture, /, products: int = FIRST_PRODUCTS) -> Tensor:
        """`gamma lambda_max` of the Hessian of `g` at `v`, (B,) float64, from so many products, started at random."""
        return self.top_eigenpair(v, sigma, products).value

    def curvature_meter(self) -> Callable[[Tensor, PerPicture], Tensor]:
        """A `curvature(v, sigma)` for one run: it goes on from the eigenvectors that it found at the last iterate."""
        return _Meter(self)

    def growth(self, v: Tensor, sigma: PerPicture, /, products: int = FIRST_PRODUCTS) -> Tensor:
        """By how much `D` enlarges a small difference from `v` at most: the largest eigenvalue of `J_D - I`, (B,)."""
        return self.top_eigenpair(v, sigma, products, end=-1).value

    def top_eigenpair(
        self,
        v: Tensor,
        sigma: PerPicture,
        products: int,
        start: Tensor | None = None,
        seed: int = 0,
        end: Literal[1, -1] = 1,
    ) -> Ritz:
        """The largest eigenvalue of gamma times the Hessian of `g` at `v`, with its vector on the network's device.

        For `end = -1`, of minus that. Without a `start` every picture starts from the same random picture, so that none
        depends on its batch.
        """
        sigmas = self._check(v, sigma)
        if products < 1:
            raise InputError(f"products = {products}: give a number of at least 1")
        generator = torch.Generator().manual_seed(seed)
        random = torch.randn((1, *v.shape[1:]), generator=generator).to(self.device, self.precision)
        found = []
        with torch.no_grad(), full_precision():
            for part in self._parts(v):
                pictures = v[part]
                product = self._hessian(pictures, sigmas[part], end)
                fresh = random.expand(pictures.shape)
                begin = fresh if start is None else start[part].to(fresh)
                found.append(largest_eigenvalue(product, begin, products, None if start is None else fresh))
        return Ritz(
            torch.cat([one.value for one in found]).to(v.device),
            torch.cat([one.vector for one in found]),
            torch.cat([one.residual for one in found]).to(v.device),
        )

    def _check(self, x: Tensor, sigma: PerPicture) -> Tensor:
        if x.ndim != 4 or x.numel() == 0:
            raise InputError(f"pictures of shape {tuple(x.shape)}: give a non-empty (B, C, H, W)")
        return _checked_sigma(sigma, len(x))

    def _parts(self, x: Tensor) -> list[slice]:
        """Pictures to process together: one on CPUs, on GPUs as many as memory allows."""
        pixels = x.shape[-2] * x.shape[-1]
        planes = 1 if x.shape[1] in self._smooth else x.shape[1]
        step = 1 if self.device.type == "cpu" else max(1, GPU_PIXELS // (pixels * planes))
        return [slice(first, first + step) for first in range(0, len(x), step)]

    def _hessian(self, x: Tensor, sigmas: Tensor, end: Literal[1, -1] = 1) -> Callable[[Tensor], Tensor]:
        """Products with `end` gamma times the Hessian of `g` at x, for directions on the network's device."""
        there = self._enter(x, sigmas)
        pieces = there.tiles(self._tile)
        # One piece is linearised once for all products; more would not fit, and are linearised for each.
        ready = there.linearise(pieces[0], products=True) if len(pieces) == 1 else None
        factor = (end * self.relaxation * there.factor).to(self.precision).view(-1, 1, 1, 1)

        def product(u: Tensor) -> Tensor:
            direction = self._enter(u, sigmas).planes
            total = torch.zeros_like(direction)
            for piece in pieces:
                here = there.linearise(piece, products=True) if ready is None else ready
                total[piece.place] += here.product(direction[piece.place])
            return factor * there.leave(total)

        return product

    def _differentiate(self, x: Tensor, sigmas: Tensor) -> tuple[Tensor, Tensor]:
        """`g` (B,) in float64 and `grad g` at x, on the network's device."""
        there = self._enter(x, sigmas)
        total = torch.zeros_like(there.planes)
        energy = torch.zeros(len(total), dtype=torch.float64, device=total.device)
        for piece in there.tiles(self._tile):
            here = there.linearise(piece)
            total[piece.place] += here.gradient
            energy += squared_norm(here.residual) / 2
        factor = there.factor.to(self.precision).view(-1, 1, 1, 1)
        return there.factor * energy.reshape(len(x), -1).sum(1), factor * there.leave(total)

    def _enter(self, x: Tensor, sigmas: Tensor) -> _Entered:
        batch, channels, height, width = x.shape
        planes = x.to(self.device, self.precision)
        levels = torch.where(sigmas > 0, sigmas, torch.ones_like(sigmas))  # where 0, the factor is
        copies = 1
        if channels not in self._smooth:
            planes = planes.reshape(batch * channels, 1, height, width)
            levels = levels.repeat_interleave(channels)
            if 1 not in self._smooth:
                # n equal channels have sqrt(n) times the noise along their common direction (see NetworkDenoiser).
                copies = self.channels[0]
                planes = planes.expand(-1, copies, -1, -1)
                levels = math.sqrt(copies) * levels
        network = self._smooth[planes.shape[1]]
        padding = (0, -width % network.stride, 0, -height % network.stride)
        planes = functional.pad(planes, padding)
        inside = functional.pad(torch.ones_like(planes[:1, :1, :height, :width]), padding)
        return _Entered(
            network,
            planes.contiguous(memory_format=torch.channels_last),
            inside,
            levels.to(self.precision).to(self.device, non_blocking=True),
            ((sigmas > 0).double() / copies).to(self.device, non_blocking=True),
            x.shape,
        )

    def __repr__(self) -> str:
        """Name, channels and relaxation."""
        counts = "/".join(map(str, self.channels))
        return f"GradientStepDenoiser({self.name!r}, channels={counts}, relaxation={self.relaxation:g})"


@dataclass(frozen=True)
class _Piece:
    """A part of the padded pictures, and which of its own rows and columns count in `g`."""

    rows: slice
    columns: slice
    kept: tuple[slice, slice]

    @property
    def place(self) -> tuple[EllipsisType, slice, slice]:
        return (..., self.rows, self.columns)


@dataclass(frozen=True)
class _Entered:
    """Pictures x as the network sees them, `A x`, with what is needed to bring gradients back."""

    network: SmoothUNet
    planes: Tensor
    inside: Tensor
    levels: Tensor
    factor: Tensor
    """1 / n of each picture, float64; 0 where sigma is 0 and `g` with it."""
    shape: torch.Size
    """Of x."""

    def linearise(self, piece: _Piece, products: bool = False) -> Linearisation:
        planes, inside = self.planes[piece.place], self.inside[piece.place]
        kept = torch.zeros_like(inside)
        kept[..., piece.kept[0], piece.kept[1]] = 1
        return self.network.linearise(planes, self.levels, inside, kept=kept, products=products)

    def tiles(self, longest: int) -> list[_Piece]:
        """Pieces whose kept parts cover the picture once, each with all that they depend on around them."""
        rows, columns = (self._spans(axis, longest) for axis in (-2, -1))
        return [_Piece(row, column, (high, wide)) for row, high in rows for column, wide in columns]

    def _spans(self, axis: int, longest: int) -> list[tuple[slice, slice]]:
        length, padded = self.shape[axis], self.planes.shape[axis]
        stride, halo = self.network.stride, self.network.halo
        if padded <= longest:
            return [(slice(0, padded), slice(0, length))]
        core = max(1, (longest - 2 * halo) // stride) * stride
        spans = []
        for first in range(0, length, core):
            last = min(first + core, length)
            begin, end = max(0, first - halo), min(padded, last + -last % stride + halo)
            spans.append((slice(begin, end), slice(first - begin, last - begin)))
        return spans

    def leave(self, planes: Tensor) -> Tensor:
        """`A^T`: the extension is left out, and what was copied is summed."""
        height, width = self.shape[-2:]
        inside = planes[..., :height, :width]
        if inside.numel() != self.shape.numel():
            inside = inside.sum(1, keepdim=True)
        return inside.reshape(self.shape)


class _Meter:
    """The curvature along one run, warm-started."""

    def __init__(self, denoiser: GradientStepDenoiser) -> None:
        self._denoiser = denoiser
        self._vector: Tensor | None = None
        self._measured = 0

    def __call__(self, v: Tensor, sigma: PerPicture, /) -> Tensor:
        warm = self._vector if self._vector is not None and self._vector.shape == v.shape else None
        products = FIRST_PRODUCTS if warm is None else LATER_PRODUCTS
        found = self._denoiser.top_eigenpair(v, sigma, products, warm, seed=self._measured)
        self._vector = found.vector
        self._measured += 1
        return found.value
