"""What the experiments share: the options, the pictures in batches, a timed run, units of work that resume."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pnpladmm.denoisers import Denoiser, check_denoiser, load_denoiser
from pnpladmm.denoisers.shipped import is_installed, weight_file
from pnpladmm.restoration import check_device
from pnpladmm.solvers import Method, Problem, Result, Status, solve
from pnpladmm.solvers.loop import Callback
from pnpladmm.solvers.settings import Row, Table, read_settings, shipped_settings
from pnpladmm.tensors import InputError
from pnpladmm.workshop.experiments.dataset import LARGEST_SIGMA, Dataset, Sample, load_dataset, stack
from pnpladmm.workshop.experiments.progress import Progress
from pnpladmm.workshop.experiments.protocol import Compared, settings_of
from pnpladmm.workshop.experiments.samples import Split, Task
from pnpladmm.workshop.experiments.store import Store, digest, file_digest

NOISE = (1.0, 10.0, 20.0, 40.0)
"""The paper's noise levels, of 255."""
SIZE = 256
QUICK_SIZE = 96
QUICK_COUNT = 2
GPU_BATCH = 60
CPU_BATCH = 4
LOADERS = 4
"""Noise levels whose pictures are made at the same time."""


@dataclass(frozen=True)
class Setup:
    """What every experiment is told, and what follows from it."""

    out: Path
    denoiser_name: str | None = None
    """None: drunet where its weights are there, else light."""
    noise: tuple[float, ...] = NOISE
    data: str | None = None
    """A COCO folder, `embedded`, or None for what there is."""
    count: int | None = None
    device: str | None = None
    """None: the GPU where there is one."""
    precision: torch.dtype | None = None
    """What networks compute in. None: float16 on GPUs (gradient steps: float32), else float32."""
    seed: int = 0
    quick: bool = False
    settings_file: Path | None = None
    batch: int | None = None
    kernels: str = "paper"
    reuse: bool = False
    """Use stored results that other versions of the code made."""
    quiet: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be run before anything is."""
        for noise in self.noise:
            if not 0 < noise <= 255 * LARGEST_SIGMA:
                raise InputError(f"noise {noise:g}: give levels above 0 and up to {255 * LARGEST_SIGMA:g}, of 255")
        if not self.noise:
            raise InputError("no noise level: give one or more, such as 1,10,20,40")
        for name, number in (("count", self.count), ("batch", self.batch)):
            if number is not None and number < 1:
                raise InputError(f"{name} = {number}: give at least 1")
        check_device(self.device)
        check_denoiser(self.chosen_denoiser)
        _ = self.settings

    @cached_property
    def where(self) -> torch.device:
        """The device it runs on."""
        return torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))

    @property
    def machine(self) -> str:
        """The device's name: numbers are the same on one machine, not on all."""
        on_gpu = self.where.type == "cuda"
        name = torch.cuda.get_device_name(self.where) if on_gpu else self.where.type
        return f"{name}, torch {torch.__version__}"

    @property
    def chosen_denoiser(self) -> str:
        """The denoiser's name or file."""
        if self.denoiser_name:
            return self.denoiser_name
        if self.quick:
            return "light"
        return "drunet" if is_installed("drunet") else "light"

    @cached_property
    def denoiser(self) -> Denoiser:
        """Loaded once, onto the device."""
        return load_denoiser(self.chosen_denoiser, str(self.where), self.precision)

    @property
    def denoiser_title(self) -> str:
        """The name the settings know it by."""
        return str(getattr(self.denoiser, "name", self.chosen_denoiser))

    @cached_property
    def denoiser_digest(self) -> str:
        """Of the weights, or of a classical prior's parameters."""
        name = self.chosen_denoiser
        path = weight_file(name)
        return file_digest(path) if path.is_file() else repr(self.denoiser)

    @cached_property
    def settings(self) -> Table:
        """The table given, or the shipped one."""
        return shipped_settings() if self.settings_file is None else read_settings(self.settings_file)

    @cached_property
    def store(self) -> Store:
        """Where units of work are kept."""
        return Store(self.out / "units", self.reuse)

    @property
    def size(self) -> int:
        """Side of a crop."""
        return QUICK_SIZE if self.quick else SIZE

    def row(self, method: Compared, noise: float, task: Task = "deblur") -> Row:
        """A method's settings."""
        return settings_of(self.settings, self.denoiser_title, self.denoiser, method, noise, task)

    def tuned_for(self, methods: Sequence[Compared], task: Task) -> str:
        """The task that the settings in use were tuned for."""
        rows = self.settings.get(self.denoiser_title, {})
        return task if all(f"{method.name}:{task}" in rows for method in methods) else "deblur"

    def samples(self, split: Split, task: Task = "deblur", count: int | None = None) -> dict[float, tuple[Sample, ...]]:
        """Degraded pictures of a split at each noise level; `count` of them unless the user gave a number."""
        folder = self.data or ("embedded" if self.quick else None)
        most = self.count or (QUICK_COUNT if self.quick else count)

        def load(noise: float) -> Dataset:
            return load_dataset(split, noise / 255, task, most, folder, self.seed, self.kernels, self.size)

        # Reading and blurring waits outside of Python most of the time.
        with ThreadPoolExecutor(LOADERS) as pool:
            loaded = dict(zip(self.noise, pool.map(load, self.noise), strict=True))
        first = loaded[self.noise[0]]  # the same pictures are left out at every noise level
        if (first.skipped or first.ignored) and not self.quiet:
            print(f"{split} split, {task}: {first.summary()}")
        return {noise: dataset.samples for noise, dataset in loaded.items()}

    def batches(self, samples: Sequence[Sample], repeat: int = 1) -> list[Batch]:
        """The pictures in batches that suit the device; each picture stands `repeat` times in a row."""
        most = self.batch or (GPU_BATCH if self.where.type == "cuda" else CPU_BATCH)
        each = max(1, most // repeat)
        parts = [samples[i : i + each] for i in range(0, len(samples), each)]
        return [Batch(tuple(s for s in part for _ in range(repeat)), self.where) for part in parts]

    def described(self, loaded: Mapping[float, Sequence[Sample]]) -> dict[str, Any]:
        """What a report says of how it was made, and on which pictures."""
        first = next(iter(loaded.values()))
        return {
            "denoiser": self.denoiser_title,
            "denoiser_digest": self.denoiser_digest,
            "noise": list(self.noise),
            "count": len(first),
            "size": first[0].sharp.shape[-1],
            "data": f"{first[0].recipe.source}, {first[0].recipe.split} split, kernels {self.kernels}",
            "pictures": [sample.name for sample in first],
            "seed": self.seed,
            "quick": self.quick,
            "settings": "shipped" if self.settings_file is None else self.settings_file.name,
            "machine": self.machine,
        }

    def unit_key(self, experiment: str, batch: Batch, **what: Any) -> dict[str, Any]:
        """All that decides a unit's numbers, but for the code."""
        return {
            "experiment": experiment,
            **what,
            "pictures": batch.names,
            "data": batch.digest,
            "quick": self.quick,
            "denoiser": self.denoiser_digest,
            "precision": str(self.precision or "default"),
            "machine": self.machine,
        }


@dataclass(frozen=True)
class Batch:
    """Pictures that are solved together; made into a problem only when one is asked for."""

    samples: tuple[Sample, ...]
    device: torch.device

    @property
    def names(self) -> list[str]:
        """One a picture."""
        return [sample.name for sample in self.samples]

    @cached_property
    def digest(self) -> str:
        """Of the recipes, which make the samples again bit for bit."""
        recipes = [sample.recipe.to_dict() for sample in self.samples]
        return digest([{name: value for name, value in r.items() if name != "folder"} for r in recipes])

    @cached_property
    def _stacked(self) -> tuple[Problem, Tensor]:
        return stack(self.samples, self.device)

    def release(self) -> None:
        """Give the memory of the problem back; it is made again if asked for."""
        for name in ("_stacked", "start"):
            self.__dict__.pop(name, None)

    @property
    def problem(self) -> Problem:
        """On the device; its norm bound is found once for all methods."""
        return self._stacked[0]

    @property
    def sharp(self) -> Tensor:
        """What is to be found, on the device."""
        return self._stacked[1]

    @cached_property
    def start(self) -> Tensor:
        """Where every method starts: the observation, enlarged or with its gaps filled where it needs to be."""
        return self.problem.default_start()


def run(
    batch: Batch,
    method: Method[Any],
    iterations: int,
    callback: Callback | None = None,
    record: bool = False,
    may_stop: bool = False,
) -> Result:
    """`solve` to the last iteration. Ctrl-C is passed on: half a run must never be taken for a whole one."""
    result = solve(batch.problem, method, iterations, 0.0, batch.start, callback=callback, record=record)
    if not may_stop and Status.STOPPED in result.statuses:
        raise KeyboardInterrupt
    return result


@dataclass
class Clock:
    """Wall time of a run on its device, the time spent in `pause` left out."""

    device: torch.device
    began: float = 0.0
    paused: float = field(default=0.0)

    def start(self) -> None:
        """From now on."""
        self.wait()
        self.began, self.paused = time.perf_counter(), 0.0

    def read(self) -> float:
        """Seconds since the start, all work on the device done."""
        self.wait()
        return time.perf_counter() - self.began - self.paused

    def pause(self, work: Callable[[], None]) -> None:
        """Do something that does not count."""
        self.wait()
        before = time.perf_counter()
        work()
        self.wait()
        self.paused += time.perf_counter() - before

    def wait(self) -> None:
        """Until the device has done all it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def warm_up(batch: Batch, method: Method[Any], iterations: int) -> None:
    """Kernels chosen, transforms planned and cached before the clock starts: that is done once, not per picture."""
    operator = batch.problem.operator
    operator.adjoint(operator.forward(batch.start))
    if batch.start.is_cuda:
        run(batch, method, min(2, iterations))


@dataclass(frozen=True)
class Unit:
    """A piece of work whose result is kept: its key, what it costs, and how it is done."""

    key: Mapping[str, Any]
    batch: Batch
    cost: float
    """Denoiser calls times pictures, about."""
    label: str
    compute: Callable[[Callable[[float], None]], dict[str, Any]]
    """Gets a function that is told how much of the cost is done."""


def run_units(setup: Setup, name: str, units: Iterable[Unit]) -> Iterator[tuple[Unit, dict[str, Any]]]:
    """The units' results in order, those of an earlier run from the store."""
    listed = list(units)
    stored = [setup.store.get(unit.key) for unit in listed]
    todo = sum(unit.cost for unit, found in zip(listed, stored, strict=True) if found is None)
    kept = sum(found is not None for found in stored)
    with Progress(name, todo, setup.quiet) as progress:
        if kept and not setup.quiet:
            progress.say(f"{kept} of {len(listed)} parts from an earlier run")
        if setup.store.stale and not setup.quiet:
            progress.say(f"{setup.store.stale} parts were made by another version of the code and are done again")
            setup.store.stale = 0
        before: Batch | None = None
        for unit, found in zip(listed, stored, strict=True):
            if before is not None and before is not unit.batch:
                before.release()
            before = unit.batch
            if found is None:
                shown = _Shown(progress, unit)
                found = setup.store.put(unit.key, unit.compute(shown.told))
                shown.finish()
            yield unit, found


class _Shown:
    """A unit's part of the bar: never more than its cost, all of it at its end."""

    def __init__(self, progress: Progress, unit: Unit) -> None:
        self.progress, self.unit, self.done = progress, unit, 0.0
        progress.advance(0.0, unit.label)

    def told(self, work: float) -> None:
        work = min(work, self.unit.cost - self.done)
        self.done += work
        self.progress.advance(work, self.unit.label)

    def finish(self) -> None:
        self.progress.advance(self.unit.cost - self.done, self.unit.label)
