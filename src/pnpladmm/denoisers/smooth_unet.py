"""A smooth residual U-Net with its derivatives written out, for denoisers that are gradient steps.

    N(x, sigma) = x - R(x, sigma),    R(x, sigma) = sigma U(x / sigma)

`R` estimates the noise. The picture is measured in units of its noise, so that `R(c x, c sigma) = c R(x, sigma)`
holds exactly and other intensity ranges are a matter of scale, although no activation is homogeneous. `U` folds the
picture and a noise map (which is 1 in these units) 2x2 into channels and works at a half, a quarter and an eighth of
the resolution, as the light network does; 412,320 multiply-adds a pixel, 54 GFLOP for 256x256 in colour, 15 MB.

The activation is the smoothed ReLU `a(t) = (t + sqrt(t^2 + 1) - 1) / 2`, which has derivatives of every order:
`g = 1/2 ||R||^2` needs one to have a gradient, a second to have a Hessian, a third to be trained on it. With ReLU
`g` would have kinks, and `D = Id - grad g` jumps. One reciprocal square root gives them all; `a'` lies in (0, 1).

A gradient step needs `J^T R` (`J` is the Jacobian of `R`), the largest eigenvalue of its Hessian needs products with
it. Both are written out as passes of convolutions (`Linearisation`): a training step is then one ordinary backward
pass, where automatic differentiation would go through itself two or three times, and a call keeps one tensor a block.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

# Wide rather than deep: no pixel depends on others more than 96 away, so that crops of 128 show a training what larger
# pictures do to the largest eigenvalue of the Hessian.
WIDTHS = (96, 192, 320)
BLOCKS = (2, 2, 2)


class SmoothBlock(nn.Module):
    """`x + outer(a(inner(x)))`, 3x3; the bias of `inner` is a threshold in units of the noise."""

    def __init__(self, width: int) -> None:
        """Two convolutions of `width` channels."""
        super().__init__()
        self.inner = nn.Conv2d(width, width, 3, padding=1)
        self.outer = nn.Conv2d(width, width, 3, padding=1, bias=False)


class SmoothUNet(nn.Module):
    """The network for `channels` picture channels; sides must be multiples of `stride`."""

    stride = 8
    relaxation: Tensor
    """`gamma` of the gradient step these weights are meant for, a number in (0, 1]."""

    def __init__(self, channels: int = 3, widths: tuple[int, ...] = WIDTHS, blocks: tuple[int, ...] = BLOCKS) -> None:
        """Widths and residual blocks (each way) at 1/2, 1/4 and 1/8 of the resolution."""
        super().__init__()
        half, quarter, eighth = widths
        self.channels = channels
        # A property of the weights, found after their training: it travels with them.
        self.register_buffer("relaxation", torch.ones(()))
        self.entry = nn.Conv2d(4 * (channels + 1), half, 3, padding=1, bias=False)
        self.down1 = _blocks(half, blocks[0])
        self.shrink1 = nn.Conv2d(half, quarter, 2, stride=2, bias=False)
        self.down2 = _blocks(quarter, blocks[1])
        self.shrink2 = nn.Conv2d(quarter, eighth, 2, stride=2, bias=False)
        self.body = _blocks(eighth, blocks[2])
        self.grow2 = nn.ConvTranspose2d(eighth, quarter, 2, stride=2, bias=False)
        self.up2 = _blocks(quarter, blocks[1])
        self.grow1 = nn.ConvTranspose2d(quarter, half, 2, stride=2, bias=False)
        self.up1 = _blocks(half, blocks[0])
        self.exit = nn.Conv2d(half, 4 * channels, 3, padding=1, bias=False)

    @property
    def halo(self) -> int:
        """A multiple of the stride; no pixel of `R` depends on pixels farther away than this."""
        reach = 2 * (2 + 4 * len(self.down1)) + 4 * 4 * len(self.down2) + 8 * 2 * len(self.body) + self.stride
        return -(-reach // self.stride) * self.stride

    def forward(self, x: Tensor, sigma: Tensor, inside: Tensor | None = None) -> Tensor:
        """`N(x, sigma) = x - R(x, sigma)`: x (B, channels, H, W), sigma (B,) above 0."""
        return x - self.residual(x, sigma, inside)

    def residual(self, x: Tensor, sigma: Tensor, inside: Tensor | None = None) -> Tensor:
        """`R(x, sigma)`, the estimate of the noise.

        `inside` (B or 1, 1, H, W) is 1 where there is a picture and 0 where x was extended by 0 to a multiple of the
        stride: the noise map, which is 0 there as it is beyond the borders of every convolution.
        """

        def block(part: SmoothBlock, a: Tensor) -> Tensor:
            inner = _conv(part.inner, a, bias=True)
            return a + _conv(part.outer, _smooth_relu(inner))

        level = sigma.to(x.dtype).reshape(-1, 1, 1, 1)
        return level * self._leave(self._descend(self._enter(x / level, inside, x.dtype), block))

    def linearise(
        self,
        x: Tensor,
        sigma: Tensor,
        inside: Tensor | None = None,
        *,
        kept: Tensor | None = None,
        products: bool = False,
        dtype: torch.dtype | None = None,
    ) -> Linearisation:
        """`g = 1/2 ||M R||^2` at x, with its gradient; `products` keeps what products with its Hessian need.

        `M` multiplies by `kept` (B or 1, 1, H, W), which is 0 or 1; by `inside` unless it is given. `dtype` is what all
        but the first convolution computes in (x's own unless given): pictures in units of weak noise are too large for
        half precision, what the first convolution makes of them is not.
        """
        return Linearisation(self, x, sigma, inside, inside if kept is None else kept, products, dtype or x.dtype)

    def initialise(self) -> None:
        """Start for a training from nothing: blocks near Id, `R` a random high-pass filter of a third of the picture.

        `R = 0` would be a stationary point of everything made from `1/2 ||R||^2`.
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

    # The network is a skeleton of linear maps with skips and, between them, blocks. The passes below walk the
    # skeleton from picture to residual, or its adjoint from residual to picture; what a block does is theirs to say.

    def _enter(self, scaled: Tensor, inside: Tensor | None, dtype: torch.dtype, direction: bool = False) -> Tensor:
        """Fold the picture and the noise map; a direction, in which pictures change, has none."""
        noise_map = torch.ones_like(scaled[:, :1])
        if direction:
            noise_map = torch.zeros_like(noise_map)
        elif inside is not None:
            noise_map = noise_map * inside
        folded = functional.pixel_unshuffle(torch.cat([scaled, noise_map], 1), 2)
        return _conv(self.entry, folded).to(dtype)

    def _leave(self, features: Tensor) -> Tensor:
        return functional.pixel_shuffle(_conv(self.exit, features), 2)

    def _descend(self, x1: Tensor, block: Callable[[SmoothBlock, Tensor], Tensor]) -> Tensor:
        def through(parts: nn.Module, a: Tensor) -> Tensor:
            for part in parts.children():
                assert isinstance(part, SmoothBlock)
                a = block(part, a)
            return a

        x2 = through(self.down1, x1)
        x3 = through(self.down2, _conv(self.shrink1, x2))
        deep = through(self.body, _conv(self.shrink2, x3))
        out = through(self.up2, _adjoint(self.grow2, deep) + x3)
        return through(self.up1, _adjoint(self.grow1, out) + x2) + x1

    def _enter_adjoint(self, features: Tensor, dtype: torch.dtype) -> Tensor:
        folded = _adjoint(self.entry, features).to(dtype)
        return functional.pixel_shuffle(folded, 2)[:, : self.channels]

    def _leave_adjoint(self, residual: Tensor, dtype: torch.dtype) -> Tensor:
        return _adjoint(self.exit, functional.pixel_unshuffle(residual, 2).to(dtype))

    def _ascend(self, c: Tensor, block: Callable[[SmoothBlock, Tensor], Tensor]) -> Tensor:
        def through(parts: nn.Module, a: Tensor) -> Tensor:
            for part in reversed(list(parts.children())):
                assert isinstance(part, SmoothBlock)
                a = block(part, a)
            return a

        c2 = through(self.up1, c)
        c3 = through(self.up2, _conv(self.grow1, c2))
        deep = through(self.body, _conv(self.grow2, c3))
        c3 = through(self.down2, c3 + _adjoint(self.shrink2, deep))
        c2 = through(self.down1, c2 + _adjoint(self.shrink1, c3))
        return c + c2


class Linearisation:
    """`g = 1/2 ||M R||^2` at a picture: its residual, its gradient, products with its Hessian.

    With `s = a'(inner)` in each block (its slope) and `t` what arrives there from `M R` through the adjoint,

        gradient = J^T M R                          each block   c -> c + inner^T (s outer^T c)
        product(u) = J^T M J u + sum_i (M R)_i (d^2 R_i) u
                                                    each block   d -> d + inner^T (s outer^T d + a'' t inner u)

    where `inner u` is the direction as it passes the block on the way down. One product costs as much as the gradient.
    """

    residual: Tensor
    """`M R(x, sigma)`."""
    gradient: Tensor
    """`grad g(x)`."""

    def __init__(
        self,
        network: SmoothUNet,
        x: Tensor,
        sigma: Tensor,
        inside: Tensor | None,
        kept: Tensor | None,
        products: bool,
        dtype: torch.dtype,
    ) -> None:
        """One pass down and one back."""
        self._network, self._kept, self._dtype = network, kept, dtype
        # The way back meets the blocks in reverse order: what it needs is a stack, what it keeps is in its order.
        self._slopes: list[Tensor] = []
        self._bends: list[Tensor] = []
        before: list[Tensor] = []

        def down(part: SmoothBlock, a: Tensor) -> Tensor:
            before.append(_conv(part.inner, a, bias=True))
            return a + _conv(part.outer, _smooth_relu(before[-1]))

        def back(part: SmoothBlock, c: Tensor) -> Tensor:
            slope, bend = _derivatives(before.pop())  # frees it: a call without products keeps nothing
            arrived = _adjoint(part.outer, c)
            if products:
                self._slopes.append(slope)
                self._bends.append(bend * arrived)
            return c + _adjoint(part.inner, slope * arrived)

        level = sigma.to(x.dtype).reshape(-1, 1, 1, 1)
        features = network._descend(network._enter(x / level, inside, dtype), down)
        units = self._mask(network._leave(features).to(x.dtype))
        back_at_entry = network._ascend(network._leave_adjoint(units, dtype), back)
        self.residual = level * units
        self.gradient = level * network._enter_adjoint(back_at_entry, x.dtype)

    def product(self, u: Tensor) -> Tensor:
        """The Hessian of `g` times `u`, (B, channels, H, W)."""
        if not self._slopes:
            raise ValueError("linearise with products=True")
        passed: list[Tensor] = []

        def down(part: SmoothBlock, a: Tensor) -> Tensor:
            passed.append(_conv(part.inner, a))
            return a + _conv(part.outer, self._slopes[-len(passed)] * passed[-1])

        def back(part: SmoothBlock, c: Tensor) -> Tensor:
            block = -len(passed)
            bent = self._slopes[block] * _adjoint(part.outer, c) + self._bends[block] * passed.pop()
            return c + _adjoint(part.inner, bent)

        network, dtype = self._network, self._dtype
        features = network._descend(network._enter(u, None, dtype, direction=True), down)
        units = self._mask(network._leave(features).to(u.dtype))
        return network._enter_adjoint(network._ascend(network._leave_adjoint(units, dtype), back), u.dtype)

    def _mask(self, residual: Tensor) -> Tensor:
        return residual if self._kept is None else residual * self._kept


def _blocks(width: int, count: int) -> nn.Sequential:
    return nn.Sequential(*(SmoothBlock(width) for _ in range(count)))


def _smooth_relu(t: Tensor) -> Tensor:
    return 0.5 * (t + (t * t + 1).sqrt() - 1)


def _derivatives(t: Tensor) -> tuple[Tensor, Tensor]:
    """`a'` and `a''`."""
    r = (t * t + 1).rsqrt()
    return 0.5 + 0.5 * t * r, 0.5 * r * r * r


def _conv(layer: nn.Conv2d | nn.ConvTranspose2d, x: Tensor, bias: bool = False) -> Tensor:
    """The layer's weight as a convolution in x's dtype: the layer itself, or a transposed layer's adjoint."""
    shift = layer.bias.to(x.dtype) if bias and layer.bias is not None else None
    padding = 1 if layer.kernel_size == (3, 3) else 0
    return functional.conv2d(x, layer.weight.to(x.dtype), shift, layer.stride[0], padding)


def _adjoint(layer: nn.Conv2d | nn.ConvTranspose2d, x: Tensor) -> Tensor:
    """The transposed convolution: a convolution's adjoint, or a transposed layer itself."""
    padding = 1 if layer.kernel_size == (3, 3) else 0
    return functional.conv_transpose2d(x, layer.weight.to(x.dtype), None, layer.stride[0], padding)
