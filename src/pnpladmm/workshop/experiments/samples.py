"""A sample (a sharp crop and its degraded observation), its origin, and several samples as one problem."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from pnpladmm.blur import Blur
from pnpladmm.data_terms import Gaussian
from pnpladmm.operators import Decimation, LinearOperator, Mask, SpatiallyVaryingBlur
from pnpladmm.solvers import Problem
from pnpladmm.tensors import InputError
from pnpladmm.workshop.experiments.scenes import Array, soft_weights

Task: TypeAlias = Literal["deblur", "sr2", "sr3", "sr4", "inpainting"]
TASKS: tuple[str, ...] = get_args(Task)
Split: TypeAlias = Literal["tune", "test"]
Source: TypeAlias = Literal["coco", "embedded"]
SPLITS: tuple[str, ...] = get_args(Split)
VERSION = 1
"""Of the generator. Raise it when the same origin gives another sample than before."""


def factor_of(task: str) -> int:
    """The scale of super-resolution; 1 for the other tasks."""
    return int(task[2:]) if task.startswith("sr") else 1


@dataclass(frozen=True)
class SampleOrigin:
    """Everything that decides a sample, and what was found when it was made, to check a repetition."""

    source: Source
    folder: str | None
    """The COCO folder as it was given; None: the default."""
    split: str
    key: str
    """Name of the picture; with the seed it decides crop, kernels and noise."""
    seed: int
    sigma: float
    task: str
    size: int
    kernels: str
    kernels_sha256: str
    """Of a bank from files; empty for drawn kernels."""
    picture_sha256: str = ""
    top: int = 0
    left: int = 0
    masks: tuple[str, ...] = ()
    """Names of the masks that are used: COCO's annotation ids, or segments."""
    credit: str = ""
    version: int = VERSION

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> SampleOrigin:
        """The origin with these values, as `to_dict` returned them."""
        try:
            values = {**values, "masks": tuple(values["masks"])}
            return SampleOrigin(**values)
        except (TypeError, KeyError) as error:
            raise InputError(f"not a sample's origin: {error}") from None


@dataclass(frozen=True)
class Sample:
    """A sharp crop, and what a camera with a known blur would have recorded."""

    name: str
    sharp: Tensor
    """(1, 3, side, side) float32 in [0, 1]; the side is the size asked for, rounded down to a multiple of the scale."""
    observed: Tensor
    """(1, 3, h, w) float32, noisy, not clipped."""
    blur: Blur
    """Kernels and weights, P = 2 to 5; for inpainting the identity."""
    sigma: float
    task: str
    origin: SampleOrigin
    regions: Tensor
    """(P, side, side) bool: the masks from which the weights are made, background last. They may overlap."""
    mask: Tensor | None = None
    """(1, 1, side, side), 1 where a pixel was recorded; only for inpainting."""

    def operator(self) -> LinearOperator:
        """`H`: blur with circular border, then decimation; or the mask."""
        if self.mask is not None:
            return Mask(self.mask)
        return _decimated(self.task, self.blur.operator("circular"))

    def problem(self) -> Problem:
        """The problem of this sample alone."""
        return Problem(self.observed, self.operator(), Gaussian(self.sigma))


@dataclass(frozen=True)
class Dataset:
    """Samples of one split, noise level and task, and how much was left out."""

    samples: tuple[Sample, ...]
    skipped: dict[str, int] = field(default_factory=dict)
    """Number of pictures left out, by reason."""
    ignored: dict[str, int] = field(default_factory=dict)
    """Number of masks (annotations) left out, by reason; their pictures may still be used."""

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    def summary(self) -> str:
        """One line: the number of samples, and what was left out and why."""
        parts = [f"{len(self)} samples"]
        for what, counts in (("pictures", self.skipped), ("masks", self.ignored)):
            if counts:
                reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(counts.items()))
                parts.append(f"{what} left out: {reasons}")
        return "; ".join(parts)


def stack(samples: Sequence[Sample], device: torch.device | str | None = None) -> tuple[Problem, Tensor]:
    """Samples of one task and size as one problem, and the sharp pictures (B, 3, side, side).

    Each picture keeps its own blur: kernels are padded to a common size, and kernels of weight 0 are added for a common
    P.
    """
    if not samples:
        raise InputError("no samples to stack: give at least one")
    for what in ("task", "sharp"):
        kinds = {getattr(s, what) if what == "task" else tuple(s.sharp.shape) for s in samples}
        if len(kinds) > 1:
            raise InputError(f"samples of {' and '.join(map(str, sorted(kinds)))}: stack those of one task and size")
    observed, sharp = (torch.cat([getattr(s, what) for s in samples]).to(device) for what in ("observed", "sharp"))
    sigmas = [s.sigma for s in samples]
    same = len(set(sigmas)) == 1
    noise = Gaussian(sigmas[0] if same else torch.tensor(sigmas, dtype=torch.float64, device=observed.device))
    return Problem(observed, _stacked_operator(samples, observed.device), noise), sharp


def sample_blur(regions: Array, kernels: Array, task: str) -> Blur:
    """The blur of a sample from its hard masks (P, H, W) and kernels (P, k, k)."""
    if task == "inpainting":
        return Blur(torch.ones(1, 1, 1), torch.ones(1, *regions.shape[1:]), source="no blur")
    weights = torch.from_numpy(soft_weights(regions, kernels))
    return Blur(torch.from_numpy(kernels), weights, source=f"{len(kernels)} kernels on smoothed masks")


def _stacked_operator(samples: Sequence[Sample], device: torch.device) -> LinearOperator:
    masks = [s.mask for s in samples if s.mask is not None]
    if masks:
        return Mask(torch.cat(masks).to(device))
    count = max(len(s.blur.kernels) for s in samples)
    tall, wide = (max(s.blur.kernel_size[axis] // 2 for s in samples) * 2 + 1 for axis in (0, 1))
    kernels = torch.zeros(len(samples), count, tall, wide, dtype=torch.float64)
    weights = torch.zeros(len(samples), count, *samples[0].blur.size)
    for i, sample in enumerate(samples):
        used = sample.blur.kernels[:, 0]
        top, left = tall // 2 - used.shape[1] // 2, wide // 2 - used.shape[2] // 2
        kernels[i, : len(used), top : top + used.shape[1], left : left + used.shape[2]] = used
        weights[i, : len(used)] = sample.blur.weights
    blur = SpatiallyVaryingBlur(kernels.to(device), weights.to(device), "circular", samples[0].blur.order)
    return _decimated(samples[0].task, blur)


def _decimated(task: str, blur: LinearOperator) -> LinearOperator:
    factor = factor_of(task)
    return blur if factor == 1 else Decimation(factor) @ blur
