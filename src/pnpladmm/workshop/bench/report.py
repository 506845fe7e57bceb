"""What a benchmark returns: a table to print, and the same numbers as JSON with the machine they come from."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from pnpladmm.files import write_text
from pnpladmm.tensors import InputError

Row = dict[str, Any]
"""One measurement: what was measured, seconds, bytes, dB."""


@dataclass(frozen=True)
class Options:
    """What is asked for on the command line."""

    device: torch.device
    quick: bool = False
    """Small sizes and few repetitions: shows that it runs, not how fast it is."""
    denoiser: str | None = None
    """Name or weight file; None: `inputs.choose_denoiser` chooses."""
    data: Path | None = None
    """COCO folder or stored dataset for the pictures; None: what `load_dataset` finds."""
    folder: Path | None = None
    """Where the result will be written; long runs keep there what is finished."""

    def parts(self, name: str) -> Path | None:
        """The file of finished parts of a benchmark; None where nothing is kept."""
        return None if self.folder is None or self.quick else self.folder / f"{name}-{self.device.type}.parts.jsonl"

    def known(self, name: str) -> dict[str, Row]:
        """The finished parts of a benchmark that was stopped, by their names."""
        path = self.parts(name)
        if path is None or not path.is_file():
            return {}
        return dict(json.loads(line) for line in path.read_text().splitlines())

    def keep(self, name: str, key: str, row: Row) -> None:
        """Keep a finished part of a benchmark."""
        path = self.parts(name)
        if path is not None:
            with path.open("a") as file:
                file.write(json.dumps([key, row]) + "\n")

    def say(self, text: str) -> None:
        """Tell on stderr what a long run measures now."""
        if not self.quick:
            print(f"measuring {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Report:
    """The result of one benchmark."""

    name: str
    title: str
    columns: Mapping[str, Callable[[Any], str]]
    """The columns of the printed table: what each says of a line."""
    rows: list[Row]
    """All measurements."""
    settings: Mapping[str, Any]
    """What they have in common: denoiser, calls, sources of the pictures."""
    notes: list[str] = field(default_factory=list)
    """What was left out, and why."""
    lines: Sequence[Any] | None = None
    """The lines of the printed table, if they are not the rows."""

    def write(self, folder: Path, options: Options) -> Path:
        """Write `folder/NAME-DEVICE[-quick].json`; returns its path."""
        path = folder / f"{self.name}-{options.device.type}{'-quick' if options.quick else ''}.json"
        content = {
            "benchmark": self.name,
            "quick": options.quick,
            "machine": machine(options.device),
            "settings": self.settings,
            "rows": self.rows,
            "notes": self.notes,
        }
        write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")
        parts = options.parts(self.name)
        if parts is not None:
            parts.unlink(missing_ok=True)
        return path

    def show(self) -> None:
        """Print the table and the notes."""
        table = Table(title=self.title, title_justify="left")
        for column in self.columns:
            table.add_column(column, justify="right")
        for line in self.rows if self.lines is None else self.lines:
            table.add_row(*(cell(line) for cell in self.columns.values()))
        # A file or a pipe has no width; nothing is to be folded there.
        Console(width=None if Console().is_terminal else 200).print(table, markup=False)
        for note in self.notes:
            print(f"note: {note}")


def open_device(text: str) -> torch.device:
    """The torch device of an option."""
    try:
        device = torch.device(text)
    except RuntimeError:
        raise InputError(f"--device {text}: give cpu or cuda") from None
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"--device {text}: give cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"--device {text}: no GPU was found: use cpu")
    return device


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def busy() -> str | None:
    """A note if other programs are running, which makes measurements worthless; None if not."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return f"the machine was busy before the start (load {load:.1f} on {cores()} cores)" if load > cores() / 2 else None


def machine(device: torch.device) -> dict[str, Any]:
    """Device, cores and versions; no names of hosts, users or folders."""
    names = ("numpy", "scipy", "scikit-image", "deepinv", "torchvision")
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "packages": {name: version for name in names if (version := _version(name))},
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """The model of the CPU on Linux; elsewhere its architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.is_file() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
