"""Networks from named tensors, and new ones to train.

The architecture, its widths and its numbers of blocks are read off the names and shapes of the tensors.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import torch
from torch import nn

from pnpladmm.denoisers.architecture import Network, Tensors
from pnpladmm.denoisers.shipped import SHIPPED, architectures
from pnpladmm.tensor_files import read_tensors
from pnpladmm.tensors import InputError


def read_network(path: Path) -> Network:
    """The network in a weight file, float32, on the CPU."""
    tensors, _ = read_tensors(path)
    return build_network(tensors, str(path))


def build_network(tensors: Tensors, source: str = "weights") -> Network:
    """The network whose parameters these tensors are, with their values in it as float32.

    Channels, widths and numbers of blocks are inferred. Every name and shape must then agree.
    """
    network = _empty_network(tensors, source)
    expected = network.state_dict()
    for key in expected:
        if key not in tensors:
            raise InputError(f"{source}: {key} is missing: not a whole {type(network).__name__}")
    for key, tensor in tensors.items():
        if key not in expected:
            raise InputError(f"{source}: {key} is not a parameter of a {network.description}")
        if tensor.shape != expected[key].shape:
            raise InputError(f"{source}: {key} has shape {tuple(tensor.shape)}, expected {tuple(expected[key].shape)}")
    network.load_state_dict({key: tensor.float() for key, tensor in tensors.items()}, assign=True)
    network.check(source)
    return network


def _empty_network(tensors: Tensors, source: str) -> Network:
    """A network on the meta device, which takes no memory, of the architecture that the names tell."""
    with torch.device("meta"):
        for architecture in architectures().values():
            if architecture.first_layer in tensors:
                return architecture.fitting(tensors, source)
    known = [f"a {one.__name__} ({one.first_layer}, ...)" for one in architectures().values()]
    raise InputError(f"{source}: neither {' nor '.join(known)}")


def new_network(
    name: str, channels: int = 3, widths: tuple[int, ...] | None = None, blocks: int | None = None
) -> Network:
    """An initialised, untrained network of a shipped one's name; widths and blocks as shipped unless given."""
    kinds = architectures()
    if name in SHIPPED and name not in kinds:
        raise InputError(
            f"network = {name}: weights for the network {kind_of(SHIPPED[name].architecture)}, no network of its own: "
            f"give one of {', '.join(kinds)}"
        )
    if name not in kinds:
        raise InputError(f"network = {name}: give one of {', '.join(kinds)}")
    architecture = kinds[name]
    levels = len(architecture.shipped_widths)
    if widths is not None and (len(widths) != levels or min(widths) < 1):
        raise InputError(f"widths = {widths}: give {levels} positive numbers for {name}")
    if blocks is not None and blocks < 1:
        raise InputError(f"blocks = {blocks}: give a number of at least 1")
    network = architecture.of_size(channels, widths, blocks)
    network.initialise()
    return network


def kind_of(architecture: type[Network]) -> str:
    """The name of a kind of network, as `new_network` takes it."""
    return next(name for name, known in architectures().items() if known is architecture)


def multiply_adds_per_pixel(network: nn.Module, side: int = 64) -> float:
    """The multiply-adds per pixel of a picture, counted by running the network on the meta device."""
    from torch.utils.flop_counter import FlopCounterMode

    channels = int(getattr(network, "channels", 3))
    x = torch.empty(1, channels, side, side, device="meta")
    with FlopCounterMode(display=False) as counter:
        deepcopy(network).to("meta")(x, torch.empty(1, device="meta"))
    return float(counter.get_total_flops()) / 2 / side**2
