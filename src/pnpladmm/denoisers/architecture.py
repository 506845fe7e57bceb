"""What a network class declares, so that weight files, training and denoisers can use any of them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from pnpladmm.tensors import InputError

Tensors = Mapping[str, Tensor]


class Network(nn.Module, ABC):
    """A network `N(x, sigma)` for pictures of `channels` channels: x (B, channels, H, W), sigma (B,)."""

    stride: ClassVar[int] = 8
    """Sides of pictures must be multiples of this."""
    description: ClassVar[str]
    """How errors name it."""
    first_layer: ClassVar[str]
    """Name of the first layer's weight, by which files of this architecture are recognised."""
    shipped_widths: ClassVar[tuple[int, ...]]
    """Numbers of feature channels, from fine to coarse, of the shipped weights."""
    is_gradient_step: ClassVar[bool] = False
    """Does its denoiser subtract the gradient of `1/2 ||R||^2`? Training then penalises the Hessian's eigenvalues."""
    shipped_bytes_per_pixel: ClassVar[float] = 1000.0
    """The memory of a call with the shipped widths, in float32, for each pixel; measured on a CPU."""
    file_precision: ClassVar[torch.dtype] = torch.float16
    """What its weights are written in."""
    channels: int

    @property
    def reach(self) -> int | None:
        """No pixel of the result depends on pixels farther away than this; None where nobody counted."""
        return None

    @property
    def bytes_per_pixel(self) -> float:
        """About the memory of a call in float32, for each pixel."""
        return self.shipped_bytes_per_pixel * len(self.get_parameter(self.first_layer)) / self.shipped_widths[0]

    @abstractmethod
    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """The estimate of the clean picture, in the dtype of x; computed in the dtype of the weights."""

    @abstractmethod
    def initialise(self) -> None:
        """Draw weights for a training from nothing."""

    @classmethod
    @abstractmethod
    def of_size(cls, channels: int, widths: tuple[int, ...] | None = None, blocks: int | None = None) -> Self:
        """A network with these widths and numbers of residual blocks per level; as shipped where None."""

    @classmethod
    @abstractmethod
    def fitting(cls, tensors: Tensors, source: str) -> Self:
        """A network of the sizes that these tensors have; names and shapes are compared later."""

    def finished(self) -> Mapping[str, Tensor]:
        """The weights that a training writes."""
        return self.state_dict()

    def check(self, source: str) -> None:
        """Refuse weights that fit but have no meaning."""


def output_channels(tensors: Tensors, key: str, source: str) -> int:
    """The first side of a convolution's weight."""
    tensor = tensors.get(key)
    if tensor is None or tensor.ndim != 4 or 0 in tensor.shape:
        raise InputError(f"{source}: {key} is missing or no convolution: not a network known here")
    return tensor.shape[0]


def count_names(tensors: Tensors, pattern: str) -> int:
    """How many of the tensors' names match a regular expression."""
    return sum(1 for key in tensors if re.fullmatch(pattern, key))
