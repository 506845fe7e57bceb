"""A smooth residual U-Net, for denoisers that are gradient steps.

    N(x, sigma) = x - R(x, sigma),    R(x, sigma) = sigma U(x / sigma)

`R` estimates the noise. The picture is measured in units of its noise, so that `R(c x, c sigma) = c R(x, sigma)`
holds exactly and other intensity ranges are a matter of scale, although no activation is homogeneous. `U` folds the
picture and a noise map (which is 1 in these units) 2x2 into channels. Like the light network it works at a half, a
quarter and an eighth of the resolution: 412,320 multiply-adds per pixel, 54 GFLOP for 256x256 in colour, 15 MB.

`g = 1/2 ||R||^2` needs one derivative of the activation to have a gradient, a second to have a Hessian, and a third to
be trained on it: hence a smoothed ReLU (smooth_layers.py). With ReLU `g` would have kinks, and `D = Id - grad g` jumps.
A gradient step needs `J^T R`, where `J` is the Jacobian of `R`; the largest eigenvalue of its Hessian needs products
with it. Both are written out in linearisation.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from pnpladmm.denoisers.architecture import Network, Tensors, count_names, output_channels
from pnpladmm.denoisers.linearisation import Linearisation
from pnpladmm.denoisers.shipped import shipped_network
from pnpladmm.denoisers.smooth_layers import SmoothBlock, convolve, convolve_adjoint, smooth_blocks, smooth_relu
from pnpladmm.tensors import InputError

# Wide rather than deep: no pixel depends on others more than 96 away, so that training crops of 128 have the largest
# eigenvalues of the Hessian that larger pictures have.
WIDTHS = (96, 192, 320)
BLOCKS = (2, 2, 2)


@shipped_network("prox-drunet", color="prox_drunet_color.safetensors")
class SmoothUNet(Network):
    """The network for `channels` picture channels; sides must be multiples of `stride`."""

    description = "SmoothUNet"
    first_layer = "entry.weight"
    shipped_widths: ClassVar[tuple[int, ...]] = WIDTHS
    shipped_bytes_per_pixel: ClassVar[float] = 1200.0
    is_gradient_step: ClassVar[bool] = True
    relaxation: Tensor
    """`gamma` of the gradient step these weights are meant for, a number in (0, 1]."""

    def __init__(self, channels: int = 3, widths: tuple[int, ...] = WIDTHS, blocks: tuple[int, ...] = BLOCKS) -> None:
        """Widths and residual blocks (each way) at 1/2, 1/4 and 1/8 of the resolution."""
        super().__init__()
        half, quarter, eighth = widths
        self.channels = channels
        # A property of the weights, found after their training: it is stored with them.
        self.register_buffer("relaxation", torch.ones(()))
        self.entry = nn.Conv2d(4 * (channels + 1), half, 3, padding=1, bias=False)
        self.down1 = smooth_blocks(half, blocks[0])
        self.shrink1 = nn.Conv2d(half, quarter, 2, stride=2, bias=False)
        self.down2 = smooth_blocks(quarter, blocks[1])
        self.shrink2 = nn.Conv2d(quarter, eighth, 2, stride=2, bias=False)
        self.body = smooth_blocks(eighth, blocks[2])
        self.grow2 = nn.ConvTranspose2d(eighth, quarter, 2, stride=2, bias=False)
        self.up2 = smooth_blocks(quarter, blocks[1])
        self.grow1 = nn.ConvTranspose2d(quarter, half, 2, stride=2, bias=False)
        self.up1 = smooth_blocks(half, blocks[0])
        self.exit = nn.Conv2d(half, 4 * channels, 3, padding=1, bias=False)

    @property
    def halo(self) -> int:
        """A multiple of the stride; no pixel of `R` depends on pixels farther away than this."""
        reach = 2 * (2 + 4 * len(self.down1)) + 4 * 4 * len(self.down2) + 8 * 2 * len(self.body) + self.stride
        return -(-reach // self.stride) * self.stride

    @property
    def reach(self) -> int:
        """That of `R` and back: a gradient step passes the network twice."""
        return 2 * self.halo

    def forward(self, x: Tensor, sigma: Tensor, inside: Tensor | None = None) -> Tensor:
        """`N(x, sigma) = x - R(x, sigma)`: x (B, channels, H, W), sigma (B,) above 0."""
        return x - self.residual(x, sigma, inside)

    def residual(self, x: Tensor, sigma: Tensor, inside: Tensor | None = None) -> Tensor:
        """`R(x, sigma)`, the estimate of the noise.

        `inside` (B or 1, 1, H, W) is 1 where there is a picture and 0 where x was extended by 0 to a multiple of the
        stride: the noise map, which is 0 there as it is beyond the borders of every convolution.
        """

        def block(part: SmoothBlock, a: Tensor) -> Tensor:
            inner = convolve(part.inner, a, bias=True)
            return a + convolve(part.outer, smooth_relu(inner))

        level = sigma.to(x.dtype).reshape(-1, 1, 1, 1)
        return level * self.leave(self.descend(self.enter(x / level, inside, x.dtype), block))

    def linearise(
        self,
        x: Tensor,
        sigma: Tensor,
        inside: Tensor | None = None,
        *,
        counted: Tensor | None = None,
        products: bool = False,
        dtype: torch.dtype | None = None,
    ) -> Linearisation:
        """`g = 1/2 ||M R||^2` at x, with its gradient; `products` keeps what products with its Hessian need.

        `M` multiplies by `counted` (B or 1, 1, H, W), which is 1 for pixels that count in `g` and 0 for others; by
        default `inside`. `dtype` is what all but the first convolution computes in, by default x's own: pictures in
        units of weak noise are too large for half precision, but the output of the first convolution is not.
        """
        mask = inside if counted is None else counted
        return Linearisation(self, x, sigma, inside, mask, products, dtype or x.dtype)

    def initialise(self) -> None:
        """Draw weights to train from: blocks near Id, `R` a random high-pass filter of a third of the picture.

        `R = 0` is a stationary point of everything made from `1/2 ||R||^2`.
        """
        for name, module in self.named_modules():
            if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
                gain = 0.1 if name.endswith("outer") else 0.6 if name in ("entry", "exit") else 1.0
                nn.init.orthogonal_(module.weight, gain=gain)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        with torch.no_grad():
            # Flat areas give 0: each colour's taps (2x2 folded pixels, 3x3) have mean 0.
            taps = self.entry.weight.view(len(self.entry.weight), self.channels + 1, 4, 3, 3)
            taps -= taps.mean((2, 3, 4), keepdim=True)

    @classmethod
    def of_size(cls, channels: int, widths: tuple[int, ...] | None = None, blocks: int | None = None) -> Self:
        """Widths at 1/2, 1/4 and 1/8 of the resolution, and residual blocks per level."""
        return cls(channels, widths or WIDTHS, (blocks,) * 3 if blocks else BLOCKS)

    @classmethod
    def fitting(cls, tensors: Tensors, source: str) -> Self:
        """Of the sizes of these tensors."""
        names, parts = ("entry", "shrink1", "shrink2"), ("down1", "down2", "body")
        counts = tuple(count_names(tensors, rf"{part}\.\d+\.inner\.weight") for part in parts)
        channels = output_channels(tensors, "exit.weight", source) // 4 or 1
        return cls(channels, tuple(output_channels(tensors, f"{name}.weight", source) for name in names), counts)

    def check(self, source: str) -> None:
        """The relaxation lies in (0, 1]."""
        if not 0 < float(self.relaxation) <= 1:
            raise InputError(f"{source}: relaxation = {float(self.relaxation)}, expected a number in (0, 1]")

    # The network is a skeleton of linear maps with skips, and blocks between them. The passes below walk the skeleton
    # from picture to residual, or its adjoint from residual to picture; the caller says what happens at a block.

    def enter(self, scaled: Tensor, inside: Tensor | None, dtype: torch.dtype, direction: bool = False) -> Tensor:
        """Fold the picture and the noise map into channels; a direction, in which pictures change, has noise map 0."""
        noise_map = torch.ones_like(scaled[:, :1])
        if direction:
            noise_map = torch.zeros_like(noise_map)
        elif inside is not None:
            noise_map = noise_map * inside
        folded = functional.pixel_unshuffle(torch.cat([scaled, noise_map], 1), 2)
        return convolve(self.entry, folded).to(dtype)

    def leave(self, features: Tensor) -> Tensor:
        """Features to a residual."""
        return functional.pixel_shuffle(convolve(self.exit, features), 2)

    def descend(self, x1: Tensor, block: Callable[[SmoothBlock, Tensor], Tensor]) -> Tensor:
        """From entry to exit."""

        def through(parts: nn.Module, a: Tensor) -> Tensor:
            for part in parts.children():
                assert isinstance(part, SmoothBlock)
                a = block(part, a)
            return a

        x2 = through(self.down1, x1)
        x3 = through(self.down2, convolve(self.shrink1, x2))
        deep = through(self.body, convolve(self.shrink2, x3))
        out = through(self.up2, convolve_adjoint(self.grow2, deep) + x3)
        return through(self.up1, convolve_adjoint(self.grow1, out) + x2) + x1

    def enter_adjoint(self, features: Tensor, dtype: torch.dtype) -> Tensor:
        """The adjoint of `enter`, for its picture."""
        folded = convolve_adjoint(self.entry, features).to(dtype)
        return functional.pixel_shuffle(folded, 2)[:, : self.channels]

    def leave_adjoint(self, residual: Tensor, dtype: torch.dtype) -> Tensor:
        """The adjoint of `leave`."""
        return convolve_adjoint(self.exit, functional.pixel_unshuffle(residual, 2).to(dtype))

    def ascend(self, c: Tensor, block: Callable[[SmoothBlock, Tensor], Tensor]) -> Tensor:
        """The adjoint of `descend`, from exit to entry."""

        def through(parts: nn.Module, a: Tensor) -> Tensor:
            for part in reversed(list(parts.children())):
                assert isinstance(part, SmoothBlock)
                a = block(part, a)
            return a

        c2 = through(self.up1, c)
        c3 = through(self.up2, convolve(self.grow1, c2))
        deep = through(self.body, convolve(self.grow2, c3))
        c3 = through(self.down2, c3 + convolve_adjoint(self.shrink2, deep))
        c2 = through(self.down1, c2 + convolve_adjoint(self.shrink1, c3))
        return c + c2
