"""`frame.fits[SCI,1]`: a file and the extension of it that is meant."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypeAlias

from pnpladmm.gate import exists
from pnpladmm.tensors import InputError

Extension: TypeAlias = int | tuple[str, int]
"""The number of an extension, or its name and version, as astropy takes it."""

WITH_EXTENSION = re.compile(r"(.+)\[([A-Za-z0-9_+-]{1,68})(?:\s*,\s*(\d{1,6}))?\]", re.DOTALL)


def split_selection(path: str | os.PathLike[str]) -> tuple[Path, Extension | None]:
    """The file, and the extension in brackets behind its name; a file of that very name is meant as it is.

    Examples
    --------
    >>> split_selection("frame.fits[SCI,2]")[1], split_selection("frame.fits[3]")[1], split_selection("frame.fits")[1]
    (('SCI', 2), 3, None)
    """
    path = Path(path)
    found = WITH_EXTENSION.fullmatch(str(path))
    if found is None or exists(path):
        return path, None
    name, version = found[2], found[3]
    if name.isdigit() and version is None:
        if len(name) > 6:
            raise InputError(f"{path}: extension {name[:20]}: give a number below a million, or a name")
        return Path(found[1]), int(name)
    return Path(found[1]), (name.upper(), int(version or 1))


def without_selection(path: str | os.PathLike[str]) -> Path:
    """The file alone."""
    return split_selection(path)[0]
