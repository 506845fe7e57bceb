"""`python -m pnpladmm.workshop.bench.watched FILE`: the jobs of a file, their time, and the peak of the GPU."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from pnpladmm.allocator import keep_memory
from pnpladmm.files import replacing
from pnpladmm.jobs import Failure, Job, Outcome, run_jobs
from pnpladmm.tensors import InputError

EVERY = 1.0
"""Seconds between two entries of the log."""


def timed(jobs: list[Job], runs: int, log: Path) -> dict[str, Any]:
    """Seconds of the last of so many runs, and what the jobs said of seams. A single run goes on from one before."""
    for _ in range(runs):
        for job in jobs if runs > 1 else ():
            _remove(Path(job.output))
            _remove(Path(f"{job.output}.job.json"))
        began, cores = time.perf_counter(), _core_seconds()
        with _logged(log, began):
            found = list(run_jobs(jobs))
        seconds, cores = time.perf_counter() - began, _core_seconds() - cores
    failed = next((one for one in found if isinstance(one, Failure)), None)
    if failed is not None:
        raise InputError(failed.error)
    notes = " ".join(note for one in found if isinstance(one, Outcome) for note in one.notes)
    seams = re.search(r"seams: at most ([0-9.e+]+)", notes)
    gpu = torch.cuda.max_memory_reserved() if torch.cuda.is_available() else 0
    stated = f"{seams[1]} of 255" if seams else "-"
    return {"seconds": seconds, "core_seconds": cores, "gpu_bytes": gpu, "seams": stated}


@contextmanager
def _logged(log: Path, began: float) -> Iterator[None]:
    """Write the time and the peak so far again and again, for the case that the process is killed."""
    done, before = threading.Event(), _core_seconds()

    def write() -> None:
        while not done.wait(EVERY):
            peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
            entry = {
                "seconds": time.perf_counter() - began, "core_seconds": _core_seconds() - before,
                "peak_bytes": max(peaks) * (1 if sys.platform == "darwin" else 1024),
            }  # fmt: skip
            with replacing(log, durable=False) as beside:
                beside.write_text(json.dumps(entry))

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _core_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    keep_memory()
    order = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps(timed([Job(**job) for job in order["jobs"]], order["runs"], Path(order["log"]))))
