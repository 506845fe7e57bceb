"""`python -m pnpladmm.workshop.bench.memory JSON`: one restoration in a process of its own, and the memory it took."""

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
from pnpladmm.workshop.bench.instruments import run_bare
from pnpladmm.workshop.bench.scenes import make_problem, noise_of

NOISE = 10 / 255
PROCESS = Path("/proc/self")


def peak_of(order: dict[str, Any]) -> int:
    """Bytes at the peak, less those held after a tiny run of the same kind."""
    denoiser = load_denoiser(order["denoiser"])

    def restore(size: int, pictures: int, kernels: int) -> None:
        problem, _ = make_problem(
            (size, size),
            kernels,
            NOISE,
            torch.device("cpu"),
            pictures=pictures,
            weights=order["weights"],
            side=min(33, size - 1),
        )
        run_bare(problem, make_method("fast", denoiser, problem, noise_of(problem), calls=2))

    restore(40, 1, 2)  # imports, network and thread pools are in place after it
    before = _reset()
    restore(order["size"], order["pictures"], order["kernels"])
    return max(0, _peak() - before)


def _reset() -> int:
    """What the process holds now, its peak forgotten; its peak so far where only that can be had."""
    try:
        (PROCESS / "clear_refs").write_text("5")  # Linux: the peak starts again from what is held
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
    """Bytes, as Linux tells them in kilobytes."""
    lines = (PROCESS / "status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    keep_memory()
    print(json.dumps({"peak_bytes": peak_of(json.loads(sys.argv[1]))}))
