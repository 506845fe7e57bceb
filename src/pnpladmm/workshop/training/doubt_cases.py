"""Blurred crops with right and wrong PSFs, restored at several noise levels: what the doubt is fitted to.

They come from the tuning crops alone. Each case follows from its number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur import Blur, as_blur, defocus, gaussian, motion
from pnpladmm.blur.arrays import Array
from pnpladmm.blur.resampling import resampled
from pnpladmm.denoisers import load_denoiser
from pnpladmm.pictures import Picture
from pnpladmm.restoration.inputs import operator_of
from pnpladmm.restoration.network_choice import network_for
from pnpladmm.restoration.one_run import one_run
from pnpladmm.restoration.options import USUAL, Options
from pnpladmm.restoration.policy import Pages, prepare
from pnpladmm.restoration.psf_error import evidence
from pnpladmm.restoration.psf_score import psf_score
from pnpladmm.restoration.signs import signs_of
from pnpladmm.workshop.bench.real_cases import ERRORS, aligned_error, observe, psf_pair, random_psf, stored
from pnpladmm.workshop.experiments.kernels import load_kernels

FACTORS = (1.0, 1.5, 2.2, 3.3, 5.0, 8.0, 12.0)
"""Noise levels that are tried, in units of the level that is assumed at first."""
SIDES = (64, 96, 128, 160)
NOISES = (0.6, 1.0, 2.0, 2.0, 2.0, 2.0, 4.0, 8.0)
QUALITIES = (None, None, None, None, 95, 85, 70, 50)
SHAKEN = ("shake, size", "shake, angle", "shake, noise")
OTHERS = ("turned by 90 degrees", "another PSF")
MADE = 6
"""Every so many cases one has a scene of steps, smooth hills, noise, points or strokes instead of a photograph."""
SCENES = ("steps", "smooth", "noise", "points", "strokes")
SMALL_SIDES = (20, 28, 40, 64)
CALLS = (8, 8, 8, 8, 4, 2)
TOLD = (1.0, 1.0, 0.5, 2.0)
"""Of these scenes the noise level is told: that in the picture times one of these."""
KINDS = (*ERRORS, *ERRORS, *SHAKEN, *OTHERS)
FIRST_SEED = 70000
"""The benchmark `real` has smaller ones."""


@dataclass(frozen=True)
class DoubtCase:
    """An observation, its own blur and a wrong one, and the truth."""

    kind: str
    picture: Picture
    right: Blur
    wrong: Blur
    sharp: Tensor
    reach: int
    told: float | None = None
    """The noise level that is given, in [0, 1]."""
    calls: int = 8
    """Of the denoiser."""
    truth: float = 1.0
    """The noise level that is given, as a factor of the true one."""


def doubt_case(number: int, crops: list[tuple[str, Tensor]]) -> DoubtCase:
    """The case of a number, from sharp crops (1, 3, h, w)."""
    rng = np.random.default_rng(FIRST_SEED + number)
    sharp, kind = crops[number % len(crops)][1], KINDS[number % len(KINDS)]
    side, noise, quality = int(rng.choice(SIDES)), float(rng.choice(NOISES)), QUALITIES[rng.integers(len(QUALITIES))]
    told, truth, calls = None, 1.0, int(rng.choice(CALLS))
    if number % MADE == MADE - 1:
        side = int(rng.choice(SMALL_SIDES))
        sharp = made_scene(str(rng.choice(SCENES)), side + 64, rng)
        truth = float(rng.choice(TOLD))
        told = max(noise, 0.5) / 255 * truth
    right, wrong = _blurs(kind, side, rng) if told is None else _small_blurs(side, rng)
    samples, inner = observe(sharp, right, side, FIRST_SEED + number, noise)
    reach = 2 if kind in SHAKEN or kind.startswith("shift") else 0
    return DoubtCase(kind, stored(samples, quality, number), right, wrong, inner, reach, told, calls, truth)


def measure(number: int, crops: list[tuple[str, Tensor]], device: str = "cpu") -> dict[str, Any]:
    """PSNR at each level and the evidence at each level, with the right and with the wrong PSF."""
    case = doubt_case(number, crops)
    row: dict[str, Any] = {
        "number": number,
        "crop": crops[number % len(crops)][0],
        "kind": case.kind,
        "made": case.told is not None,
        "truth": case.truth,
        "before": _psnr(case, case.picture.pixels),
    }
    for name, blur in (("right", case.right), ("wrong", case.wrong)):
        row[name] = _at_levels(case, blur, device)
    return row


def _at_levels(case: DoubtCase, blur: Blur, device: str) -> dict[str, Any]:
    """All levels are one batch."""
    options = Options(device=torch.device(device), iterations=case.calls).decided(USUAL)
    operator = operator_of(blur, options.boundary)
    given = None if case.told is None else torch.tensor([case.told])
    noise = prepare(Pages(case.picture, noise=given), operator, options).noise
    network = load_denoiser(network_for(case.picture, operator, options), device)
    picture = replace(case.picture, pixels=case.picture.pixels.expand(len(FACTORS), -1, -1, -1).contiguous())
    levels = torch.tensor(FACTORS, dtype=torch.float64) * noise.cpu()
    prepared = prepare(Pages(picture, noise=levels), operator, options)
    result, _ = one_run(prepared, network, options)
    signs = signs_of(prepared.problem, result.image, prepared.noise)
    assert signs is not None
    score = psf_score(prepared.problem, result.image, prepared.noise)
    images = prepared.problem.crop_to_observed(result.image)
    return {
        "psnr": [_psnr(case, image[None]) for image in images],
        "evidence": evidence(signs, score, noise.expand(len(levels)), case.calls, prepared.model.jpeg).tolist(),
        "noise": 255 * float(noise[0]),
    }


def _psnr(case: DoubtCase, image: Tensor) -> float:
    return -10 * math.log10(aligned_error(image.double().cpu(), case.sharp, case.reach, min(17, image.shape[-1] // 8)))


def _blurs(kind: str, side: int, rng: np.random.Generator) -> tuple[Blur, Blur]:
    """The blur that a picture has, and the one that is told."""
    if kind in ERRORS:
        return psf_pair(kind, side, rng)
    if kind in SHAKEN:
        right, wrong = _shaken(kind, rng)
    else:
        right = random_psf(rng)
        wrong = right.T if kind == OTHERS[0] else random_psf(rng)
    return as_blur(right, (side, side)), as_blur(np.ascontiguousarray(wrong), (side, side))


def _small_blurs(side: int, rng: np.random.Generator) -> tuple[Blur, Blur]:
    """Two PSFs that fit into small pictures."""
    found = []
    for _ in range(2):
        size, angle = float(rng.uniform(0.5, 2)), float(rng.uniform(0, 180))
        kernel = (gaussian(size), defocus(1.5 * size), motion(4 * size, angle))[int(rng.integers(3))]
        found.append(as_blur(kernel.numpy(), (side, side)))
    return found[0], found[1]


def _shaken(kind: str, rng: np.random.Generator) -> tuple[Array, Array]:
    """A camera shake, and what a measurement makes of it."""
    from scipy.ndimage import gaussian_filter, rotate  # slow to import

    share = float(rng.uniform(0.5, 0.9))
    right = resampled(_whole(load_kernels("paper").draw(rng, 1)[0]), (share, share))
    if kind == SHAKEN[0]:
        share = float(rng.choice([0.85, 0.93, 1.07, 1.15]))
        return right, resampled(right, (share, share))
    if kind == SHAKEN[1]:
        return right, _whole(rotate(right, float(rng.choice([-8, -4, 4, 8])), reshape=False, order=1))
    specks = 0.03 * right.max() * np.abs(rng.standard_normal(right.shape)) * (rng.random(right.shape) < 0.15)
    return right, _whole(gaussian_filter(right, float(rng.uniform(0.2, 0.7))) + specks)


def made_scene(kind: str, side: int, rng: np.random.Generator) -> Tensor:
    """A grey scene (1, 3, side, side), float64, that is no photograph."""
    from scipy.ndimage import gaussian_filter  # slow to import

    noise = rng.uniform(0, 1, (side, side))
    if kind == "steps":
        cell = int(rng.integers(2, 9))
        scene = np.kron(rng.uniform(0, 1, (side // cell + 1,) * 2), np.ones((cell, cell)))[:side, :side]
    elif kind == "points":
        scene = 0.05 + np.where(noise < 0.01, rng.uniform(0.1, 0.9, noise.shape), 0)
    elif kind == "strokes":  # dark on white, like writing
        scene = np.full((side, side), 0.95)
        for _ in range(side * side // 120):
            row, column, length = (int(n) for n in rng.integers((0, 0, 3), (side, side, 12)))
            part = (slice(row, row + length), column) if rng.random() < 0.5 else (row, slice(column, column + length))
            scene[part] = 0.1
    else:
        scene = noise if kind == "noise" else np.clip(0.5 + 3 * (gaussian_filter(noise, 3) - 0.5), 0, 1)
    return torch.from_numpy(scene).expand(1, 3, side, side).clone()


def _whole(kernel: Array) -> Array:
    kernel = np.clip(kernel, 0, None)
    found: Array = kernel / kernel.sum()
    return found
