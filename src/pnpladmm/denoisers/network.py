"""Networks, modules and plain callables as denoisers `d(x, sigma)`.

`NetworkDenoiser` takes care of all that a network does not: the stride, the number of channels, the
intensity range, precision and memory layout. `as_denoiser` wraps what a user brings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from pnpladmm.denoisers.base import Denoiser, Promise
from pnpladmm.tensors import InputError, PerPicture

SIGMA_MAX = 60 / 255
"""The largest noise level the shipped networks were trained for, for pictures in [0, 1]."""

GPU_PIXELS = 2**22
"""Pixels a network call on a GPU takes at most, to bound its memory (about 3 GB for DRUNet)."""


class NetworkDenoiser:
    """One network for each number of channels, as a denoiser for any pictures.

    Parameters
    ----------
    networks:
        `{channels: module}`, each `module(x, sigma)` with x (B, channels, H, W) and sigma (B,) in float32
        whatever the dtype of its weights, sides multiples of `module.stride` (8 if it has none). Pictures
        with another number of channels go channel by channel through `networks[1]`; without one, each
        channel is copied into the n channels of the network there is, told sqrt(n) sigma, and the n
        results are averaged.
    promise:
        What is known of the network (`Promise.MMSE` for one trained for squared error).
    sigma_max:
        The largest noise level it was trained for, on pictures in [0, 1]. Beyond it the call is scaled,
        `D_s(x) = c D_{s/c}(x/c)`, which changes nothing but rounding for a network without biases.
    scale:
        What counts as 1: `scale=65535` for 16-bit counts; sigma is on the pictures' own scale.
    precision:
        dtype the network's weights are kept and computed in. By default float16 on GPUs, float32
        elsewhere; pictures go in as float32 and come out in their own dtype. (Against float32 on an H200,
        the first DRUNet was off by 0.03/255 in float16 and 0.2/255 in bfloat16, at every sigma.)
    compile_network:
        Whether to `torch.compile` the networks, or with which of its modes ("max-autotune"): worth a few per cent for
        many calls of one shape on a GPU (docs/speed.md).

    A sigma of 0 returns the picture itself. On CPUs pictures are processed one at a time, which is as
    fast, needs less memory, and makes a picture's result independent of its batch to the last bit.
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
    ) -> None:
        """Take the networks over: they are put into eval mode, and moved to `device` and `precision`."""
        if not networks:
            raise InputError("a network denoiser without networks: give {channels: module}")
        for label, number in (("sigma_max", sigma_max), ("scale", scale)):
            if not (math.isfinite(number) and number > 0):
                raise InputError(f"{label} = {number}: give a finite number above 0")
        self.promise = promise
        self.name = name
        self.sigma_range = (0.0, sigma_max * scale)
        self.scale = scale
        self.channels = tuple(sorted(networks))
        self.device = torch.device(device) if device is not None else _default_device(networks)
        on_gpu = self.device.type == "cuda"
        self.precision = precision or (torch.float16 if on_gpu else torch.float32)
        self._networks: dict[int, Callable[[Tensor, Tensor], Tensor]] = {}
        self._strides: dict[int, int] = {}
        for channels, network in networks.items():
            # Half-precision files are stored, not computed, in half precision on CPUs; channels_last is
            # the layout both cuDNN and oneDNN are fastest with here.
            ready: Any = network.eval().requires_grad_(False).to(self.device, self.precision)
            ready = ready.to(memory_format=torch.channels_last)
            self._strides[channels] = int(getattr(network, "stride", 8))
            mode = compile_network if isinstance(compile_network, str) else None
            self._networks[channels] = torch.compile(ready, mode=mode) if compile_network else ready
        self._sigma: tuple[Tensor, int, Tensor] | None = None

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
                # Equal noise in n channels has sqrt(n) sigma along their common direction, where all of it
                # lies; told sigma alone, the network leaves most of it in (4 dB less at 15/255).
                restored = self._apply(copies, colour, math.sqrt(copies) * plane_sigmas).mean(1)
            restored = restored.reshape(x.shape)
        unchanged = (sigmas == 0).reshape(-1, 1, 1, 1)
        if not bool(unchanged.any()):
            return restored
        return torch.where(unchanged.to(x.device, non_blocking=True), x.detach(), restored)

    def _apply(self, channels: int, x: Tensor, sigmas: Tensor) -> Tensor:
        """Run the network of `channels` channels on x, in its dtype, at its stride and scale."""
        network, stride = self._networks[channels], self._strides[channels]
        height, width = x.shape[-2:]
        gain = (sigmas / self.sigma_range[1]).clamp(min=1.0) * self.scale
        plain = bool((gain == 1).all())  # gains are on the CPU: looking at them waits for nothing
        step = 1 if self.device.type == "cpu" else max(1, GPU_PIXELS // (height * width))
        restored = torch.empty_like(x, memory_format=torch.contiguous_format)
        exact = full_precision() if self.precision == torch.float32 else nullcontext()
        with torch.inference_mode(), exact:
            for start in range(0, len(x), step):
                part = slice(start, start + step)
                scaled = x[part].to(self.device)
                unit = gain[part].to(self.device, x.dtype, non_blocking=True).reshape(-1, 1, 1, 1)
                # Scaled in the picture's own dtype, and only then made float32.
                scaled = scaled.float() if plain else (scaled / unit).float()
                padded = _mirrored(scaled, stride).contiguous(memory_format=torch.channels_last)
                level = (sigmas[part] / gain[part]).float().to(self.device, non_blocking=True)
                out = network(padded, level)[..., :height, :width]
                # One pass for dtype, layout and device.
                restored[part] = out if plain else out.to(x.dtype) * unit
        return restored

    def _checked_sigma(self, sigma: PerPicture, batch: int) -> Tensor:
        """Sigma as (B,) float64 on the CPU. One that lies on a GPU is fetched once, not at each call of a run."""
        if not isinstance(sigma, Tensor) or not sigma.is_cuda:
            return _checked_sigma(sigma, batch)
        if self._sigma is None or self._sigma[0] is not sigma or self._sigma[1] != sigma._version:
            self._sigma = (sigma, sigma._version, sigma.detach().cpu())
        return _checked_sigma(self._sigma[2], batch)

    def __repr__(self) -> str:
        """Name, channels and promise."""
        counts = "/".join(map(str, self.channels))
        return f"NetworkDenoiser({self.name!r}, channels={counts}, promise={self.promise.name})"


def _mirrored(x: Tensor, stride: int) -> Tensor:
    """x (B, C, H, W) continued by its mirror image, below and to the right, to sides that are multiples of `stride`.

    Replicated instead, the noise of the last row and column becomes streaks, which a network takes for the picture:
    at sigma = 50/255 the squared error of the last four columns of CBSD68's pictures doubled (docs/weights.md).
    """
    for axis in (-2, -1):
        length = x.shape[axis]
        if length % stride:
            x = x.index_select(axis, mirror_index(length + -length % stride, torch.full((), length, device=x.device)))
    return x


def mirror_index(side: int, kept: Tensor) -> Tensor:
    """Which pixel stands where on a line of `side` that mirrors its first `kept`: 0, ... kept - 1, kept - 1, ... 0, ...

    `kept` () or (B, 1) gives (side,) or (B, side).
    """
    index = torch.arange(side, device=kept.device) % (2 * kept)
    return torch.minimum(index, 2 * kept - 1 - index)


@contextmanager
def full_precision() -> Iterator[None]:
    """Products on GPUs in float32 proper (TF32 would round what they multiply to 10 bits), convolutions repeatable."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    conv = getattr(cudnn, "conv", None)
    # Newer versions of torch refuse a mixture of the two ways to say it.
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


class CallableDenoiser:
    """A user's `function(x, sigma)` with the promise its user states for it."""

    def __init__(
        self, function: Callable[[Tensor, Any], Tensor], promise: Promise = Promise.NONE, name: str = ""
    ) -> None:
        """Wrap `function`; it is called as `function(x, sigma)` with what the solver gives."""
        self._function = function
        self.promise = promise
        self.name = name or str(getattr(function, "__name__", type(function).__name__))

    def __call__(self, x: Tensor, sigma: PerPicture, /) -> Tensor:
        """Call it without gradients, and refuse what is not a picture of x's shape."""
        with torch.no_grad():
            restored = self._function(x, sigma)
        return _checked_output(self.name, restored, x)

    def __repr__(self) -> str:
        """Name and promise."""
        return f"CallableDenoiser({self.name!r}, promise={self.promise.name})"


class ModuleDenoiser(CallableDenoiser):
    """A torch module with `forward(x, sigma)`, as deepinv's denoisers are: in its own dtype and device."""

    def __call__(self, x: Tensor, sigma: PerPicture, /) -> Tensor:
        """Move x and sigma to where the module's parameters are, call it, bring the result back."""
        module = self._function
        assert isinstance(module, nn.Module)
        home = next(module.parameters(), x)
        module.eval()
        moved_sigma = sigma.to(home.device, home.dtype) if isinstance(sigma, Tensor) else sigma
        with torch.no_grad():
            restored = module(x.to(home.device, home.dtype), moved_sigma)
        if isinstance(restored, Tensor):
            restored = restored.to(x.device, x.dtype)
        return _checked_output(self.name, restored, x)


def as_denoiser(function: Callable[[Tensor, Any], Tensor], promise: Promise = Promise.NONE) -> Denoiser:
    """Make a denoiser of a callable `(x, sigma) -> x` or of a deepinv denoiser (any torch module).

    Nothing is known of it unless `promise` says so. What already is a denoiser of this package with that
    promise comes back as it is.
    """
    if not callable(function):
        raise InputError(f"a {type(function).__name__} is no denoiser: give a callable d(x, sigma)")
    if isinstance(function, nn.Module):
        return ModuleDenoiser(function, promise)
    if isinstance(function, (NetworkDenoiser, CallableDenoiser)) and function.promise is promise:
        return function
    return CallableDenoiser(function, promise)


def _checked_output(name: str, restored: object, x: Tensor) -> Tensor:
    if not isinstance(restored, Tensor):
        raise InputError(f"denoiser {name} returned a {type(restored).__name__}: it must return a tensor")
    if restored.shape != x.shape:
        raise InputError(
            f"denoiser {name} returned shape {tuple(restored.shape)} for pictures of shape {tuple(x.shape)}"
        )
    return restored


def _checked_sigma(sigma: PerPicture, batch: int) -> Tensor:
    """Sigma as (B,) float64 on the CPU, where looking at its values costs no wait for the GPU's work."""
    values = torch.as_tensor(sigma, dtype=torch.float64).detach().cpu()
    if values.numel() == 1:
        values = values.reshape(1).expand(batch)
    if values.shape != (batch,):
        raise InputError(f"sigma of shape {tuple(values.shape)}: give one number, or {batch} of them")
    if not bool((torch.isfinite(values) & (values >= 0)).all()):
        raise InputError(f"sigma = {sigma}: give finite numbers of at least 0")
    return values


def _default_device(networks: Mapping[int, nn.Module]) -> torch.device:
    for network in networks.values():
        for parameter in network.parameters():
            return parameter.device
    return torch.device("cpu")
