"""Which network restores a picture when none is named: `light`, or one that was trained in the loop."""

from __future__ import annotations

from pnpladmm.operators import LinearOperator
from pnpladmm.pictures import Picture
from pnpladmm.restoration.jpeg import is_8_bit
from pnpladmm.restoration.options import Options

DENOISER, EXACT, PHOTO = "light", "light-exact", "light-photo"
WORDS = {
    EXACT: f"network {EXACT}, for data whose PSF and noise are known; for photographs there is {PHOTO}",
    PHOTO: f"network {PHOTO}, for 8-bit photographs whose PSF may be a little wrong; if it is exact, try {EXACT}",
}
"""What is said of the choice."""


def network_for(picture: Picture, operator: LinearOperator, options: Options) -> str:
    """The name of the network for a picture.

    Networks that were trained in the loop know what the annealed method leaves of a blur, and nothing else. What is no
    blur, other methods, and certificates get the plain denoiser.
    """
    trained = operator.blurs and options.method_class.settings_key == "fast" and not options.certify
    if not trained:
        return DENOISER
    measured = options.gain is not None or options.has_variance or options.linear
    return trained_network(not measured and _is_photograph(picture))


def trained_network(is_photograph: bool) -> str:
    """The network for the blur of a photograph of 8 bits, or of other data."""
    return PHOTO if is_photograph else EXACT


def _is_photograph(picture: Picture) -> bool:
    """Whether the samples are those of an 8-bit file of one or three channels."""
    return picture.pixels.shape[1] in (1, 3) and is_8_bit(picture)
