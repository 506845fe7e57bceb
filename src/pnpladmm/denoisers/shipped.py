"""The shipped networks: which files hold their weights, and where these lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import torch

from pnpladmm.denoisers.architecture import Network
from pnpladmm.denoisers.base import Denoiser
from pnpladmm.denoisers.registry import DENOISERS
from pnpladmm.tensors import InputError

WEIGHTS_FOLDER = Path(__file__).parent / "weights"
LARGE_WEIGHTS = "pnpladmm_weights"
"""The package with the weights that are too large for this one; the folder weights/ of the repository."""


@dataclass(frozen=True)
class ShippedNetwork:
    """A network that this project has weights for. It is the factory of its denoiser."""

    name: str
    architecture: type[Network]
    files: dict[int, str]
    """The weight file for each number of channels. The one for 3 is required, that for 1 is not."""

    def __call__(self, device: torch.device | str | None = None, precision: torch.dtype | None = None) -> Denoiser:
        """Load it as a denoiser."""
        from pnpladmm.denoisers.loading import load_network  # here: loading needs the networks, which need this file

        return load_network(self.name, device=device, precision=precision)


SHIPPED: dict[str, ShippedNetwork] = {}

NetworkT = TypeVar("NetworkT", bound=type[Network])


def shipped_network(name: str, color: str, grey: str | None = None) -> Callable[[NetworkT], NetworkT]:
    """Declare a network class, with the names of its shipped weight files, as the denoiser `name`."""

    def register(architecture: NetworkT) -> NetworkT:
        files = {3: color} if grey is None else {3: color, 1: grey}
        SHIPPED[name] = ShippedNetwork(name, architecture, files)
        DENOISERS.register(name)(SHIPPED[name])
        return architecture

    return register


def architectures() -> dict[str, type[Network]]:
    """The kinds of network, each under the name that declares its class. Other names may share its architecture."""
    found: dict[type[Network], str] = {}
    for name, shipped in SHIPPED.items():
        found.setdefault(shipped.architecture, name)
    return {name: architecture for architecture, name in found.items()}


def is_gradient_step(name: str) -> bool:
    """Whether the network of this name is trained as a gradient step; False for names that no network has."""
    return name in SHIPPED and SHIPPED[name].architecture.is_gradient_step


def needs_float32(name: str) -> bool:
    """Whether the network of this name is trained, and its weights are kept, in float32."""
    return name in SHIPPED and SHIPPED[name].architecture.file_precision == torch.float32


def weight_files(name: str) -> dict[int, Path]:
    """The installed weight files of a shipped network, by the number of channels."""
    found = {channels: find_weights(file) for channels, file in SHIPPED[name].files.items()}
    if found[3] is None:
        raise InputError(
            f"{name}: its weights are in the package {LARGE_WEIGHTS.replace('_', '-')}, which is not installed: "
            f"install it, use light, or train your own (pnpladmm train FOLDER FILE --network {name})"
        )
    return {channels: path for channels, path in found.items() if path is not None}


def weight_file(name_or_path: str | Path) -> Path:
    """The file of a shipped network's colour weights, by its name; a path is returned as it is."""
    name = str(name_or_path)
    return weight_files(name)[3] if name in SHIPPED else Path(name_or_path)


def is_installed(name: str) -> bool:
    """Whether the weights of a shipped network are installed."""
    return find_weights(SHIPPED[name].files[3]) is not None


def find_weights(file: str) -> Path | None:
    """A weight file of this project, in this package or in that of the large weights."""
    folders = [WEIGHTS_FOLDER]
    large = find_spec(LARGE_WEIGHTS)
    if large is not None and large.origin is not None:
        folders.append(Path(large.origin).parent)
    return next((folder / file for folder in folders if (folder / file).is_file()), None)
