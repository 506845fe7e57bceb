"""The light network: a residual U-Net at half resolution, designed for CPUs.

    D(x, sigma) = x - shuffle(U(unshuffle([x, sigma])))

The picture and its noise map are folded 2x2 into channels (pixel-unshuffle), so that the widest maps have a quarter of
the pixels. U works at a half, a quarter and an eighth of the resolution with 64, 128 and 256 channels, and one
pixel-shuffle unfolds its estimate of the noise. It needs 211,520 multiply-adds per pixel, DRUNet 2,117,568; the hidden
width at the deepest scale is 240 to stay below a tenth.

As in DRUNet there are no biases and no normalisation: `net(c x, c sigma) = c net(x, sigma)`. The network estimates the
noise and not the picture, because its rounding errors are then a fraction of the noise. At sigma = 1/255, where solvers
end, those of half precision would otherwise be larger than the network's own errors.
"""

from __future__ import annotations

from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from pnpladmm.denoisers.architecture import Network, Tensors, count_names, output_channels
from pnpladmm.denoisers.shipped import shipped_network

WIDTHS = (64, 128, 256)
HIDDEN = (64, 128, 240)
BLOCKS = (2, 2, 3)


class Block(nn.Module):
    """`x + outer(relu(inner(x)))`, 3x3, no bias."""

    def __init__(self, width: int, hidden: int) -> None:
        """A convolution from `width` to `hidden` channels and one back."""
        super().__init__()
        self.inner = nn.Conv2d(width, hidden, 3, padding=1, bias=False)
        self.outer = nn.Conv2d(hidden, width, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, width, h, w) to the same shape."""
        # In place: on a CPU the allocation for a large picture takes longer than the sum (allocator.py).
        out: Tensor = self.outer(self.inner(x).relu_())
        return out.add_(x)


def _blocks(width: int, hidden: int, count: int) -> nn.Sequential:
    """`count` residual blocks."""
    return nn.Sequential(*(Block(width, hidden) for _ in range(count)))


@shipped_network("light-photo", color="light_photo_color.safetensors")
@shipped_network("light-exact", color="light_exact_color.safetensors")
@shipped_network("light", color="light_color.safetensors", grey="light_grey.safetensors")
class LightNet(Network):
    """The network for `channels` picture channels; sides must be multiples of `stride`."""

    description = "bias-free LightNet"
    first_layer = "head.weight"
    shipped_widths: ClassVar[tuple[int, ...]] = WIDTHS
    shipped_bytes_per_pixel: ClassVar[float] = 550.0

    def __init__(
        self,
        channels: int = 3,
        widths: tuple[int, ...] = WIDTHS,
        blocks: tuple[int, ...] = BLOCKS,
        hidden: tuple[int, ...] = HIDDEN,
    ) -> None:
        """Widths, residual blocks (each way) and their hidden widths at 1/2, 1/4 and 1/8 of the resolution."""
        super().__init__()
        half, quarter, eighth = widths
        self.channels = channels
        self.head = nn.Conv2d(4 * (channels + 1), half, 3, padding=1, bias=False)
        self.down1 = _blocks(half, hidden[0], blocks[0])
        self.shrink1 = nn.Conv2d(half, quarter, 2, stride=2, bias=False)
        self.down2 = _blocks(quarter, hidden[1], blocks[1])
        self.shrink2 = nn.Conv2d(quarter, eighth, 2, stride=2, bias=False)
        self.body = _blocks(eighth, hidden[2], blocks[2])
        self.grow2 = nn.ConvTranspose2d(eighth, quarter, 2, stride=2, bias=False)
        self.up2 = _blocks(quarter, hidden[1], blocks[1])
        self.grow1 = nn.ConvTranspose2d(quarter, half, 2, stride=2, bias=False)
        self.up1 = _blocks(half, hidden[0], blocks[0])
        self.tail = nn.Conv2d(half, 4 * channels, 3, padding=1, bias=False)

    @property
    def reach(self) -> int:
        """Two convolutions a block, on the way down and up, at 1/2, 1/4 and 1/8; head, tail and the folding."""
        half, quarter, eighth = len(self.down1), len(self.down2), len(self.body)
        return 2 * (2 + 4 * half) + 4 * 4 * quarter + 8 * 2 * eighth + self.stride

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Denoise x (B, channels, H, W), H and W multiples of 8, with sigma (B,) on x's scale.

        The convolutions run in the dtype of the weights, which may be half precision; x itself is not rounded to it.
        """
        noise_map = sigma.to(x.dtype).reshape(-1, 1, 1, 1).expand(len(x), 1, *x.shape[-2:])
        folded = functional.pixel_unshuffle(torch.cat([x, noise_map], 1), 2)
        x1 = self.head(folded.to(self.head.weight.dtype))
        x2 = self.down1(x1)
        x3 = self.down2(self.shrink1(x2))
        deep = self.body(self.shrink2(x3))
        out = self.up2(self.grow2(deep).add_(x3))
        out = self.up1(self.grow1(out).add_(x2))
        noise = functional.pixel_shuffle(self.tail(out.add_(x1)), 2)
        return x - noise.to(x.dtype)

    def initialise(self) -> None:
        """Draw weights to train from: orthogonal, blocks near Id, the estimated noise near 0."""
        for name, module in self.named_modules():
            if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
                gain = 0.1 if name.endswith("outer") or name == "tail" else 1.0
                nn.init.orthogonal_(module.weight, gain=gain)

    @classmethod
    def of_size(cls, channels: int, widths: tuple[int, ...] | None = None, blocks: int | None = None) -> Self:
        """Widths at 1/2, 1/4 and 1/8 of the resolution, hidden widths likewise, and residual blocks per level."""
        return cls(channels, widths or WIDTHS, (blocks,) * 3 if blocks else BLOCKS, widths or HIDDEN)

    @classmethod
    def fitting(cls, tensors: Tensors, source: str) -> Self:
        """Of the sizes of these tensors."""
        names, parts = ("head", "shrink1", "shrink2"), ("down1", "down2", "body")
        counts = tuple(count_names(tensors, rf"{part}\.\d+\.inner\.weight") for part in parts)
        hidden = tuple(output_channels(tensors, f"{part}.0.inner.weight", source) for part in parts)
        channels = output_channels(tensors, "tail.weight", source) // 4 or 1
        widths = tuple(output_channels(tensors, f"{name}.weight", source) for name in names)
        return cls(channels, widths, counts, hidden)
