"""A process that is measured, and goes on later where it was stopped: its times are those of all pieces together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeAlias

from pnpladmm.tensors import InputError

Cores: TypeAlias = tuple[int, ...] | None
"""The cores that a process may use; None: all."""
SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def groups_of_cores(count: int) -> list[Cores]:
    """The cores of this machine in groups; of those that share their arithmetic units only the first one is used."""
    if not hasattr(os, "sched_getaffinity"):
        return [None]
    allowed = sorted(os.sched_getaffinity(0))
    alone: dict[str, int] = {}
    for core in allowed:
        path = Path(SIBLINGS.format(core))
        alone.setdefault(path.read_text() if path.is_file() else str(core), core)
    cores = list(alone.values()) if len(alone) >= count else allowed
    groups: list[Cores] = [tuple(cores[i : i + count]) for i in range(0, len(cores) - count + 1, count)]
    return groups or [None]


def run_in_pieces(folder: Path, order: dict[str, Any], cores: Cores, threads: int | None) -> dict[str, Any]:
    """What `watched.py` measured of an order; seconds, and the largest peaks, of this piece and of those before it.

    Where the clock of a killed piece stood is known to a second. The tile that it was at counts twice.
    """
    before = [json.loads(path.read_text()) for path in sorted(folder.glob("piece-*.json"))]
    place = folder / "order.json"
    place.write_text(json.dumps({**order, "log": str(folder / f"piece-{len(before)}.json")}))
    command = [sys.executable, "-m", "pnpladmm.workshop.bench.watched", str(place)]
    environment = os.environ | ({} if threads is None else {"OMP_NUM_THREADS": str(threads)})
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=environment)
        if cores is not None:  # its threads start later
            os.sched_setaffinity(process.pid, cores)
        _, status, used = os.wait4(process.pid, 0)
        said.seek(0)
        lines = said.read().strip().splitlines() or ["no message"]
    if status != 0:
        raise InputError(f"measuring failed: {lines[-1]}")
    found: dict[str, Any] = json.loads(lines[-1])
    found["peak_bytes"] = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    for name in ("seconds", "core_seconds"):
        found[name] += sum(one[name] for one in before)
    found["peak_bytes"] = max(found["peak_bytes"], *(one["peak_bytes"] for one in before), 0)
    return {**found, "pieces": len(before) + 1}
