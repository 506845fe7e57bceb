"""Jobs on pictures that are read and written in parts."""

from __future__ import annotations

import time
from pathlib import Path

from pnpladmm.jobs.job import Job
from pnpladmm.restoration.network_choice import network_of_kind
from pnpladmm.restoration.options import AUTO, USUAL
from pnpladmm.scale import Large, Settings, has_parts, is_zarr, restore_large
from pnpladmm.scale.done import Tell
from pnpladmm.scale.run import METHODS
from pnpladmm.tensors import InputError
from pnpladmm.tiling import read_size

FROM_BYTES = 1 << 29
"""Files of more bytes than this are read in parts, where their format can be."""
DEFAULTS = {
    "certify": 0, "boundary": "unknown", "mask": None, "gain": None, "electrons_per_count": None,
    "background": 0.0, "variance": None, "linear": False, "labels": None, "positions": None, "psf_scale": None,
    "target_psf": None,
    "report": False,
}  # fmt: skip
"""What else `restore` can do needs the whole picture."""


def is_large(job: Job) -> bool:
    """Is it a job for parts: a zarr folder in or out, workers for a single file, or a file that is too large?"""
    path = Path(job.picture)
    if is_zarr(path) or Path(job.output).suffix.lower() == ".zarr":
        return True
    if not path.is_file() or not has_parts(path):
        return False
    return bool(job.workers or job.scheduler) or path.stat().st_size > FROM_BYTES


def run_large(job: Job, tell: Tell | None = None) -> Large:
    """Restore a picture in parts."""
    other = next((name for name, usual in DEFAULTS.items() if getattr(job, name) != usual), None)
    if other is not None:
        raise InputError(f"{job.picture}: {other.replace('_', '-')} needs the whole picture in memory: leave it out")
    method = job.method.lower()
    method = USUAL if method == AUTO else method
    if method not in METHODS:
        raise InputError(f"{job.picture}: method {job.method} needs the whole picture: in parts, {', '.join(METHODS)}")
    noise = None if job.noise == "auto" else float(job.noise) / 255
    denoiser = job.denoiser or network_of_kind(method == USUAL)
    settings = Settings(
        job.picture, job.blur, noise, denoiser, job.iterations, job.strength, job.saturation, job.device, method
    )
    memory = None if job.memory is None else read_size(job.memory)
    return restore_large(settings, job.output, job.tiles, job.workers or 1, job.scheduler, tell, memory)


class TilesBar:
    """Tiles done, pixels a second and the time left, on stderr."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        words = TextColumn("{task.description}")
        rate = TextColumn("{task.fields[rate]}")
        self._bars = Progress(words, BarColumn(), rate, TimeRemainingColumn(), console=Console(stderr=True))
        self._task = self._bars.add_task(name, total=None, rate="")
        self._name, self._began = name, time.perf_counter()

    def __call__(self, done: int, total: int, rate: float) -> None:
        """Show that `done` of `total` tiles are there, at `rate` pixels a second."""
        self._bars.start()
        words = f"{self._name}, tile {done} of {total}"
        self._bars.update(self._task, description=words, completed=done, total=total, rate=f"{rate / 1e6:.3g} MP/s")

    def stop(self) -> None:
        """Leave the terminal as it was."""
        if self._bars.live.is_started:
            self._bars.stop()
