"""The files of a training: the weights with their card, and the checkpoint from which it is resumed.

Every file is written beside its place and renamed, so that a kill at any moment leaves the old file or the new one. All
are safetensors, so that nothing in them can be executed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pnpladmm.files import write_text
from pnpladmm.gate import Field, take
from pnpladmm.tensor_files import read_tensors, write_tensors
from pnpladmm.tensors import InputError


def checkpoint_path(out: Path) -> Path:
    """The checkpoint of a training that writes its weights to `out`."""
    return out.with_name(out.stem + ".checkpoint.safetensors")


def write_weights(
    path: Path, state: Mapping[str, Tensor], card: Mapping[str, Any], precision: torch.dtype = torch.float16
) -> None:
    """Write weights, usually in half precision, with their card inside (metadata "card") and beside them as JSON."""
    write_tensors(path, {key: value.to(precision) for key, value in state.items()}, {"card": json.dumps(card)})
    write_text(path.with_suffix(".json"), json.dumps(card, indent=2) + "\n")


def read_card(metadata: Mapping[str, str], path: Path) -> dict[str, Any]:
    """The card in the metadata of a weight file; {} if it has none."""
    try:
        card: dict[str, Any] = json.loads(metadata.get("card", "{}"))
    except (ValueError, RecursionError):
        raise InputError(f"{path}: its card is not JSON: give a file that was written by a training") from None
    return card


LONGEST = 10_000
"""Characters of the numbers of a checkpoint."""
NUMBERS = {
    "step": Field(int, 0, 10**12, default=0),
    "seconds": Field(float, 0, 1e12, default=0.0),
    "rate_factor": Field(float, 1e-30, 1, default=1.0),
    "loss_scale": Field(float, 1e-30, 1e30, default=1.0),
}
"""What a training counts with; its loss may be anything."""


@dataclass(frozen=True)
class Parts:
    """The parts of a training whose states a checkpoint holds."""

    network: nn.Module
    average: nn.Module
    """The network with the averaged weights."""
    optimizer: torch.optim.Optimizer
    generator: torch.Generator


def write_checkpoint(path: Path, parts: Parts, numbers: Mapping[str, float], extra: Mapping[str, Tensor]) -> None:
    """Write all that a training needs to continue as if it had not been stopped.

    `numbers` are counts and figures, such as the step; `extra` are tensors that only some trainings have.
    """
    network, optimizer = parts.network, parts.optimizer
    tensors = {f"network.{key}": value for key, value in network.state_dict().items()}
    tensors |= {f"average.{key}": value for key, value in parts.average.state_dict().items()}
    for name, parameter in network.named_parameters():
        for key, value in optimizer.state[parameter].items():
            tensors[f"optimizer.{key}.{name}"] = torch.as_tensor(value, dtype=torch.float32)
    # Bytes as float32, because `read_tensors` accepts weights only.
    tensors["generator"] = parts.generator.get_state().float()
    tensors |= {f"more.{key}": value for key, value in extra.items()}
    write_tensors(path, tensors, {"numbers": json.dumps(dict(numbers)), "optimizer": type(optimizer).__name__})


def read_checkpoint(path: Path, parts: Parts) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Put the states of a checkpoint into a training's parts; returns its numbers and its extra tensors."""
    network, optimizer, generator = parts.network, parts.optimizer, parts.generator
    tensors, metadata = read_tensors(path)
    expected = network.state_dict()
    for key, value in expected.items():
        stored = tensors.get(f"network.{key}")
        if stored is None or stored.shape != value.shape or f"average.{key}" not in tensors:
            raise InputError(f"{path}: a checkpoint of another network ({key}): move it away to begin anew")
    saved, wanted = metadata.get("optimizer", "AdamW"), type(optimizer).__name__
    if saved != wanted:
        raise InputError(f"{path}: a checkpoint of {saved}, not of {wanted}: move it away to begin anew")
    try:
        numbers = {str(key): float(value) for key, value in json.loads(metadata["numbers"][:LONGEST]).items()}
        for key, field in NUMBERS.items():
            take(str(path), numbers, key, field)
        saved_generator = tensors["generator"].to(torch.uint8)
        network.load_state_dict({key: tensors[f"network.{key}"] for key in expected})
        parts.average.load_state_dict({key: tensors[f"average.{key}"] for key in expected})
        _load_optimizer(optimizer, network, tensors)
        if saved_generator.numel() == generator.get_state().numel():  # otherwise it comes from another kind of device
            generator.set_state(saved_generator)
    except InputError:
        raise
    except (KeyError, ValueError, AttributeError, TypeError, RuntimeError, OverflowError):
        raise InputError(f"{path}: not a checkpoint of a training: move it away to begin anew") from None
    extra = {key.removeprefix("more."): value for key, value in tensors.items() if key.startswith("more.")}
    return numbers, extra


def _load_optimizer(optimizer: torch.optim.Optimizer, network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put moments and step counters back, where and as the optimizer keeps them."""
    fused = bool(optimizer.defaults.get("fused"))
    for name, parameter in network.named_parameters():
        state: dict[str, Tensor] = {}
        for key in ("step", "exp_avg", "exp_avg_sq"):
            stored = tensors.get(f"optimizer.{key}.{name}")
            if stored is None:
                continue
            if key == "step":  # beside the parameter for a fused optimizer, else on the CPU
                state[key] = stored.to(parameter.device if fused else "cpu")
            else:  # in the memory layout of the parameter, or the fused step would copy it
                state[key] = torch.empty_like(parameter).copy_(stored)
        if state:
            optimizer.state[parameter] = state
