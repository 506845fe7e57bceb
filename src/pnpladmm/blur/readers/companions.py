"""Files next to a stack of kernels that say where each kernel acts: NAME.csv, NAME.labels.png or .npy."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pnpladmm.blur.arrays import Array
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import Options
from pnpladmm.blur.registry import READERS, SIGNATURE, read_file
from pnpladmm.blur.sniffing import has_format
from pnpladmm.tensors import InputError

STACKS = (".tif", ".tiff", ".npy", ".fits", ".fit")
LABELS = (".labels.png", ".labels.npy")


def with_companions(path: Path, array: Array, options: Options) -> tuple[Options, list[str]]:
    """Options with the label map or table from the file next to a stack, unless they say it already; and a note."""
    said = options.kind or options.labels is not None or options.positions is not None or options.index is not None
    if array.ndim < 3 or said:
        return options, []
    table = path.with_suffix(".csv")
    if table.is_file():
        return options.but(positions=table), [f"places from {table.name} in the same folder"]
    for suffix in LABELS:
        labels = path.with_name(path.stem + suffix)
        if labels.is_file():
            return options.but(labels=labels), [f"label map from {labels.name} in the same folder"]
    return options, []


@READERS.register("table")
class TableReader:
    """A CSV of places; the stack of PSFs is the file next to it with the same name."""

    generality: ClassVar[int] = SIGNATURE

    def matches(self, path: Path) -> bool:
        """Is it a text with the suffix .csv?"""
        return path.suffix.lower() == ".csv" and has_format(path, "text")

    def read(self, path: Path, options: Options) -> Blur:
        """The blur of the stack of PSFs at these places."""
        stack = next((path.with_suffix(s) for s in STACKS if path.with_suffix(s).is_file()), None)
        if stack is None:
            raise InputError(f"{path}: no stack of PSFs in the same folder: add {path.stem}.tif, .npy or .fits")
        return read_file(stack, options.but(positions=path))
