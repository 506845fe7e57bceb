"""Helpers for batches of pictures: numbers per picture, sums per picture, checks of what callers give."""

from __future__ import annotations

import warnings
from typing import TypeAlias

import torch
from torch import Tensor

PerPicture: TypeAlias = float | Tensor
"""One number for all pictures, or a tensor of shape (B,) with one per picture."""


LONGEST = 300
"""Characters of a message."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the system refused memory: to Python, to torch (also on a GPU), to a thread or to a library."""
    refused = ("allocate memory", "start new thread", "failed to map segment")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(words in str(error) for words in refused)


def one_line(text: str) -> str:
    """Text that fits into a message of one line; of long ones the beginning and the end."""
    text = text if len(text) <= 4 * LONGEST else text[: 2 * LONGEST] + text[-2 * LONGEST :]
    line = "".join(c if c.isprintable() else " " for c in text).strip()
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 100]} ... {line[-95:]}"


class InputError(ValueError):
    """An input that cannot be used. The message is one line: what is wrong, its value, what to do.

    It is cut to 300 characters, and what cannot be printed becomes spaces: it may quote a stranger's file.

    Examples
    --------
    >>> import pnpladmm as pl
    >>> try:
    ...     pl.Gaussian(sigma=-1)
    ... except pl.InputError as error:
    ...     print(error)
    sigma = -1: give a finite number above 0, or one for each picture
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(one_line(str(message)))


def per_picture(value: PerPicture, like: Tensor) -> Tensor:
    """`value` as a tensor that multiplies pictures `like` of shape (B, C, H, W): () or (B, 1, 1, 1).

    Its result may be given to it again.
    """
    # non_blocking: by default torch waits for a GPU after a copy from pageable memory.
    tensor = torch.as_tensor(value, dtype=like.dtype).to(like.device, non_blocking=True)
    if tensor.numel() == 1:
        return tensor.reshape(())
    if tensor.shape == (len(like), 1, 1, 1):
        return tensor
    if tensor.ndim != 1 or len(tensor) != len(like):
        raise InputError(
            f"numbers per picture have shape {tuple(tensor.shape)}: give one number, or {len(like)} of them"
        )
    return tensor.reshape(-1, 1, 1, 1)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner product of each picture of `a` with that of `b`, summed in float64: (B, ...) -> (B,)."""
    return (a.double() * b.double()).flatten(1).sum(1)


def squared_norm(a: Tensor) -> Tensor:
    """`||a||^2` of each picture, summed in float64: (B, ...) -> (B,)."""
    return dot(a, a)


def version_of(x: Tensor) -> int:
    """A number that changes when `x` is written to."""
    return -1 if x.is_inference() else x._version


def type_words(value: object) -> str:
    """The type of a value with its article, for errors: `a str`, `an int`."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def check_positive(name: str, value: PerPicture) -> None:
    """Refuse a parameter that is not a finite number above 0."""
    tensor = torch.as_tensor(value, dtype=torch.float64)
    good = torch.isfinite(tensor) & (tensor > 0)
    if tensor.numel() == 0 or tensor.ndim > 1 or not bool(good.all()):
        raise InputError(f"{name} = {value}: give a finite number above 0, or one for each picture")


def check_pictures(name: str, x: Tensor) -> None:
    """Refuse what is not a non-empty, finite batch (B, C, H, W) of float32 or float64."""
    if not isinstance(x, Tensor):
        raise InputError(f"{name} is {type_words(x)}: give a torch tensor of shape (B, C, H, W)")
    if x.ndim != 4 or x.numel() == 0:
        raise InputError(f"{name} has shape {tuple(x.shape)}: give a non-empty (B, C, H, W)")
    if x.dtype not in (torch.float32, torch.float64):
        raise InputError(f"{name} has dtype {x.dtype}: give float32 or float64, nominally in [0, 1]")
    if not all(bool(torch.isfinite(end)) for end in x.detach().aminmax()):  # needs no copies of large pictures
        bad = int((~torch.isfinite(x)).sum())
        raise InputError(
            f"{name} has {bad} pixels that are NaN or infinite: fill them and give them precision 0 (WeightedGaussian)"
        )


def tell_of_lost_gradients(what: str, *tensors: Tensor) -> None:
    """A warning where gradients are recorded and these tensors ask for them, but `what` passes none."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        warnings.warn(
            f"{what} passes no gradients: use pnpladmm.solve_with_gradients, or call it under torch.no_grad()",
            UserWarning,
            stacklevel=3,
        )
