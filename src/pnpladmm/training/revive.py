"""Give the hidden channels that a network has lost another start.

In a block `x + outer(relu(inner(x)))` a filter of `inner` whose response is negative everywhere passes nothing on and
gets no gradient: training on does not bring it back. Networks without biases lose many (docs/weights.md counts them).

A lost channel gets a random filter, as long as those that work are in the mean and turned so that its mean response is
positive, and weights of 0 in `outer`: what the network computes stays as it is but for the few pixels where the channel
was active, and gradients reach it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pnpladmm.denoisers.drunet import ResidualBlock
from pnpladmm.denoisers.light import Block

# A channel is lost where it is active in less than this share of the pixels. Not 0: from so few it learns next to
# nothing either (DRUNet: a quarter more channels, for 0.002 dB).
INACTIVE = 1e-3


@dataclass(frozen=True)
class Hidden:
    """The hidden channels of one block, and which of them are lost, (hidden,)."""

    inner: nn.Conv2d
    outer: nn.Conv2d
    lost: Tensor


def revive(network: nn.Module, noisy: Tensor, sigma: Tensor, generator: torch.Generator) -> list[Hidden]:
    """Revive what is lost on the pictures `noisy` (B, C, H, W) of noise `sigma` (B,); block by block, what was."""
    found: list[Hidden] = []

    def look(outer: nn.Conv2d) -> Any:
        def hook(inner: nn.Conv2d, inputs: tuple[Tensor, ...], response: Tensor) -> None:
            lost = (response > 0).float().mean((0, 2, 3)) < INACTIVE
            found.append(Hidden(inner, outer, lost))
            _start_again(found[-1], inputs[0], generator)

        return hook

    handles = [inner.register_forward_hook(look(outer)) for inner, outer in _convolutions(network)]
    try:
        with torch.no_grad():
            network(noisy, sigma)
    finally:
        for handle in handles:
            handle.remove()
    return found


def follow(blocks: Sequence[Hidden], averages: Mapping[Tensor, Tensor], optimizer: torch.optim.Optimizer) -> str:
    """Put what was revived into the averages of the weights, and forget its moments; a note for the log."""
    for block in blocks:
        for weight, at in ((block.inner.weight, (block.lost,)), (block.outer.weight, (slice(None), block.lost))):
            averages[weight][at] = weight.detach()[at]
            for moment in optimizer.state.get(weight, {}).values():
                if moment.shape == weight.shape:
                    moment[at] = 0
    lost, channels = sum(int(block.lost.sum()) for block in blocks), sum(len(block.lost) for block in blocks)
    return f"  revived {lost} of {channels} hidden channels"


def _convolutions(network: nn.Module) -> list[tuple[nn.Conv2d, nn.Conv2d]]:
    """`inner` and `outer` of each block with a ReLU between them."""
    pairs: list[Any] = []
    for module in network.modules():
        if isinstance(module, Block):
            pairs.append((module.inner, module.outer))
        elif isinstance(module, ResidualBlock):
            pairs.append((module.res[0], module.res[2]))
    return pairs


def _start_again(hidden: Hidden, x: Tensor, generator: torch.Generator) -> None:
    """New filters for what is lost, judged by the block's input `x`."""
    weight, lost = hidden.inner.weight, hidden.lost
    if not bool(lost.any()):
        return
    lengths = weight.flatten(1).norm(dim=1)
    length = lengths.mean() if bool(lost.all()) else lengths[~lost].mean()
    filters = torch.randn(weight[lost].shape, generator=generator, device=weight.device)
    filters *= (length / filters.flatten(1).norm(dim=1)).view(-1, 1, 1, 1)
    mean = F.conv2d(x, filters.to(weight.dtype), padding=hidden.inner.padding).mean((0, 2, 3))
    filters *= torch.where(mean < 0, -1.0, 1.0).view(-1, 1, 1, 1)
    weight[lost] = filters.to(weight.dtype)
    hidden.outer.weight[:, lost] = 0
