"""What a FITS file says of itself, for readers that look whether it is theirs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from pnpladmm.blur.sniffing import has_format
from pnpladmm.pictures.fits_structure import checked_content, opened


@dataclass(frozen=True)
class FitsSummary:
    """The first header, and the names of the columns of all tables."""

    header: dict[str, Any] = field(default_factory=dict)
    columns: frozenset[str] = frozenset()


def fits_summary(path: Path) -> FitsSummary:
    """Empty for other files and where the file cannot be read; never raises."""
    if not has_format(path, "fits"):
        return FitsSummary()
    try:
        state = path.stat()
        return _summary(path, state.st_mtime_ns, state.st_size)
    except Exception:  # whoever reads the file says what is wrong with it
        return FitsSummary()


@lru_cache(maxsize=1)
def _summary(path: Path, changed: int, size: int) -> FitsSummary:
    """Kept for one file, because several readers ask in turn; `changed` and `size` tell when to look again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with opened(checked_content(path, str(path)), str(path)) as hdus:
            tables = [hdu for hdu in hdus if getattr(hdu, "columns", None) is not None]
            columns = frozenset(name for hdu in tables for name in hdu.columns.names)
            return FitsSummary(dict(hdus[0].header), columns)
