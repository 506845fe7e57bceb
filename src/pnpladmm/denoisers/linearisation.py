"""`g = 1/2 ||M R||^2` of a smooth network `R`: its gradient and products with its Hessian, written out.

Automatic differentiation would go through itself two or three times; here a training step is one ordinary backward pass
through these passes of convolutions, and a call keeps one tensor per block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pnpladmm.denoisers.smooth_layers import SmoothBlock, convolve, convolve_adjoint, derivatives, smooth_relu

if TYPE_CHECKING:
    from pnpladmm.denoisers.smooth_unet import SmoothUNet


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
        mask: Tensor | None,
        products: bool,
        dtype: torch.dtype,
    ) -> None:
        """One pass down and one back. `mask` is `M`, None for all pixels; see `SmoothUNet.linearise`."""
        self._network, self._mask, self._dtype = network, mask, dtype
        # The way back meets the blocks in reverse order: `before` is a stack, the other two are in the order of the
        # way back.
        self._slopes: list[Tensor] = []
        self._bends: list[Tensor] = []
        before: list[Tensor] = []

        def down(part: SmoothBlock, a: Tensor) -> Tensor:
            before.append(convolve(part.inner, a, bias=True))
            return a + convolve(part.outer, smooth_relu(before[-1]))

        def back(part: SmoothBlock, c: Tensor) -> Tensor:
            slope, bend = derivatives(before.pop())  # frees it: a call without products keeps nothing
            arrived = convolve_adjoint(part.outer, c)
            if products:
                self._slopes.append(slope)
                self._bends.append(bend * arrived)
            return c + convolve_adjoint(part.inner, slope * arrived)

        level = sigma.to(x.dtype).reshape(-1, 1, 1, 1)
        features = network.descend(network.enter(x / level, inside, dtype), down)
        units = self._masked(network.leave(features).to(x.dtype))
        back_at_entry = network.ascend(network.leave_adjoint(units, dtype), back)
        self.residual = level * units
        self.gradient = level * network.enter_adjoint(back_at_entry, x.dtype)

    def product(self, u: Tensor) -> Tensor:
        """The Hessian of `g` times `u`, (B, channels, H, W)."""
        if not self._slopes:
            raise ValueError("linearise with products=True")
        passed: list[Tensor] = []

        def down(part: SmoothBlock, a: Tensor) -> Tensor:
            passed.append(convolve(part.inner, a))
            return a + convolve(part.outer, self._slopes[-len(passed)] * passed[-1])

        def back(part: SmoothBlock, c: Tensor) -> Tensor:
            block = -len(passed)
            bent = self._slopes[block] * convolve_adjoint(part.outer, c) + self._bends[block] * passed.pop()
            return c + convolve_adjoint(part.inner, bent)

        network, dtype = self._network, self._dtype
        features = network.descend(network.enter(u, None, dtype, direction=True), down)
        units = self._masked(network.leave(features).to(u.dtype))
        return network.enter_adjoint(network.ascend(network.leave_adjoint(units, dtype), back), u.dtype)

    def _masked(self, residual: Tensor) -> Tensor:
        """`M R`."""
        return residual if self._mask is None else residual * self._mask
