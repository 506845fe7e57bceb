"""Denoisers by name or from a weight file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import torch

from pnpladmm.denoisers.architecture import Network
from pnpladmm.denoisers.base import Denoiser, OwnSettings, Promise
from pnpladmm.denoisers.building import build_network
from pnpladmm.denoisers.gradient_step import GradientStepDenoiser
from pnpladmm.denoisers.network import SIGMA_MAX, NetworkDenoiser
from pnpladmm.denoisers.registry import DENOISERS
from pnpladmm.denoisers.ridge import RidgeNet
from pnpladmm.denoisers.ridge_step import RidgeDenoiser
from pnpladmm.denoisers.shipped import SHIPPED, weight_files
from pnpladmm.denoisers.smooth_unet import SmoothUNet
from pnpladmm.tensor_files import SUFFIXES, read_tensors
from pnpladmm.tensors import InputError


def load_denoiser(
    name: str | Path, device: torch.device | str | None = None, precision: torch.dtype | None = None
) -> Denoiser:
    """Load a denoiser by its name, or from a weight file.

    Parameters
    ----------
    name : str or Path
        A shipped network (`light`, `drunet`, `prox-drunet`, `ridge`), a classical prior (`tv`, `soft`, `hard`,
        `tikhonov`, `identity`), the name that another package registered (entry points `pnpladmm.denoisers`), or a
        weight file of a known architecture (.safetensors, .pth, .pt). `drunet` and `prox-drunet` need the package
        pnpladmm-weights.
    device : torch.device or str, optional
        Where a network computes: `"cuda"`; by default the CPU. Classical priors compute where the picture lies.
    precision : torch.dtype, optional
        What a network computes in: by default float16 on GPUs (gradient steps such as `prox-drunet`: float32), else
        float32.

    Returns
    -------
    Denoiser
        A callable `d(x, sigma)`: x (B, C, H, W), nominally in [0, 1]; sigma a number or one per picture.

    Raises
    ------
    InputError
        For a name that is not known, or a file that is damaged, foreign or holds more than tensors.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> d = pl.load_denoiser("tv")
    >>> noisy = torch.rand(1, 1, 16, 16)
    >>> d(noisy, 25 / 255).shape
    torch.Size([1, 1, 16, 16])
    """
    check_denoiser(name)
    if str(name) in DENOISERS:
        return DENOISERS[str(name)](device=device, precision=precision)
    return load_network(name, device=device, precision=precision)


def check_denoiser(name: str | Path) -> None:
    """Refuse a name that is neither a denoiser's nor a file's."""
    if str(name) not in DENOISERS and not Path(name).suffix:
        raise InputError(f"denoiser {str(name)!r}: choose one of {', '.join(DENOISERS.names())}, or a weight file")


def load_network(
    name_or_path: str | Path,
    *,
    device: torch.device | str | None = None,
    precision: torch.dtype | None = None,
    compile_network: bool = False,
    scale: float = 1.0,
    promise: Promise = Promise.MMSE,
    relaxation: float | None = None,
) -> NetworkDenoiser | RidgeDenoiser:
    """Load a shipped network or a weight file (.safetensors, .pth, .pt) as a denoiser.

    `device` defaults to the CPU; the other parameters are those of `NetworkDenoiser`. A smooth network becomes a
    `GradientStepDenoiser`, whatever `promise` and `compile_network` say; `relaxation` is for those alone. Weights
    that were trained in the loop come with tuned settings, and promise nothing. Everything that is wrong with a file is
    an `InputError` of one line that names it.
    """
    name, networks, settings = _networks(name_or_path)
    device = device if device is not None else "cpu"
    smooth = {channels: net for channels, net in networks.items() if isinstance(net, SmoothUNet)}
    if smooth:
        return GradientStepDenoiser(
            smooth, relaxation=relaxation, name=name, scale=scale, device=device, precision=precision
        )
    ridges = {channels: net for channels, net in networks.items() if isinstance(net, RidgeNet)}
    if ridges and relaxation is None:
        return RidgeDenoiser(ridges, name=name, scale=scale, precision=precision)
    if relaxation is not None:
        raise InputError(f"{name_or_path}: relaxation is for gradient steps, and this network is none")
    return NetworkDenoiser(
        networks,
        promise=Promise.NONE if settings else promise,
        name=name,
        settings=settings,
        sigma_max=SIGMA_MAX,
        scale=scale,
        device=device,
        precision=precision,
        compile_network=compile_network,
    )


def _networks(name_or_path: str | Path) -> tuple[str, dict[int, Network], OwnSettings]:
    """The name, the networks by their number of channels, and the settings of weights that have some of their own."""
    if str(name_or_path) in SHIPPED:
        name = str(name_or_path)
        read = {channels: _network_of(path) for channels, path in weight_files(name).items()}
        return name, {channels: network for channels, (network, _) in read.items()}, read[3][1]
    path = Path(name_or_path)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"{name_or_path}: no such network: give one of {', '.join(SHIPPED)}, or a file ending in "
            f"{', '.join(SUFFIXES)}"
        )
    network, settings = _network_of(path)
    return path.stem, {network.channels: network}, settings


def _network_of(path: Path) -> tuple[Network, OwnSettings]:
    """The network of a weight file, and the settings that came with it."""
    tensors, metadata = read_tensors(path)
    return build_network(tensors, str(path)), _own_settings(metadata, path)


def _own_settings(metadata: Mapping[str, str], path: Path) -> OwnSettings:
    """The settings of the annealed method in the card of a weight file; {} where it has no such card."""
    try:
        card = json.loads(metadata.get("card", "{}"))
    except (ValueError, RecursionError):
        return {}
    settings = card.get("settings", {}) if isinstance(card, dict) else {}
    try:
        found = {
            method: {float(level): {name: float(value) for name, value in row.items()} for level, row in rows.items()}
            for method, rows in settings.items()
            if method.startswith("fast-") and rows
        }
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise InputError(f"{path}: its card holds settings that cannot be read: give other weights") from None
    for method, rows in found.items():
        numbers = [value for row in rows.values() for value in row.values()]
        if min(rows) <= 0 or not all(math.isfinite(value) for value in (*rows, *numbers)):
            raise InputError(f"{path}: the {method} settings in its card are not finite: give other weights")
    return found
