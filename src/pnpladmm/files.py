"""Files in and out: written beside and renamed, recognised by their first bytes, read with optional packages."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pnpladmm.tensors import InputError

EXTRAS = {
    "astropy": "astro",
    "photutils": "astro",
    "h5py": "matlab",
    "optuna": "experiments",
    "pycocotools": "experiments",
    "torchmetrics": "experiments",
    "deepinv": "bench",
}
"""Optional packages and the extra of pnpladmm that installs each."""


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a temporary file beside `path`; it takes the place of `path` when the block ends without an error.

    A crash leaves the old file or the new one, never half of one. Folders that are missing are made. Links stay links,
    and the permissions of an old file are kept. What the system refuses is an `InputError` that names `path`.
    """
    name = one_line(str(path))
    beside: Path | None = None
    try:
        target = _target(path, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, beside_name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:40]}.", suffix=".part")
        os.close(handle)
        beside = Path(beside_name)
        yield beside
        # mkstemp makes files for their owner alone.
        beside.chmod(target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask())
        _sync(beside)
        os.replace(beside, target)
    except OSError as error:
        raise InputError(f"{name} cannot be written ({error.strerror or error})") from error
    finally:
        if beside is not None:
            beside.unlink(missing_ok=True)


def check_writable(path: str | Path) -> None:
    """Refuse, before long work, a file that `replacing` could not write. Nothing is left behind, no folder either.

    A temporary file is made in the folder of `path`; where that is missing, in the nearest one above it.
    """
    name = one_line(str(path))
    try:
        target = _target(path, name)
        folder = target.parent
        while not folder.exists():
            folder = folder.parent
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{target.name[:40]}.", suffix=".part"):
            pass
    except OSError as error:
        raise InputError(f"{name} cannot be written ({error.strerror or error}): give another place") from error


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text, beside and renamed."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write bytes, beside and renamed."""
    with replacing(path) as beside:
        beside.write_bytes(content)


def optional(module: str, purpose: str = "this") -> Any:
    """A module of an optional package; where it is missing, an error says what needs it and how to install it."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(
            f"{purpose} needs the package {package}, which is not installed: pip install 'pnpladmm[{EXTRAS[package]}]'"
        ) from None


def one_line(text: str) -> str:
    """Text that fits into a message of one line."""
    return "".join(c if c.isprintable() else " " for c in text).strip()[:300]


def _target(path: str | Path, name: str) -> Path:
    """The file to be replaced: a link stays a link, what it points to is replaced."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise InputError(f"{name} is a folder: give the name of a file")
    return target


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync(path: Path) -> None:
    """Make the system write the file to the disk: a rename before that could leave an empty file after a crash."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
