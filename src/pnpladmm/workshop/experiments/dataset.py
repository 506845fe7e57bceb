"""Degraded pictures as in the paper: crops of COCO, each thing in them with a blur of its own.

    y = H x + e,      H = sum_i U_i K_i  (then decimation for super-resolution),      e ~ N(0, sigma^2)

Each picture gives one sample: a crop of 256x256; the first 4 masks (at most) with more than 400 pixels in the crop,
and the background; for each of them a 33x33 kernel, with equal probability a random camera motion or an anisotropic
Gaussian; weights `U_i`: each mask smoothed by its own kernel, then normalised. Overlapping masks share a pixel, as in
the paper's code. Where masks cover the whole crop there is no background. The border is circular.

The crop is random. A crop needs two regions (masks or background) of more than 400 pixels. If none is found, the
picture is left out.

The paper's code differs: it clips the observation to [0, 1], so that the noise is no longer Gaussian; it accepts crops
without a mask and blurs them uniformly; its Gaussians are up to 1.5 pixels off their centre; its motion kernels come
from an unpublished file; crops and kernels depend on the order of all earlier calls.

All random numbers depend on (seed, picture) only, not on the order or number of pictures; crop, masks and kernels are
the same for all noise levels. Noise depends on (seed, picture, sigma, task). Observations are rounded to 1/8192 (far
below the noise), so that they are the same on every machine and small to store.

Tasks: `deblur`; `sr2`, `sr3`, `sr4`: blurred, then every 2nd, 3rd, 4th pixel (the crop loses up to 3 rows and columns
so that the scale divides it); `inpainting`: no blur, a random half of the pixels missing (0), the same in all colours.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import torch

from pnpladmm.places import shared_folder
from pnpladmm.tensors import InputError, check_positive
from pnpladmm.workshop.experiments.coco import read_coco
from pnpladmm.workshop.experiments.dataset_files import from_steps, read_dataset, save_dataset, to_steps
from pnpladmm.workshop.experiments.embedded import embedded_scenes
from pnpladmm.workshop.experiments.kernels import Kernels, load_kernels
from pnpladmm.workshop.experiments.samples import (
    SPLITS,
    TASKS,
    VERSION,
    Dataset,
    Sample,
    SampleOrigin,
    Source,
    Split,
    Task,
    factor_of,
    sample_blur,
    stack,
)
from pnpladmm.workshop.experiments.scenes import (
    MAX_MASKS,
    Array,
    Crop,
    Scene,
    Unusable,
    find_crop,
    generator,
    with_background,
)

__all__ = [
    "Dataset",
    "Sample",
    "SampleOrigin",
    "load_dataset",
    "read_dataset",
    "regenerate",
    "save_dataset",
    "stack",
]

LARGEST_SIGMA = 0.5
SMALLEST_SIZE = 64
MISSING = 0.5
"""Share of the pixels that are missing for inpainting."""


def load_dataset(
    split: Split,
    sigma: float,
    task: Task = "deblur",
    count: int | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
    kernels: str = "paper",
    size: int = 256,
) -> Dataset:
    """Make the samples of a split.

    Parameters
    ----------
    split, task : str
        One of `SPLITS`, one of `TASKS`.
    sigma : float
        Noise level of pictures in [0, 1], such as 10 / 255.
    count : int, optional
        At most this many samples: the first usable pictures in the order of their ids.
    folder : str or Path, optional
        A COCO folder, or "embedded" (pictures of scikit-image). None: the shared COCO folder if there is one.
    kernels : str
        "paper", "levin", or a file or folder of kernels.
    size : int
        Side of the crops in pixels.

    Returns
    -------
    Dataset
        The samples, and how many pictures and masks could not be used. An InputError if no sample is left.
    """
    _check(split, sigma, task, count, size)
    source, scenes, skipped, ignored = _scenes(split, folder)
    bank = load_kernels(kernels)
    asked = SampleOrigin(
        source=source,
        folder=None if folder is None else str(folder),
        split=split,
        key="",
        seed=seed,
        sigma=float(sigma),
        task=task,
        size=size,
        kernels=kernels,
        kernels_sha256=bank.digest,
    )
    samples: list[Sample] = []
    for scene in scenes:
        if count is not None and len(samples) == count:
            break
        origin = dataclasses.replace(asked, key=scene.key)
        try:
            samples.append(_make(scene, bank, origin, ignored))
        except Unusable as reason:
            skipped[str(reason)] += 1
    dataset = Dataset(tuple(samples), dict(skipped), dict(ignored))
    if not samples:
        raise InputError(f"{folder or source}, split {split}: nothing can be used ({dataset.summary()})")
    return dataset


def regenerate(origin: SampleOrigin, folder: str | Path | None = None) -> Sample:
    """Make a sample again from its origin; `folder` says where the pictures are now.

    An InputError if the picture, the kernels or this program are not the same as before.
    """
    _check(origin.split, origin.sigma, origin.task, None, origin.size)
    if origin.version != VERSION:
        raise InputError(f"{origin.key}: made by version {origin.version} of the generator; this is version {VERSION}")
    given = folder or origin.folder or ("embedded" if origin.source == "embedded" else None)
    source, scenes, *_ = _scenes(origin.split, given)
    scene = next((s for s in scenes if s.key == origin.key), None)
    if scene is None or source != origin.source:
        raise InputError(
            f"{origin.key} of split {origin.split}: not in {given or source}: give the folder it came from"
        )
    bank = load_kernels(origin.kernels)
    try:
        sample = _make(scene, bank, dataclasses.replace(origin, kernels_sha256=bank.digest), Counter())
    except Unusable as reason:
        raise InputError(f"{origin.key}: {reason}") from None
    for field in dataclasses.fields(origin):
        if field.name != "credit" and getattr(sample.origin, field.name) != getattr(origin, field.name):
            raise InputError(f"{origin.key}: its {field.name} has changed since the sample was made")
    return sample


def _check(split: str, sigma: float, task: str, count: int | None, size: int) -> None:
    if split not in SPLITS:
        raise InputError(f"split {split!r}: choose one of {', '.join(SPLITS)}")
    if task not in TASKS:
        raise InputError(f"task {task!r}: choose one of {', '.join(TASKS)}")
    check_positive("sigma", sigma)
    if sigma > LARGEST_SIGMA:
        raise InputError(f"sigma = {sigma}: give at most {LARGEST_SIGMA}; it is of 1, so 10 of 255 is {10 / 255:.4f}")
    if count is not None and count < 1:
        raise InputError(f"count = {count}: give at least 1, or None for all")
    if size < SMALLEST_SIZE:
        raise InputError(f"size = {size}: give at least {SMALLEST_SIZE}, kernels must fit")


def _scenes(split: str, folder: str | Path | None) -> tuple[Source, tuple[Scene, ...], Counter[str], Counter[str]]:
    """The source, its scenes, and the pictures and masks that were left out while reading."""
    path = shared_folder("coco") if folder is None else Path(folder)
    if path is None or str(folder) == "embedded":
        return "embedded", embedded_scenes(split), Counter(), Counter()
    return "coco", *read_coco(path, split)


def _make(scene: Scene, bank: Kernels, origin: SampleOrigin, ignored: Counter[str]) -> Sample:
    """The sample of a scene; `origin` completed with what was found. Raises `Unusable`."""
    pixels, things, digest = scene.read(ignored)
    trim = origin.size % factor_of(origin.task)
    crop = find_crop(pixels, things, origin.size, trim, generator(origin.seed, origin.key, "crop"))
    kernels = bank.draw(generator(origin.seed, origin.key, "kernels"), MAX_MASKS + 1)
    if kernels.shape[-1] > len(crop.pixels):
        raise InputError(
            f"kernels of {kernels.shape[-1]}x{kernels.shape[-1]}: larger than the crops; give a larger size"
        )
    origin = dataclasses.replace(
        origin, picture_sha256=digest, top=crop.top, left=crop.left, masks=crop.names, credit=scene.credit
    )
    return _degraded(scene.name, crop, kernels, origin)


def _degraded(name: str, crop: Crop, kernels: Array, origin: SampleOrigin) -> Sample:
    sharp = torch.from_numpy(crop.pixels).permute(2, 0, 1)[None].float() / 255
    regions = with_background(crop.masks)
    mask = None
    if origin.task == "inpainting":
        draws = generator(origin.seed, origin.key, "missing").permutation(sharp[0, 0].numel())
        mask = torch.from_numpy(draws >= round(MISSING * draws.size)).view(1, 1, *sharp.shape[2:]).float()
    blur = sample_blur(regions, kernels[: len(regions)], origin.task)
    sample = Sample(name, sharp, sharp, blur, origin.sigma, origin.task, origin, torch.from_numpy(regions), mask)
    clean = sample.operator().forward(sharp.double())
    rng = generator(origin.seed, origin.key, "noise", origin.task, origin.sigma.hex())
    noisy = clean + origin.sigma * torch.from_numpy(rng.standard_normal(tuple(clean.shape)))
    if mask is not None:
        noisy = noisy * mask
    return dataclasses.replace(sample, observed=from_steps(to_steps(noisy)))
