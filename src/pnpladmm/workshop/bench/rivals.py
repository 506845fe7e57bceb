"""The blurs of other tools with one interface: `forward`, `adjoint`, and how their work grows.

deepinv is optional and loaded when a benchmark needs it; nothing else in the package uses it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy.fft
import scipy.signal
import torch
from torch import Tensor

from pnpladmm import deepinv as adapter
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.tensors import InputError


class Missing(Exception):
    """A rival cannot take part; the message says why in one line."""


@dataclass(frozen=True)
class RivalBlur:
    """A blur ready to run. Its time should be proportional to `work`, from which it is estimated before it runs."""

    forward: Callable[[Tensor], Tensor]
    adjoint: Callable[[Tensor], Tensor]
    work: float


@cache
def load_deepinv() -> Any:
    """deepinv, or `Missing`."""
    try:
        return adapter.load_deepinv()
    except InputError as error:
        raise Missing(str(error)) from None
    except Exception as error:  # its imports may raise anything
        raise Missing(f"deepinv cannot be imported here: {first_line(error)}") from error


def deepinv_physics(blur: SpatiallyVaryingBlur, use_fft: bool) -> Any:
    """deepinv's `SpaceVaryingBlur` with the kernels, weights, order and boundary of ours."""
    deepinv = load_deepinv()
    kind = deepinv.physics.SpaceVaryingBlur
    options: dict[str, Any] = {"padding": blur.boundary, "use_fft": use_fft, "device": blur.device}
    if blur.order == "convolve-then-weight":
        if "mask_first" not in inspect.signature(kind).parameters:
            raise Missing("this version of deepinv can only weight before it convolves")
        options["mask_first"] = False
    # Ours: (b, P, c, ...). Theirs: (b, c, P, ...).
    return kind(blur.kernels.transpose(1, 2).contiguous(), blur.weights.transpose(1, 2).contiguous(), **options)


def deepinv_blur(blur: SpatiallyVaryingBlur, use_fft: bool) -> RivalBlur:
    """deepinv's operator, which convolves kernel by kernel, directly or by FFTs of the picture's size."""
    physics = deepinv_physics(blur, use_fft)
    count, (kh, kw), pixels = _sizes(blur)
    work = count * pixels * (np.log2(pixels) if use_fft else kh * kw)
    return RivalBlur(physics.A, physics.A_adjoint, float(work))


def scipy_blur(blur: SpatiallyVaryingBlur, function: str) -> RivalBlur:
    """`scipy.signal.oaconvolve` or `fftconvolve`, kernel by kernel, on a picture padded periodically."""
    if blur.device.type != "cpu":
        raise Missing("scipy runs on the CPU only")
    convolve = getattr(scipy.signal, function)
    if blur.boundary != "circular" or len(blur.weights) != 1:
        raise Missing("it is prepared here for one circular blur")
    weights, kernels = blur.weights[0].numpy(), blur.kernels[0].numpy()  # (P, 1, H, W), (P, c, k, k)
    flipped = np.ascontiguousarray(kernels[..., ::-1, ::-1])
    count, (kh, kw), pixels = _sizes(blur)
    after = (kh // 2, kw // 2)
    before = (kh - 1 - after[0], kw - 1 - after[1])
    weigh_first = blur.order == "weight-then-convolve"

    def convolved(x: Any, kernel: Any, first: tuple[int, int], last: tuple[int, int]) -> Any:
        wrapped = np.pad(x, ((0, 0), (first[0], last[0]), (first[1], last[1])), mode="wrap")
        kernel = np.broadcast_to(kernel, (len(x), kh, kw))
        return convolve(wrapped, kernel, mode="valid", axes=(-2, -1))

    def apply(v: Tensor, bank: Any, weigh: bool, first: tuple[int, int], last: tuple[int, int]) -> Tensor:
        results = []
        with scipy.fft.set_workers(torch.get_num_threads()):
            for x in v.numpy():
                total = np.zeros_like(x)
                for weight, kernel in zip(weights, bank, strict=True):
                    if weigh:
                        total += convolved(weight * x, kernel, first, last)
                    else:
                        total += weight * convolved(x, kernel, first, last)
                results.append(total)
        return torch.from_numpy(np.stack(results))

    return RivalBlur(
        lambda x: apply(x, kernels, weigh_first, before, after),
        lambda y: apply(y, flipped, not weigh_first, after, before),
        float(count * pixels * np.log2(pixels)),
    )


BLURS: dict[str, Callable[[SpatiallyVaryingBlur], RivalBlur]] = {
    "deepinv": lambda blur: deepinv_blur(blur, use_fft=False),
    "deepinv use_fft": lambda blur: deepinv_blur(blur, use_fft=True),
    "scipy oaconvolve": lambda blur: scipy_blur(blur, "oaconvolve"),
    "scipy fftconvolve": lambda blur: scipy_blur(blur, "fftconvolve"),
}


def _sizes(blur: SpatiallyVaryingBlur) -> tuple[int, tuple[int, int], int]:
    count = blur.kernels.shape[1]
    kh, kw = blur.kernels.shape[-2:]
    return count, (kh, kw), blur.scene[0] * blur.scene[1]


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or its type."""
    return (str(error).splitlines() or [type(error).__name__])[0]
