"""Make a trained light network narrower: the hidden channels that contribute least are removed.

In a block `x + outer(relu(inner(x)))` hidden channel k contributes about `||outer[:, k]||^2 E[h_k^2]` to the output,
where `h = relu(inner(x))`. It is measured on noisy crops of a folder of pictures. A short training from the result
(`pnpladmm train FOLDER FILE --start OUT`) makes up for the loss.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from pnpladmm.denoisers.building import build_network
from pnpladmm.denoisers.light import Block, LightNet
from pnpladmm.tensor_files import read_tensors
from pnpladmm.tensors import InputError
from pnpladmm.workshop.training.checkpoint import read_card, write_weights
from pnpladmm.workshop.training.data import CropStore
from pnpladmm.workshop.training.schedule import draw_sigma

LEVELS = {"down1": 0, "up1": 0, "down2": 1, "up2": 1, "body": 2}
"""The resolution of each part of the network: 1/2, 1/4, 1/8."""


def hidden_contributions(network: LightNet, clean: Tensor, sigma: Tensor, noise: Tensor) -> dict[str, Tensor]:
    """What each hidden channel of each block contributes: block name -> (hidden,)."""
    blocks = {name: module for name, module in network.named_modules() if isinstance(module, Block)}
    energy: dict[str, Tensor] = {}

    def record(name: str, _: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> None:
        energy[name] = output.relu().square().mean((0, 2, 3))

    handles = [block.inner.register_forward_hook(partial(record, name)) for name, block in blocks.items()]
    with torch.no_grad():
        network(clean + sigma.reshape(-1, 1, 1, 1) * noise, sigma)
    for handle in handles:
        handle.remove()
    return {name: energy[name] * block.outer.weight.square().sum((0, 2, 3)) for name, block in blocks.items()}


def prune(network: LightNet, contributions: dict[str, Tensor], hidden: tuple[int, ...]) -> dict[str, Tensor]:
    """The weights of `network` with only the `hidden` channels per level that contribute most."""
    state = {key: value.detach().clone() for key, value in network.state_dict().items()}
    for name, contribution in contributions.items():
        count = hidden[LEVELS[name.split(".")[0]]]
        if not 0 < count <= len(contribution):
            raise InputError(f"hidden = {count}: {name} has {len(contribution)} hidden channels: give no more")
        chosen = contribution.topk(count).indices.sort().values
        state[f"{name}.inner.weight"] = state[f"{name}.inner.weight"][chosen]
        state[f"{name}.outer.weight"] = state[f"{name}.outer.weight"][:, chosen]
    return state


def prune_file(weights: Path, folder: Path, out: Path, hidden: tuple[int, ...], crops: int = 64) -> None:
    """Prune the weights in a file, judged by `crops` crops from a folder of pictures, into `out`."""
    if len(hidden) != 3:
        raise InputError(f"hidden = {','.join(map(str, hidden))}: give 3 numbers, for 1/2, 1/4 and 1/8 resolution")
    tensors, metadata = read_tensors(weights)
    network = build_network(tensors, str(weights))
    if not isinstance(network, LightNet):
        raise InputError(f"{weights}: only light networks can be pruned")
    generator = torch.Generator().manual_seed(0)
    clean = CropStore.from_folder(folder, network.channels, 128).crops(crops, 128, generator)
    sigma = draw_sigma(crops, 0.2, generator)
    noise = torch.empty_like(clean).normal_(generator=generator)
    state = prune(network, hidden_contributions(network, clean, sigma, noise), hidden)
    parameters = sum(value.numel() for value in state.values())
    card = read_card(metadata, weights) | {"parameters": parameters, "pruned_to_hidden": ",".join(map(str, hidden))}
    write_weights(out, state, card)
