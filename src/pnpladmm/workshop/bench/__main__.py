"""`python -m pnpladmm.workshop.bench`: runs benchmarks, prints their tables, writes their JSON."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import torch

from pnpladmm.allocator import keep_memory
from pnpladmm.tensors import InputError
from pnpladmm.workshop.bench.report import Options, Report, busy

BENCHMARKS = ("operators", "restoration", "shares", "growth")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="pnpladmm bench", description="Measure blur, restoration, where the time goes, and how it grows."
    )
    add = parser.add_argument
    add("benchmark", choices=[*BENCHMARKS, "all"], help="what to measure")
    add("--quick", action="store_true", help="small sizes, under half a minute each: shows that it runs")
    add("--device", default="cpu", help="cpu (default) or cuda")
    add("--out", type=Path, default=Path("benchmarks"), help="folder for NAME-DEVICE.json (default: benchmarks)")
    add("--denoiser", help="light, drunet or a weight file (default: drunet on a GPU where it is there, else light)")
    add("--data", type=Path, help="COCO folder, or a dataset stored by the experiments, for the pictures")
    given = parser.parse_args(arguments)
    try:
        options = Options(_device(given.device), given.quick, given.denoiser, given.data)
        _make_folder(given.out)
        crowd = busy()
        for name in BENCHMARKS if given.benchmark == "all" else (given.benchmark,):
            report: Report = import_module(f"pnpladmm.workshop.bench.{name}").run(options)
            if crowd is not None:
                report.notes.append(crowd)
            report.show()
            print(f"written: {report.write(given.out, options)}", flush=True)
    except InputError as error:
        print(f"pnpladmm: {error}", file=sys.stderr)
        return 2
    return 0


def _make_folder(folder: Path) -> None:
    """Before anything is measured: minutes of work must find a place to be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {folder}: {error.strerror or error}") from None


def _device(text: str) -> torch.device:
    try:
        device = torch.device(text)
    except RuntimeError:
        raise InputError(f"--device {text}: give cpu or cuda") from None
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"--device {text}: give cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"--device {text}: torch finds no such GPU here")
    return device


if __name__ == "__main__":
    keep_memory()
    sys.exit(main())
