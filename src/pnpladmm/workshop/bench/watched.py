"""`python -m pnpladmm.workshop.bench.watched FILE`: the jobs of a file, their time, and the peak of the GPU."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch

from pnpladmm.allocator import keep_memory
from pnpladmm.jobs import Failure, Job, Outcome, run_jobs
from pnpladmm.tensors import InputError


def timed(jobs: list[Job], runs: int) -> dict[str, Any]:
    """Seconds of the last of so many runs, and what the jobs said of seams."""
    for _ in range(runs):
        for job in jobs:
            _remove(Path(job.output))
            _remove(Path(f"{job.output}.job.json"))
        began, cores = time.perf_counter(), _core_seconds()
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
    print(json.dumps(timed([Job(**job) for job in order["jobs"]], order["runs"])))
