"""Denoisers from objects of the user: a function `(x, sigma) -> x`, or a torch module such as deepinv's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pnpladmm.denoisers.base import Denoiser, Promise, call_denoiser, checked_output
from pnpladmm.denoisers.network import NetworkDenoiser
from pnpladmm.tensors import InputError, PerPicture, type_words


class CallableDenoiser:
    """A user's `function(x, sigma)` with the promise that its user states for it."""

    promise_is_stated: ClassVar[bool] = True

    def __init__(
        self, function: Callable[[Tensor, Any], Tensor], promise: Promise = Promise.NONE, name: str = ""
    ) -> None:
        """Wrap `function`; it is called as `function(x, sigma)` with what the solver gives."""
        self._function = function
        self.promise = promise
        self.name = name or str(getattr(function, "__name__", type(function).__name__))

    def __call__(self, x: Tensor, sigma: PerPicture, /) -> Tensor:
        """Call it without gradients, and refuse a result that is not a picture of x's shape."""
        with torch.no_grad():
            return call_denoiser(self._function, x, sigma, self.name)

    def __repr__(self) -> str:
        """Name and promise."""
        return f"CallableDenoiser({self.name!r}, promise={self.promise.name})"


class ModuleDenoiser(CallableDenoiser):
    """A torch module with `forward(x, sigma)`, as deepinv's denoisers are. It keeps its dtype and device."""

    def __call__(self, x: Tensor, sigma: PerPicture, /) -> Tensor:
        """Move x and sigma to where the module's parameters are, call it, and bring the result back."""
        module = self._function
        assert isinstance(module, nn.Module)
        home = next(module.parameters(), x)
        module.eval()
        moved_sigma = sigma.to(home.device, home.dtype) if isinstance(sigma, Tensor) else sigma
        with torch.no_grad():
            restored = module(x.to(home.device, home.dtype), moved_sigma)
        if isinstance(restored, Tensor):
            restored = restored.to(x.device, x.dtype)
        return checked_output(self.name, restored, x)


def as_denoiser(function: Callable[[Tensor, Any], Tensor], promise: Promise = Promise.NONE) -> Denoiser:
    """Make a denoiser of a function or of a torch module.

    Parameters
    ----------
    function : callable
        `function(x, sigma)` with x (B, C, H, W) and sigma a number or (B,), both on the pictures' scale; it returns
        pictures of x's shape. A torch module (deepinv's denoisers are modules) runs in its own dtype, on its own
        device.
    promise : Promise, optional
        What is known of it. By default nothing, so that no theorem covers a run with it.

    Returns
    -------
    Denoiser
        A denoiser that checks what the function returns. A denoiser of this package that has this promise already is
        returned as it is.

    Raises
    ------
    InputError
        If it cannot be called.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> shrink = pl.as_denoiser(lambda x, sigma: x / (1 + sigma**2), promise=pl.Promise.CONVEX)
    >>> shrink(torch.ones(1, 1, 1, 2), 1.0)
    tensor([[[[0.5000, 0.5000]]]])
    """
    if not callable(function):
        raise InputError(f"{type_words(function)} is no denoiser: give a callable d(x, sigma)")
    if isinstance(function, nn.Module):
        return ModuleDenoiser(function, promise)
    if isinstance(function, (NetworkDenoiser, CallableDenoiser)) and function.promise is promise:
        return function
    return CallableDenoiser(function, promise)
