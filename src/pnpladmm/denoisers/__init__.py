"""Denoisers: `d(x, sigma)` and what each one promises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from pnpladmm.denoisers.base import Denoiser, Promise, promise_of
from pnpladmm.denoisers.network import as_denoiser
from pnpladmm.denoisers.pretrained import SHIPPED, load_network
from pnpladmm.denoisers.quadratic import Identity, Tikhonov
from pnpladmm.denoisers.relaxed import relaxed
from pnpladmm.denoisers.thresholding import HardThreshold, SoftThreshold
from pnpladmm.denoisers.tv import TotalVariation
from pnpladmm.tensors import InputError

CLASSICAL: dict[str, Callable[[], Denoiser]] = {
    "tv": TotalVariation,
    "soft": SoftThreshold,
    "hard": HardThreshold,
    "tikhonov": Tikhonov,
    "identity": Identity,
}


def load_denoiser(name: str | Path, device: str | None = None, precision: torch.dtype | None = None) -> Denoiser:
    """A denoiser by name (a classical prior or a shipped network), or from a file of weights.

    `precision` is what a network computes in: by default float16 on GPUs (gradient steps: float32), else float32.
    """
    check_denoiser(name)
    if str(name) in CLASSICAL:
        return CLASSICAL[str(name)]()
    return load_network(name, device=device, precision=precision)


def check_denoiser(name: str | Path) -> None:
    """Refuse a name that is neither a denoiser's nor a file's."""
    if str(name) not in (*SHIPPED, *CLASSICAL) and not Path(name).suffix:
        raise InputError(f"denoiser {str(name)!r}: choose one of {', '.join([*SHIPPED, *CLASSICAL])}, or a weight file")


__all__ = [
    "CLASSICAL",
    "Denoiser",
    "HardThreshold",
    "Identity",
    "Promise",
    "SoftThreshold",
    "Tikhonov",
    "TotalVariation",
    "as_denoiser",
    "check_denoiser",
    "load_denoiser",
    "promise_of",
    "relaxed",
]
