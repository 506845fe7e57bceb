"""Tone curves: from samples to linear light and back.

sRGB (IEC 61966-2-1):  light = s / 12.92 for s <= 0.04045, else ((s + 0.055) / 1.055) ** 2.4

Beyond [0, 1] the curves go on: odd about 0, so that noise around black keeps its sign, and above 1 by the same
formula (tables: by their last slope). Every curve here is strictly increasing, so that the inverse exists; a round
trip errs by rounding of the float type only, far below half a step of 16 bits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from pnpladmm.pictures.arrays import Array
from pnpladmm.tensors import InputError


@dataclass(frozen=True)
class Parametric:
    """`(a s + b) ** g + e` from `d` on, `c s + f` below: what ICC calls a parametric curve of type 4."""

    g: float
    a: float = 1.0
    b: float = 0.0
    c: float = 0.0
    d: float = 0.0
    e: float = 0.0
    f: float = 0.0

    def forward(self, s: Tensor) -> Tensor:
        """Sample to light."""
        power = (self.a * s + self.b).clamp_min(0) ** self.g + self.e
        return torch.where(s < self.d, self.c * s + self.f, power) if self.d > 0 else power

    def inverse(self, light: Tensor) -> Tensor:
        """Light to sample."""
        power = ((light - self.e).clamp_min(0) ** (1 / self.g) - self.b) / self.a
        if self.d <= 0:
            return power
        # The pieces of sRGB as printed do not quite meet: split where the lower piece ends, as forward does.
        return torch.where(light < self.c * self.d + self.f, (light - self.f) / self.c, power)


@dataclass(frozen=True)
class Table:
    """Straight lines between equidistant points over [0, 1]."""

    values: Array

    def forward(self, s: Tensor) -> Tensor:
        """Sample to light."""
        return self._interpolate(s, np.linspace(0, 1, len(self.values)), self.values)

    def inverse(self, light: Tensor) -> Tensor:
        """Light to sample."""
        return self._interpolate(light, self.values, np.linspace(0, 1, len(self.values)))

    @staticmethod
    def _interpolate(t: Tensor, x: Array, y: Array) -> Tensor:
        values = t.detach().cpu().numpy().astype(np.float64)
        found = np.interp(values, x, y)
        beyond = values > x[-1]
        slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
        found = np.where(beyond, y[-1] + slope * (values - x[-1]), found)
        return torch.from_numpy(found).to(t)


Curve: TypeAlias = Parametric | Table
"""An increasing function on [0, infinity) with its inverse."""

SRGB = Parametric(2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045)


@dataclass(frozen=True)
class Tone:
    """A curve for each channel, or one for all."""

    curves: tuple[Curve, ...]

    def to_light(self, pixels: Tensor) -> Tensor:
        """Pixels (pages, C, H, W) as linear light."""
        return self._apply(pixels, [curve.forward for curve in self.curves])

    def from_light(self, light: Tensor) -> Tensor:
        """The inverse."""
        return self._apply(light, [curve.inverse for curve in self.curves])

    @staticmethod
    def _apply(x: Tensor, functions: list[Callable[[Tensor], Tensor]]) -> Tensor:
        size = x.abs()
        if len(functions) == 1:
            parts = functions[0](size)
        else:
            parts = torch.stack([f(channel) for f, channel in zip(functions, size.unbind(1), strict=True)], 1)
        return torch.where(x < 0, -parts, parts)


def tone_of(icc: bytes | None, transfer: str | float, channels: int, name: str) -> Tone:
    """The tone of a picture: the ICC profile's where there is one, else what `transfer` says."""
    if icc is not None:
        try:
            curves = _icc_curves(icc)
        except (struct.error, ValueError, KeyError, IndexError) as error:
            raise InputError(
                f"{name} has an ICC profile without plain tone curves ({error}): convert it to sRGB first"
            ) from None
        if len(curves) not in (1, channels):
            raise InputError(f"{name} has {channels} channels, its ICC profile {len(curves)}: convert it to sRGB first")
        return Tone(curves)
    if isinstance(transfer, float):
        return Tone((Parametric(transfer),))
    if transfer != "srgb":
        raise InputError(f"{name} is encoded by {transfer}, which is not undone here: convert it to sRGB first")
    return Tone((SRGB,))


def _icc_curves(icc: bytes) -> tuple[Curve, ...]:
    """The tone curves of a matrix or grey profile (ICC.1, 10.6 and 10.18)."""
    (count,) = struct.unpack_from(">I", icc, 128)
    if count > 200:
        raise ValueError(f"{count} tags")
    tags = {}
    for i in range(count):
        signature, offset, size = struct.unpack_from(">4sII", icc, 132 + 12 * i)
        tags[signature] = icc[offset : offset + size]
    if b"kTRC" in tags:
        return (_icc_curve(tags[b"kTRC"]),)
    return tuple(_icc_curve(tags[tag]) for tag in (b"rTRC", b"gTRC", b"bTRC"))


def _icc_curve(data: bytes) -> Curve:
    kind = data[:4]
    if kind == b"para":
        function = struct.unpack_from(">H", data, 8)[0]
        names = ("g", "gab", "gabc", "gabcd", "gabcdef")[function]
        p = dict(zip(names, (v / 65536 for v in struct.unpack_from(f">{len(names)}i", data, 12)), strict=True))
        if function in (1, 2):
            # Types 1 and 2 name their pieces otherwise: (a s + b)**g + c throughout (where it rises).
            p["e"] = p.pop("c", 0.0)
        curve: Curve = Parametric(**p)
    elif kind == b"curv":
        (n,) = struct.unpack_from(">I", data, 8)
        if n <= 1:
            curve = Parametric(struct.unpack_from(">H", data, 12)[0] / 256 if n else 1.0)
        else:
            table = np.frombuffer(data, ">u2", n, 12).astype(np.float64) / 65535
            # A flat piece has no inverse: a part in ten thousand of the straight line gives it a slope.
            if (np.diff(table) <= 0).any():
                table = (1 - 1e-4) * np.maximum.accumulate(table) + 1e-4 * np.linspace(0, 1, n)
            curve = Table(table)
    else:
        raise ValueError(f"curve of type {kind!r}")
    probe = curve.forward(torch.linspace(0, 1, 4097, dtype=torch.float64))
    if not bool((probe.diff() > 0).all()):
        raise ValueError("a curve that does not rise")
    return curve
