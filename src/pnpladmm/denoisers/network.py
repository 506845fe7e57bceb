"""Networks as denoisers `d(x, sigma)`.

`NetworkDenoiser` does what a network does not do itself: it pads to the stride, and takes care of the number of
channels, the intensity range, precision and memory layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from pnpladmm.denoisers.base import OwnSettings, Promise
from pnpladmm.tensors import InputError, PerPicture

SIGMA_MAX = 60 / 255
"""The largest noise level the shipped networks were trained for, for pictures in [0, 1]."""

UNKNOWN_BYTES_PER_PIXEL = 1600.0
"""Memory of a network that does not say how much it needs: that of DRUNet."""

GPU_PIXELS = 2**22
"""The most pixels per network call on a GPU; bounds its memory (about 3 GB for DRUNet)."""


class NetworkDenoiser:
    """One network for each number of channels, as a denoiser for any pictures.

    Parameters
    ----------
    networks : mapping of int to torch.nn.Module
        `{channels: module}`, each called as `module(x, sigma)` with x (B, channels, H, W) and sigma (B,) in float32,
        whatever the dtype of its weights; sides are multiples of `module.stride` (8 if it has none). Pictures with
        another number of channels go through `networks[1]`, one channel at a time. Without `networks[1]`, each channel
        is copied into the n channels of the network, called with sqrt(n) sigma, and the n results are averaged.
    promise : Promise
        What is known of the network (`Promise.MMSE` for one trained for squared error).
    name : str
        The key of its tuned settings, and its name in reports.
    sigma_max : float
        The largest noise level it was trained for, on pictures in [0, 1]. Beyond it the call is scaled,
        `D_s(x) = c D_{s/c}(x/c)`, which changes nothing but rounding for a network without biases.
    scale : float
        What counts as 1: `scale=65535` for 16-bit counts. Sigma is on the pictures' own scale.
    device : torch.device or str, optional
        Where it computes; by default where its parameters are.
    precision : torch.dtype, optional
        The dtype of the weights and of the computation, by default float16 on GPUs and float32 elsewhere. Pictures go
        in as float32 and come out in their own dtype. (Against float32 on an H200, DRUNet is off by 0.03/255 in float16
        and by 0.2/255 in bfloat16, at every sigma.)
    settings : dict, optional
        Tuned settings of methods for this network, as the card of weights that were trained in the loop has them.
    compile_network : bool or str
        Whether to `torch.compile` the networks, or with which of its modes ("max-autotune"). Saves a few per cent of
        the time for many calls of one shape on a GPU.

    Notes
    -----
    A sigma of 0 returns the picture itself. On CPUs pictures are processed one at a time. That is as fast, needs less
    memory, and makes the result of a picture independent of its batch to the last bit.
    """

    def __init__(
        self,
        networks: Mapping[int, nn.Module],
        *,
        promise: Promise = Promise.MMSE,
        name: str = "network",
        sigma_max: float = SIGMA_MAX,
        scale: float = 1.0,
        device: torch.device | str | None = None,
        precision: torch.dtype | None = None,
        compile_network: bool | str = False,
        settings: OwnSettings | None = None,
    ) -> None:
        """Take the networks over: they are put into eval mode, and moved to `device` and `precision`."""
        if not networks:
            raise InputError("a network denoiser without networks: give {channels: module}")
        for label, number in (("sigma_max", sigma_max), ("scale", scale)):
            if not (math.isfinite(number) and number > 0):
                raise InputError(f"{label} = {number}: give a finite number above 0")
        self.promise = promise
        self.name = name
        self.settings = settings or {}
        self.sigma_range = (0.0, sigma_max * scale)
        self.scale = scale
        self.channels = tuple(sorted(networks))
        self.device = torch.device(device) if device is not None else _default_device(networks)
        on_gpu = self.device.type == "cuda"
        self.precision = precision or (torch.float16 if on_gpu else torch.float32)
        self._networks: dict[int, Callable[[Tensor, Tensor], Tensor]] = {}
        self._strides: dict[int, int] = {}
        for channels, network in networks.items():
            # On CPUs half precision is for storage only. channels_last is the fastest layout of cuDNN and of oneDNN.
            ready: Any = network.eval().requires_grad_(False).to(self.device, self.precision)
            ready = ready.to(memory_format=torch.channels_last)
            self._strides[channels] = int(getattr(network, "stride", 8))
            mode = compile_network if isinstance(compile_network, str) else None
            self._networks[channels] = torch.compile(ready, mode=mode) if compile_network else ready
        self._sigma: tuple[Tensor, int, Tensor] | None = None
        reaches = [getattr(network, "reach", None) for network in networks.values()]
        self._reach = max((r for r in reaches if r is not None), default=None) if None not in reaches else None
        each = max(float(getattr(network, "bytes_per_pixel", UNKNOWN_BYTES_PER_PIXEL)) for network in networks.values())
        self._bytes_per_pixel = each * self.precision.itemsize / 4

    def __call__(self, x: Tensor, sigma: PerPicture, /) -> Tensor:
        """Denoise x (B, C, H, W) of float32 or float64; sigma a float or one per picture."""
        if x.ndim != 4 or x.numel() == 0:
            raise InputError(f"pictures of shape {tuple(x.shape)}: give a non-empty (B, C, H, W)")
        sigmas = self._checked_sigma(sigma, len(x))
        batch, channels = x.shape[:2]
        if channels in self._networks:
            restored = self._apply(channels, x, sigmas)
        else:
            planes = x.reshape(batch * channels, 1, *x.shape[-2:])
            plane_sigmas = sigmas.repeat_interleave(channels)
            if 1 in self._networks:
                restored = self._apply(1, planes, plane_sigmas)
            else:
                copies = self.channels[0]
                colour = planes.expand(-1, copies, -1, -1)
                # Equal noise in n channels has sqrt(n) sigma along their common direction, where all of it lies.
                # Called with sigma, the network leaves most of it in (4 dB less at 15/255).
                restored = self._apply(copies, colour, math.sqrt(copies) * plane_sigmas).mean(1)
            restored = restored.reshape(x.shape)
        unchanged = (sigmas == 0).reshape(-1, 1, 1, 1)
        if not bool(unchanged.any()):
            return restored
        return torch.where(unchanged.to(x.device, non_blocking=True), x, restored)

    def _apply(self, channels: int, x: Tensor, sigmas: Tensor) -> Tensor:
        """Run the network of `channels` channels on x, in its dtype, at its stride and scale."""
        network, stride = self._networks[channels], self._strides[channels]
        height, width = x.shape[-2:]
        gain = (sigmas / self.sigma_range[1]).clamp(min=1.0) * self.scale
        plain = bool((gain == 1).all())  # gains are on the CPU, so this does not wait for the GPU
        step = 1 if self.device.type == "cpu" else max(1, GPU_PIXELS // (height * width))
        restored = torch.empty_like(x, memory_format=torch.contiguous_format)
        exact = full_precision() if self.precision == torch.float32 else nullcontext()
        differentiable = torch.is_grad_enabled() and x.requires_grad
        with nullcontext() if differentiable else torch.inference_mode(), exact:
            for start in range(0, len(x), step):
                part = slice(start, start + step)
                scaled = x[part].to(self.device)
                unit = gain[part].to(self.device, x.dtype, non_blocking=True).reshape(-1, 1, 1, 1)
                # Scaled in the picture's own dtype before it becomes float32.
                scaled = scaled.float() if plain else (scaled / unit).float()
                padded = mirrored(scaled, stride).contiguous(memory_format=torch.channels_last)
                level = (sigmas[part] / gain[part]).float().to(self.device, non_blocking=True)
                out = network(padded, level)[..., :height, :width]
                # One copy changes dtype, layout and device.
                restored[part] = out if plain else out.to(x.dtype) * unit
        return restored

    @property
    def reach(self) -> int | None:
        """No pixel of the result depends on pixels farther away than this; None where a network does not say."""
        return self._reach

    @property
    def bytes_per_pixel(self) -> float:
        """About the memory of a call, for each pixel."""
        return self._bytes_per_pixel

    def _checked_sigma(self, sigma: PerPicture, batch: int) -> Tensor:
        """Sigma as (B,) float64 on the CPU. A tensor on a GPU is fetched once per run, not at every call."""
        if not isinstance(sigma, Tensor) or not sigma.is_cuda:
            return checked_sigma(sigma, batch)
        if self._sigma is None or self._sigma[0] is not sigma or self._sigma[1] != sigma._version:
            self._sigma = (sigma, sigma._version, sigma.detach().cpu())
        return checked_sigma(self._sigma[2], batch)

    def __repr__(self) -> str:
        """Name, channels and promise."""
        counts = "/".join(map(str, self.channels))
        return f"NetworkDenoiser({self.name!r}, channels={counts}, promise={self.promise.name})"


def mirrored(x: Tensor, stride: int) -> Tensor:
    """x (B, C, H, W) continued by its mirror image, below and to the right, to sides that are multiples of `stride`.

    Replication would turn the noise of the last row and column into streaks, which a network takes for detail: at
    sigma = 50/255 it doubles the squared error of the last four columns of CBSD68's pictures.
    """
    for axis in (-2, -1):
        length = x.shape[axis]
        if length % stride:
            x = x.index_select(axis, mirror_index(length + -length % stride, torch.full((), length, device=x.device)))
    return x


def mirror_index(side: int, count: Tensor) -> Tensor:
    """The source pixels of a line of `side` pixels that mirrors its first n: 0, ... n - 1, n - 1, ... 0, 0, ...

    `count`, the n, is () or (B, 1) and gives (side,) or (B, side).
    """
    index = torch.arange(side, device=count.device) % (2 * count)
    return torch.minimum(index, 2 * count - 1 - index)


@contextmanager
def full_precision() -> Iterator[None]:
    """Inside, GPUs multiply in full float32 (TF32 rounds the factors to 10 bits), and convolutions are repeatable."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    conv = getattr(cudnn, "conv", None)
    # There are two ways to say it. Newer versions of torch refuse a mixture of them.
    name, exact = ("allow_tf32", False) if conv is None else ("fp32_precision", "ieee")
    places = (conv or cudnn, matmul)
    before, repeatable = [getattr(place, name) for place in places], cudnn.deterministic
    try:
        for place in places:
            setattr(place, name, exact)
        cudnn.deterministic = True
        yield
    finally:
        for place, value in zip(places, before, strict=True):
            setattr(place, name, value)
        cudnn.deterministic = repeatable


def checked_sigma(sigma: PerPicture, batch: int) -> Tensor:
    """Sigma as (B,) float64 on the CPU, where reading its values does not wait for the GPU."""
    values = torch.as_tensor(sigma, dtype=torch.float64).detach().cpu()
    if values.numel() == 1:
        values = values.reshape(1).expand(batch)
    if values.shape != (batch,):
        raise InputError(f"sigma of shape {tuple(values.shape)}: give one number, or {batch} of them")
    if not bool((torch.isfinite(values) & (values >= 0)).all()):
        raise InputError(f"sigma = {sigma}: give finite numbers of at least 0")
    return values


def _default_device(networks: Mapping[int, nn.Module]) -> torch.device:
    """Where the parameters of the networks are."""
    for network in networks.values():
        for parameter in network.parameters():
            return parameter.device
    return torch.device("cpu")
