"""DRUNet: the denoising U-Net of the Plug & Play literature (Zhang et al., 2021), without biases.

It has four scales of 64, 128, 256 and 512 channels, with four residual blocks per scale on the way down and on the way
up. Between scales there is a strided 2x2 convolution, and a transposed one on the way up; skip connections are sums.
The noise level enters as one more channel, a constant map. There is no bias and no normalisation, so

    net(c x, c sigma) = c net(x, sigma)        for every c > 0,

and other intensity ranges than [0, 1] are a matter of scale.

Parameters have the names of the published checkpoints (`m_head.weight`, `m_down1.0.res.0.weight`, ...,
`m_tail.weight`), so that one loader reads those files and the shipped ones.
"""

from __future__ import annotations

from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from pnpladmm.denoisers.architecture import Network, Tensors, count_names, output_channels
from pnpladmm.denoisers.shipped import shipped_network

WIDTHS = (64, 128, 256, 512)
BLOCKS = 4


class ResidualBlock(nn.Module):
    """`x + conv(relu(conv(x)))`, 3x3, no bias."""

    def __init__(self, width: int) -> None:
        """Two convolutions of `width` channels."""
        super().__init__()
        self.res = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, width, h, w) to the same shape."""
        out: Tensor = self.res(x)
        return out.add_(x)


def _down(inner: int, outer: int, blocks: int) -> nn.Sequential:
    """Residual blocks, then half the resolution."""
    steps: list[nn.Module] = [ResidualBlock(inner) for _ in range(blocks)]
    return nn.Sequential(*steps, nn.Conv2d(inner, outer, 2, stride=2, bias=False))


def _up(outer: int, inner: int, blocks: int) -> nn.Sequential:
    """Twice the resolution, then residual blocks."""
    steps: list[nn.Module] = [ResidualBlock(inner) for _ in range(blocks)]
    return nn.Sequential(nn.ConvTranspose2d(outer, inner, 2, stride=2, bias=False), *steps)


@shipped_network("drunet-exact", color="drunet_exact_color.safetensors")
@shipped_network("drunet", color="drunet_color.safetensors", grey="drunet_grey.safetensors")
class DRUNet(Network):
    """The network for `channels` picture channels; sides must be multiples of `stride`."""

    description = "bias-free DRUNet"
    first_layer = "m_head.weight"
    shipped_widths: ClassVar[tuple[int, ...]] = WIDTHS
    shipped_bytes_per_pixel: ClassVar[float] = 1600.0

    def __init__(self, channels: int = 3, widths: tuple[int, ...] = WIDTHS, blocks: int = BLOCKS) -> None:
        """Widths at the four scales, and residual blocks per scale; as published by default."""
        super().__init__()
        first, second, third, deepest = widths
        self.channels = channels
        self.m_head = nn.Conv2d(channels + 1, first, 3, padding=1, bias=False)
        self.m_down1 = _down(first, second, blocks)
        self.m_down2 = _down(second, third, blocks)
        self.m_down3 = _down(third, deepest, blocks)
        self.m_body = nn.Sequential(*(ResidualBlock(deepest) for _ in range(blocks)))
        self.m_up3 = _up(deepest, third, blocks)
        self.m_up2 = _up(third, second, blocks)
        self.m_up1 = _up(second, first, blocks)
        self.m_tail = nn.Conv2d(first, channels, 3, padding=1, bias=False)

    @property
    def reach(self) -> int:
        """Two convolutions a block, on the way down and up, at 1, 1/2 and 1/4, and at 1/8; head, tail and strides."""
        blocks = len(self.m_body)
        return 2 + 4 * blocks * (1 + 2 + 4) + 8 * 2 * blocks + self.stride

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Denoise x (B, channels, H, W), H and W multiples of 8, with sigma (B,) on x's scale.

        The convolutions run in the dtype of the weights, which may be half precision; the result has x's.
        """
        noise_map = sigma.to(x.dtype).reshape(-1, 1, 1, 1).expand(len(x), 1, *x.shape[-2:])
        x1 = self.m_head(torch.cat([x, noise_map], 1).to(self.m_head.weight.dtype))
        x2 = self.m_down1(x1)
        x3 = self.m_down2(x2)
        x4 = self.m_down3(x3)
        out = self.m_up3(self.m_body(x4) + x4)
        out = self.m_up2(out + x3)
        out = self.m_up1(out + x2)
        restored: Tensor = self.m_tail(out + x1)
        return restored.to(x.dtype)

    def initialise(self) -> None:
        """Draw weights to train from: near the identity.

        Orthogonal matrices of gain 0.2 keep blocks near Id. The first channels carry the picture from head to tail, and
        the tail has small weights for the others. Without that the first gradients are so large that many hidden
        channels never become active again.
        """
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
                nn.init.orthogonal_(module.weight, gain=0.2)
        with torch.no_grad():
            self.m_head.weight[: self.channels] = 0
            self.m_tail.weight *= 0.05
            for c in range(self.channels):
                self.m_head.weight[c, c, 1, 1] = self.m_tail.weight[c, c, 1, 1] = 1

    @classmethod
    def of_size(cls, channels: int, widths: tuple[int, ...] | None = None, blocks: int | None = None) -> Self:
        """Widths at the four scales, and residual blocks per scale."""
        return cls(channels, widths or WIDTHS, blocks or BLOCKS)

    @classmethod
    def fitting(cls, tensors: Tensors, source: str) -> Self:
        """Of the sizes of these tensors."""
        count = count_names(tensors, r"m_body\.\d+\.res\.0\.weight")
        names = ["m_head.weight", *(f"m_down{level}.{count}.weight" for level in (1, 2, 3))]
        channels = output_channels(tensors, "m_tail.weight", source)
        return cls(channels, tuple(output_channels(tensors, name, source) for name in names), count)
