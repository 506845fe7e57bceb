"""The parts of `restore`: what people give, what is decided about a picture, and the run."""

from pnpladmm.restoration.inputs import BlurLike, PictureLike
from pnpladmm.restoration.noise import ResidualCheck, check_residual, estimate_noise
from pnpladmm.restoration.noise_model import NoiseModel
from pnpladmm.restoration.options import NoiseLike, Options, check_device
from pnpladmm.restoration.result import Restoration

__all__ = [
    "BlurLike",
    "NoiseLike",
    "NoiseModel",
    "Options",
    "PictureLike",
    "ResidualCheck",
    "Restoration",
    "check_device",
    "check_residual",
    "estimate_noise",
]
