"""Job files, and the files that a job reads and writes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from pnpladmm.files import write_text
from pnpladmm.gate import parse_json, read_text, shown, yaml_events
from pnpladmm.jobs.job import FILES, Job, is_file
from pnpladmm.locks import check_inside, check_regular
from pnpladmm.tensors import InputError

LARGEST = 1 << 16
"""Bytes of the largest job file and of the largest YAML blur file whose files are looked for."""
COMPANIONS = (".csv", ".labels.png", ".labels.npy")
"""What a reader takes from beside a stack of kernels."""


def job_path(output: str) -> Path:
    """Where the job file of an output lies: beside it."""
    return Path(f"{output}.job.json")


def inputs_of(job: Job) -> list[str]:
    """Every file that a job reads, if it is there."""
    blur = Path(job.files()["blur"])
    beside = [blur.with_suffix(""), blur]
    others = [f"{one}{suffix}" for one in beside for suffix in COMPANIONS]
    return [*job.files().values(), *(str(blur.parent / name) for name in _named_files(blur)), *others]


def outputs_of(job: Job) -> list[str]:
    """Every file that a job writes."""
    found = [job.output, str(job_path(job.output))]
    if job.report:
        names = ("report.html", "report.json", "before.png", "after.png", "blur.png")
        found += [f"{job.output}.report/{name}" for name in names]
    return found


def write_job(job: Job, hashes: dict[str, str], complete: bool = True) -> None:
    """Settings, versions and hashes, with paths relative to the job file, so that the folder can move.

    A run that was interrupted is not `complete`: it is not skipped the next time.
    """
    from pnpladmm import __version__

    path = job_path(job.output)
    settings = dataclasses.asdict(job)
    for name in (*FILES, "output"):
        if is_file(name, settings[name]):
            settings[name] = os.path.relpath(settings[name], path.parent)
    versions = {"pnpladmm": __version__, "torch": torch.__version__, "python": platform.python_version()}
    content = {"job": settings, "sha256": hashes, "versions": versions, "complete": complete}
    write_text(path, json.dumps(content, indent=1) + "\n")


def was_done(job: Job) -> bool:
    """Did an earlier run write this output from the same files with the same settings, to its end?"""
    path = job_path(job.output)
    try:
        if not (Path(job.output).is_file() and path.is_file()):
            return False
        settings, hashes, complete = _read(path)
        known = Job(**settings)
        same = (asdict_without_engine(known), hashes) == (asdict_without_engine(job), file_hashes(job))
        return complete and same and path.stat().st_mtime_ns >= Path(job.output).stat().st_mtime_ns
    except (OSError, InputError, ValueError, KeyError, TypeError, RecursionError):
        return False


def asdict_without_engine(job: Job) -> dict[str, Any]:
    """The settings that decide the pixels, with plain paths."""
    settings = dataclasses.asdict(dataclasses.replace(job, workers=None, scheduler=None, keep_interrupted=False))
    for name in (*FILES, "output"):
        if is_file(name, settings[name]):
            settings[name] = os.path.abspath(settings[name])
    return settings


def read_job(path: Path, trust: bool = False) -> Job:
    """The job of a job file, if the files it reads are still what they were.

    Without `trust` it may neither read nor write outside the folder of the job file: it may come from a stranger.
    """
    try:
        settings, hashes, _ = _read(path)
        job = Job(**settings)
        if not trust:
            for name in (*job.files().values(), job.output):
                advice = "give --trust if you know who wrote it, or copy the file there"
                check_inside(name, path.parent, f"{path}", advice)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except InputError as error:
        raise InputError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: not a job file that restore wrote ({type(error).__name__}: {error})") from None
    for name, digest in file_hashes(job).items():
        if hashes.get(name) != digest:
            changed = getattr(job, name, name)
            raise InputError(f"{path}: {changed} is not the file it was when the job file was written")
    return job


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """Settings with paths that start where we are, hashes, and whether the run came to its end."""
    what = "a job file that restore wrote"
    content = parse_json(str(path), read_text(path, LARGEST, what), what)
    settings, hashes = dict(content["job"]), dict(content["sha256"])
    if unknown := set(settings) - {f.name for f in dataclasses.fields(Job)}:
        raise InputError(f"{path}: unknown setting {shown(sorted(unknown)[0])}")
    for name in (*FILES, "output"):
        if is_file(name, settings.get(name)):
            settings[name] = os.path.normpath(path.parent / settings[name])
    return settings, hashes, bool(content.get("complete", True))


def file_hashes(job: Job) -> dict[str, str]:
    """SHA-256 of every file that the job reads, also of those that a YAML blur file names."""
    hashes = {name: _hash(Path(path)) for name, path in job.files().items()}
    blur = Path(job.files()["blur"])
    return hashes | {f"blur: {inner}": _hash(blur.parent / inner) for inner in _named_files(blur)}


def _hash(path: Path) -> str:
    check_regular(path)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder: give a file") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _named_files(blur_file: Path) -> list[str]:
    """Strings in a YAML blur file that are files beside it; none where its reader will refuse it."""
    if blur_file.suffix.lower() not in (".yaml", ".yml"):
        return []
    try:
        if not blur_file.is_file() or blur_file.stat().st_size > LARGEST:
            return []
        texts = set(_texts(blur_file.read_text(encoding="utf-8")))
        return sorted(text for text in texts if text.isprintable() and (blur_file.parent / text).is_file())
    except (OSError, ValueError, RecursionError):
        return []


def _texts(content: str) -> Iterator[str]:
    """All scalars of a YAML text. Aliases are not followed: a few of them unfold to more than any memory holds."""
    import yaml

    try:
        for event in yaml_events(content):
            if isinstance(event, yaml.ScalarEvent):
                yield event.value
    except (yaml.YAMLError, ValueError):  # its reader will refuse it
        return
