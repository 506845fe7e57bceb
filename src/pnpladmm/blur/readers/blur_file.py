"""The YAML blur file: a blur that a person writes down.

    background: {gaussian: {sigma: 1.0}}        # what acts outside all regions; none if left out
    feather: 6                                  # width of the seams, pixels
    units: pixels                               # or fraction: of the picture's width and height
    regions:                                    # a later region lies over an earlier one
      - rectangle: [10, 20, 200, 120]           # left, top, right, bottom
        motion: {length: 15, angle: 30}         # pixels; degrees, counter-clockwise from the right
      - polygon: [[0, 0], [80, 0], [40, 60]]    # x, y: from the left, from the top
        defocus: {radius: 4}
      - mask: hand.png                          # not 0 is inside; the picture's size
        kernel: psf.tif
      - rectangle: [300, 0, 400, 120]
        motion: auto                            # length and angle are found in the picture; defocus, gaussian too

or one kernel for each channel of the picture, in their order, everywhere in the picture:

    channels:
      - kernel: dapi.tif
      - gaussian: {sigma: 1.6}

or, in place of regions, one of the other forms with its settings, so that one file says it all:

    kernels: beads.tif      kernels: bank.npy       map: depth.npy        blur: field.psf
    positions: beads.csv    labels: segments.png    kind: defocus         index: 0

Files are sought beside the blur file, and read by whichever reader matches them. Regions can have
`gaussian: {sigma: [along, across], angle: ..}` too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from pnpladmm.blur.arrays import Array
from pnpladmm.blur.conditioning import crop_margins, same_size
from pnpladmm.blur.forms.regions import check_region_options, from_regions
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import Options
from pnpladmm.blur.readers.blur_file_auto import Automatic, is_automatic, visible
from pnpladmm.blur.readers.blur_file_regions import (
    KERNELS,
    SHAPES,
    SUFFIXES,
    blur_beside,
    check_keys,
    file_beside,
    inside,
    kernel,
    number,
)
from pnpladmm.blur.registry import READERS, SIGNATURE, read_file
from pnpladmm.blur.sniffing import has_format
from pnpladmm.gate import check_size, read_text, shown, yaml_events
from pnpladmm.tensors import InputError, one_line

SETTINGS = (
    *("labels", "positions", "kind", "index", "feather", "order", "normalise"),
    *("recentre", "background", "oversampling", "psf_scale", "tolerance", "most"),
)
FORMS = ("blur", "kernels", "map")
MOST_CHANNELS = 16
LARGEST = 1 << 16
"""Bytes; a blur file is a page."""


@READERS.register("blur-file")
class BlurFileReader:
    """YAML texts."""

    generality: ClassVar[int] = SIGNATURE

    def matches(self, path: Path) -> bool:
        """Is it a text with the suffix .yaml or .yml?"""
        return path.suffix.lower() in SUFFIXES and has_format(path, "text")

    def read(self, path: Path, options: Options) -> Blur:
        """The blur that it describes, or the one in the file that it names."""
        content = content_of(path)
        if "channels" in content:
            return _read_channels(path, content, options)
        forms = [form for form in FORMS if form in content]
        if not forms:
            return _read_regions(path, content, options)
        if len(forms) > 1 or "regions" in content:
            raise InputError(
                f"{path}: {', '.join([*forms, *(['regions'] if 'regions' in content else [])])}: give one of them"
            )
        return _read_named(path, forms[0], content, options)


def _read_named(path: Path, form: str, content: dict[str, Any], options: Options) -> Blur:
    """The blur in another file, with the settings given here."""
    check_keys(f"{path}", content, (*FORMS, *SETTINGS))
    settings = {key: content[key] for key in SETTINGS if key in content}
    for key in ("labels", "positions"):
        if key in settings:
            settings[key] = file_beside(path, key, settings[key])
    if form == "map" and "kind" not in settings:
        raise InputError(f"{path}: map: say what it holds (kind: gaussian, defocus or motion)")
    target = blur_beside(path, form, content[form])
    try:
        options = options.but(**settings)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return read_file(target, options)


def _read_channels(path: Path, content: dict[str, Any], options: Options) -> Blur:
    """The blur with a kernel for each channel."""
    check_keys(f"{path}", content, ("channels",))
    check_region_options(str(path), options)
    size = options.needed_size(str(path), "a kernel for each channel")
    entries = content["channels"]
    if not isinstance(entries, list) or not 2 <= len(entries) <= MOST_CHANNELS:
        raise InputError(f"{path}: channels: give a list with a kernel for each channel, 2 to {MOST_CHANNELS}")
    notes: list[str] = []
    kernels = []
    for count, entry in enumerate(entries, 1):
        found = kernel(path, f"channel {count}", entry, options, notes)
        if len(found) != 1:
            raise InputError(f"{path}: channel {count}: its kernel has {len(found)} channels: give a grey one")
        kernels.append(found)
    bank, cropped = crop_margins(same_size(kernels).transpose(1, 0, 2, 3))
    source = f"a kernel for each of {len(kernels)} channels"
    return Blur(torch.from_numpy(bank), torch.ones(1, *size), "convolve-then-weight", (*notes, *cropped), source)


def content_of(path: Path) -> dict[str, Any]:
    """What a blur file says, before it is known whether that is a blur."""
    import yaml

    text = read_text(path, LARGEST, "a blur file")
    try:
        # A few aliases of aliases unfold to more than any memory holds.
        aliases = any(isinstance(event, yaml.AliasEvent) for event in yaml_events(text))
        content = None if aliases else yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, OverflowError, AttributeError, TypeError, KeyError, IndexError) as error:
        mark = getattr(getattr(error, "problem_mark", None), "line", None)
        where = "" if mark is None else f", line {mark + 1}"
        problem = getattr(error, "problem", None) or (error if isinstance(error, ValueError) else "unreadable")
        raise InputError(f"{path}: not a blur file (YAML){where}: {one_line(str(problem))[:120]}") from None
    if aliases:
        raise InputError(f"{path}: not a blur file: write values out, without aliases (*)")
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path}: not a blur file: give regions, or a file and its settings")
    return content


def _read_regions(path: Path, content: dict[str, Any], options: Options) -> Blur:
    check_keys(f"{path}", content, ("regions", "background", "feather", "units", "order"))
    check_region_options(str(path), options)
    size = options.needed_size(str(path), "a blur file")
    regions = content.get("regions", [])
    if not isinstance(regions, list) or not (regions or "background" in content):
        raise InputError(f"{path}: regions: give a list, or a background alone")
    check_size(f"{path}: {len(regions)} regions", (len(regions) + 1, *size), 4)
    units = content.get("units", "pixels")
    if units not in ("pixels", "fraction"):
        raise InputError(f"{path}: units {shown(units)}: give pixels or fraction")
    if "feather" in content:
        options = options.but(feather=number(path, "feather", content["feather"], 0))
    if "order" in content:
        try:
            options = options.but(order=content["order"])
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
    notes: list[str] = []
    entries: list[tuple[str, Any, Array]] = []
    for count, region in enumerate(regions, 1):
        where = f"region {count}"
        if not isinstance(region, dict):
            raise InputError(f"{path}: {where}: give a shape ({', '.join(SHAPES)}) and a kernel ({', '.join(KERNELS)})")
        check_keys(f"{path}: {where}", region, (*SHAPES, *KERNELS))
        mask = inside(path, where, region, size, units)
        if not mask.any():
            notes.append(f"{where} covers no pixel of the picture")
            continue
        entries.append((where, {k: region[k] for k in KERNELS if k in region}, mask))
    source = f"a blur file with {len(regions)} region{'s' if len(regions) != 1 else ''}"
    if content.get("background") is not None:
        entries.insert(0, ("background", content["background"], np.ones(size, bool)))
    found = Automatic(path, options)
    kernels = [
        found.kernel(where, entry, seen) if is_automatic(entry) else kernel(path, where, entry, options, notes)
        for (where, entry, _), seen in zip(entries, visible([mask for _, _, mask in entries]), strict=True)
    ]
    outside = kernels.pop(0) if entries and entries[0][0] == "background" else None
    masks = [mask for where, _, mask in entries if where != "background"]
    blur = from_regions(list(zip(masks, kernels, strict=True)), outside, options, notes, source)
    return found.noted(blur)
