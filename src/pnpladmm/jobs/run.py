"""Runs jobs, and catches whatever goes wrong in one of them."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pnpladmm.files import check_writable
from pnpladmm.jobs.files import file_hashes, inputs_of, outputs_of, was_done, write_job
from pnpladmm.jobs.job import FOR_BLUR_AND_MAPS, Job
from pnpladmm.jobs.large import TilesBar, is_large, run_large
from pnpladmm.locks import check_apart, check_regular, only_writer_of, remove_left_lock
from pnpladmm.pictures import Picture, check_output, read_picture
from pnpladmm.report import summarise_certificate, write_restoration
from pnpladmm.restoration import NoiseModel, Restoration
from pnpladmm.restoration.policy import unit_of
from pnpladmm.restore import restore_with
from pnpladmm.scale.engine import open_engine
from pnpladmm.solvers import Status
from pnpladmm.solvers.loop import Callback
from pnpladmm.tensors import InputError, is_out_of_memory, one_line


@dataclass(frozen=True)
class Outcome:
    """What became of a job, ready for JSON."""

    picture: str
    output: str
    status: str
    advice: str
    certificate: dict[str, Any]
    noise: float
    """Assumed, of 255, as the methods saw it; of the noisiest page."""
    noise_words: str
    """The same with its parts, in the numbers of the picture where those go beyond [0, 1]."""
    iterations: int
    seconds: float
    residual: list[dict[str, float]]
    """For each page its size relative to the noise, and the correlation of neighbours."""
    warnings: list[str]
    notes: list[str]


class Interrupted(Exception):
    """Ctrl-C, and there is no picture so far, or nobody asked to keep it."""


@dataclass(frozen=True)
class Failure:
    """A job that failed, ready for JSON."""

    picture: str
    error: str
    """One line."""


@dataclass(frozen=True)
class Skipped:
    """A job that an earlier run has done, ready for JSON: nothing has changed since."""

    picture: str
    output: str


def run_jobs(jobs: Sequence[Job], progress: bool = False) -> Iterator[Outcome | Failure | Skipped]:
    """Run jobs one after the other, or side by side if they have `workers` or a `scheduler`.

    One that fails, for whatever reason, does not stop the others. Of several, those are skipped that are done and
    unchanged. No output may be an input of any of them. An interrupt without `keep_interrupted` raises `Interrupted`.
    """
    inputs = dict.fromkeys(path for job in jobs for path in inputs_of(job))
    left = []
    for job in jobs:
        if len(jobs) > 1 and was_done(job):
            remove_left_lock(job.output)
            yield Skipped(job.picture, job.output)
        else:
            left.append(job)
    first = jobs[0] if jobs else None
    if first is None or len(left) < 2 or not (first.workers or first.scheduler):
        for job in left:
            yield run_caught(job, tuple(inputs), progress)
        return
    # Each picture is one task: its own tiles are not spread any further.
    alone = [dataclasses.replace(job, workers=None, scheduler=None) for job in left]
    tasks = [(job, tuple(inputs)) for job in alone]
    with open_engine(first.workers or 1, first.scheduler) as engine:
        for _, outcome in engine.run(run_caught, tasks):
            yield outcome


def run_caught(job: Job, inputs: tuple[str, ...], progress: bool = False) -> Outcome | Failure:
    """Run one job of several; what goes wrong is a line, and does not stop the others."""
    try:
        check_apart(outputs_of(job), inputs)
        return run_job(job, progress)
    except Interrupted:
        raise
    except Exception as error:  # the job's boundary: a line, and the next picture
        return Failure(job.picture, one_line(_words(job, error)))


def _words(job: Job, error: Exception) -> str:
    """What went wrong, for people."""
    if isinstance(error, InputError):
        return str(error)
    if is_out_of_memory(error):
        return f"{job.picture}: not enough memory: crop the picture, or close other programs"
    if isinstance(error, OSError):
        return f"{error.filename or job.picture}: {error.strerror or error}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "pnpladmm" in f.filename]
    place = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{job.picture}: a fault of this program: {type(error).__name__}{place}: {error}"


def run_job(job: Job, progress: bool = False, callback: Callback | None = None) -> Outcome:
    """Restore one file, and write the picture, its job file and, if asked, its report."""
    check_apart(outputs_of(job), inputs_of(job))
    for path in job.files().values():
        check_regular(path)
    if is_large(job):
        return _run_in_parts(job, progress)
    picture = read_picture(job.picture)
    check_output(job.output, picture)
    for path in outputs_of(job):
        check_writable(path, least_size(picture, path))
    with only_writer_of(job.output):
        return _run(job, picture, progress, callback)


def _run_in_parts(job: Job, progress: bool) -> Outcome:
    """Restore a picture that is read and written in parts."""
    bar = TilesBar(Path(job.picture).name) if progress else None
    try:
        done = run_large(job, bar)
    except KeyboardInterrupt:
        raise Interrupted from None
    finally:
        if bar is not None:
            bar.stop()
    found, level = done.done, round(255 * done.noise, 4)
    return Outcome(
        picture=job.picture,
        output=job.output,
        status=found.status.label,
        advice=found.status.advice,
        certificate=summarise_certificate(found.certificate),
        noise=level,
        noise_words=f"noise {level:.2f} of 255",
        iterations=found.iterations,
        seconds=round(done.seconds, 2),
        residual=[] if found.residual is None else [_residual(*found.residual)],
        warnings=list(found.warnings),
        notes=list(found.notes),
    )


def _residual(size: float, correlation: float) -> dict[str, float]:
    return {"size": round(size, 4), "correlation": round(correlation, 4)}


def least_size(picture: Picture, path: str) -> int:
    """About the fewest bytes of a written picture, to notice a full disk before the work; 1 MB for other files."""
    stored = picture.pixels.numel() * np.dtype(picture.dtype).itemsize
    packed = Path(path).suffix.lower() not in (".tif", ".tiff", ".npy", ".fits", ".fit")
    return 1 << 20 if path.endswith(".json") else (stored // 20 if packed else stored)


def _run(job: Job, picture: Picture, progress: bool, callback: Callback | None) -> Outcome:
    hashes = file_hashes(job)
    maps = {name: getattr(job, name) for name in FOR_BLUR_AND_MAPS}
    restored = restore_with(job.options(), picture, job.blur, **maps, progress=progress, callback=callback)
    if restored.status is Status.STOPPED and not (job.keep_interrupted and len(restored.history)):
        raise Interrupted  # also where there is no iterate to be kept
    written = restored.save(job.output)
    if job.report:
        write_restoration(Path(f"{job.output}.report"), restored, Path(job.picture).name, dataclasses.asdict(job))
    # The last of the outputs: what it says is complete is so.
    write_job(job, hashes, complete=Status.STOPPED not in restored.statuses)
    return _outcome(job, restored, written.notes)


def _noisiest(restored: Restoration) -> NoiseModel:
    """The noise of the noisiest page; NaN for pages that were not restored."""
    return restored.noise_model.of(int(torch.nan_to_num(restored.noise_model.level, 0.0).argmax()))


def _outcome(job: Job, restored: Restoration, notes: tuple[str, ...]) -> Outcome:
    history, levels = restored.history, restored.noise[torch.isfinite(restored.noise)]
    return Outcome(
        picture=job.picture,
        output=job.output,
        status=restored.status.label,
        advice=restored.status.advice,
        certificate=summarise_certificate(restored.certificate),
        noise=round(255 * float(levels.max()), 4),
        noise_words=_noisiest(restored).words(unit_of(restored.before)),
        iterations=len(history),
        seconds=round(float(history.seconds[-1]), 2) if len(history) else 0.0,
        residual=[_residual(c.size, c.correlation) for c in restored.checks],
        warnings=list(restored.warnings),
        notes=[*restored.notes, *notes],
    )
