"""What the worker does with blurs: read a file, cut out a star, draw a kernel, crop a field, find a blur."""

from __future__ import annotations

import base64
import io
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pnpladmm.blur import Blur, Options, as_blur, describe, read_blur, write_blur
from pnpladmm.blur.arrays import Array
from pnpladmm.blur.forms.kernel import uniform_kernel
from pnpladmm.blur.readers.blur_file_regions import kernel as kernel_of
from pnpladmm.estimate import Tell, estimate_blur
from pnpladmm.files import replacing
from pnpladmm.pictures import Picture
from pnpladmm.tensors import InputError
from pnpladmm.web.blur_files import write_blur_file
from pnpladmm.web.sketch import Box, Kernel, Sketch

UNKNOWN_REACH = 32.0
"""Pixels; half the side that a kernel from a file is taken to have."""
WIDEST_SHOWN = 129
"""Pixels of a kernel that is shown; a larger one is cut to its middle."""

PLACES = 5
"""PSFs of a field that are shown along the longer side of the picture."""

_kept: dict[str, Blur] = {}
"""The field that was read last from a file: it may be large."""


def reach(sketch: Sketch) -> float:
    """How far, in pixels, the widest kernel reaches; with feathered seams, how far those do."""
    kernels = [region.kernel for region in sketch.regions] + ([sketch.background] if sketch.background else [])
    reaches = [_reach_of(kernel) for kernel in kernels] or [UNKNOWN_REACH]
    return max(*reaches, 3 * sketch.feather if sketch.regions else 0.0)


def _reach_of(kernel: Kernel) -> float:
    if kernel.motion:
        return kernel.motion.length / 2
    if kernel.defocus:
        return kernel.defocus.radius
    if kernel.gaussian:
        sigma = kernel.gaussian.sigma
        return 3 * max(sigma if isinstance(sigma, tuple) else (sigma,))
    return UNKNOWN_REACH


def for_box(sketch: Sketch, picture: Picture, box: Box, files: dict[str, str], folder: Path) -> Blur:
    """The blur of a part of the picture."""
    height, width = picture.pixels.shape[-2:]
    if sketch.file is None:
        path = write_blur_file(sketch, (height, width), lambda name: Path(files[name]), folder, box)
        return read_blur(path, (box.height, box.width))
    rows, columns = slice(box.top, box.top + box.height), slice(box.left, box.left + box.width)
    whole = _field(sketch, (height, width), files, folder)
    return replace(whole, weights=whole.weights[:, rows, columns].contiguous())


def _field(sketch: Sketch, size: tuple[int, int], files: dict[str, str], folder: Path) -> Blur:
    """The blur of the whole picture in a file; the one that was read last is kept."""
    assert sketch.file is not None
    key = f"{files[sketch.file]} {size}"
    if key not in _kept:
        _kept.clear()
        path = write_blur_file(sketch, size, lambda name: Path(files[name]), folder)
        _kept[key] = read_blur(path, size)
    return _kept[key]


def field_pictures(file: str, size: tuple[int, int], files: dict[str, str], folder: Path) -> list[dict[str, Any]]:
    """PSFs of a field at places that cover the picture: where they are (x, y), and as `kernel_picture`."""
    blur, (height, width) = _field(Sketch(file=file), size, files, folder), size
    step = max(height, width) / PLACES
    rows, columns = (max(1, round(n / step)) for n in size)
    places = [
        (int((r + 0.5) * height / rows), int((c + 0.5) * width / columns)) for r in range(rows) for c in range(columns)
    ]
    return [{"x": x, "y": y, **_picture_of(blur.psf_at(y, x).numpy())} for y, x in places]


def inspect_file(path: Path, size: tuple[int, int]) -> dict[str, Any]:
    """Whether a file holds one kernel or a field, and what that is."""
    blur = read_blur(path, size)
    words = describe(blur, norm=False).splitlines()
    return {"single": uniform_kernel(blur) is not None, "words": words, "count": len(blur.kernels)}


def kernel_picture(kernel: dict[str, Any], files: dict[str, str]) -> dict[str, Any]:
    """The PSF as PNG, white where it is strong, and its side in pixels."""
    wanted = Kernel.model_validate(kernel)
    if wanted.kernel is None:
        values = kernel_of(Path("the blur"), "kernel", wanted.entry(), Options(), [])
    else:
        values = _single(read_blur(Path(files[wanted.kernel]), (1024, 1024)))
    return _picture_of(values)


def _picture_of(values: Array) -> dict[str, Any]:
    flat = values.mean(0)
    flat = _middle(flat / max(float(np.abs(flat).max()), 1e-300))
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.uint8(255 * np.sqrt(flat.clip(0, 1)))).save(file, "PNG")
    return {"png": base64.b64encode(file.getvalue()).decode("ascii"), "height": flat.shape[0], "width": flat.shape[1]}


def _single(blur: Blur) -> Array:
    values = uniform_kernel(blur)
    if values is None:
        raise InputError("the file holds a blur that varies over the picture: use it for the whole picture")
    return values


def _middle(flat: Array) -> Array:
    top, left = (max(0, (n - WIDEST_SHOWN) // 2) for n in flat.shape)
    return flat[top : top + WIDEST_SHOWN, left : left + WIDEST_SHOWN]


def cut_star(picture: Picture, x: float, y: float, side: int, target: Path) -> dict[str, Any]:
    """The square round a star as a PSF: its rim is the sky, its centroid becomes the centre."""
    pixels = picture.pixels[0].double().mean(0).numpy()
    half = side // 2
    column, row = _brightest(pixels, round(x), round(y), half)
    patch = pixels[row - half : row + half + 1, column - half : column + half + 1]
    if patch.shape != (2 * half + 1, 2 * half + 1):
        raise InputError("the star is too close to the border: choose another one, or a smaller square")
    sky = float(np.median(np.concatenate([patch[0], patch[-1], patch[1:-1, 0], patch[1:-1, -1]])))
    light = patch - sky
    noise = float(np.median(np.abs(light[[0, -1]]))) / 0.67449
    peak = float(light.max())
    if peak <= 5 * noise or peak <= 0:
        raise InputError("there is no bright point here: click on a star or bead that stands alone")
    light = np.where(light > 2 * noise, light, 0.0)
    blur = as_blur(light, (picture.pixels.shape[-2], picture.pixels.shape[-1]), recentre=True)
    _save(target, _single(blur)[0])
    return {"x": column, "y": row, "peak": round(peak, 4)}


def _brightest(pixels: Array, column: int, row: int, half: int) -> tuple[int, int]:
    """The brightest pixel near a click."""
    near = max(3, half // 2)
    top, left = max(0, row - near), max(0, column - near)
    part = pixels[top : row + near + 1, left : column + near + 1]
    if part.size == 0:
        raise InputError("the click is outside the picture")
    found = np.unravel_index(int(part.argmax()), part.shape)
    return left + int(found[1]), top + int(found[0])


def write_drawn(rows: list[list[float]], target: Path) -> dict[str, Any]:
    """A kernel that was drawn, with its centroid in the centre so that the picture does not move."""
    widths = {len(row) for row in rows}
    if len(widths) != 1 or not rows[0]:
        raise InputError("the drawn kernel needs rows of the same length")
    values = np.array(rows, dtype=np.float64)
    if values.sum() <= 0:
        raise InputError("nothing was drawn yet: draw the path that a point of light took")
    blur = as_blur(values, (1024, 1024), recentre=True)
    _save(target, _single(blur)[0])
    return {}


def estimated(picture: Picture, way: str, linear: bool, target: Path, tell: Tell) -> list[str]:
    """Write the blur that the page shown shows; words on how far to trust it."""
    found = estimate_blur(picture, way, page=0, linear=linear, callback=tell)
    write_blur(target, found)
    trust = [] if found.uncertainty is None else [f"It is expected to be right to {100 * found.uncertainty:.2g} %."]
    return [*trust, *(() if found.estimate is None else found.estimate.warnings), *found.notes]


def _save(target: Path, values: Array) -> None:
    if not math.isfinite(float(values.sum())):
        raise InputError("the kernel has no finite numbers")
    with replacing(target) as beside, beside.open("wb") as file:
        np.save(file, np.asarray(torch.as_tensor(values)))
