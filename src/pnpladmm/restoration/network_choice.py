"""Which denoiser is used when none is named: `light`, one that was trained in the loop, or `ridge` to certify."""

from __future__ import annotations

import torch

from pnpladmm.denoisers import Denoiser, load_denoiser
from pnpladmm.operators import LinearOperator
from pnpladmm.pictures import Picture
from pnpladmm.restoration.options import Options

DENOISER, EXACT, PHOTO = "light", "light-exact", "light-photo"
PROVED = "ridge"
"""The prior of certified iterations after another method."""
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
    suits = operator.blurs and options.method_class.settings_key == "fast"
    return network_of_kind(suits, bool(picture.metadata.jpeg_table) and not options.linear)


def prior_of_certificate(denoiser: Denoiser, options: Options) -> Denoiser:
    """What certified iterations after the method have: the denoiser that was named, else one that is proved."""
    if options.denoiser is not None:
        return denoiser
    return load_denoiser(PROVED, None if options.device is None else str(options.device), torch.float32)


def network_of_kind(suits: bool, is_jpeg: bool = False) -> str:
    """The network by whether one that was trained in the loop suits at all, and whether the picture was a JPEG."""
    if not suits:
        return DENOISER
    return PHOTO if is_jpeg else EXACT
