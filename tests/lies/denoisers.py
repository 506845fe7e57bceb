"""Denoisers, honest and lying: what each says of itself, and what is true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import gradient_step_cases
import pnpladmm as pl
from pnpladmm.denoisers import HardThreshold, SoftThreshold, TotalVariation
from pnpladmm.denoisers.quadratic import Identity, Tikhonov

Rng = np.random.Generator
HONEST: dict[str, Callable[[], Any]] = {
    "soft": SoftThreshold,
    "hard": HardThreshold,
    "tv": lambda: TotalVariation(1.0),
    "identity": Identity,
    "tikhonov": Tikhonov,
    "clamp": lambda: pl.as_denoiser(lambda x, s: x.clamp(0, 1), pl.Promise.CONVEX),
    "constant": lambda: pl.as_denoiser(lambda x, s: torch.full_like(x, 0.3), pl.Promise.CONVEX),
    "gradient step": lambda: gradient_step_cases.denoiser(gradient_step_cases.network(curvature=0.8)),
}
"""What they promise is true."""


@dataclass
class Drawn:
    """A denoiser, and what is known of it."""

    name: str
    denoiser: Any
    true: pl.Promise
    """What it really is; `NONE` for a lie."""
    steady: bool = True
    """The same picture for the same picture, always."""
    acted: bool = False
    """Did it change any picture by a thousandth? A lie that never does is the identity, but for rounding."""

    def watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which now says here when it acts."""

        def call(x: Tensor, *rest: Any) -> Any:
            before = x.clone()
            made = function(x, *rest)
            self.acted = self.acted or not _is_nearly(made, before)
            return made

        return call


def _is_nearly(made: Any, x: Tensor) -> bool:
    if not isinstance(made, Tensor) or made.device != x.device or made.shape != x.shape:
        return False
    return bool((made.double() - x.double()).norm() <= 1e-3 * x.double().norm())


class Changing:
    """A function that also gets the number of its call."""

    name = "changing"

    def __init__(self, function: Callable[[Tensor, int], Any], promise: pl.Promise) -> None:
        self.function, self.promise, self.calls = function, promise, 0

    def __call__(self, x: Tensor, sigma: Any) -> Any:
        self.calls += 1
        return self.function(x, self.calls)


class Priced:
    """A function with a prior that has nothing to do with it."""

    name = "priced"

    def __init__(self, function: Callable[[Tensor], Tensor], promise: pl.Promise, price: Callable[[Tensor], Tensor]):
        self.function, self.promise, self.price = function, promise, price

    def __call__(self, x: Tensor, sigma: Any) -> Tensor:
        return self.function(x)

    def prior(self, x: Tensor, v: Tensor | None, sigma: Any) -> Tensor:
        return self.price(x.double().flatten(1))


def _noisy(level: float) -> Callable[[Tensor, int], Tensor]:
    return lambda x, k: x + level * torch.randn(x.shape, generator=torch.Generator().manual_seed(k)).to(x)


def _late(k0: int, value: float) -> Callable[[Tensor, int], Tensor]:
    return lambda x, k: x if k < k0 else x * value


def _pixel(value: float) -> Callable[[Tensor], Tensor]:
    def spoil(x: Tensor) -> Tensor:
        out = x.clone()
        out[..., 0, 0] = value
        return out

    return spoil


def _sharpened(amount: float) -> Callable[[Tensor], Tensor]:
    def sharpen(x: Tensor) -> Tensor:
        near = (x.roll(1, -1) + x.roll(-1, -1) + x.roll(1, -2) + x.roll(-1, -2)) / 4
        return x + amount * (x - near)

    return sharpen


def _times(c: float) -> Callable[[Tensor], Tensor]:
    return lambda x: c * x


def _rolled(n: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x.roll(n, -1)


def _rounded(n: float) -> Callable[[Tensor], Tensor]:
    return lambda x: 1.5 * (x / n).round() * n - 0.5 * x


def _drifting(c: float) -> Callable[[Tensor, int], Tensor]:
    return lambda x, k: x + c * k


def _to_and_fro(c: float) -> Callable[[Tensor, int], Tensor]:
    return lambda x, k: x * (1 + c * (-1) ** k)


PLAIN: dict[str, Callable[[Rng], Callable[[Tensor], Any]]] = {
    "grows": lambda r: _times(float(r.uniform(1.02, 4))),
    "turns over": lambda r: _times(-float(r.uniform(0.2, 2))),
    "shifts": lambda r: _rolled(int(r.integers(1, 6))),
    "mirrors": lambda r: lambda x: x.flip(-1),
    "sharpens": lambda r: _sharpened(float(r.uniform(0.3, 3))),
    "squares": lambda r: lambda x: x**2,
    "cubes": lambda r: lambda x: x + x**3,
    "wraps": lambda r: lambda x: x.remainder(0.7),
    "sorts": lambda r: lambda x: x.flatten(2).sort(-1)[0].view_as(x),
    "rounds": lambda r: _rounded(float(r.uniform(0.02, 0.5))),
    "NaN in a pixel": lambda r: _pixel(float("nan")),
    "infinity in a pixel": lambda r: _pixel(float("inf")),
    "huge in a pixel": lambda r: _pixel(float(10.0 ** r.integers(3, 30))),
    "huge": lambda r: _times(float(10.0 ** r.integers(3, 30))),
    "nothing": lambda r: lambda x: None,
    "an array": lambda r: lambda x: x.numpy(),
    "integers": lambda r: lambda x: (255 * x).long(),
    "its input, changed": lambda r: lambda x: x.mul_(0.5),
    "another size": lambda r: lambda x: x[..., 1:],
    "another device": lambda r: lambda x: x.to("meta"),
    "half precision": lambda r: lambda x: (1.3 * x).half(),
}
CHANGING: dict[str, Callable[[Rng], Callable[[Tensor, int], Any]]] = {
    "random": lambda r: _noisy(float(10 ** r.uniform(-2.5, 0))),
    "drifts": lambda r: _drifting(float(10 ** r.uniform(-3, 0))),
    "later NaN": lambda r: _late(int(r.integers(2, 12)), float("nan")),
    "later growing": lambda r: _late(int(r.integers(2, 12)), float(r.uniform(1.2, 50))),
    "to and fro": lambda r: _to_and_fro(float(r.uniform(0.1, 0.9))),
}
PRICES: dict[str, Callable[[Tensor], Tensor]] = {
    "no price": lambda x: torch.zeros(len(x), dtype=torch.float64),
    "price below every bound": lambda x: -1e3 * x.square().sum(1),
    "NaN for a price": lambda x: torch.full((len(x),), torch.nan, dtype=torch.float64),
    "infinite price": lambda x: torch.full((len(x),), torch.inf, dtype=torch.float64),
}


def draw(rng: Rng) -> Drawn:
    """An honest denoiser, or one of the lies with a random promise."""
    kind = rng.random()
    if kind < 0.3:
        name = str(rng.choice(list(HONEST)))
        made = HONEST[name]()
        return Drawn(name, made, made.promise)
    if kind < 0.35:
        net = gradient_step_cases.network(curvature=float(rng.uniform(1.1, 4)))
        return Drawn("a gradient step beyond 1", gradient_step_cases.denoiser(net), pl.Promise.NONE, acted=True)
    promise = [pl.Promise.PROX, pl.Promise.CONVEX, pl.Promise.CONVEX, pl.Promise.MMSE, pl.Promise.NONE][rng.integers(5)]
    if kind < 0.5:
        name = str(rng.choice(list(CHANGING)))
        drawn = Drawn(name, None, pl.Promise.NONE, steady=False)
        drawn.denoiser = Changing(drawn.watched(CHANGING[name](rng)), promise)
        return drawn
    name = str(rng.choice(list(PLAIN)))
    # A pixel that is always the same is the constraint that it be so, which is convex.
    drawn = Drawn(name, None, pl.Promise.CONVEX if name == "huge in a pixel" else pl.Promise.NONE)
    function = drawn.watched(PLAIN[name](rng))
    drawn.denoiser = pl.as_denoiser(lambda x, s: function(x), promise)
    if rng.random() < 0.3:
        price = str(rng.choice(list(PRICES)))
        drawn.name, drawn.denoiser = f"{name}, {price}", Priced(function, promise, PRICES[price])
    return drawn
