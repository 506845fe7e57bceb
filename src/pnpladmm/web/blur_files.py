"""From what was drawn on the page to the blur file that the command line reads, and back.

The files of a project lie in one folder under names that the server made. A blur file is written into a folder of its
own together with copies of the files that it names, so that the folder can be moved.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import yaml
from pydantic import ValidationError

from pnpladmm.blur.arrays import read_array
from pnpladmm.blur.readers.blur_file import content_of
from pnpladmm.files import replacing, write_text
from pnpladmm.tensors import InputError
from pnpladmm.web.brush import Mask, painted
from pnpladmm.web.limits import Refused
from pnpladmm.web.sketch import Box, Kernel, Region, Sketch

BLUR_FILE = "blur.yaml"
DIGITS = 2
"""Decimals of coordinates in a blur file: hundredths of a pixel."""
Find = Callable[[str], Path]
"""The file of a project by its name."""


@dataclass(frozen=True)
class Window:
    """The part of the picture that a blur file is for: its corner, and its size (H, W)."""

    left: int
    top: int
    size: tuple[int, int]


def write_blur_file(sketch: Sketch, size: tuple[int, int], find: Find, folder: Path, box: Box | None = None) -> Path:
    """Write `blur.yaml` and the files that it names; for a box of the picture alone, where one is given."""
    if sketch.is_empty:
        raise Refused(422, "say first what the blur is: choose one of the kinds of blur")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / BLUR_FILE
    if sketch.file is not None:
        return _copy(find(sketch.file), target)
    window = Window(0, 0, size) if box is None else Window(box.left, box.top, (box.height, box.width))
    content: dict[str, Any] = {}
    if sketch.background is not None:
        content["background"] = _kernel(sketch.background, "background", find, folder)
    if sketch.regions:
        content["feather"] = sketch.feather
    regions = [_region(n, r, window, find, folder) for n, r in enumerate(sketch.regions, 1)]
    if regions:
        content["regions"] = regions
    text = "# Written by pnpladmm serve; pnpladmm restore reads it.\n"
    write_text(target, text + yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=110))
    return target


def _kernel(kernel: Kernel, role: str, find: Find, folder: Path) -> dict[str, Any]:
    if kernel.kernel is None:
        return {k: _plain(v) for k, v in kernel.entry().items()}
    source = find(kernel.kernel)
    name = f"{role}-kernel{source.suffix}"
    shutil.copyfile(source, folder / name)
    return {"kernel": name}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _region(number: int, region: Region, window: Window, find: Find, folder: Path) -> dict[str, Any]:
    x, y = window.left, window.top
    kernel = _kernel(region.kernel, f"region-{number}", find, folder)
    if region.polygon is not None:
        return {"polygon": [[round(a - x, DIGITS), round(b - y, DIGITS)] for a, b in region.polygon], **kernel}
    if region.rectangle is not None:
        left, top, right, bottom = region.rectangle
        corners = (left - x, top - y, right - x, bottom - y)
        return {"rectangle": [round(c, DIGITS) for c in corners], **kernel}
    name = f"region-{number}-mask.png"
    _write_mask(folder / name, _mask(region, window, find))
    return {"mask": name, **kernel}


def _mask(region: Region, window: Window, find: Find) -> Mask:
    under = None
    height, width = window.size
    if region.mask is not None:
        whole = read_array(find(region.mask))
        whole = whole.max(-1) if whole.ndim == 3 else whole
        part = whole[window.top : window.top + height, window.left : window.left + width]
        if part.shape != window.size:
            raise Refused(
                422, f"the mask is {whole.shape[1]} x {whole.shape[0]} pixels: it must be as large as the picture"
            )
        under = np.where(part != 0, np.uint8(255), np.uint8(0))
    return painted(window.size, region.strokes or [], under, (window.left, window.top))


def _write_mask(path: Path, mask: Mask) -> None:
    from PIL import Image

    with replacing(path) as beside:
        Image.fromarray(mask).save(beside, "PNG")


def _copy(source: Path, target: Path) -> Path:
    """A blur that is one file: a blur file with those that it names, or a file of another format, by its name."""
    if source.suffix != ".yaml":
        name = f"field{source.suffix}"
        shutil.copyfile(source, target.parent / name)
        write_text(target, yaml.safe_dump({"blur": name}))
        return target
    for name in names_in(load_yaml(source)):
        shutil.copyfile(source.parent / name, target.parent / name)
    shutil.copyfile(source, target)
    return target


def load_yaml(path: Path) -> dict[str, Any]:
    """The content of a blur file, read as the reader of blur files does; errors name no folder of this machine."""
    try:
        return content_of(path)
    except InputError as error:
        raise Refused(422, str(error).replace(str(path), "the blur file")) from None


FILE_KEYS = ("kernel", "kernels", "mask", "blur", "map", "labels", "positions")


def names_in(content: Any) -> list[str]:
    """The files that a blur file names."""
    found: set[str] = set()
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            found |= {v for k, v in value.items() if k in FILE_KEYS and isinstance(v, str)}
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return sorted(found)


def with_own_names(content: Any, own: Mapping[str, str]) -> Any:
    """The content of a blur file with other names for its files. A file that was not sent along is refused."""
    for name in names_in(content):
        if name not in own and PurePosixPath(name).name not in own:
            raise Refused(422, f"the blur file names {name[:80]}: choose this file together with it")
    return _renamed(content, own)


def _renamed(value: Any, own: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_renamed(v, own) for v in value]
    if not isinstance(value, dict):
        return value
    return {
        k: own.get(v, own.get(PurePosixPath(v).name, v)) if k in FILE_KEYS and isinstance(v, str) else _renamed(v, own)
        for k, v in value.items()
    }


def sketch_of(content: dict[str, Any], size: tuple[int, int]) -> Sketch | None:
    """The regions of a blur file, to be edited on the page; None where it is of another form."""
    if not set(content) <= {"background", "regions", "feather", "units"}:
        return None
    height, width = size
    regions = []
    for region in content.get("regions") or []:
        if not isinstance(region, dict):
            return None
        shape = {k: region[k] for k in ("polygon", "rectangle", "mask") if k in region}
        kernel = {k: v for k, v in region.items() if k not in shape}
        if content.get("units") == "fraction":
            shape = {k: _in_pixels(k, v, width, height) for k, v in shape.items()}
        regions.append({**shape, "kernel": kernel})
    given = {"background": content.get("background"), "regions": regions, "feather": content.get("feather", 2.0)}
    try:
        return Sketch.model_validate(given)
    except ValidationError:
        return None


def _in_pixels(shape: str, value: Any, width: int, height: int) -> Any:
    """Fractions of the picture as pixels: 0 is the outer edge of the first pixel, 1 that of the last."""
    try:
        if shape == "polygon":
            return [[x * width - 0.5, y * height - 0.5] for x, y in value]
        if shape == "rectangle":
            return [v * (width, height)[i % 2] - 0.5 for i, v in enumerate(value)]
    except (TypeError, ValueError):
        raise InputError(f"{shape}: give numbers") from None
    return value
