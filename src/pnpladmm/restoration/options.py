"""The settings of a restoration, checked before any work is done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pnpladmm.denoisers import Denoiser, check_denoiser
from pnpladmm.operators import Boundary
from pnpladmm.operators.boundary import check_boundary
from pnpladmm.solvers import METHODS, Method, method_class
from pnpladmm.tensors import InputError, check_positive, type_words
from pnpladmm.tiling import read_size

AUTO, USUAL, FOR_SOURCES = "auto", "fast", "sources"
"""The choice by what a picture shows, and the methods that it chooses from."""

NoiseLike: TypeAlias = "float | Sequence[float] | Tensor | np.ndarray[Any, np.dtype[Any]] | Literal['auto']"
"""A standard deviation for pictures in [0, 1], one for each picture, or `auto`."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `restore` takes besides picture, blur and maps; refuses what no picture could use."""

    noise: NoiseLike = "auto"
    method: str | Method[Any] = AUTO
    denoiser: str | Path | Denoiser | None = None
    iterations: int | None = None
    certify: int = 0
    strength: float = 1.0
    boundary: Boundary = "unknown"
    saturation: bool = True
    gain: float | None = None
    electrons_per_count: float | None = None
    background: float = 0.0
    has_variance: bool = False
    linear: bool = False
    device: str | torch.device | None = None
    memory: int | float | str | None = None
    """Bytes, or a size such as "3GB"; None for a share of what is free."""
    tiles: int | None = None
    """The longest side of a tile; None where the memory decides."""
    noise_white: float = 1.0
    """White on the scale of `noise`: 1, or 255 on the command line."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "gain", one_gain(self.gain, self.electrons_per_count))
        least = self.method_class.fewest_iterations
        check_boundary(self.boundary)
        self._check_denoiser()
        self._check_numbers(least)
        check_device(self.device)
        if self.memory is not None:
            object.__setattr__(self, "memory", read_size(self.memory))
        if self.tiles is not None and (not _is_whole(self.tiles) or self.tiles < 1):
            raise InputError(f"tiles = {self.tiles}: give the side of a tile in pixels")
        _check_switch("saturation", self.saturation)
        _check_switch("linear", self.linear)
        given = self.levels
        if given is not None and (self.gain is not None or self.has_variance):
            other = "a variance map" if self.has_variance else f"gain = {self.gain}"
            raise InputError(f"noise beside {other}, which says all about the noise: leave noise out")
        if self.gain is not None and (self.has_variance or self.linear):
            other = "a variance map" if self.has_variance else "linear light"
            raise InputError(f"gain beside {other}: counts are linear and carry their own noise, give one of the two")
        if self.gain is None and self.background:
            raise InputError(f"background = {self.background}: it needs a gain, what one count adds to a pixel")

    @property
    def method_class(self) -> type[Method[Any]]:
        """The class of the method, for what it declares."""
        return type(self.method) if isinstance(self.method, Method) else _class_of(self.method)

    @property
    def levels(self) -> Tensor | None:
        """The noise levels that were given, for pictures in [0, 1], float64 (1,) or (B,); None for `auto`."""
        return noise_levels(self.noise, self.noise_white)

    @property
    def takes_errors_of_file(self) -> bool:
        """Whether the errors beside a picture in its file are its noise: nothing else was said of it."""
        return self.levels is None and self.gain is None and not self.has_variance and not self.linear

    @property
    def can_leave_out(self) -> bool:
        """Whether the method can leave pixels out: a Poisson term cannot."""
        return self.gain is None or self.method_class.needs_quadratic

    @property
    def is_open(self) -> bool:
        """Whether the picture may decide on the method: nothing was said that only one with a denoiser could do."""
        asked = self.denoiser is not None or self.iterations is not None or self.certify or self.linear
        return isinstance(self.method, str) and self.method.lower() == AUTO and not asked

    def decided(self, method: str) -> Options:
        """The same settings with a method in place of `auto`."""
        if not isinstance(self.method, str) or self.method.lower() != AUTO:
            return self
        return replace(self, method=method, electrons_per_count=None)

    def _check_denoiser(self) -> None:
        if isinstance(self.denoiser, str | Path):
            check_denoiser(self.denoiser)
        elif self.denoiser is not None and (isinstance(self.denoiser, type) or not callable(self.denoiser)):
            raise InputError(
                f"denoiser is {type_words(self.denoiser)}: give a name, a weight file or a callable d(x, sigma)"
            )

    def _check_numbers(self, least: int) -> None:
        _number("strength", self.strength)
        if not _is_whole(self.certify) or self.certify < 0:
            raise InputError(f"certify = {self.certify}: give the number of certified iterations, 0 for none")
        if self.iterations is not None and (not _is_whole(self.iterations) or self.iterations < least):
            raise InputError(f"iterations = {self.iterations}: this method needs a whole number, {least} or more")
        if self.gain is not None:
            _number("gain", self.gain)
        if not _is_number(self.background) or not math.isfinite(self.background) or self.background < 0:
            raise InputError(f"background = {self.background}: give a finite number that is not negative")


def one_gain(gain: Any, electrons_per_count: Any) -> Any:
    """What one photon adds in the numbers of the file, from either way of saying it; None where neither is."""
    if electrons_per_count is None:
        return gain
    _number("electrons_per_count", electrons_per_count)
    inverse = 1 / float(electrons_per_count)
    if gain is not None and gain != inverse:
        raise InputError(
            f"gain = {gain} beside electrons_per_count = {electrons_per_count}: each is the inverse of the other, "
            "give one of them"
        )
    return inverse


def noise_levels(noise: Any, white: float = 1.0) -> Tensor | None:
    """Noise levels, given where white is `white`, for pictures in [0, 1]: float64 (1,) or (B,); None for `auto`."""
    if isinstance(noise, str):
        if noise.lower() == "auto":
            return None
        raise InputError(f"noise {noise!r}: give a number, one for each picture, or auto")
    if isinstance(noise, bool) or not isinstance(noise, int | float | Sequence | np.generic | np.ndarray | Tensor):
        raise InputError(f"noise is {type_words(noise)}: give a number, one for each picture, or auto")
    try:
        values = noise.detach() if isinstance(noise, Tensor) else np.asarray(noise, dtype=np.float64)
        levels = torch.as_tensor(values, dtype=torch.float64).reshape(-1)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"noise = {noise!r}: give a number, one for each picture, or auto") from None
    # As it was given, in the words of the caller.
    check_positive("noise", noise if isinstance(noise, int | float) else levels)
    check_scale(float(levels.max()), white)
    return levels / white


def check_scale(noise: float, white: float = 1.0) -> None:
    """Refuse a level of white or more for pictures in [0, 1]; on the 0-255 scale nobody has mistaken the scale."""
    if white != 1 or noise < 1:
        return
    meant = f"for {noise:g} of 255 write noise={noise:g}/255" if noise < 255 else "give a number below 1"
    raise InputError(f"noise = {noise:g}, for pictures in [0, 1]: {meant}")


def check_callback(callback: object) -> None:
    """Refuse what cannot be called after an iteration."""
    if callback is not None and not callable(callback):
        raise InputError(f"callback is {type_words(callback)}: give a function that takes a Progress")


def check_device(device: str | torch.device | None) -> None:
    """Refuse a device that does not exist here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError):
        raise InputError(f"device {str(device)!r}: it was not found on this machine: use cpu") from None


def _class_of(method: Any) -> type[Method[Any]]:
    if isinstance(method, str):
        return method_class(USUAL if method.lower() == AUTO else method)
    names = ", ".join((AUTO, *METHODS))
    if isinstance(method, type) and issubclass(method, Method):
        raise InputError(f"method is the class {method.__name__}: give one of {names}, or an instance of the class")
    raise InputError(f"method is {type_words(method)}: give one of {names}, or a method")


def _check_switch(name: str, value: object) -> None:
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} = {value!r}: give True or False")


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _number(name: str, value: Any) -> None:
    if not _is_number(value):
        raise InputError(f"{name} is {type_words(value)}: give a number")
    check_positive(name, float(value))
