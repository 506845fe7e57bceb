"""The job of a run, and the command line that repeats it."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

from pnpladmm.jobs import Job
from pnpladmm.web.sketch import Settings


def job_of(picture: Path, blur: Path, output: Path, settings: Settings) -> dict[str, Any]:
    """The fields of the job that `pnpladmm restore` would make."""
    job = Job(picture=str(picture), blur=str(blur), output=str(output), **settings.options())
    return dataclasses.asdict(job)


def command_line(job: dict[str, Any]) -> str:
    """`pnpladmm restore` with every option that is not as usual.

    >>> command_line({"picture": "a b.png", "blur": "b.yaml", "output": "c.png", "noise": 5.0, "linear": True})
    "pnpladmm restore 'a b.png' --blur b.yaml --out c.png --noise 5 --linear"
    """
    words = ["pnpladmm", "restore", job["picture"], "--blur", job["blur"], "--out", job["output"]]
    for field in dataclasses.fields(Job):
        value = job.get(field.name, field.default)
        if field.name in ("picture", "blur", "output", "keep_interrupted") or value == field.default:
            continue
        option = f"--{field.name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(option if value else f"--no-{field.name}")
        else:
            words += [option, f"{value:.10g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)
