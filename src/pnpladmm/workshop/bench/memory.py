"""`python -m pnpladmm.workshop.bench.memory JSON`: one restoration in its own process, and the memory it needed."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

import torch

from pnpladmm.allocator import keep_memory
from pnpladmm.denoisers import load_denoiser
from pnpladmm.solvers.registry import make_method
from pnpladmm.workshop.bench.inputs import make_problem, noise_of
from pnpladmm.workshop.bench.instruments import run_bare

NOISE = 10 / 255
PROCESS = Path("/proc/self")


def peak_of(case: dict[str, Any]) -> int:
    """Bytes at the peak of a run, minus those held after a tiny run of the same kind."""
    denoiser = load_denoiser(case["denoiser"])

    def restore(size: int, pictures: int, kernels: int) -> None:
        problem, _ = make_problem(
            (size, size),
            kernels,
            NOISE,
            torch.device("cpu"),
            pictures=pictures,
            weights=case["weights"],
            side=min(33, size - 1),
        )
        run_bare(problem, make_method("fast", denoiser, problem, noise_of(problem), calls=2))

    restore(40, 1, 2)  # loads modules, network and thread pools
    before = _reset()
    restore(case["size"], case["pictures"], case["kernels"])
    return max(0, _peak() - before)


def _reset() -> int:
    """Bytes that the process holds now, after its peak was reset; its peak so far where it cannot be reset."""
    try:
        (PROCESS / "clear_refs").write_text("5")  # Linux: resets the peak
        return _status("VmRSS")
    except OSError:
        return _peak()


def _peak() -> int:
    try:
        return _status("VmHWM")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


def _status(name: str) -> int:
    """Bytes, from a line of Linux in kilobytes."""
    lines = (PROCESS / "status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    keep_memory()
    print(json.dumps({"peak_bytes": peak_of(json.loads(sys.argv[1]))}))
