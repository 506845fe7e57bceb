"""Files of named tensors, read without running anything in them.

A weight file is somebody else's data. safetensors files hold numbers only. The older `.pth` and `.pt` files go through
torch's restricted reader (`weights_only=True`), which refuses a pickle that calls anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pnpladmm.tensors import InputError

SUFFIXES = (".safetensors", ".pth", ".pt")
"""How the name of a weight file ends."""
WRAPPERS = ("state_dict", "params_ema", "params")
"""Keys under which published checkpoints hold the weights."""


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors of a weight file and its metadata ({} for .pth and .pt); nothing is executed."""
    if not path.is_file():
        raise InputError(f"{path}: no such weight file")
    metadata: dict[str, str] = {}
    if path.suffix.lower() == ".safetensors":
        try:
            with safe_open(path, framework="pt") as file:
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
                metadata = dict(file.metadata() or {})
        except (SafetensorError, OSError, ValueError, RuntimeError) as error:
            raise InputError(f"{path}: truncated or not a safetensors file ({_first_line(error)})") from None
    else:
        tensors = _read_pickled(path)
    for key, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise InputError(f"{path}: {key} holds {tensor.dtype}, not weights")
        if not bool(torch.isfinite(tensor).all()):
            raise InputError(f"{path}: {key} holds NaN or infinite weights: the file is damaged")
    return tensors, metadata


def _read_pickled(path: Path) -> dict[str, Tensor]:
    """The tensors of a `.pth` or `.pt` file, by name."""
    # The list of what torch's reader raises on a damaged or hostile file is long and changes; the answer is always
    # the same: the file is refused.
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise InputError(
            f"{path}: refused: truncated, or more than plain tensors in it ({type(error).__name__})"
        ) from None
    for wrapper in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in content.items()
    ):
        raise InputError(f"{path}: refused: it does not hold a table of named tensors")
    return {key.removeprefix("module."): value for key, value in content.items()}


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
