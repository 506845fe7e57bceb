"""Files of named tensors, read without running anything in them.

A weight file is somebody else's data. safetensors files hold numbers only. The older `.pth` and `.pt` files go through
torch's restricted reader (`weights_only=True`), which refuses a pickle that calls anything.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from pnpladmm.files import replacing
from pnpladmm.gate import LIMIT, max_bytes, shown
from pnpladmm.locks import check_regular
from pnpladmm.tensors import InputError

SUFFIXES = (".safetensors", ".pth", ".pt")
"""How the name of a weight file ends."""
WRAPPERS = ("state_dict", "params_ema", "params")
"""Keys under which published checkpoints hold the weights."""
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MOST_TENSORS = 20_000
MAGIC = (0x1950A86A20F9469CFC6C, 1001)
"""What torch's older format begins with: its magic number and the version of its protocol."""
PICKLES = 5
"""The pickles at the beginning of the older format: these two, the system, the tensors, the keys of their numbers."""


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file, beside and renamed."""
    values = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    with replacing(path) as beside:
        try:
            save_file(values, beside, metadata)
        except SafetensorError as error:  # also where the disk is full
            raise OSError(str(error)) from error


def read_tensors(path: Path, weights_only: bool = True) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors of a file and its metadata ({} for .pth and .pt); nothing is executed.

    With `weights_only` they must be finite floats.
    """
    check_regular(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if path.stat().st_size > max_bytes():
        raise InputError(f"{path}: {path.stat().st_size} bytes, over the limit of {max_bytes()}: raise {LIMIT}")
    metadata: dict[str, str] = {}
    if path.suffix.lower() in (".pth", ".pt"):
        tensors = _read_pickled(path)
    else:
        tensors, metadata = _read_safetensors(path)
    for key, tensor in tensors.items():
        _check(f"{path}: {shown_name(key)}", tensor, weights_only)
    return tensors, metadata


def shown_name(key: str) -> str:
    """A tensor's name as errors show it."""
    return key if len(key) <= 80 and key.isprintable() else shown(key)


def _check(name: str, tensor: Tensor, weights_only: bool) -> None:
    """Refuse tensors whose numbers are not all in the file, and, where weights are meant, what is no finite float."""
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized or tensor.is_nested:
        raise InputError(f"{name} holds no plain numbers: refused")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise InputError(f"{name} repeats its numbers {tuple(tensor.shape)}: refused")
    if not weights_only:
        return
    if tensor.dtype not in FLOATS:
        raise InputError(f"{name} holds {tensor.dtype}, not weights")
    if not bool(torch.isfinite(tensor).all()):
        raise InputError(f"{name} holds NaN or infinite weights: the file is damaged")


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            return tensors, dict(file.metadata() or {})
    except Exception as error:  # the list is long, as below
        raise InputError(f"{path}: truncated or not a safetensors file ({_first_line(error)})") from None


def _read_pickled(path: Path) -> dict[str, Tensor]:
    """The tensors of a `.pth` or `.pt` file, by name."""
    # The list of what torch's reader raises on a damaged or hostile file is long and changes; the answer is always
    # the same: the file is refused.
    try:
        _check_pickle(path)
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


def _check_pickle(path: Path) -> None:
    """ValueError where a pickle announces more than its file holds. It is looked at, not run."""
    size = path.stat().st_size
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            found = packed.infolist()
            if sum(info.file_size for info in found) > size or len(found) > MOST_TENSORS:
                raise ValueError("it unpacks to more than its size")
            for info in found:
                if info.filename.endswith("data.pkl"):
                    _check_numbers(io.BytesIO(packed.read(info)), size, 1)
    else:
        with path.open("rb") as file:
            _check_numbers(file, size, PICKLES)


def _check_numbers(file: IO[bytes], size: int, pickles: int) -> None:
    """The numbers of a pickle are sizes, which cannot be larger than the file, and torch's magic number."""
    for _ in range(pickles):
        for _, argument, _ in pickletools.genops(file):
            if isinstance(argument, int) and abs(argument) > size and argument not in MAGIC:
                raise ValueError(f"a size of {argument}")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
