"""The picture as it becomes sharp: after an iteration, how far the run is and a small copy of the picture."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pnpladmm.files import write_bytes
from pnpladmm.jobs import Job
from pnpladmm.solvers import Progress
from pnpladmm.web.pyramid import Shades, png, shown

SIDE = 1024
"""Pixels of the longer side of the small copy, at most."""
EVERY = 0.4
"""Seconds between two copies."""
FAST_CALLS = 8


class Watcher:
    """The callback of a run."""

    def __init__(self, send: Callable[[dict[str, Any]], None], folder: Path, job: Job, shades: Shades, size: list[int]):
        self._send, self._path, self._shades = send, folder / "live.png", shades
        self._height, self._width, pages = size
        self._total = ((job.iterations or FAST_CALLS) + job.certify) * pages
        self._linear, self._done, self._written = job.linear, 0, 0.0

    def __call__(self, progress: Progress) -> None:
        """Tell the server; the run is never stopped from here."""
        self._done += 1
        message: dict[str, Any] = {"step": self._done, "steps": max(self._total * progress.tiles, self._done)}
        if progress.tiles > 1:  # the picture is not whole before the last one
            message |= {"tile": progress.tile + 1, "tiles": progress.tiles}
        elif time.monotonic() - self._written > EVERY:
            write_bytes(self._path, png(self._small(progress.state.x)))
            self._written = time.monotonic()
            message["live"] = self._done
        self._send(message)

    def _small(self, x: torch.Tensor) -> Any:
        """The first picture without the border that an unknown boundary adds, at most `SIDE` pixels long."""
        left, top = (x.shape[-1] - self._width) // 2, (x.shape[-2] - self._height) // 2
        inner = x[:1, :, top : top + self._height, left : left + self._width].float()
        step = -(-max(self._width, self._height) // SIDE)
        small = torch.nn.functional.avg_pool2d(inner, step, ceil_mode=True)[0].cpu()
        if self._linear:  # near enough to sRGB for a glance
            small = small.clamp(0, 1) ** (1 / 2.2)
        return shown(small.numpy(), "channels", self._shades)
