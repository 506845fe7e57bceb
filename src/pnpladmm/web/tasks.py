"""What the worker does: read pictures, restore a crop, run a job, cut out a star. Nothing here knows of HTTP."""

from __future__ import annotations

import base64
import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pnpladmm.allocator import keep_memory
from pnpladmm.pictures import Picture, read_picture
from pnpladmm.tensors import InputError
from pnpladmm.web import blur_tasks, words
from pnpladmm.web.blur_files import write_blur_file
from pnpladmm.web.headers import check_pixels, too_many
from pnpladmm.web.live import Watcher
from pnpladmm.web.pyramid import Shades, png, shown, write_levels
from pnpladmm.web.sketch import Box, Settings, Sketch

Send = Callable[[dict[str, Any]], None]
PREVIEW_CALLS = 4
LEAST_MARGIN, MOST_MARGIN = 16, 96
"""Pixels round a crop that are restored with it, so that its border looks as it will in the whole picture."""

_kept: dict[str, Picture] = {}
"""The picture that was opened last."""


def warm(send: Send) -> dict[str, Any]:
    """Load what the first preview needs."""
    from pnpladmm import restore

    picture = np.full((64, 64, 3), 0.5, np.float32) + 0.01 * np.random.default_rng(0).random((64, 64, 3), np.float32)
    restore(picture, np.ones((3, 3)), noise=0.02, iterations=1)
    return {}


def open_picture(send: Send, path: str, folder: str, pixels: int, decoded: int) -> dict[str, Any]:
    """Read a picture, write its levels, and say what it is."""
    check_pixels(Path(path), pixels)
    picture = _read(path, decoded)
    pages, channels, height, width = picture.pixels.shape
    if pages * height * width > pixels:
        raise too_many(pages * height * width, pixels)
    shades = Shades.of(picture)
    levels = write_levels(picture, Path(folder), shades)
    return {
        "format": picture.format,
        "width": width,
        "height": height,
        "pages": pages,
        "channels": channels,
        "depth": picture.dtype,
        "colour": picture.colour,
        "levels": levels,
        "shades": dataclasses.asdict(shades),
        "tone": _has_tone(picture),
        "notes": list(picture.notes),
    }


def preview(
    send: Send, path: str, files: dict[str, str], sketch: dict[str, Any], settings: dict[str, Any], box: dict[str, Any],
    shades: dict[str, float],
) -> dict[str, Any]:  # fmt: skip
    """Restore a box of the picture with a few calls of the small network."""
    from pnpladmm.restoration import Options
    from pnpladmm.restore import restore_with

    picture, wanted = _read(path), Sketch.model_validate(sketch)
    inner = _inside(Box.model_validate(box), picture)
    outer = _with_margin(inner, blur_tasks.reach(wanted), picture)
    crop = _cropped(picture, outer)
    with tempfile.TemporaryDirectory() as folder:
        blur = blur_tasks.for_box(wanted, picture, outer, files, Path(folder))
        chosen = {**Settings.model_validate(settings).options(), "iterations": PREVIEW_CALLS, "denoiser": "light"}
        done = restore_with(Options(**chosen, noise_white=255.0), crop, blur)
    view, x, y = Shades(**shades), inner.left - outer.left, inner.top - outer.top
    pixels = done.picture.from_linear().pixels[0, :, y : y + inner.height, x : x + inner.width].numpy()
    return {
        "png": base64.b64encode(png(shown(pixels, picture.colour, view))).decode("ascii"),
        "box": inner.model_dump(),
        "noise": round(255 * float(done.noise.max()), 2),
        "warnings": list(done.warnings),
        "advice": words.advice(done.warnings),
    }


def run(send: Send, folder: str, job: dict[str, Any], shades: dict[str, float], sizes: list[int]) -> dict[str, Any]:
    """Run a job as `pnpladmm restore` does, and write what the page shows of the result."""
    from pnpladmm.jobs import Job, run_job

    keep_memory()
    send({"stage": "reading the picture"})
    wanted, view = Job(**job), Shades(**shades)
    watcher = Watcher(send, Path(folder), wanted, view, sizes)
    outcome = run_job(wanted, callback=watcher)
    send({"stage": "preparing the result"})
    levels = write_levels(read_picture(wanted.output), Path(folder) / "tiles", view)
    return {**dataclasses.asdict(outcome), "levels": levels}


def write_blur(
    send: Send, sketch: dict[str, Any], size: list[int], files: dict[str, str], folder: str
) -> dict[str, Any]:
    """Write the blur file, and say what it holds by reading it back for a picture of this size."""
    wanted = Sketch.model_validate(sketch)
    path = write_blur_file(wanted, (size[0], size[1]), lambda name: Path(files[name]), Path(folder))
    return {"path": str(path)}


def estimate(send: Send, path: str, way: str, linear: bool, target: str) -> dict[str, Any]:
    """Find the blur in the picture alone."""

    def tell(what: str, share: float) -> None:
        send({"stage": what, "share": share})

    return {"words": blur_tasks.estimated(_read(path), way, linear, Path(target), tell)}


def star(send: Send, path: str, x: float, y: float, side: int, target: str) -> dict[str, Any]:
    """Cut a star or bead out of the picture as a PSF."""
    return blur_tasks.cut_star(_read(path), x, y, side, Path(target))


def drawn(send: Send, rows: list[list[float]], target: str) -> dict[str, Any]:
    """Write a kernel that was drawn."""
    return blur_tasks.write_drawn(rows, Path(target))


def kernel(send: Send, kernel: dict[str, Any], files: dict[str, str]) -> dict[str, Any]:
    """A kernel as the page shows it."""
    return blur_tasks.kernel_picture(kernel, files)


def field(send: Send, file: str, size: list[int], files: dict[str, str]) -> dict[str, Any]:
    """PSFs of a field over the picture."""
    with tempfile.TemporaryDirectory() as folder:
        return {"places": blur_tasks.field_pictures(file, (size[0], size[1]), files, Path(folder))}


def inspect_file(send: Send, path: str, size: list[int]) -> dict[str, Any]:
    """What a file of a blur holds: one kernel, or a whole field for a picture of this size."""
    return blur_tasks.inspect_file(Path(path), (size[0], size[1]))


TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    "warm": warm,
    "open": open_picture,
    "preview": preview,
    "run": run,
    "write_blur": write_blur,
    "estimate": estimate,
    "star": star,
    "drawn": drawn,
    "kernel": kernel,
    "field": field,
    "inspect": inspect_file,
}


def _read(path: str, decoded: int | None = None) -> Picture:
    """The picture in a file; the one that was read last is kept."""
    if path not in _kept:
        _kept.clear()
        picture = read_picture(path) if decoded is None else read_picture(path, decoded)
        _kept[path] = picture
    return _kept[path]


def _has_tone(picture: Picture) -> bool:
    """Whether linear light means anything for it."""
    try:
        return bool(picture.tone)
    except InputError:
        return False


def _inside(box: Box, picture: Picture) -> Box:
    """The box, moved and cut so that it lies in the picture."""
    height, width = picture.pixels.shape[-2:]
    w, h = min(box.width, width), min(box.height, height)
    if min(w, h) < 16:
        raise InputError("the picture is too small for a preview: restore it whole")
    return Box(left=min(box.left, width - w), top=min(box.top, height - h), width=w, height=h)


def _with_margin(box: Box, reach: float, picture: Picture) -> Box:
    height, width = picture.pixels.shape[-2:]
    margin = round(min(max(LEAST_MARGIN, reach + 8), MOST_MARGIN))
    left, top = max(0, box.left - margin), max(0, box.top - margin)
    right, bottom = min(width, box.left + box.width + margin), min(height, box.top + box.height + margin)
    return Box.model_construct(left=left, top=top, width=right - left, height=bottom - top)


def _cropped(picture: Picture, box: Box) -> Picture:
    """The first page inside a box."""
    rows, columns = slice(box.top, box.top + box.height), slice(box.left, box.left + box.width)

    def part(values: torch.Tensor | None) -> torch.Tensor | None:
        return None if values is None else values[:1, :, rows, columns].contiguous()

    pixels = part(picture.pixels)
    assert pixels is not None
    return dataclasses.replace(picture, pixels=pixels, alpha=None, valid=part(picture.valid), blank_values=None)
