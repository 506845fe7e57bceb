"""Which denoiser is used when none is named: `light`, one that was trained in the loop, or `ridge` to certify."""

from __future__ import annotations

import torch

from pnpladmm.denoisers import Denoiser, load_denoiser
from pnpladmm.operators import LinearOperator
from pnpladmm.pictures import Picture
from pnpladmm.restoration.options import Options

DENOISER, EXACT, PHOTO = "light", "light-exact", "light-photo"
PROVED, CHECKED = "ridge", "prox-drunet"
"""Priors of certified iterations after the annealed method, which another network does better. The first is taken where
none is named."""
WORDS = {
    EXACT: f"network {EXACT}, trained inside the method on blurred pictures",
    PHOTO: f"network {PHOTO}, trained inside the method on blurred JPEGs",
}
"""What is said of the choice."""


def network_for(picture: Picture, operator: LinearOperator, options: Options) -> str:
    """The name of the network for a picture.

    Networks that were trained in the loop know what the annealed method leaves of a blur, and nothing else. What is no
    blur, and other methods get the plain denoiser.
    """
    suits = _loop_trained_suit(operator, options)
    return network_of_kind(suits, bool(picture.metadata.jpeg_table) and not options.linear)


def is_prior_only(operator: LinearOperator, options: Options) -> bool:
    """Is the named denoiser for the certified iterations alone, and not for the method before them?"""
    named = str(options.denoiser) in (PROVED, CHECKED)
    return bool(options.certify) and named and _loop_trained_suit(operator, options)


def prior_of_certificate(denoiser: Denoiser, operator: LinearOperator, options: Options) -> Denoiser:
    """What certified iterations after the method have, whose denoiser is given."""
    if options.denoiser is not None and not is_prior_only(operator, options):
        return denoiser
    device = None if options.device is None else str(options.device)
    return load_denoiser(PROVED if options.denoiser is None else str(options.denoiser), device, torch.float32)


def _loop_trained_suit(operator: LinearOperator, options: Options) -> bool:
    return operator.blurs and options.method_class.settings_key == "fast"


def network_of_kind(suits: bool, is_jpeg: bool = False) -> str:
    """The network by whether one that was trained in the loop suits at all, and whether the picture was a JPEG."""
    if not suits:
        return DENOISER
    return PHOTO if is_jpeg else EXACT
