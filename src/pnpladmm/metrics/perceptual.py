"""LPIPS (Zhang et al. 2018, version 0.1): distance of two pictures in the features of a trained network.

`d(x, y) = sum_l mean_pixels sum_c w_lc (f_lc(x) - f_lc(y))^2`, with the features `f_l` of five layers divided by
their length at each pixel, and heads `w_l >= 0` fitted to people's judgement. Lower is better; equal pictures have 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpladmm.metrics.convention import STANDARD, Convention
from pnpladmm.places import cache_folder, shared_folder
from pnpladmm.tensor_files import read_tensors
from pnpladmm.tensors import InputError

Trunk: TypeAlias = Literal["alex", "vgg"]

# Mean and standard deviation of the trunks' training pictures, in the range [-1, 1] that LPIPS takes.
SHIFT = (-0.030, -0.088, -0.188)
SCALE = (0.458, 0.448, 0.450)
EPSILON = 1e-10
"""Added to the length of a feature vector, as in the published code."""
PICTURES_AT_ONCE = 8
"""Pictures that go through the trunk together: VGG's features of a pair take 130 MB at 256x256, in float32."""

STRIDES: dict[Trunk, dict[int, tuple[int, int]]] = {"alex": {0: (4, 2), 1: (1, 2)}, "vgg": {}}
"""(stride, padding) of a convolution, where they are not (1, 1)."""
POOL: dict[Trunk, tuple[int, frozenset[int]]] = {"alex": (3, frozenset({1, 2})), "vgg": (2, frozenset({2, 4, 7, 10}))}
"""Side of the max-pooling windows (stride 2), and the convolutions before which they stand."""
TAPS: dict[Trunk, tuple[int, ...]] = {"alex": (0, 1, 2, 3, 4), "vgg": (1, 3, 6, 9, 12)}
"""The convolutions whose features are taken, after the rectifier."""
SMALLEST_SIDE: dict[Trunk, int] = {"alex": 31, "vgg": 16}
"""Smaller pictures leave no pixel in some layer."""


class LPIPS:
    """The distance of pictures from their references: `lpips(x, reference)`. Made by `load_lpips`.

    Parameters
    ----------
    trunk : {"alex", "vgg"}
        The network whose features are compared.
    tensors : mapping of str to Tensor
        Its convolutions `features.i.{weight,bias}`, and the heads `heads.i.weight`.
    device : torch.device or str, optional
        Where it computes; by default on the CPU.

    Examples
    --------
    >>> import torch
    >>> from pnpladmm.metrics import load_lpips
    >>> lpips = load_lpips("alex")  # None if no weights are installed
    >>> picture = torch.rand(2, 3, 64, 64)
    >>> lpips is None or lpips(picture, picture).tolist() == [0.0, 0.0]
    True
    """

    def __init__(self, trunk: Trunk, tensors: Mapping[str, Tensor], device: torch.device | str | None = None) -> None:
        self.trunk: Trunk = trunk
        home = torch.device(device or "cpu")
        # GPUs round the factors of float32 convolutions to 10 bits (TF32) by default; those of float64 they do not.
        dtype = torch.float64 if home.type == "cuda" else torch.float32
        self._tensors = {key: value.to(home, dtype) for key, value in tensors.items()}
        like = self._tensors["heads.0.weight"]
        self._shift, self._scale = (like.new_tensor(values).view(1, 3, 1, 1) for values in (SHIFT, SCALE))

    def to(self, device: torch.device | str) -> LPIPS:
        """A copy of the metric on another device."""
        return LPIPS(self.trunk, self._tensors, device)

    @torch.no_grad()
    def __call__(self, x: Tensor, reference: Tensor, convention: Convention = STANDARD) -> Tensor:
        """The distance of each picture (B, 3 or 1, H, W), in [0, 1], from its reference: (B,), float64.

        Grey pictures are copied into three channels.
        """
        x, reference = convention.prepare(x, reference)
        if x.shape[1] not in (1, 3) or min(x.shape[2:]) < SMALLEST_SIDE[self.trunk]:
            least = SMALLEST_SIDE[self.trunk]
            raise InputError(
                f"LPIPS of {x.shape[1]} channels of {x.shape[2]}x{x.shape[3]}: give 3 or 1, of {least}x{least} or more"
            )
        parts = [
            self._distance(*(self._features(t.to(self._shift), convention.lpips_shift) for t in pair))
            for pair in zip(torch.split(x, PICTURES_AT_ONCE), torch.split(reference, PICTURES_AT_ONCE), strict=True)
        ]
        return torch.cat(parts).to(x.device)

    def _features(self, x: Tensor, shift: bool) -> list[Tensor]:
        """The features of the five layers, each of length 1 at every pixel."""
        x = x.expand(-1, 3, -1, -1)
        x = ((2 * x - 1 if shift else x) - self._shift) / self._scale
        side, pooled = POOL[self.trunk]
        taps = TAPS[self.trunk]
        found = []
        for i in range(taps[-1] + 1):
            if i in pooled:
                x = F.max_pool2d(x, side, 2)
            stride, padding = STRIDES[self.trunk].get(i, (1, 1))
            weight, bias = self._tensors[f"features.{i}.weight"], self._tensors[f"features.{i}.bias"]
            x = F.conv2d(x, weight, bias, stride, padding).relu()
            if i in taps:
                found.append(x / (x.square().sum(1, keepdim=True).sqrt() + EPSILON))
        return found

    def _distance(self, a: list[Tensor], b: list[Tensor]) -> Tensor:
        """The weighted squared differences of two lists of features, summed over the layers."""
        heads = [self._tensors[f"heads.{i}.weight"].view(1, -1, 1, 1) for i in range(len(a))]
        layers = [(w * (f - g).square()).sum(1).double().mean((1, 2)) for w, f, g in zip(heads, a, b, strict=True)]
        return torch.stack(layers).sum(0)


def load_lpips(
    trunk: Trunk = "alex", file: str | Path | None = None, device: torch.device | str | None = None
) -> LPIPS | None:
    """Load LPIPS with its weights, which are not shipped.

    Parameters
    ----------
    trunk : {"alex", "vgg"}
        The network whose features are compared.
    file : str or Path, optional
        A safetensors file with the trunk's convolutions `features.i.{weight,bias}` and the heads `heads.i.weight`. By
        default `TRUNK.safetensors` in the cache folder or in the shared folder beside the checkout.
    device : torch.device or str, optional
        Where it computes; by default on the CPU.

    Returns
    -------
    LPIPS or None
        None if no file was given and there is none in the two folders.

    Raises
    ------
    InputError
        If the file is missing, damaged or of another network.
    """
    if trunk not in get_args(Trunk):
        raise InputError(f"LPIPS trunk {trunk!r}: choose one of {', '.join(get_args(Trunk))}")
    path = Path(file) if file is not None else _find(trunk)
    if path is None:
        return None

    tensors, _ = read_tensors(path)
    _check(path, trunk, tensors)
    return LPIPS(trunk, tensors, device)


def _find(trunk: Trunk) -> Path | None:
    """The weight file in the cache folder or the shared folder, if there is one."""
    for folder in (cache_folder("lpips"), shared_folder("lpips")):
        if folder is not None and (folder / f"{trunk}.safetensors").is_file():
            return folder / f"{trunk}.safetensors"
    return None


def _check(path: Path, trunk: Trunk, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a file whose tensors do not chain to this trunk."""
    channels = 3
    for i in range(TAPS[trunk][-1] + 1):
        weight, bias = tensors.get(f"features.{i}.weight"), tensors.get(f"features.{i}.bias")
        if weight is None or bias is None or weight.ndim != 4 or weight.shape[1] != channels:
            raise InputError(f"{path}: features.{i} is missing or does not fit: not the LPIPS weights of {trunk}")
        channels = weight.shape[0]
        if i in TAPS[trunk]:
            head = tensors.get(f"heads.{TAPS[trunk].index(i)}.weight")
            if head is None or head.numel() != channels:
                raise InputError(f"{path}: the head of features.{i} is missing or does not fit: not {trunk}'s")
