"""Degraded pictures as in the paper: crops of COCO, each thing in them with a blur of its own.

    y = H x + e,      H = sum_i U_i K_i  (then decimation for super-resolution),      e ~ N(0, sigma^2)

One sample is made of one picture: a crop of 256x256; the first (at most) 4 masks with more than 400 pixels in it
and the background; a 33x33 kernel for each, a random camera motion or an anisotropic Gaussian, half and half; weights
`U_i`, the masks smoothed each by its own kernel and normalised. Masks that overlap share, as in the paper's code; where
masks cover all there is no background. The border is circular.

The crop is random; if it has not two regions of more than 400 pixels (masks or background), others are tried, and a
picture of which none has is left out.

What the paper's code does otherwise: it clips the observation to [0, 1], so that the noise is no longer Gaussian; it
takes crops without a mask and blurs them uniformly; its Gaussians lie up to 1.5 pixels off their centre; its motion
kernels come from a file that is not published; crops and kernels depend on the order of all calls before.

Everything random is drawn from (seed, picture), whatever the order or number of pictures; crop, masks and kernels are
the same for every noise level. Noise has its own numbers for each (seed, picture, sigma, task). Observations are
rounded to 1/8192 (far below the noise), so that they are the same on every machine and small to store.

Tasks: `deblur`; `sr2`, `sr3`, `sr4`: blurred, then every 2nd, 3rd, 4th pixel (the crop loses up to 3 rows and columns
so that the scale divides it); `inpainting`: no blur, half of the pixels missing (0), chosen at random, in all colours.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import torch

from pnpladmm.places import shared_folder
from pnpladmm.tensors import InputError, check_positive
from pnpladmm.workshop.experiments.coco import read_coco
from pnpladmm.workshop.experiments.embedded import embedded_scenes
from pnpladmm.workshop.experiments.kernels import Kernels, load_kernels
from pnpladmm.workshop.experiments.samples import (
    SPLITS,
    TASKS,
    VERSION,
    Dataset,
    Sample,
    SampleRecipe,
    Source,
    Split,
    Task,
    factor_of,
    sample_blur,
    stack,
)
from pnpladmm.workshop.experiments.scenes import (
    MOST_MASKS,
    Array,
    Crop,
    Scene,
    Unusable,
    find_crop,
    generator,
    with_background,
)
from pnpladmm.workshop.experiments.storage import read_dataset, restore_counts, save_dataset, to_counts

__all__ = [
    "Dataset",
    "Sample",
    "SampleRecipe",
    "load_dataset",
    "read_dataset",
    "regenerate",
    "save_dataset",
    "stack",
]

LARGEST_SIGMA = 0.5
SMALLEST_SIZE = 64
MISSING = 0.5
"""Share of the pixels that inpainting has to fill."""


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
    """Samples of a split with noise `sigma` (of 1: 10 / 255), the first `count` that can be used, in the order of ids.

    folder : a COCO folder; None for the shared one, or the embedded pictures where there is none; "embedded" for those.
    kernels : "paper", "levin", or a file or folder of kernels.

    Pictures and masks that cannot be used are counted by reason; only when nothing is left is it an error.
    """
    _check(split, sigma, task, count, size)
    source, scenes, skipped, ignored = _scenes(split, folder)
    bank = load_kernels(kernels)
    samples: list[Sample] = []
    for scene in scenes:
        if count is not None and len(samples) == count:
            break
        recipe = SampleRecipe(
            source=source,
            folder=None if folder is None else str(folder),
            split=split,
            key=scene.key,
            seed=seed,
            sigma=float(sigma),
            task=task,
            size=size,
            kernels=kernels,
            kernels_sha256=bank.digest,
            picture_sha256="",
            top=0,
            left=0,
            masks=(),
            credit=scene.credit,
        )
        try:
            samples.append(_make(scene, bank, recipe, ignored))
        except Unusable as reason:
            skipped[str(reason)] += 1
    dataset = Dataset(tuple(samples), dict(skipped), dict(ignored))
    if not samples:
        raise InputError(f"{folder or source}, split {split}: nothing can be used ({dataset.summary()})")
    return dataset


def regenerate(recipe: SampleRecipe, folder: str | Path | None = None) -> Sample:
    """The sample of a recipe, made again from its picture; `folder` if that lies elsewhere now.

    Refused if the picture, the kernels or this program are not those it was made with.
    """
    _check(recipe.split, recipe.sigma, recipe.task, None, recipe.size)
    if recipe.version != VERSION:
        raise InputError(f"{recipe.key}: a recipe of version {recipe.version}, this program makes version {VERSION}")
    given = folder or recipe.folder or ("embedded" if recipe.source == "embedded" else None)
    source, scenes, *_ = _scenes(recipe.split, given)
    scene = next((s for s in scenes if s.key == recipe.key), None)
    if scene is None or source != recipe.source:
        raise InputError(
            f"{recipe.key} of split {recipe.split}: not in {given or source}: give the folder it came from"
        )
    bank = load_kernels(recipe.kernels)
    try:
        sample = _make(scene, bank, dataclasses.replace(recipe, kernels_sha256=bank.digest), Counter())
    except Unusable as reason:
        raise InputError(f"{recipe.key}: {reason}") from None
    for field in dataclasses.fields(recipe):
        if field.name != "credit" and getattr(sample.recipe, field.name) != getattr(recipe, field.name):
            raise InputError(f"{recipe.key}: its {field.name} is not what it was when the recipe was written")
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
    """Where the pictures come from, the pictures; pictures and masks left out already."""
    path = shared_folder("coco") if folder is None else Path(folder)
    if path is None or str(folder) == "embedded":
        return "embedded", embedded_scenes(split), Counter(), Counter()
    return "coco", *read_coco(path, split)


def _make(scene: Scene, bank: Kernels, recipe: SampleRecipe, ignored: Counter[str]) -> Sample:
    """The sample of a scene; `recipe` completed with what was found. Raises `Unusable`."""
    pixels, things, digest = scene.read(ignored)
    trim = recipe.size % factor_of(recipe.task)
    crop = find_crop(pixels, things, recipe.size, trim, generator(recipe.seed, recipe.key, "crop"))
    kernels = bank.draw(generator(recipe.seed, recipe.key, "kernels"), MOST_MASKS + 1)
    if kernels.shape[-1] > len(crop.pixels):
        raise InputError(
            f"kernels of {kernels.shape[-1]}x{kernels.shape[-1]}: larger than the crops; give a larger size"
        )
    recipe = dataclasses.replace(
        recipe, picture_sha256=digest, top=crop.top, left=crop.left, masks=crop.names, credit=scene.credit
    )
    return _degraded(scene.name, crop, kernels, recipe)


def _degraded(name: str, crop: Crop, kernels: Array, recipe: SampleRecipe) -> Sample:
    sharp = torch.from_numpy(crop.pixels).permute(2, 0, 1)[None].float() / 255
    regions = with_background(crop.masks)
    kept = None
    if recipe.task == "inpainting":
        draws = generator(recipe.seed, recipe.key, "missing").permutation(sharp[0, 0].numel())
        kept = torch.from_numpy(draws >= round(MISSING * draws.size)).view(1, 1, *sharp.shape[2:]).float()
    blur = sample_blur(regions, kernels[: len(regions)], recipe.task)
    sample = Sample(name, sharp, sharp, blur, recipe.sigma, recipe.task, recipe, torch.from_numpy(regions), kept)
    clean = sample.operator().forward(sharp.double())
    rng = generator(recipe.seed, recipe.key, "noise", recipe.task, recipe.sigma.hex())
    noisy = clean + recipe.sigma * torch.from_numpy(rng.standard_normal(tuple(clean.shape)))
    if kept is not None:
        noisy = noisy * kept
    return dataclasses.replace(sample, observed=restore_counts(to_counts(noisy)))
