"""A job restores one picture file into another; its file `OUT.job.json` repeats it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from pnpladmm.files import write_text
from pnpladmm.operators import Boundary
from pnpladmm.pictures import check_output, read_picture
from pnpladmm.pictures.selection import without_selection
from pnpladmm.report import summarise_certificate, write_restoration
from pnpladmm.restoration import Options, Restoration
from pnpladmm.restore import restore_with
from pnpladmm.solvers import Status
from pnpladmm.tensors import InputError

FILES = ("picture", "blur", "mask", "variance", "labels", "positions", "denoiser")
"""Fields of a job that name files it reads; a denoiser may be a name instead."""
NOT_OPTIONS = ("picture", "blur", "output", "psf_scale", "report", "keep_interrupted")
"""Fields that are no settings of a restoration."""
FOR_BLUR_AND_MAPS = ("mask", "variance", "labels", "positions", "psf_scale")
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
    method: str = "fast"
    denoiser: str = "light"
    iterations: int | None = None
    certify: int = 0
    strength: float = 1.0
    boundary: Boundary = "unknown"
    mask: str | None = None
    saturation: bool = True
    gain: float | None = None
    background: float = 0.0
    variance: str | None = None
    linear: bool = False
    labels: str | None = None
    positions: str | None = None
    psf_scale: float | None = None
    device: str | None = None
    report: bool = False
    keep_interrupted: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that no picture could use; files are looked at when the job runs."""
        self.options()

    def options(self) -> Options:
        """The settings of `restore`, checked on the job's own scale of the noise."""
        names = [f.name for f in dataclasses.fields(self) if f.name not in NOT_OPTIONS]
        values = {name: getattr(self, name) for name in names if name not in FILES or name == "denoiser"}
        return Options(**values, noise_white=255.0, has_variance=self.variance is not None)


@dataclass(frozen=True)
class Outcome:
    """What became of a job, ready for JSON."""

    picture: str
    output: str
    status: str
    advice: str
    certificate: dict[str, Any]
    noise: float
    """Assumed, of 255; of the noisiest page."""
    iterations: int
    seconds: float
    residual: list[dict[str, float]]
    """For each page its size relative to the noise, and the correlation of neighbours."""
    warnings: list[str]
    notes: list[str]


class Interrupted(Exception):
    """Ctrl-C, and nobody asked to keep the picture so far."""


def run_job(job: Job, progress: bool = False) -> Outcome:
    """Restore one file, and write the picture, its job file and, if asked, its report."""
    picture = read_picture(job.picture)
    if Path(job.output).exists() and Path(job.output).samefile(without_selection(job.picture)):
        raise InputError(f"{job.output}: the output would overwrite the picture; give another name")
    check_output(job.output, picture)
    hashes = file_hashes(job)
    maps = {name: getattr(job, name) for name in FOR_BLUR_AND_MAPS}
    restored = restore_with(job.options(), picture, job.blur, **maps, progress=progress)
    if restored.status is Status.STOPPED and not job.keep_interrupted:
        raise Interrupted
    written = restored.save(job.output)
    write_job(job, hashes)
    if job.report:
        write_restoration(Path(f"{job.output}.report"), restored, Path(job.picture).name, dataclasses.asdict(job))
    return _outcome(job, restored, written.notes)


def _outcome(job: Job, restored: Restoration, notes: tuple[str, ...]) -> Outcome:
    history, levels = restored.history, restored.noise[torch.isfinite(restored.noise)]
    return Outcome(
        picture=job.picture,
        output=job.output,
        status=restored.status.label,
        advice=restored.status.advice,
        certificate=summarise_certificate(restored.certificate),
        noise=round(255 * float(levels.max()), 4),
        iterations=len(history),
        seconds=round(float(history.seconds[-1]), 2) if len(history) else 0.0,
        residual=[{"size": round(c.size, 4), "correlation": round(c.correlation, 4)} for c in restored.checks],
        warnings=list(restored.warnings),
        notes=[*restored.notes, *notes],
    )


def job_path(output: str) -> Path:
    """Where the job file of an output lies: beside it."""
    return Path(f"{output}.job.json")


def write_job(job: Job, hashes: dict[str, str]) -> None:
    """Settings, versions and hashes, with paths relative to the job file, so that the folder can move."""
    from pnpladmm import __version__

    path = job_path(job.output)
    settings = dataclasses.asdict(job)
    for name in (*FILES, "output"):
        if settings[name] is not None and _is_file(name, settings[name]):
            settings[name] = os.path.relpath(settings[name], path.parent)
    versions = {"pnpladmm": __version__, "torch": torch.__version__, "python": platform.python_version()}
    write_text(path, json.dumps({"job": settings, "sha256": hashes, "versions": versions}, indent=1) + "\n")


def read_job(path: Path) -> Job:
    """The job of a job file, if the files it reads are still what they were."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        settings, hashes = dict(content["job"]), dict(content["sha256"])
        known = {f.name for f in dataclasses.fields(Job)}
        if unknown := set(settings) - known:
            raise InputError(f"{path}: unknown setting {sorted(unknown)[0]!r}")
        for name in (*FILES, "output"):
            if settings.get(name) is not None and _is_file(name, settings[name]):
                settings[name] = os.path.normpath(path.parent / settings[name])
        job = Job(**settings)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except InputError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a job file that restore wrote ({type(error).__name__}: {error})") from None
    found = file_hashes(job)
    for name, digest in hashes.items():
        if found.get(name) != digest:
            changed = getattr(job, name, name)
            raise InputError(f"{path}: {changed} is not the file it was when the job file was written")
    return job


def file_hashes(job: Job) -> dict[str, str]:
    """SHA-256 of every file that the job reads, also of those that a YAML blur file names."""
    hashes = {}
    for name in FILES:
        path = getattr(job, name)
        if path is None or not _is_file(name, path):
            continue
        path = str(without_selection(path))  # "frame.fits[SCI,1]": an extension
        if not Path(path).exists() and "#" in path:  # "bank.mat#3": kernel 3 of a bank
            path = path.rpartition("#")[0]
        hashes[name] = _hash(Path(path))
        if name == "blur" and Path(path).suffix.lower() in (".yaml", ".yml"):
            hashes |= {f"blur: {inner}": _hash(Path(path).parent / inner) for inner in _named_files(Path(path))}
    return hashes


def _is_file(name: str, value: str) -> bool:
    """Does this field hold a path? A denoiser may be a name instead."""
    return name != "denoiser" or bool(Path(value).suffix)


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder: give a file") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _named_files(blur_file: Path) -> list[str]:
    """Strings in a YAML blur file that are files beside it."""
    import yaml

    try:
        waiting = [yaml.safe_load(blur_file.read_text(encoding="utf-8"))]
    except (yaml.YAMLError, UnicodeDecodeError):
        return []  # the reader will say what is wrong with it
    found = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value
        elif isinstance(value, str) and (blur_file.parent / value).is_file():
            found.add(value)
    return sorted(found)
