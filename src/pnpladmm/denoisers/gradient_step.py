"""Denoisers that are gradient steps: proximal operators wherever their curvature is below 1.

    D(x) = x - gamma grad g(x),    g(x) = 1/2 ||x - N(x)||^2 = 1/2 ||R(x)||^2,    grad g = J_R^T R

Where the largest eigenvalue of `gamma` times the Hessian of `g` stays below 1, `D = prox_phi` with

    phi(D(v)) = gamma g(v) - 1/2 ||v - D(v)||^2,

which is known along the iterations, because each picture there is `D(v)` of a known `v` (docs/reference/proof.md).

Each step of a picture's way into the network is linear and enters `g`, so that `D` is a gradient step on the picture's
own domain, up to rounding. With `A` the extension by 0 to the stride, or the copy of a channel into the n of a colour
network (network_input.py), and `M` the mask that leaves the extension out,

    g(x) = 1/(2n) ||M R(A x)||^2,    grad g = 1/n A^T J_R^T M R(A x).

`A^T A = n`, so that `A` adds nothing to the curvature. Replication of the border would: a pixel that stands for eight
columns has eight times the curvature (3 was measured at the border of pictures where crops had 1).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import copy
from typing import Literal

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Promise
from pnpladmm.denoisers.network import GPU_PIXELS, SIGMA_MAX, NetworkDenoiser, checked_sigma, full_precision
from pnpladmm.denoisers.network_input import NetworkInput
from pnpladmm.denoisers.ritz import Ritz, largest_eigenvalue
from pnpladmm.denoisers.smooth_unet import SmoothUNet
from pnpladmm.tensors import InputError, PerPicture, squared_norm, version_of

FIRST_PRODUCTS, FIRST_LOOK = 20, 8
"""Products with the Hessian for the first measurement of a run, which starts from a random picture: so many, or as few
as the second number where they leave room. A product costs as much as a call."""
LATER_PRODUCTS, LATER_LOOK = 4, 2
"""Products for later measurements, which start from the last eigenvector."""
ROOM = 0.75
"""A few products are enough where value and residual together stay below this share of the limit. They may be rounded
(TF32), too."""
TILE_SIDE = 2048
"""The longest side, in pixels, that is processed at once: 5 GB in float32 (8 GB for the Hessian)."""


class GradientStepDenoiser(NetworkDenoiser):
    """`D = Id - gamma grad g` with a smooth network for each number of channels.

    Parameters
    ----------
    networks, name, sigma_max, scale, device
        As for `NetworkDenoiser`. The network is homogeneous, so nothing needs scaling.
    relaxation : float, optional
        `gamma` in (0, 1]: `D_gamma = gamma D + (1 - gamma) Id`, whose curvature is gamma times as large. By default
        the number stored with the weights.
    precision : torch.dtype, optional
        float32 by default on every device; on GPUs with TF32 off, because its rounding is larger than the differences
        that are checked.
    tile : int
        The longest side, in pixels, to process at once. `g` is a sum over tiles. Each is computed with all pixels that
        it depends on, so tiles change nothing but rounding.
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
        tile: int = TILE_SIDE,
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
        self._last: tuple[weakref.ref[Tensor], int, Tensor, Tensor, Tensor] | None = None

    def with_tile(self, side: int) -> GradientStepDenoiser:
        """The same denoiser, which processes at most `side` pixels of a side at once, or three times the halo."""
        other = copy(self)
        least = 3 * max(network.halo for network in self._smooth.values())
        other._tile, other._last = max(side, least), None
        return other

    def __call__(self, x: Tensor, sigma: PerPicture, /) -> Tensor:
        """`D_sigma(x)`, x (B, C, H, W) of float32 or float64; a sigma of 0 returns the picture itself."""
        sigmas = self._check(x, sigma)
        gradient = torch.empty_like(x, memory_format=torch.contiguous_format)
        energies = torch.empty(len(x), dtype=torch.float64, device=x.device)
        shares = torch.empty(len(x), *x.shape[-2:], dtype=x.dtype, device=x.device)
        with torch.no_grad(), full_precision():
            for part in self._parts(x):
                energy, slope, share = self._differentiate(x[part], sigmas[part])
                gradient[part], energies[part], shares[part] = slope.to(x), energy.to(x.device), share.to(x)
        self._last = (weakref.ref(x), version_of(x), sigmas, energies, shares)
        return x.detach() - self.relaxation * gradient

    def prior(self, x: Tensor, v: Tensor | None, sigma: PerPicture, /) -> Tensor | None:
        """`phi(x) = gamma g(v) - 1/2 ||v - x||^2` for `x = D(v)`, (B,) float64; None without a `v`."""
        if v is None:
            return None
        return self.relaxation * self.energy(v, sigma) - squared_norm(v.double() - x.double()) / 2

    def prior_within(self, x: Tensor, v: Tensor, sigma: PerPicture, /, rows: slice, columns: slice) -> Tensor:
        """What some rows and columns add to `phi(x)`, a sum over pixels, for `x = D(v)`: (B,) float64."""
        self._check(v, sigma)
        if self._last is None or self._last[0]() is not v or self._last[1] != version_of(v):
            self(v, sigma)
        assert self._last is not None
        g = self._last[4][..., rows, columns].double().flatten(1).sum(1)
        moved = (v[..., rows, columns].double() - x[..., rows, columns].double()).flatten(1)
        return self.relaxation * g - moved.square().sum(1) / 2

    def energy(self, v: Tensor, sigma: PerPicture) -> Tensor:
        """`g(v)`, (B,) float64; known already where `v` is the picture that was denoised last."""
        sigmas = self._check(v, sigma)
        if self._last is not None:
            last, version, last_sigmas, energies, _ = self._last
            if last() is v and version == version_of(v) and torch.equal(last_sigmas, sigmas):
                return energies
        energies = torch.empty(len(v), dtype=torch.float64, device=v.device)
        with torch.no_grad(), full_precision():
            for part in self._parts(v):
                energies[part] = self._differentiate(v[part], sigmas[part])[0].to(v.device)
        return energies

    def curvature(self, v: Tensor, sigma: PerPicture, /, products: int = FIRST_PRODUCTS) -> Tensor:
        """`gamma lambda_max` of the Hessian of `g` at `v`, (B,) float64, from this many products and a random start."""
        return self.top_eigenpair(v, sigma, products).value

    def curvature_meter(self, limit: PerPicture = 1.0) -> Callable[[Tensor, PerPicture], Tensor]:
        """A `curvature(v, sigma)` for one run, which starts from the eigenvectors that it found at the last iterate."""
        return _CurvatureMeter(self, limit)

    def growth(self, v: Tensor, sigma: PerPicture, /, products: int = FIRST_PRODUCTS) -> Tensor:
        """The largest eigenvalue of `J_D - I`, (B,): by how much `D` enlarges a small difference from `v`."""
        return self.top_eigenpair(v, sigma, products, end=-1).value

    def jacobian_product(self, v: Tensor, sigma: PerPicture, u: Tensor, /) -> Tensor:
        """`J_D(v) u = u - gamma (Hessian of g at v) u`."""
        sigmas = self._check(v, sigma)
        found = torch.empty_like(u)
        with torch.no_grad(), full_precision():
            for part in self._parts(v):
                direction = u[part].to(self.device, self.precision)
                found[part] = (direction - self._hessian(v[part], sigmas[part])(direction)).to(u)
        return found

    def top_eigenpair(
        self,
        v: Tensor,
        sigma: PerPicture,
        products: int,
        start: Tensor | None = None,
        seed: int = 0,
        end: Literal[1, -1] = 1,
        exact: bool = True,
    ) -> Ritz:
        """The largest eigenvalue of gamma times the Hessian of `g` at `v`, with its vector on the network's device.

        For `end = -1`, that of minus the Hessian. Without a `start` all pictures start from the same random picture, so
        that no result depends on the batch. Without `exact` GPUs may round factors to 10 bits.
        """
        sigmas = self._check(v, sigma)
        if products < 1:
            raise InputError(f"products = {products}: give a number of at least 1")
        generator = torch.Generator().manual_seed(seed)
        random = torch.randn((1, *v.shape[1:]), generator=generator).to(self.device, self.precision)
        found = []
        with torch.no_grad(), full_precision() if exact else nullcontext():
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
        """Sigma as (B,), if picture and sigma are valid."""
        if x.ndim != 4 or x.numel() == 0:
            raise InputError(f"pictures of shape {tuple(x.shape)}: give a non-empty (B, C, H, W)")
        return checked_sigma(sigma, len(x))

    def _parts(self, x: Tensor) -> list[slice]:
        """Pictures to process together: one on CPUs, on GPUs as many as memory allows."""
        pixels = x.shape[-2] * x.shape[-1]
        planes = 1 if x.shape[1] in self._smooth else x.shape[1]
        step = 1 if self.device.type == "cpu" else max(1, GPU_PIXELS // (pixels * planes))
        return [slice(first, first + step) for first in range(0, len(x), step)]

    def _hessian(self, x: Tensor, sigmas: Tensor, end: Literal[1, -1] = 1) -> Callable[[Tensor], Tensor]:
        """Products with `end` gamma times the Hessian of `g` at x, for directions on the network's device."""
        entered = self._input(x, sigmas)
        tiles = entered.tiles(self._tile)
        # One tile is linearised once for all products. More would not fit into memory: they are linearised each time.
        ready = entered.linearise(tiles[0], products=True) if len(tiles) == 1 else None
        factor = (end * self.relaxation * entered.factor).to(self.precision).view(-1, 1, 1, 1)

        def product(u: Tensor) -> Tensor:
            direction = self._input(u, sigmas).planes
            total = torch.zeros_like(direction)
            for tile in tiles:
                local = entered.linearise(tile, products=True) if ready is None else ready
                total[tile.place] += local.product(direction[tile.place])
            return factor * entered.adjoint(total)

        return product

    def _differentiate(self, x: Tensor, sigmas: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`g` (B,) in float64, `grad g` at x, and the share of each pixel in `g` (B, H, W), on the network's device."""
        entered = self._input(x, sigmas)
        total = torch.zeros_like(entered.planes)
        shares = torch.zeros_like(total[:, 0])
        energy = torch.zeros(len(total), dtype=torch.float64, device=total.device)
        for tile in entered.tiles(self._tile):
            local = entered.linearise(tile)
            total[tile.place] += local.gradient
            energy += squared_norm(local.residual) / 2
            shares[tile.place] += local.residual.square().sum(1) / 2
        factor = entered.factor.to(self.precision).view(-1, 1, 1, 1)
        shares = shares.reshape(len(x), -1, *shares.shape[1:]).sum(1)[..., : x.shape[-2], : x.shape[-1]]
        energy = entered.factor * energy.reshape(len(x), -1).sum(1)
        return energy, factor * entered.adjoint(total), factor[:, 0] * shares

    def _input(self, x: Tensor, sigmas: Tensor) -> NetworkInput:
        """The pictures as the network gets them."""
        return NetworkInput.of(self._smooth, x, sigmas, self.device, self.precision)

    def __repr__(self) -> str:
        """Name, channels and relaxation."""
        counts = "/".join(map(str, self.channels))
        return f"GradientStepDenoiser({self.name!r}, channels={counts}, relaxation={self.relaxation:g})"


class _CurvatureMeter:
    """The curvature along one run; each measurement starts from the eigenvector of the last one."""

    def __init__(self, denoiser: GradientStepDenoiser, limit: PerPicture) -> None:
        self._denoiser, self._limit = denoiser, torch.as_tensor(limit, dtype=torch.float64)
        self._vector: Tensor | None = None
        self._measured = 0

    def __call__(self, v: Tensor, sigma: PerPicture, /) -> Tensor:
        warm = self._vector if self._vector is not None and self._vector.shape == v.shape else None
        look, products = (FIRST_LOOK, FIRST_PRODUCTS) if warm is None else (LATER_LOOK, LATER_PRODUCTS)
        limit = self._limit.to(v.device)
        found = self._denoiser.top_eigenpair(v, sigma, look, warm, seed=self._measured, exact=False)
        # An eigenvalue lies within the residual: where it may be too large, a few products are too few to tell.
        found = self._with_more(v, sigma, found, found.value + found.residual >= ROOM * limit, products)
        unclear = (found.value < limit) & (found.value + found.residual >= limit)
        found = self._with_more(v, sigma, found, unclear, FIRST_PRODUCTS)
        self._vector = found.vector
        self._measured += 1
        return found.value

    def _with_more(self, v: Tensor, sigma: PerPicture, found: Ritz, which: Tensor, products: int) -> Ritz:
        """`found` with more products for some of the pictures."""
        if not bool(which.any()):
            return found
        more = self._denoiser.top_eigenpair(v, sigma, products, found.vector, seed=self._measured)
        return Ritz(  # not the larger value: `more` has seen the direction of `found`, and is not rounded
            torch.where(which, more.value, found.value),
            torch.where(which.to(found.vector.device).view(-1, 1, 1, 1), more.vector, found.vector),
            torch.where(which, more.residual, found.residual),
        )
