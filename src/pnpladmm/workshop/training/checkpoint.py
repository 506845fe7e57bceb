"""Files a training leaves: weights with their card, and the checkpoint it can be resumed from.

Every file is written beside its place and renamed into it, so that a kill at any moment leaves the old file
or the new one. All are safetensors: a checkpoint, like a weight file, never holds anything to execute.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from pnpladmm.tensor_files import read_tensors
from pnpladmm.tensors import InputError


def checkpoint_path(out: Path) -> Path:
    """Where the checkpoint of a training that writes `out` lies."""
    return out.with_name(out.stem + ".checkpoint.safetensors")


def replace_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file in one step, as far as any reader can tell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    save_file({key: value.detach().cpu().contiguous() for key, value in tensors.items()}, beside, metadata)
    beside.chmod(0o644)  # safetensors writes for its owner alone, and weights are for sharing
    os.replace(beside, path)


def write_weights(path: Path, state: Mapping[str, Tensor], card: Mapping[str, Any]) -> None:
    """Weights in half precision with their card inside (metadata "card"), and beside as JSON."""
    half = {key: value.half() for key, value in state.items()}
    replace_tensors(path, half, {"card": json.dumps(card)})
    beside = path.with_suffix(".json.part")
    beside.write_text(json.dumps(card, indent=2) + "\n")
    os.replace(beside, path.with_suffix(".json"))


def write_checkpoint(
    path: Path,
    network: nn.Module,
    average: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
    numbers: Mapping[str, float],
    more: Mapping[str, Tensor] | None = None,
) -> None:
    """Everything a training needs to go on as if it had not been stopped; `more` is what only some have."""
    tensors = {f"network.{key}": value for key, value in network.state_dict().items()}
    tensors |= {f"average.{key}": value for key, value in average.items()}
    for name, parameter in network.named_parameters():
        for key, value in optimizer.state[parameter].items():
            tensors[f"optimizer.{key}.{name}"] = torch.as_tensor(value, dtype=torch.float32)
    # Bytes as float32, because a weight file holds floats only and the reader insists on it.
    tensors["generator"] = generator.get_state().float()
    tensors |= {f"more.{key}": value for key, value in (more or {}).items()}
    metadata = {"numbers": json.dumps(dict(numbers)), "optimizer": type(optimizer).__name__}
    replace_tensors(path, tensors, metadata)


def read_checkpoint(
    path: Path,
    network: nn.Module,
    average: dict[str, Tensor],
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
    more: dict[str, Tensor] | None = None,
) -> dict[str, float]:
    """Put a checkpoint back into a training's parts; returns its numbers (step, seconds, ...)."""
    tensors, metadata = read_tensors(path)
    expected = network.state_dict()
    for key, value in expected.items():
        stored = tensors.get(f"network.{key}")
        if stored is None or stored.shape != value.shape or f"average.{key}" not in tensors:
            raise InputError(f"{path}: a checkpoint of another network ({key}); move it away to start anew")
    saved, wanted = metadata.get("optimizer", "AdamW"), type(optimizer).__name__
    if saved != wanted:
        raise InputError(f"{path}: a checkpoint of {saved}, not of {wanted}; move it away to start anew")
    try:
        numbers = {str(key): float(value) for key, value in json.loads(metadata["numbers"]).items()}
        saved_generator = tensors["generator"].to(torch.uint8)
    except (KeyError, ValueError, AttributeError):
        raise InputError(f"{path}: not a checkpoint of a training; move it away to start anew") from None
    network.load_state_dict({key: tensors[f"network.{key}"] for key in expected})
    for key, value in average.items():
        value.copy_(tensors[f"average.{key}"])
    for name, parameter in network.named_parameters():
        state: dict[str, Tensor] = {}
        for key in ("step", "exp_avg", "exp_avg_sq"):
            stored = tensors.get(f"optimizer.{key}.{name}")
            if stored is not None:
                # A fused optimiser's step counter lives beside the parameter, the plain one's on the CPU.
                fused = bool(optimizer.defaults.get("fused"))
                place = parameter.device if fused or key != "step" else torch.device("cpu")
                state[key] = stored.to(place)
        for key in state.keys() - {"step"}:
            # The parameter's own memory layout, or the fused step would have to copy.
            state[key] = torch.empty_like(parameter).copy_(state[key])
        if state:
            optimizer.state[parameter] = state
    if more is not None:
        more.update({key.removeprefix("more."): value for key, value in tensors.items() if key.startswith("more.")})
    if saved_generator.numel() == generator.get_state().numel():
        generator.set_state(saved_generator)
    return numbers
