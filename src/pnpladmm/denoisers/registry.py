"""All denoisers that have a name. Each is registered in the file that defines it; other packages use entry points."""

from __future__ import annotations

from typing import Protocol, TypeVar

import torch

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.registry import Registry


class DenoiserFactory(Protocol):
    """Makes a denoiser.

    `device` and `precision` say where and in which dtype a network keeps its weights; None leaves that to the network.
    Classical priors compute where the picture lies, in its dtype, and ignore both.
    """

    def __call__(self, device: torch.device | str | None = None, precision: torch.dtype | None = None) -> Denoiser:
        """Return a denoiser."""
        ...


DENOISERS: Registry[DenoiserFactory] = Registry("denoiser", "pnpladmm.denoisers")
"""Denoisers by name. An entry point of the group `pnpladmm.denoisers` is a `DenoiserFactory`."""


class ClassicalPrior(Protocol):
    """A class of denoisers with a default for every parameter."""

    name: str

    def __call__(self) -> Denoiser:
        """Return the denoiser with its default parameters."""
        ...


PriorT = TypeVar("PriorT", bound=ClassicalPrior)


def classical_prior(kind: PriorT) -> PriorT:
    """Register a class of classical priors under its `name`."""

    def make(device: torch.device | str | None = None, precision: torch.dtype | None = None) -> Denoiser:
        return kind()

    DENOISERS.register(kind.name)(make)
    return kind
