"""What the tests of the benchmarks share."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pnpladmm.denoisers.drunet import DRUNet
from pnpladmm.workshop.bench import (
    report,
    timing,
)

CPU = torch.device("cpu")


QUICK = report.Options(CPU, quick=True)


def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only moves when a test moves it."""
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    return now


def tiny_drunet(tmp_path: Path) -> Path:
    network = DRUNet(3, (8, 8, 16, 16), 2)
    network.initialise()
    path = tmp_path / "tiny.safetensors"
    save_file(network.state_dict(), path)
    return path
