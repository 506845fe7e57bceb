"""Timing: rivals take turns, short calls are repeated, GPUs are waited for."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import torch

Run: TypeAlias = Callable[[], object]
Name = TypeVar("Name", bound=Hashable)

SAMPLE_SECONDS = 0.01
"""The least duration of a sample: shorter calls are repeated within it."""


@dataclass(frozen=True)
class Timing:
    """Seconds of one call, one value per sample."""

    samples: tuple[float, ...]

    @property
    def best(self) -> float:
        """The sample that was disturbed least."""
        return min(self.samples)

    @property
    def median(self) -> float:
        """The middle of the samples."""
        return statistics.median(self.samples)

    def as_json(self) -> dict[str, Any]:
        """Best, median and the number of samples."""
        return {"best": self.best, "median": self.median, "samples": len(self.samples)}


def synchronise(device: torch.device) -> None:
    """Wait until a GPU has finished; nothing on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(run: Run, device: torch.device, calls: int = 1) -> float:
    """Seconds per call, measured over `calls` of them, with an idle device before and after."""
    synchronise(device)
    start = time.perf_counter()
    for _ in range(calls):
        run()
    synchronise(device)
    return (time.perf_counter() - start) / calls


def take_turns(
    runs: Mapping[Name, Run], device: torch.device, samples: int = 7, least: int = 3, budget: float = 5.0
) -> dict[Name, Timing]:
    """Time rivals in turn, one sample each per round, so that a disturbance affects all of them.

    The first call of each warms up and is not counted, unless it takes longer than `budget` seconds: then warming up
    makes no difference. A rival is finished after `samples` samples, or after `least` samples and `budget` seconds.
    """
    calls: dict[Name, int] = {}
    taken: dict[Name, list[float]] = {name: [] for name in runs}
    spent = dict.fromkeys(runs, 0.0)
    for name, run in runs.items():
        first = seconds_of(run, device)  # compiles, fills caches, chooses algorithms
        usual = first if first > 10 * SAMPLE_SECONDS else seconds_of(run, device)
        calls[name] = max(1, math.ceil(SAMPLE_SECONDS / max(usual, 1e-7)))
        if first > budget:
            taken[name].append(first)
            spent[name] = first
    for _ in range(samples):
        for name, run in runs.items():
            if len(taken[name]) >= (least if spent[name] > budget else samples):
                continue
            seconds = seconds_of(run, device, calls[name])
            taken[name].append(seconds)
            spent[name] += seconds * calls[name]
    return {name: Timing(tuple(values)) for name, values in taken.items()}
