"""Denoisers: `d(x, sigma)` and what each one promises."""

from pnpladmm.denoisers.anchored import anchored
from pnpladmm.denoisers.base import (
    Denoiser,
    Promise,
    name_of,
    precision_of,
    promise_of,
    weight_of,
)
from pnpladmm.denoisers.callables import as_denoiser
from pnpladmm.denoisers.drunet import DRUNet
from pnpladmm.denoisers.light import LightNet
from pnpladmm.denoisers.loading import check_denoiser, load_denoiser
from pnpladmm.denoisers.quadratic import Identity, Tikhonov
from pnpladmm.denoisers.registry import DENOISERS
from pnpladmm.denoisers.relaxed import relaxed
from pnpladmm.denoisers.ridge import RidgeNet
from pnpladmm.denoisers.ridge_step import RidgeDenoiser
from pnpladmm.denoisers.smooth_unet import SmoothUNet
from pnpladmm.denoisers.thresholding import HardThreshold, SoftThreshold
from pnpladmm.denoisers.tv import TotalVariation

__all__ = [
    "DENOISERS",
    "DRUNet",
    "Denoiser",
    "HardThreshold",
    "Identity",
    "LightNet",
    "Promise",
    "RidgeDenoiser",
    "RidgeNet",
    "SmoothUNet",
    "SoftThreshold",
    "Tikhonov",
    "TotalVariation",
    "anchored",
    "as_denoiser",
    "check_denoiser",
    "load_denoiser",
    "name_of",
    "precision_of",
    "promise_of",
    "relaxed",
    "weight_of",
]
