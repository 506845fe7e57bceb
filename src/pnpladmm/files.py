"""Files in and out: written beside and renamed, recognised by their first bytes, read with optional packages."""

from __future__ import annotations

import glob
import importlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pnpladmm.locks import lock
from pnpladmm.tensors import InputError, one_line

EXTRAS = {
    "astropy": "astro",
    "photutils": "astro",
    "h5py": "matlab",
    "pillow_heif": "heic",
    "optuna": "experiments",
    "pycocotools": "experiments",
    "torchmetrics": "experiments",
    "deepinv": "deepinv",
    "zarr": "scale",
    "dask": "scale",
    "distributed": "scale",
    "fastapi": "web",
    "uvicorn": "web",
}
"""Optional packages and the extra of pnpladmm that installs each."""


@contextmanager
def replacing(path: str | Path, durable: bool = True) -> Iterator[Path]:
    """Give a temporary file beside `path`; it takes the place of `path` when the block ends without an error.

    A crash leaves the old file or the new one, never half of one; what a killed process left behind is removed by the
    next one that writes here. Folders that are missing are made. The permissions of an old file are kept. Links and
    devices are not written through. What the system refuses is an `InputError` that names `path`. A file that is not
    `durable` may be lost or empty after a power cut, and is written much faster.
    """
    name = one_line(str(path))
    beside: Path | None = None
    handle = -1
    try:
        target = _target(path, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_left_over(target)
        # A random name, made only if it is new, so it is no link of somebody else's.
        handle, beside_name = tempfile.mkstemp(dir=target.parent, prefix=_prefix(target), suffix=".part")
        lock(handle)  # says that it is not left over
        beside = Path(beside_name)
        yield beside
        # mkstemp makes files for their owner alone.
        beside.chmod(target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask())
        if durable:
            _sync(beside)
        os.replace(beside, _target(path, name))
        if durable:
            _sync_folder(target.parent)
    except OSError as error:
        raise InputError(f"{name} cannot be written ({error.strerror or error})") from error
    finally:
        if beside is not None:
            beside.unlink(missing_ok=True)
        if handle >= 0:
            os.close(handle)


class StrictFile(io.BufferedRandom):
    """A new file in which every byte that cannot be written is an error.

    numpy, and with it tifffile, writes arrays around Python into the descriptor of a plain file, and does not hear of a
    full disk at the end: half a file would look like a whole one. This file has no descriptor to show.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "w+"))

    def fileno(self) -> int:
        """None, as for a file in memory."""
        raise io.UnsupportedOperation("fileno")


def check_writable(path: str | Path, size: int = 0) -> None:
    """Refuse, before long work, a file of about `size` bytes that `replacing` could not write. Nothing is left behind.

    A temporary file is made in the folder of `path`; where that is missing, in the nearest one above it.
    """
    name = one_line(str(path))
    try:
        target = _target(path, name)
        folder = target.parent
        while not folder.exists():
            folder = folder.parent
        with tempfile.TemporaryFile(dir=folder):  # without a name where the system can: a kill leaves nothing
            free = shutil.disk_usage(folder).free
    except OSError as error:
        raise InputError(f"{name} cannot be written ({error.strerror or error}): give another place") from error
    if free < size:
        raise InputError(
            f"{name} needs about {size / 1e6:.3g} MB, {free / 1e6:.3g} MB are free: make room, or write elsewhere"
        )


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
    except ImportError as error:
        missing = "which is not installed" if error.name in (None, package) else f"whose import failed ({error})"
        raise InputError(
            f"{purpose} needs the package {package}, {missing}: pip install 'pnpladmm[{EXTRAS[package]}]'"
        ) from None


def _target(path: str | Path, name: str) -> Path:
    """The file to be replaced, if it is none yet or a plain one; links in the names of its folders are followed."""
    path = Path(path)
    target = Path(os.path.realpath(path.parent)) / path.name
    if target.is_symlink():
        raise InputError(f"{name} is a link, which is not written through: give the file it points to")
    if target.is_dir():
        raise InputError(f"{name} is a folder: give the name of a file")
    if target.exists() and not target.is_file():
        raise InputError(f"{name} is a device or a pipe: give the name of a file")
    return target


def _prefix(target: Path) -> str:
    """How the names of the temporary files of a target begin."""
    return f".{target.name[:40]}."


def _remove_left_over(target: Path) -> None:
    """Remove the temporary files of this target that no living process holds."""
    for path in target.parent.glob(f"{glob.escape(_prefix(target))}*.part"):
        with suppress(OSError):
            handle = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
            try:
                if lock(handle):
                    path.unlink()
            finally:
                os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync(path: Path) -> None:
    """Make the system write the file to the disk: a rename before that could leave an empty file after a crash."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make the system write the new name to the disk, where it can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
