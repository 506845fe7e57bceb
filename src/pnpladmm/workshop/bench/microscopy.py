"""Pictures of few photons with known light, grey and in two channels: the default against Richardson-Lucy and `tv`.

Richardson-Lucy gets the number of iterations that is best for each picture, which only the truth tells.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur import Blur, as_blur
from pnpladmm.blur.arrays import Array
from pnpladmm.restore import restore
from pnpladmm.workshop.bench.glow_scenes import KINDS, Glow, bead_psf, glow
from pnpladmm.workshop.bench.report import Options, Report, Row

PHOTONS = (5.0, 50.0, 500.0)
"""At the brightest pixel."""
RIVAL_ITERATIONS = (3, 5, 10, 20, 40, 80, 160)
BORDER, SPOT = 8, 3
"""Pixels that are not scored, and around a spot those whose light is summed."""

COLUMNS = {
    "picture": lambda row: row["picture"],
    "channels": lambda row: str(row["channels"]),
    "photons": lambda row: f"{row['photons']:g}",
    "method": lambda row: row["method"],
    "PSNR": lambda row: f"{row['psnr']:.2f}",
    "spots, median error": lambda row: "-" if row["spots"] is None else f"{row['spots']:.1%}",
}


def run(options: Options) -> Report:
    """Restore and score all pictures."""
    rows: list[Row] = []
    for number, kind in enumerate(KINDS):
        for photons in PHOTONS[-1:] if options.quick else PHOTONS:
            for channels in (1,) if options.quick else (1, 2):
                options.say(f"{kind}, {photons:g} photons, {channels} channels")
                rng = np.random.default_rng((100, number, int(photons), channels))
                planes = [glow(kind, rng, photons, 64 if options.quick else 128) for _ in range(channels)]
                rows.extend(_rows(kind, photons, planes))
    notes = [
        "PSNR relative to the brightest pixel of the truth, in dB; spots: error of the light in 7x7 pixels.",
        "Richardson-Lucy is scikit-image's at the best of its numbers of iterations, which only the truth tells.",
    ]
    settings = {"iterations": RIVAL_ITERATIONS}
    return Report("microscopy", "Few photons, default settings with the gain stated", COLUMNS, rows, settings, notes)


def _rows(kind: str, photons: float, planes: list[Glow]) -> Iterator[Row]:
    channels = [torch.from_numpy(plane.counts.astype(np.float32)) for plane in planes]
    picture = torch.stack(channels)[None]
    height, width = picture.shape[-2:]
    blur = as_blur(bead_psf(), (height, width))
    about = {"picture": kind, "photons": photons, "channels": len(planes)}
    found = restore(picture, blur, gain=1.0)
    name = f"default ({found.method.name})"
    yield about | {"method": name} | _scores(planes, found.image[0] * found.picture.scale)
    yield about | {"method": "tv"} | _scores(planes, _by_tv(picture, blur))
    rivals = [_scores(planes, _by_rival(picture, n)) for n in RIVAL_ITERATIONS]
    yield about | {"method": "Richardson-Lucy"} | max(rivals, key=lambda one: float(one["psnr"]))


def _by_tv(picture: Tensor, blur: Blur) -> Tensor:
    found = restore(picture, blur, gain=1.0, method="fast", denoiser="tv")
    return found.image[0] * found.picture.scale


def _by_rival(picture: Tensor, iterations: int) -> Tensor:
    from skimage.restoration import richardson_lucy

    psf, planes = bead_psf(), []
    reach = psf.shape[0] // 2
    for plane in picture[0].double().numpy():
        bright = plane.max()
        wide = np.pad(plane / bright, reach, mode="reflect").clip(1e-4 / bright)
        found = richardson_lucy(wide, psf, num_iter=iterations, clip=False) * bright
        planes.append(torch.from_numpy(found[reach:-reach, reach:-reach].copy()))
    return torch.stack(planes)


def _scores(planes: list[Glow], image: Tensor) -> Row:
    """PSNR over all channels, and the median error of the light of spots."""
    pictures = image.double().numpy()
    inner = np.s_[BORDER:-BORDER, BORDER:-BORDER]
    error = np.mean([((x - p.sharp)[inner] ** 2).mean() for p, x in zip(planes, pictures, strict=True)])
    bright = max(float(plane.sharp.max()) for plane in planes)
    spots = [e for plane, x in zip(planes, pictures, strict=True) for e in _spot_errors(plane, x)]
    psnr = 10 * float(np.log10(bright**2 / error))
    return {"psnr": psnr, "spots": float(np.median(spots)) if spots else None}


def _spot_errors(plane: Glow, image: Array) -> Iterator[float]:
    for row, column in plane.spots.round().astype(int):
        there = np.s_[max(0, row - SPOT) : row + SPOT + 1, max(0, column - SPOT) : column + SPOT + 1]
        light = plane.sharp[there].sum()
        yield float(abs(image[there].sum() - light) / light)
