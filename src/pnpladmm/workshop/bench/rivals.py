"""Other tools' blurs behind one face: `forward`, `adjoint`, and how their work grows.

deepinv and scipy are looked for when a benchmark asks for them. Nothing else in the package needs deepinv.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpladmm.operators import SpatiallyVaryingBlur

_KEPT: list[Any] = []


class Missing(Exception):
    """A rival cannot take part; the message says why, in one line."""


@dataclass(frozen=True)
class RivalBlur:
    """A blur ready to run; `work` is what its time should be proportional to, to guess before trying."""

    forward: Callable[[Tensor], Tensor]
    adjoint: Callable[[Tensor], Tensor]
    work: float


@cache
def load_deepinv() -> Any:
    """deepinv, or `Missing`."""
    for name in ("deepinv", "torchvision"):
        if importlib.util.find_spec(name) is None:
            hint = "pip install 'pnpladmm[bench]'" if name == "deepinv" else "deepinv needs it"
            raise Missing(f"{name} is not installed ({hint})")
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        # The usual build of torchvision beside the CPU build of torch: its compiled operators are not there, and
        # its import looks for two of them. deepinv calls neither.
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)  # the operators live as long as it does
    try:
        return importlib.import_module("deepinv")
    except Exception as error:  # whatever its own imports raise
        raise Missing(f"deepinv does not load here: {first_line(error)}") from error


def deepinv_physics(blur: SpatiallyVaryingBlur, use_fft: bool) -> Any:
    """deepinv's `SpaceVaryingBlur` with the kernels, weights, order and boundary of ours."""
    deepinv = load_deepinv()
    kind = deepinv.physics.SpaceVaryingBlur
    options: dict[str, Any] = {"padding": blur.boundary, "use_fft": use_fft, "device": blur.device}
    if blur.order == "convolve-then-weight":
        if "mask_first" not in inspect.signature(kind).parameters:
            raise Missing("this version of deepinv weights before it convolves, and only so")
        options["mask_first"] = False
    # Ours: (b, P, c, ...). Theirs: (b, c, P, ...).
    return kind(blur.kernels.transpose(1, 2).contiguous(), blur.weights.transpose(1, 2).contiguous(), **options)


def deepinv_blur(blur: SpatiallyVaryingBlur, use_fft: bool) -> RivalBlur:
    """deepinv's operator. It convolves kernel by kernel: directly, or by FFT on the picture's own size."""
    physics = deepinv_physics(blur, use_fft)
    count, (kh, kw), pixels = _sizes(blur)
    work = count * pixels * (np.log2(pixels) if use_fft else kh * kw)
    return RivalBlur(physics.A, physics.A_adjoint, float(work))


def scipy_blur(blur: SpatiallyVaryingBlur, function: str) -> RivalBlur:
    """`scipy.signal.oaconvolve` or `fftconvolve`, kernel by kernel, on a picture wrapped round its border."""
    if blur.device.type != "cpu":
        raise Missing("scipy works on the CPU")
    try:
        import scipy.fft
        import scipy.signal
    except ImportError:
        raise Missing("scipy is not installed") from None
    convolve = getattr(scipy.signal, function)
    if blur.boundary != "circular" or len(blur.weights) != 1:
        raise Missing("written for one circular blur")
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
    """The first line of what an exception says."""
    return (str(error).splitlines() or [type(error).__name__])[0]
