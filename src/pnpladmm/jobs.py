"""Restoring files: one picture file, one blur file, one output, and a recipe that repeats it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from pnpladmm.blur import Blur, draw_blur, read_blur
from pnpladmm.noise import estimate_noise
from pnpladmm.pictures import Picture, check_output, read_picture, write_picture, write_png
from pnpladmm.recipes import Job, file_hashes, write_recipe
from pnpladmm.report import write_report
from pnpladmm.restore import Counts, Restoration, restore_picture, saturated
from pnpladmm.solvers import Status
from pnpladmm.solvers.loop import Callback
from pnpladmm.tensors import InputError

JPEG_NOISE = 2 / 255
"""JPEG smooths noise away where it is estimated, and adds errors of about this size of its own."""


@dataclass(frozen=True)
class Outcome:
    """What became of a job, ready for JSON."""

    picture: str
    output: str
    status: str
    advice: str
    certificate: str
    noise: float
    """Assumed, of 255."""
    iterations: int
    seconds: float
    residual: list[dict[str, float]]
    """For each page its size relative to the noise, and the correlation of neighbours."""
    warnings: list[str]
    notes: list[str]


class Interrupted(Exception):
    """Ctrl-C, and nobody asked to keep what there was."""


def run_job(job: Job, callback: Callback | None = None) -> Outcome:
    """Restore one file, page by page, and write the picture, its recipe and, if asked, its report."""
    picture = read_picture(job.picture)
    if Path(job.output).exists() and Path(job.output).samefile(job.picture):
        raise InputError(f"{job.output}: the output would overwrite the picture; give another name")
    check_output(job.output, picture)
    hashes = file_hashes(job)
    size = (picture.pixels.shape[-2], picture.pixels.shape[-1])
    blur = read_blur(job.blur, size, labels=job.labels, positions=job.positions)
    working = picture.to_linear() if job.linear else picture
    maps = {name: _map(path, picture) for name in ("mask", "variance") if (path := getattr(job, name)) is not None}
    pages = len(picture.pixels)
    done: list[Restoration] = []
    for page in range(pages):
        before, single = _page(picture, page), _page(working, page)
        done.append(
            restore_picture(
                single,
                blur,
                _noise(job, before),
                job.method,
                job.denoiser,
                iterations=job.iterations,
                certify=job.certify,
                strength=job.strength,
                boundary=job.boundary,
                device=job.device,
                callback=callback,
                **_options(job, before, {name: _page(found, page) for name, found in maps.items()}),
            )
        )
        status = done[-1].result.status
        if status in (Status.DIVERGED, Status.NON_FINITE):
            raise InputError(f"{job.picture}: {status.label}: {status.advice}")
        if status is Status.STOPPED:
            if not job.keep_interrupted:
                raise Interrupted
            break
    # Pages that an interrupt left out stay as they were.
    images = [r.result.image.cpu().to(working.pixels.dtype) for r in done]
    restored = working.with_pixels(torch.cat([*images, working.pixels[len(done) :]]))
    written = write_picture(job.output, restored)
    write_recipe(job, hashes)
    outcome = _outcome(job, picture, blur, done, written.notes)
    if job.report:
        _report(job, blur, picture, restored, done[0])
    return outcome


def _noise(job: Job, page: Picture) -> float | Literal["auto"]:
    """The noise of a page in [0, 1]; `auto` stays, but for JPEG."""
    if job.noise != "auto":
        return float(job.noise) / 255
    if job.gain is not None or job.variance is not None or Path(job.picture).suffix.lower() not in (".jpg", ".jpeg"):
        return "auto"
    return max(float(estimate_noise(page.pixels, page.valid)), JPEG_NOISE)


def _options(job: Job, page: Picture, maps: dict[str, Picture]) -> dict[str, Any]:
    """Masks and noise models for one page, in the picture's units."""
    masks = []
    if job.saturation and (unsaturated := saturated(page)) is not None:
        masks.append(unsaturated)
    if "mask" in maps:
        masks.append(maps["mask"].pixels == 0)
    variance = None
    if "variance" in maps:
        found = maps["variance"]
        variance = found.pixels.double() * found.scale / page.scale**2
        if found.valid is not None:
            masks.append(found.valid)
    elif job.linear:
        noise = _noise(job, page)
        sigma = float(estimate_noise(page.pixels, page.valid)) if noise == "auto" else noise
        variance = torch.full_like(page.pixels, sigma**2)
    if variance is not None and job.linear:
        variance = variance * _slope(page).square()
    return {
        "valid": torch.stack([m.expand_as(page.pixels) for m in masks]).all(0) if masks else None,
        "counts": None if job.gain is None else Counts(job.gain / page.scale, job.background / page.scale),
        "variance": variance,
    }


def _slope(page: Picture) -> Tensor:
    """Slope of the tone curve at each pixel: even noise of the file becomes uneven in linear light."""
    step = 1 / 255
    pixels = torch.nn.functional.avg_pool2d(page.pixels, 5, 1, 2, count_include_pad=False)
    high, low = ((pixels + d).clamp(0, 1) for d in (step, -step))
    light = [dataclasses.replace(page, pixels=p).to_linear().pixels for p in (high, low)]
    return (light[0] - light[1]) / (high - low)


def _map(path: str, picture: Picture) -> Picture:
    found = read_picture(path)
    if found.pixels.shape[-2:] != picture.pixels.shape[-2:]:
        have, want = tuple(found.pixels.shape[-2:]), tuple(picture.pixels.shape[-2:])
        raise InputError(f"{path} is {have[0]}x{have[1]}, the picture {want[0]}x{want[1]}: they must match")
    if found.pixels.shape[0] not in (1, len(picture.pixels)):
        raise InputError(f"{path} has {len(found.pixels)} pages, the picture {len(picture.pixels)}: they must match")
    valid = None if found.valid is None else found.valid[:, :1]
    return dataclasses.replace(found, pixels=found.pixels[:, :1], valid=valid, alpha=None, blank_values=None)


def _page(picture: Picture, page: int) -> Picture:
    """One page; a map of one page serves them all."""
    page = page if len(picture.pixels) > 1 else 0

    def at(value: Tensor | None) -> Tensor | None:
        return None if value is None else value[page : page + 1]

    return dataclasses.replace(
        picture,
        pixels=picture.pixels[page : page + 1],
        alpha=at(picture.alpha),
        valid=at(picture.valid),
        blank_values=None,
    )


def _outcome(job: Job, picture: Picture, blur: Blur, done: list[Restoration], notes: tuple[str, ...]) -> Outcome:
    statuses = [r.result.status for r in done]
    worst = done[max(range(len(done)), key=lambda i: list(Status).index(statuses[i]))]
    checks = [check for r in done for check in r.checks]
    warnings = list(dict.fromkeys(problem for check in checks for problem in check.problems))
    return Outcome(
        picture=job.picture,
        output=job.output,
        status=worst.result.status.label,
        advice=worst.result.status.advice,
        certificate=str(worst.result.certificate),
        noise=round(255 * float(worst.sigma), 4),
        iterations=max(len(r.result.history) for r in done),
        seconds=round(sum(float(r.result.history.seconds[-1]) for r in done if len(r.result.history)), 2),
        residual=[{"size": round(c.size, 4), "correlation": round(c.correlation, 4)} for c in checks],
        warnings=warnings,
        notes=[*picture.notes, *blur.notes, *dict.fromkeys(n for r in done for n in r.notes), *notes],
    )


def _report(job: Job, blur: Blur, before: Picture, after: Picture, done: Restoration) -> None:
    folder = Path(f"{job.output}.report")
    channels = [0, 1, 2] if before.pixels.shape[1] == 3 else [0]
    for name, picture in (("before", before), ("after", after.from_linear())):
        write_png(folder / f"{name}.png", picture.pixels[:1, channels])
    draw_blur(blur, folder / "blur.png")
    pictures = {"Before": folder / "before.png", "After": folder / "after.png", "The blur": folder / "blur.png"}
    result = dataclasses.replace(done.result, image=done.result.state.x)
    write_report(folder, done.problem, result, pictures, Path(job.picture).name, dataclasses.asdict(job))
