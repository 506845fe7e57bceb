"""Make a trained light network narrower: the hidden channels that say least are left out.

    python -m pnpladmm.workshop.training.prune WEIGHTS FOLDER OUT --hidden 64,128,240

In a block `x + outer(relu(inner(x)))` hidden channel k contributes about `||outer[:, k]||^2 E[h_k^2]` to the
block's output, `h = relu(inner(x))`. The channels with the least of it, measured on noisy crops of a folder of
pictures, are dropped from every block. A short training from the result (`--start OUT`) mends what it cost.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from pnpladmm.denoisers.building import build_network
from pnpladmm.denoisers.light import Block, LightNet
from pnpladmm.tensor_files import read_tensors
from pnpladmm.tensors import InputError
from pnpladmm.workshop.training.checkpoint import write_weights
from pnpladmm.workshop.training.data import CropStore
from pnpladmm.workshop.training.recipe import draw_sigma

LEVELS = {"down1": 0, "up1": 0, "down2": 1, "up2": 1, "body": 2}


def hidden_contributions(network: LightNet, clean: Tensor, sigma: Tensor, noise: Tensor) -> dict[str, Tensor]:
    """What each hidden channel of each block contributes: block name -> (hidden,)."""
    blocks = {name: module for name, module in network.named_modules() if isinstance(module, Block)}
    energy: dict[str, Tensor] = {}

    def watch(name: str) -> None:
        def hook(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> None:
            energy[name] = output.relu().square().mean((0, 2, 3))

        handles.append(blocks[name].inner.register_forward_hook(hook))

    handles: list[torch.utils.hooks.RemovableHandle] = []
    for name in blocks:
        watch(name)
    with torch.no_grad():
        network(clean + sigma.reshape(-1, 1, 1, 1) * noise, sigma)
    for handle in handles:
        handle.remove()
    return {name: energy[name] * block.outer.weight.square().sum((0, 2, 3)) for name, block in blocks.items()}


def prune(network: LightNet, contributions: dict[str, Tensor], hidden: tuple[int, int, int]) -> dict[str, Tensor]:
    """The weights of `network` with only the `hidden` most telling channels in the blocks of each level."""
    state = {key: value.detach().clone() for key, value in network.state_dict().items()}
    for name, contribution in contributions.items():
        count = hidden[LEVELS[name.split(".")[0]]]
        if not 0 < count <= len(contribution):
            raise InputError(f"hidden = {count}: {name} has {len(contribution)} hidden channels to choose from")
        kept = contribution.topk(count).indices.sort().values
        state[f"{name}.inner.weight"] = state[f"{name}.inner.weight"][kept]
        state[f"{name}.outer.weight"] = state[f"{name}.outer.weight"][:, kept]
    return state


def main(arguments: Sequence[str] | None = None) -> int:
    """Prune a weight file as the options say; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m pnpladmm.workshop.training.prune", description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("folder", type=Path, help="folder of pictures to measure on")
    parser.add_argument("out", type=Path, help="weight file to write, ending in .safetensors")
    parser.add_argument("--hidden", default="64,128,240", help="hidden widths at 1/2, 1/4, 1/8 resolution")
    parser.add_argument("--crops", type=int, default=64)
    given = parser.parse_args(arguments)
    try:
        half, quarter, eighth = (int(part) for part in given.hidden.split(","))
        tensors, metadata = read_tensors(given.weights)
        network = build_network(tensors, str(given.weights))
        if not isinstance(network, LightNet):
            raise InputError(f"{given.weights}: only light networks can be pruned")
        generator = torch.Generator().manual_seed(0)
        store = CropStore.from_folder(given.folder, network.channels, 128)
        clean = store.crops(given.crops, 128, generator)
        sigma = draw_sigma(given.crops, 0.2, generator)
        noise = torch.empty_like(clean).normal_(generator=generator)
        contributions = hidden_contributions(network, clean, sigma, noise)
        state = prune(network, contributions, (half, quarter, eighth))
        card = json.loads(metadata.get("card", "{}"))
        card |= {"parameters": sum(value.numel() for value in state.values()), "pruned_to_hidden": given.hidden}
        write_weights(given.out, state, card)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
