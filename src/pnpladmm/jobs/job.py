"""What a job is."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pnpladmm.gate import LONGEST_TEXT, exists, shown
from pnpladmm.operators import Boundary
from pnpladmm.pictures.selection import without_selection
from pnpladmm.restoration import Options
from pnpladmm.tensors import InputError

FILES = ("picture", "blur", "mask", "variance", "labels", "positions", "denoiser", "target_psf")
"""Fields of a job that name files it reads; a denoiser may be a name instead."""
OPEN = ("mask", "variance", "labels", "positions", "denoiser", "target_psf")
"""Those of them that may be left out."""
NOT_OPTIONS = ("picture", "blur", "output", "psf_scale", "report", "keep_interrupted", "workers", "scheduler")
"""Fields that are no settings of a restoration."""
FOR_BLUR_AND_MAPS = ("mask", "variance", "labels", "positions", "psf_scale", "target_psf")
"""Fields that `restore_with` takes beside the options."""


@dataclass(frozen=True)
class Job:
    """All that decides what a run of `pnpladmm restore` writes.

    The fields are the parameters of `restore`; `noise` is on the 0-255 scale.
    """

    picture: str
    blur: str
    output: str
    noise: float | Literal["auto"] = "auto"
    method: str = "auto"
    denoiser: str | None = None
    iterations: int | None = None
    certify: int = 0
    strength: float = 1.0
    boundary: Boundary = "unknown"
    mask: str | None = None
    saturation: bool = True
    gain: float | None = None
    electrons_per_count: float | None = None
    background: float = 0.0
    variance: str | None = None
    linear: bool = False
    labels: str | None = None
    positions: str | None = None
    psf_scale: float | None = None
    target_psf: str | None = None
    device: str | None = None
    memory: int | float | str | None = None
    tiles: int | None = None
    workers: int | None = None
    scheduler: str | None = None
    report: bool = False
    keep_interrupted: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that no picture could use; files are looked at when the job runs."""
        for name in ("picture", "blur", "output", *FILES):
            value = getattr(self, name)
            if not ((isinstance(value, str) and len(value) <= LONGEST_TEXT) or (value is None and name in OPEN)):
                raise InputError(f"{name} = {shown(value)}: give the name of a file")
        for name in ("report", "keep_interrupted"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} = {shown(getattr(self, name))}: give true or false")
        self.options()

    def options(self) -> Options:
        """The settings of `restore`, checked on the job's own scale of the noise."""
        names = [f.name for f in dataclasses.fields(self) if f.name not in NOT_OPTIONS]
        values = {name: getattr(self, name) for name in names if name not in FILES or name == "denoiser"}
        return Options(**values, noise_white=255.0, has_variance=self.variance is not None)

    def files(self) -> dict[str, str]:
        """The files that it reads, by the names of its fields; of "a.mat#3" and "a.fits[SCI,1]" the file itself."""
        found = {name: getattr(self, name) for name in FILES if is_file(name, getattr(self, name))}
        return {name: _without_number(path) for name, path in found.items()}


def is_file(name: str, value: str | None) -> bool:
    """Does this field hold a path? A denoiser may be a name instead."""
    return value is not None and (name != "denoiser" or bool(Path(value).suffix))


def _without_number(path: str) -> str:
    path = str(without_selection(path))
    return path.rpartition("#")[0] if "#" in path and not exists(Path(path)) else path
