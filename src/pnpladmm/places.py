"""Where data lies that is too large or not ours to ship: a folder beside the checkout, and a cache."""

from __future__ import annotations

import os
from pathlib import Path


def shared_folder(name: str) -> Path | None:
    """Folder `name` of the data folder, if it is there: `$PNPLADMM_SHARED`, else `../shared` beside the checkout."""
    given = os.environ.get("PNPLADMM_SHARED")
    checkout = Path(__file__).resolve().parents[2]
    if not given and not (checkout / "pyproject.toml").is_file():  # installed: there is no checkout
        return None
    folder = (Path(given) if given else checkout.parent / "shared") / name
    return folder if folder.is_dir() else None


def cache_folder(name: str) -> Path:
    """`$PNPLADMM_CACHE/name`, else the user's cache folder; it need not exist."""
    given = os.environ.get("PNPLADMM_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pnpladmm"
    return (Path(given) if given else base) / name
