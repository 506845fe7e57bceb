"""The ridge regulariser as a denoiser `d(x, sigma)`: a gradient step, in strips of rows that fit into a cache."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpladmm.denoisers.base import Promise
from pnpladmm.denoisers.network import checked_sigma, full_precision
from pnpladmm.denoisers.ridge import Prepared, RidgeNet, extended, folded, spline_and_energy, transposed
from pnpladmm.tensors import InputError, PerPicture, squared_norm, version_of

CPU_SAMPLES, GPU_SAMPLES, GPU_PIXELS = 2**18, 2**26, 2**20
"""The most responses of all filters that are computed at once, and pixels of pictures that go together."""


class RidgeDenoiser:
    """`D = Id - grad g` for any pictures: a proximal operator for all of them, because the bound of `g` is below 1.

    Parameters
    ----------
    networks : mapping of int to RidgeNet
        By the number of channels. Pictures with another number of channels go through `networks[1]`, one channel at a
        time; without it each channel is copied into the n channels of the other, and g is divided by n.
    name : str
        The key of its tuned settings, and its name in reports.
    scale : float
        What counts as 1: `scale=65535` for 16-bit counts.
    precision : torch.dtype, optional
        What it computes in; by default the picture's own dtype. It computes where the picture lies.
    """

    promise = Promise.PROX
    bytes_per_pixel = 200.0

    def __init__(
        self,
        networks: Mapping[int, RidgeNet],
        *,
        name: str = "ridge",
        scale: float = 1.0,
        precision: torch.dtype | None = None,
    ) -> None:
        for channels, network in networks.items():
            network.check(f"{name}, {channels} channels")
        self.name, self.scale, self.precision = name, scale, precision
        self.channels = tuple(sorted(networks))
        self.reach = max(network.reach for network in networks.values())
        self._networks = {channels: deepcopy(net).eval().requires_grad_(False) for channels, net in networks.items()}
        self._ready: dict[tuple[int, torch.device, torch.dtype], Prepared] = {}
        self._last: tuple[weakref.ref[Tensor], int, Tensor, Tensor] | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        """Bounds of the Hessian of `g` that are proved from the weights, for all pictures and noise levels."""
        low, high = zip(*(network.bounds() for network in self._networks.values()), strict=True)
        return min(low), max(high)

    def __call__(self, x: Tensor, sigma: PerPicture, /) -> Tensor:
        """`D_sigma(x)`, x (B, C, H, W); a sigma of 0 returns the picture itself."""
        return x.detach() - self.gradient(x, sigma)

    def gradient(self, x: Tensor, sigma: PerPicture, /) -> Tensor:
        """`grad g` at x."""
        if x.ndim != 4 or x.numel() == 0:
            raise InputError(f"pictures of shape {tuple(x.shape)}: give a non-empty (B, C, H, W)")
        sigmas = checked_sigma(sigma, len(x)).to(x.device)
        gradient, energies = self._differentiate(x.detach(), sigmas)
        self._last = (weakref.ref(x), version_of(x), sigmas, energies)
        return gradient

    def energy(self, v: Tensor, sigma: PerPicture, /) -> Tensor:
        """`g(v)`, (B,) float64; known already where `v` is the picture that was denoised last."""
        sigmas = checked_sigma(sigma, len(v)).to(v.device)
        if self._last is not None:
            last, version, last_sigmas, energies = self._last
            if last() is v and version == version_of(v) and torch.equal(last_sigmas, sigmas):
                return energies
        return self._differentiate(v.detach(), sigmas)[1]

    def prior(self, x: Tensor, v: Tensor | None, sigma: PerPicture, /) -> Tensor | None:
        """`phi(x) = g(v) - 1/2 ||v - x||^2` for `x = D(v)`, (B,) float64; None without a `v`."""
        return None if v is None else self.energy(v, sigma) - squared_norm(v.double() - x.double()) / 2

    def _differentiate(self, x: Tensor, sigmas: Tensor) -> tuple[Tensor, Tensor]:
        """`grad g` and `g` for pictures with any number of channels."""
        batch, channels = x.shape[:2]
        copies, planes, levels = 1, x, sigmas
        if channels not in self._networks:
            planes = x.reshape(batch * channels, 1, *x.shape[-2:])
            levels = sigmas.repeat_interleave(channels)
            copies = 1 if 1 in self._networks else self.channels[0]
            planes = planes.expand(-1, copies, -1, -1)
            # Equal noise in n channels has sqrt(n) sigma along their common direction, where all of it lies.
            levels = levels * copies**0.5
        together = 1 if x.device.type == "cpu" else max(1, GPU_PIXELS // (x.shape[-2] * x.shape[-1]))
        places = [slice(i, i + together) for i in range(0, len(planes), together)]
        parts = [self._step(planes[place], levels[place]) for place in places]
        gradient, energy = (torch.cat(part) for part in zip(*parts, strict=True))
        if copies > 1:
            gradient, energy = gradient.mean(1, keepdim=True), energy / copies
        return gradient.reshape(x.shape), energy.reshape(batch, -1).sum(1)

    def _step(self, x: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
        """`grad g` and `g` of a few pictures, strip by strip."""
        ready, unit = self._prepared(x), self.scale
        bank, radius, rows = ready.bank, ready.radius, x.shape[-2]
        scale, share = ready.at(torch.where(sigma > 0, sigma / unit, 1.0))
        share = share * (sigma > 0).to(share)[:, None, None, None]
        inner = extended((x / unit).to(bank), radius)
        outer, energy = torch.zeros_like(inner), torch.zeros(len(x), dtype=torch.float64, device=x.device)
        most = CPU_SAMPLES if x.device.type == "cpu" else GPU_SAMPLES
        height = max(1, most // (len(x) * len(bank) * x.shape[-1]))
        with full_precision():
            for top in range(0, rows, height):
                strip = slice(top, min(rows, top + height) + 2 * radius)
                t = F.conv2d(inner[:, :, strip], bank).mul_(scale)
                phi, psi = spline_and_energy(t, ready.table)
                energy += (psi * (share / scale.square()).flatten(1).double()).sum(1)
                outer[:, :, strip] += transposed(phi.mul_(share / scale), bank)
        return folded(outer, radius).to(x) * unit, energy * unit**2

    def _prepared(self, x: Tensor) -> Prepared:
        """The bank for pictures like `x`, in their dtype or that of `precision`."""
        key = (x.shape[1], x.device, self.precision or x.dtype)
        if key not in self._ready:
            network = self._networks[x.shape[1]]
            self._ready[key] = Prepared({name: p.to(*key[1:]) for name, p in network.named_parameters()})
        return self._ready[key]

    def __repr__(self) -> str:
        """Name, channels and the bound."""
        return f"RidgeDenoiser({self.name!r}, channels={'/'.join(map(str, self.channels))})"
