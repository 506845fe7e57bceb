"""The options that all experiments share, and what follows from them: denoiser, settings, pictures, batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from pnpladmm.denoisers import DENOISERS, Denoiser, check_denoiser, load_denoiser
from pnpladmm.denoisers.shipped import is_installed, weight_file
from pnpladmm.restoration import check_device
from pnpladmm.solvers.settings import Row, Table, read_settings, shipped_settings
from pnpladmm.tensors import InputError
from pnpladmm.workshop.experiments.batches import Batch
from pnpladmm.workshop.experiments.comparison import Compared, settings_of
from pnpladmm.workshop.experiments.dataset import LARGEST_SIGMA, Dataset, Sample, load_dataset
from pnpladmm.workshop.experiments.samples import Split, Task
from pnpladmm.workshop.experiments.store import Store, file_digest

NOISE = (1.0, 10.0, 20.0, 40.0)
"""The paper's noise levels, of 255."""
SIZE = 256
QUICK_SIZE = 96
QUICK_COUNT = 2
GPU_BATCH = 60
CPU_BATCH = 4
LOADERS = 4
"""Noise levels whose samples are made at the same time."""


@dataclass(frozen=True)
class Setup:
    """The options of an experiment, and what follows from them."""

    out: Path
    denoiser_name: str | None = None
    """None: drunet if its weights are installed, else light."""
    noise: tuple[float, ...] = NOISE
    data: str | None = None
    """A COCO folder or `embedded`; None: the shared COCO folder if there is one, else the embedded pictures."""
    count: int | None = None
    device: str | None = None
    """None: the GPU if there is one."""
    precision: torch.dtype | None = None
    """Of networks. None: float16 on GPUs (gradient steps: float32), else float32."""
    seed: int = 0
    quick: bool = False
    settings_file: Path | None = None
    batch: int | None = None
    kernels: str = "paper"
    reuse: bool = False
    """Also use stored results that other versions of the code made."""
    quiet: bool = False

    def __post_init__(self) -> None:
        """Refuse options with which no experiment could run."""
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
        """The device."""
        return torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))

    @property
    def machine(self) -> str:
        """The device's name and torch's version: the same machine gives the same numbers, another one nearly so."""
        on_gpu = self.where.type == "cuda"
        name = torch.cuda.get_device_name(self.where) if on_gpu else self.where.type
        return f"{name}, torch {torch.__version__}"

    @property
    def chosen_denoiser(self) -> str:
        """The name or file of the denoiser."""
        if self.denoiser_name:
            return self.denoiser_name
        if self.quick:
            return "light"
        return "drunet" if is_installed("drunet") else "light"

    @cached_property
    def denoiser(self) -> Denoiser:
        """The denoiser on the device, loaded once."""
        return load_denoiser(self.chosen_denoiser, str(self.where), self.precision)

    @property
    def denoiser_title(self) -> str:
        """The denoiser's name in tables of settings."""
        return str(getattr(self.denoiser, "name", self.chosen_denoiser))

    @cached_property
    def denoiser_digest(self) -> str:
        """The digest of the weight file, or the parameters of a classical prior."""
        name = self.chosen_denoiser
        path = weight_file(self.denoiser_title if name in DENOISERS else name)
        return file_digest(path) if path.is_file() else repr(self.denoiser)

    @cached_property
    def settings(self) -> Table:
        """The table given, or the shipped one."""
        return shipped_settings() if self.settings_file is None else read_settings(self.settings_file)

    @cached_property
    def store(self) -> Store:
        """Where results of units are stored."""
        return Store(self.out / "units", self.reuse)

    @property
    def size(self) -> int:
        """The side of a crop in pixels."""
        return QUICK_SIZE if self.quick else SIZE

    def row(self, method: Compared, noise: float, task: Task = "deblur") -> Row:
        """A method's settings at a noise level (of 255)."""
        return settings_of(self.settings, self.denoiser_title, self.denoiser, method, noise, task)

    def tuned_for(self, methods: Sequence[Compared], task: Task) -> str:
        """The task that the settings in use were tuned for."""
        rows = self.settings.get(self.denoiser_title, {})
        return task if all(f"{method.name}:{task}" in rows for method in methods) else "deblur"

    def samples(self, split: Split, task: Task = "deblur", count: int | None = None) -> dict[float, tuple[Sample, ...]]:
        """Samples of a split at each noise level, at most `count` unless the user gave a number."""
        folder = self.data or ("embedded" if self.quick else None)
        most = self.count or (QUICK_COUNT if self.quick else count)

        def load(noise: float) -> Dataset:
            return load_dataset(split, noise / 255, task, most, folder, self.seed, self.kernels, self.size)

        # Reading and blurring release Python's lock most of the time.
        with ThreadPoolExecutor(LOADERS) as pool:
            loaded = dict(zip(self.noise, pool.map(load, self.noise), strict=True))
        first = loaded[self.noise[0]]  # the same pictures are left out at all noise levels
        if (first.skipped or first.ignored) and not self.quiet:
            print(f"{split} split, {task}: {first.summary()}")
        return {noise: dataset.samples for noise, dataset in loaded.items()}

    def batches(self, samples: Sequence[Sample], repeat: int = 1) -> list[Batch]:
        """The samples in batches that suit the device; each sample appears `repeat` times in a row."""
        most = self.batch or (GPU_BATCH if self.where.type == "cuda" else CPU_BATCH)
        each = max(1, most // repeat)
        parts = [samples[i : i + each] for i in range(0, len(samples), each)]
        return [Batch(tuple(s for s in part for _ in range(repeat)), self.where) for part in parts]

    def described(self, loaded: Mapping[float, Sequence[Sample]]) -> dict[str, Any]:
        """What a report says about pictures, denoiser, settings and machine."""
        first = next(iter(loaded.values()))
        return {
            "denoiser": self.denoiser_title,
            "denoiser_digest": self.denoiser_digest,
            "noise": list(self.noise),
            "count": len(first),
            "size": first[0].sharp.shape[-1],
            "data": f"{first[0].origin.source}, {first[0].origin.split} split, kernels {self.kernels}",
            "pictures": [sample.name for sample in first],
            "seed": self.seed,
            "quick": self.quick,
            "settings": "shipped" if self.settings_file is None else self.settings_file.name,
            "machine": self.machine,
        }

    def unit_key(self, experiment: str, batch: Batch, **what: Any) -> dict[str, Any]:
        """Everything that decides a unit's result, except the code."""
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
