"""Weight files in, networks out: the shipped weights, the published checkpoints, a user's own training.

A weight file is somebody else's data. Nothing in it is ever executed: safetensors hold only numbers, and
the older `.pth` and `.pt` files go through torch's restricted reader (`weights_only=True`), which refuses
a pickle that calls anything. The architecture is read off the tensors' names and shapes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from pnpladmm.denoisers import drunet, light, smooth_unet
from pnpladmm.denoisers.base import Promise
from pnpladmm.denoisers.drunet import DRUNet
from pnpladmm.denoisers.gradient_step import GradientStepDenoiser
from pnpladmm.denoisers.light import LightNet
from pnpladmm.denoisers.network import SIGMA_MAX, NetworkDenoiser
from pnpladmm.denoisers.smooth_unet import SmoothUNet
from pnpladmm.tensors import InputError

WEIGHTS_FOLDER = Path(__file__).parent / "weights"
LARGE_WEIGHTS = "pnpladmm_weights"
"""The package with the weights that are too large for this one; the folder weights/ of the repository."""

SHIPPED: dict[str, dict[int, str]] = {
    "drunet": {3: "drunet_color.safetensors", 1: "drunet_grey.safetensors"},
    "light": {3: "light_color.safetensors", 1: "light_grey.safetensors"},
    "prox-drunet": {3: "prox_drunet_color.safetensors"},
}
"""The file of each shipped network for each number of channels; colour is required, grey is not."""

SUFFIXES = (".safetensors", ".pth", ".pt")

Network: TypeAlias = DRUNet | LightNet | SmoothUNet


def load_network(
    name_or_path: str | Path,
    *,
    device: torch.device | str | None = None,
    precision: torch.dtype | None = None,
    compile_network: bool = False,
    scale: float = 1.0,
    promise: Promise = Promise.MMSE,
    relaxation: float | None = None,
) -> NetworkDenoiser:
    """Load "drunet", "light", "prox-drunet" or a weight file (.safetensors, .pth, .pt) as a denoiser.

    `device` defaults to the CPU; the other parameters are those of `NetworkDenoiser`. A smooth network becomes a
    `GradientStepDenoiser`, whatever `promise` and `compile_network` say; `relaxation` is for those alone. Everything
    that is wrong with a file is an `InputError` of one line that names it.
    """
    if str(name_or_path) in SHIPPED:
        name = str(name_or_path)
        networks = _shipped_networks(name)
    else:
        path = Path(name_or_path)
        if path.suffix.lower() not in SUFFIXES:
            known = ", ".join(SHIPPED)
            raise InputError(
                f"{name_or_path}: no such network; give one of {known}, or a file ending in {', '.join(SUFFIXES)}"
            )
        name = path.stem
        network = read_network(path)
        networks = {network.channels: network}
    device = device if device is not None else "cpu"
    smooth = {channels: net for channels, net in networks.items() if isinstance(net, SmoothUNet)}
    if smooth:
        return GradientStepDenoiser(
            smooth, relaxation=relaxation, name=name, scale=scale, device=device, precision=precision
        )
    if relaxation is not None:
        raise InputError(f"{name_or_path}: relaxation is for gradient steps, and this network is none")
    return NetworkDenoiser(
        networks,
        promise=promise,
        name=name,
        sigma_max=SIGMA_MAX,
        scale=scale,
        device=device,
        precision=precision,
        compile_network=compile_network,
    )


def _shipped_networks(name: str) -> dict[int, Network]:
    networks = {3: read_network(weight_file(name))}
    for channels, file in SHIPPED[name].items():
        path = _find(file)
        if channels != 3 and path is not None:
            networks[channels] = read_network(path)
    return networks


def weight_file(name_or_path: str | Path) -> Path:
    """The file of a shipped network's colour weights, by its name; a path is returned as it is."""
    name = str(name_or_path)
    if name not in SHIPPED:
        return Path(name_or_path)
    path = _find(SHIPPED[name][3])
    if path is None:
        raise InputError(
            f"{name}: its weights are in the package {LARGE_WEIGHTS.replace('_', '-')}, which is not installed: "
            f"install it, use light, or train your own (pnpladmm train FOLDER FILE --network {name})"
        )
    return path


def is_installed(name: str) -> bool:
    """Whether the weights of a shipped network are there."""
    return _find(SHIPPED[name][3]) is not None


def _find(file: str) -> Path | None:
    """A weight file of this project, in this package or in that of the large weights."""
    folders = [WEIGHTS_FOLDER]
    large = find_spec(LARGE_WEIGHTS)
    if large is not None and large.origin is not None:
        folders.append(Path(large.origin).parent)
    return next((folder / file for folder in folders if (folder / file).is_file()), None)


def read_network(path: Path) -> Network:
    """The network in a weight file, float32, on the CPU."""
    tensors, _ = read_tensors(path)
    return build_network(tensors, str(path))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors of a weight file and its metadata ({} for .pth and .pt); nothing is executed."""
    if not path.is_file():
        raise InputError(f"{path}: no such weight file")
    metadata: dict[str, str] = {}
    if path.suffix.lower() == ".safetensors":
        try:
            with safe_open(path, framework="pt") as file:
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
                metadata = dict(file.metadata() or {})
        except (SafetensorError, OSError, ValueError, RuntimeError) as error:
            raise InputError(f"{path}: truncated or not a safetensors file ({_first_line(error)})") from None
    else:
        tensors = _read_pickled(path)
    for key, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise InputError(f"{path}: {key} holds {tensor.dtype}, not weights")
        if not bool(torch.isfinite(tensor).all()):
            raise InputError(f"{path}: {key} holds NaN or infinite weights; the file is damaged")
    return tensors, metadata


def _read_pickled(path: Path) -> dict[str, Tensor]:
    # Whatever torch's reader raises on a damaged or hostile file (it is a long and changing list), the
    # answer is the same: the file is refused.
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise InputError(
            f"{path}: refused: truncated, or more than plain tensors in it ({type(error).__name__})"
        ) from None
    for wrapper in ("state_dict", "params_ema", "params"):
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in content.items()
    ):
        raise InputError(f"{path}: refused: it does not hold a table of named tensors")
    return {key.removeprefix("module."): value for key, value in content.items()}


def build_network(tensors: Mapping[str, Tensor], source: str = "weights") -> Network:
    """The network whose parameters these tensors are, with them in it as float32.

    Channels, widths and numbers of blocks are inferred; every name and shape must then agree.
    """
    network = _empty_network(tensors, source)
    expected = network.state_dict()
    for key in expected:
        if key not in tensors:
            raise InputError(f"{source}: {key} is missing; not a whole {type(network).__name__}")
    for key, tensor in tensors.items():
        if key not in expected:
            raise InputError(f"{source}: {key} is not a parameter of a {_kind(network)}")
        if tensor.shape != expected[key].shape:
            raise InputError(f"{source}: {key} has shape {tuple(tensor.shape)}, expected {tuple(expected[key].shape)}")
    network.load_state_dict({key: tensor.float() for key, tensor in tensors.items()}, assign=True)
    if isinstance(network, SmoothUNet) and not 0 < float(network.relaxation) <= 1:
        raise InputError(f"{source}: relaxation = {float(network.relaxation)}, expected a number in (0, 1]")
    return network


def _empty_network(tensors: Mapping[str, Tensor], source: str) -> Network:
    """A network on the meta device (no memory) of the architecture that the names and shapes speak of."""

    def outputs(key: str) -> int:
        tensor = tensors.get(key)
        if tensor is None or tensor.ndim != 4 or 0 in tensor.shape:
            raise InputError(f"{source}: {key} is missing or no convolution; not a network known here")
        return tensor.shape[0]

    def blocks(pattern: str) -> int:
        return sum(1 for key in tensors if re.fullmatch(pattern, key))

    with torch.device("meta"):
        if "m_head.weight" in tensors:
            count = blocks(r"m_body\.\d+\.res\.0\.weight")
            names = ["m_head.weight", *(f"m_down{level}.{count}.weight" for level in (1, 2, 3))]
            return DRUNet(outputs("m_tail.weight"), tuple(map(outputs, names)), count)
        if "head.weight" in tensors:
            names = ["head.weight", "shrink1.weight", "shrink2.weight"]
            counts = tuple(blocks(rf"{part}\.\d+\.inner\.weight") for part in ("down1", "down2", "body"))
            hidden = tuple(outputs(f"{part}.0.inner.weight") for part in ("down1", "down2", "body"))
            return LightNet(outputs("tail.weight") // 4 or 1, tuple(map(outputs, names)), counts, hidden)
        if "entry.weight" in tensors:
            names = ["entry.weight", "shrink1.weight", "shrink2.weight"]
            counts = tuple(blocks(rf"{part}\.\d+\.inner\.weight") for part in ("down1", "down2", "body"))
            return SmoothUNet(outputs("exit.weight") // 4 or 1, tuple(map(outputs, names)), counts)
    raise InputError(
        f"{source}: neither a DRUNet (m_head.weight, ...) nor a light network (head.weight, ...) nor a smooth one "
        "(entry.weight, ...)"
    )


def new_network(name: str, channels: int, widths: tuple[int, ...] | None = None, blocks: int | None = None) -> Network:
    """An initialised, untrained network of a shipped one's name; widths and blocks as shipped unless given."""
    if name not in SHIPPED:
        raise InputError(f"network = {name}: give one of {', '.join(SHIPPED)}")
    shipped_widths = {"drunet": drunet.WIDTHS, "light": light.WIDTHS, "prox-drunet": smooth_unet.WIDTHS}[name]
    if widths is not None and (len(widths) != len(shipped_widths) or min(widths) < 1):
        raise InputError(f"widths = {widths}: give {len(shipped_widths)} positive numbers for {name}")
    if blocks is not None and blocks < 1:
        raise InputError(f"blocks = {blocks}: give a number of at least 1")
    network: Network
    if name == "drunet":
        network = DRUNet(channels, widths or shipped_widths, blocks or drunet.BLOCKS)
    elif name == "prox-drunet":
        network = SmoothUNet(channels, widths or shipped_widths, (blocks,) * 3 if blocks else smooth_unet.BLOCKS)
    else:
        counts = (blocks,) * 3 if blocks else light.BLOCKS
        network = LightNet(channels, widths or light.WIDTHS, counts, widths or light.HIDDEN)
    network.initialise()
    return network


def multiply_adds_per_pixel(network: nn.Module, side: int = 64) -> float:
    """Multiply-adds a pixel of a picture costs, counted by running the network on the meta device."""
    from torch.utils.flop_counter import FlopCounterMode

    channels = int(getattr(network, "channels", 3))
    x = torch.empty(1, channels, side, side, device="meta")
    with FlopCounterMode(display=False) as counter:
        deepcopy(network).to("meta")(x, torch.empty(1, device="meta"))
    return float(counter.get_total_flops()) / 2 / side**2


def _kind(network: Network) -> str:
    return type(network).__name__ if isinstance(network, SmoothUNet) else f"bias-free {type(network).__name__}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
