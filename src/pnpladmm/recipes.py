"""What decides a restored file, and the recipe beside it that repeats it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from pnpladmm.denoisers import check_denoiser
from pnpladmm.methods import METHODS
from pnpladmm.operators import Boundary
from pnpladmm.operators.boundary import check_boundary
from pnpladmm.report import write_text
from pnpladmm.tensors import InputError, check_positive

FILES = ("picture", "blur", "mask", "variance", "labels", "positions", "denoiser")
"""Fields of a job that name files it reads; a denoiser may be a name instead."""


@dataclass(frozen=True)
class Job:
    """All that decides what `restore` writes. Numbers are in the file's units, `noise` on the 0-255 scale."""

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
    device: str | None = None
    report: bool = False
    keep_interrupted: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that no picture could use; files are looked at when the job runs."""
        if self.method not in METHODS:
            raise InputError(f"method {self.method!r}: choose one of {', '.join(METHODS)}")
        check_boundary(self.boundary)
        check_denoiser(self.denoiser)
        check_positive("strength", self.strength)
        check_device(self.device)
        if self.noise != "auto":
            check_positive("noise", self.noise)
            if self.gain is not None or self.variance is not None:
                raise InputError(f"noise = {self.noise} beside a gain or a variance map: they say it all, leave it out")
        if self.gain is not None and (self.variance is not None or self.linear):
            raise InputError("a gain goes with neither a variance map nor linear light: counts are linear already")
        if self.gain is not None:
            check_positive("gain", self.gain)
        elif self.background:
            raise InputError(f"background = {self.background}: it needs a gain, what one count adds to a pixel")
        if self.iterations is not None and self.iterations < (2 if self.method == "fast" else 1):
            raise InputError(f"iterations = {self.iterations}: fast needs 2 or more, the others 1")


def check_device(device: str | None) -> None:
    """Refuse a device that does not exist here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise InputError(f"device {device!r}: it is not there; give cpu, or cuda where there is a GPU") from None


def file_hashes(job: Job) -> dict[str, str]:
    """SHA-256 of every file that the job reads, also those that a recipe of regions names."""
    hashes = {}
    for name in FILES:
        path = getattr(job, name)
        if path is None or not _is_file(name, path):
            continue
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
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _named_files(recipe: Path) -> list[str]:
    """Strings in a YAML recipe that are files beside it."""
    import yaml

    try:
        waiting = [yaml.safe_load(recipe.read_text(encoding="utf-8"))]
    except (yaml.YAMLError, UnicodeDecodeError):
        return []  # the reader will say what is wrong with it
    found = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value
        elif isinstance(value, str) and (recipe.parent / value).is_file():
            found.add(value)
    return sorted(found)


def recipe_path(output: str) -> Path:
    """Where the recipe of an output lies: beside it."""
    return Path(f"{output}.recipe.json")


def write_recipe(job: Job, hashes: dict[str, str]) -> None:
    """Settings, versions and hashes, with paths relative to the recipe, so that the folder can move."""
    from pnpladmm import __version__

    path = recipe_path(job.output)
    settings = dataclasses.asdict(job)
    for name in (*FILES, "output"):
        if settings[name] is not None and _is_file(name, settings[name]):
            settings[name] = os.path.relpath(settings[name], path.parent)
    versions = {"pnpladmm": __version__, "torch": torch.__version__, "python": platform.python_version()}
    write_text(path, json.dumps({"job": settings, "sha256": hashes, "versions": versions}, indent=1) + "\n")


def read_recipe(path: Path) -> Job:
    """The job of a recipe, if its files are still what they were."""
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
        raise InputError(f"{path}: not a recipe that restore wrote ({type(error).__name__}: {error})") from None
    found = file_hashes(job)
    for name, digest in hashes.items():
        if found.get(name) != digest:
            changed = getattr(job, name, name)
            raise InputError(f"{path}: {changed} is not the file it was when the recipe was written")
    return job
