"""The layers of the smooth network, with their adjoints and derivatives.

The activation is the smoothed ReLU `a(t) = (t + sqrt(t^2 + 1) - 1) / 2`. It has derivatives of every order, and `a'`
lies in (0, 1). One reciprocal square root gives `a'` and `a''`.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class SmoothBlock(nn.Module):
    """`x + outer(a(inner(x)))`, 3x3; the bias of `inner` is a threshold in units of the noise."""

    def __init__(self, width: int) -> None:
        """Two convolutions of `width` channels."""
        super().__init__()
        self.inner = nn.Conv2d(width, width, 3, padding=1)
        self.outer = nn.Conv2d(width, width, 3, padding=1, bias=False)


def smooth_blocks(width: int, count: int) -> nn.Sequential:
    """`count` blocks of `width` channels."""
    return nn.Sequential(*(SmoothBlock(width) for _ in range(count)))


def smooth_relu(t: Tensor) -> Tensor:
    """`a(t)`."""
    return 0.5 * (t + (t * t + 1).sqrt() - 1)


def derivatives(t: Tensor) -> tuple[Tensor, Tensor]:
    """`a'(t)` and `a''(t)`."""
    r = (t * t + 1).rsqrt()
    return 0.5 + 0.5 * t * r, 0.5 * r * r * r


def convolve(layer: nn.Conv2d | nn.ConvTranspose2d, x: Tensor, bias: bool = False) -> Tensor:
    """The layer's weight as a convolution in x's dtype: the layer itself, or the adjoint of a transposed layer."""
    shift = layer.bias.to(x.dtype) if bias and layer.bias is not None else None
    padding = 1 if layer.kernel_size == (3, 3) else 0
    return functional.conv2d(x, layer.weight.to(x.dtype), shift, layer.stride[0], padding)


def convolve_adjoint(layer: nn.Conv2d | nn.ConvTranspose2d, x: Tensor) -> Tensor:
    """The transposed convolution: the adjoint of a convolution, or a transposed layer itself."""
    padding = 1 if layer.kernel_size == (3, 3) else 0
    return functional.conv_transpose2d(x, layer.weight.to(x.dtype), None, layer.stride[0], padding)
