"""What a benchmark returns: a table for people and the same numbers as JSON, with the machine they come from."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    device: torch.device
    quick: bool = False
    """Small sizes, few repeats: shows that it runs, not how fast it is."""
    denoiser: str | None = None
    """Name or weight file; by default drunet on a GPU, where it is shipped, and light elsewhere."""
    data: Path | None = None
    """COCO folder or stored dataset for the pictures; None: what `load_dataset` finds."""

    def say(self, text: str) -> None:
        """Where a long run stands, on stderr."""
        if not self.quick:
            print(f"measuring {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Table:
    """Rows of cells as they are printed."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)


@dataclass(frozen=True)
class Report:
    """One benchmark's run."""

    name: str
    settings: dict[str, Any]
    """What was measured: sizes, denoiser, noise, iterations."""
    rows: list[dict[str, Any]]
    """All measurements, one dictionary each; seconds, bytes and dB."""
    tables: list[Table]
    notes: list[str] = field(default_factory=list)
    """What was left out, and why."""

    def as_json(self, options: Options) -> dict[str, Any]:
        """All of it, with the machine."""
        return {
            "benchmark": self.name,
            "quick": options.quick,
            "machine": machine(options.device),
            "settings": self.settings,
            "rows": self.rows,
            "notes": self.notes,
        }

    def write(self, folder: Path, options: Options) -> Path:
        """`folder/NAME-DEVICE[-quick].json`."""
        path = folder / f"{self.name}-{options.device.type}{'-quick' if options.quick else ''}.json"
        text = json.dumps(self.as_json(options), indent=1, allow_nan=False)
        path.write_text(text + "\n", encoding="utf-8")
        return path

    def show(self) -> None:
        """Print the tables, with rich where it is installed."""
        for table in self.tables:
            _print(table)
        for note in self.notes:
            print(f"note: {note}")


def busy() -> str | None:
    """A sentence if other programs are at work: what is measured then is the crowd."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return f"the machine was busy before the start (load {load:.1f} on {cores} cores)" if load > cores / 2 else None


def machine(device: torch.device) -> dict[str, Any]:
    """Cores, device, versions. No names of hosts, users or folders."""
    names = ("numpy", "scipy", "scikit-image", "deepinv", "torchvision")
    on_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
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
    """The CPU's model as Linux tells it, else its architecture."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _print(table: Table) -> None:
    try:
        from rich.console import Console
        from rich.table import Table as RichTable
    except ImportError:
        widths = [max(map(len, cells)) for cells in zip(table.columns, *table.rows, strict=True)]
        print(f"\n{table.title}")
        for row in (table.columns, *table.rows):
            print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
        return
    grid = RichTable(title=table.title, title_justify="left")
    for column in table.columns:
        grid.add_column(column, justify="right")
    for row in table.rows:
        grid.add_row(*row)
    console = Console()
    # A file or a pipe has no width of its own: then nothing is folded.
    Console(width=None if console.is_terminal else 200).print(grid, markup=False)
