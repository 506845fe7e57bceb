"""A run as numbers, ready for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from torch import Tensor

from pnpladmm.report.certificates import summarise_certificate
from pnpladmm.restoration import Restoration
from pnpladmm.solvers import History, Method


def summarise(run: Restoration, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Everything about the first picture's run that is not a picture."""
    norm = run.problem.norm_squared
    return {
        "status": run.statuses[0].label,
        "advice": run.statuses[0].advice,
        "iterations": len(run.history),
        "seconds": float(run.history.seconds[-1]) if len(run.history) else 0.0,
        "noise": 255 * float(run.noise[0]),
        "notes": list(run.notes),
        "warnings": list(run.warnings),
        "certificate": summarise_certificate(run.certificates[0]),
        "parameters": {
            **(settings or {}),
            "method": run.method.name,
            **parameters(run.method),
            "||H||^2": f"{float(norm.lower[0]):.6g} to {float(norm.upper[0]):.6g}",
            "L_h": float(run.problem.L_h()[0]),
        },
        "history": {f.name: _first(getattr(run.history, f.name)) for f in fields(History) if f.name != "rounding"},
    }


def parameters(method: Method[Any]) -> dict[str, Any]:
    """The fields of a method for the first picture; a field with several numbers per picture is a list."""
    shown: dict[str, Any] = {}
    for f in fields(method):  # type: ignore[arg-type]  # every method is a dataclass
        value = getattr(method, f.name)
        if isinstance(value, Tensor):
            value = value[0].tolist() if value.ndim > 1 else float(value.reshape(-1)[0])
        shown[f.name] = value if isinstance(value, int | float | str) or value is None else repr(value)
    return shown


def _first(column: Tensor | None) -> list[float | None] | None:
    if column is None:
        return None
    values = column if column.ndim == 1 else column[:, 0]
    return [float(v) if math.isfinite(v) else None for v in values]
