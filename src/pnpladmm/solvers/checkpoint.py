"""A state on disk: saved, loaded, and resumed bit for bit."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from pnpladmm.solvers.admm import ADMMState
from pnpladmm.solvers.annealed import AnnealedState
from pnpladmm.solvers.fista import FISTAState
from pnpladmm.solvers.ista import ISTAState
from pnpladmm.solvers.ladmm import LADMMState
from pnpladmm.solvers.leaping import LeapingState
from pnpladmm.solvers.method import State
from pnpladmm.solvers.primal_dual import PrimalDualState
from pnpladmm.solvers.richardson_lucy import RichardsonLucyState
from pnpladmm.tensors import InputError

_KINDS: dict[str, type[State]] = {
    kind.__name__: kind
    for kind in (
        LADMMState,
        LeapingState,
        ISTAState,
        FISTAState,
        ADMMState,
        PrimalDualState,
        RichardsonLucyState,
        AnnealedState,
    )
}


def save_state(state: State, path: str | Path) -> None:
    """Write a state as safetensors, beside and renamed: a crash leaves the old file or the new one."""
    values = {f.name: getattr(state, f.name) for f in fields(state)}
    # Clones, because safetensors refuses tensors that share memory (x and q of FISTA's first state).
    tensors = {name: value.detach().cpu().clone() for name, value in values.items() if isinstance(value, Tensor)}
    numbers = {name: repr(value) for name, value in values.items() if isinstance(value, int | float)}
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        save_file(tensors, beside, metadata={"state": type(state).__name__, **numbers})
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def load_state(path: str | Path, device: str = "cpu") -> State:
    """Read a state that `save_state` wrote."""
    try:
        with safe_open(str(path), framework="pt", device=device) as file:
            metadata = file.metadata() or {}
            values: dict[str, Any] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: no state can be read from it ({error})") from None
    kind = _KINDS.get(metadata.get("state", ""))
    if kind is None:
        raise InputError(f"{path}: not a state of a pnpladmm method")
    for f in fields(kind):
        if f.name in metadata:
            values[f.name] = float(metadata[f.name]) if f.type == "float" else int(metadata[f.name])
    try:
        return kind(**values)
    except TypeError as error:
        raise InputError(f"{path}: an incomplete {kind.__name__} ({error})") from None
