"""A state on disk: saved, loaded, and resumed bit for bit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor

from pnpladmm.gate import LONGEST_NUMBER, shown
from pnpladmm.solvers.method import Method
from pnpladmm.solvers.registry import METHODS, method_class
from pnpladmm.solvers.state import State
from pnpladmm.tensor_files import read_tensors, write_tensors
from pnpladmm.tensors import InputError, one_line


def save_state(state: State, path: str | Path) -> None:
    """Write the state of a run to a file.

    Parameters
    ----------
    state : State
        Such as `result.state`, or `progress.state` in a callback.
    path : str or Path
        A safetensors file. A crash leaves the old file or the new one, never half of one.

    Examples
    --------
    >>> import tempfile, torch, pnpladmm as pl
    >>> problem = pl.Problem(torch.rand(1, 1, 8, 8), pl.Mask(torch.ones(8, 8)), pl.Gaussian(0.1))
    >>> method = pl.LADMM.certified(pl.load_denoiser("tv"), problem, 0.05)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pl.save_state(pl.solve(problem, method, 5, tolerance=0).state, f"{folder}/state.safetensors")
    ...     state = pl.load_state(f"{folder}/state.safetensors")
    >>> pl.solve(problem, method, 5, tolerance=0, start=state).state.iteration
    10
    """
    values = {f.name: getattr(state, f.name) for f in fields(state)}
    # Clones, because safetensors refuses tensors that share memory (x and q of FISTA's first state).
    tensors = {name: value.detach().cpu().clone() for name, value in values.items() if isinstance(value, Tensor)}
    numbers = {name: json.dumps(value) for name, value in values.items() if isinstance(value, int | float)}
    write_tensors(path, tensors, {**numbers, "state": _name(type(state))})


def load_state(path: str | Path, device: str = "cpu") -> State:
    """Read a state that `save_state` wrote.

    Parameters
    ----------
    path : str or Path
        The file.
    device : str
        Where its tensors shall lie.

    Returns
    -------
    State
        Of the class that was saved, for `solve(..., start=state)`. Its method must be known: one of this package, of an
        entry point, or of a module that has been imported.

    Examples
    --------
    >>> import tempfile, torch, pnpladmm as pl
    >>> problem = pl.Problem(torch.rand(1, 1, 8, 8), pl.Mask(torch.ones(8, 8)), pl.Gaussian(0.1))
    >>> method = pl.LADMM(pl.load_denoiser("tv"), 0.05, beta=100.0, L_x=110.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pl.save_state(method.init(problem), f"{folder}/state.safetensors")
    ...     type(pl.load_state(f"{folder}/state.safetensors")).__name__
    'LADMMState'
    """
    path = Path(path)
    tensors, metadata = read_tensors(path, weights_only=False)
    kind = _state_type(metadata.get("state", ""))
    if kind is None:
        raise InputError(f"{path}: not a state of a pnpladmm method that is installed")
    saved = {f.name: metadata[f.name] for f in fields(kind) if f.name in metadata}
    numbers = {name: _number(path, name, text) for name, text in saved.items()}
    try:
        return kind(**numbers, **{name: tensor.to(device) for name, tensor in tensors.items()})  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        raise InputError(f"{path}: an incomplete {kind.__name__} ({one_line(str(error))[:100]})") from None


def _number(path: Path, name: str, text: str) -> int | float:
    """A number that `save_state` wrote; others may be infinite too, as a best residual is at first."""
    try:
        value = json.loads(text) if len(text) <= LONGEST_NUMBER else None
    except ValueError:
        value = None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{path}: {name} is {shown(text)}: not a state that save_state wrote")
    return value


def _name(kind: type[State]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _state_type(name: str) -> type[State] | None:
    """The state of the methods that are known, then of those that other packages add."""
    found = [kind for kind in _state_types() if _name(kind) == name]
    if not found:
        for method in METHODS:
            with suppress(InputError):  # a package that cannot be loaded has no state to offer
                method_class(method)
        found = [kind for kind in _state_types() if _name(kind) == name]
    return found[-1] if found else None


def _state_types() -> Iterator[type[State]]:
    """The states of all subclasses of `Method`."""
    methods: list[type[Method[Any]]] = Method.__subclasses__()
    while methods:
        method = methods.pop(0)
        yield method.state_type
        methods += method.__subclasses__()
