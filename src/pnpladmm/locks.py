"""One process at a time for one output, and paths that must not be one another."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pnpladmm.tensors import InputError


class Busy(InputError):
    """Another process is writing the same file."""


def lock(handle: int) -> bool:
    """Lock an open file for this process until it is closed; False where another one has locked it.

    True where the system has no such locks.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


@contextmanager
def only_writer_of(path: str | Path, busy: str = "") -> Iterator[None]:
    """Inside, no other process that asks for it may write `path`. A killed process leaves no lock behind.

    `busy` is what is said where another one is at it.

    Raises
    ------
    Busy
        Where another one is at it.
    """
    path = Path(path)
    place = _place(path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle = _locked(place)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror or error})") from error
    if handle is None:
        raise Busy(busy or f"{path}: another process is writing it: wait for it, or give another name")
    try:
        yield
    finally:
        place.unlink(missing_ok=True)  # while it is locked: nobody can have locked another file of this name
        os.close(handle)


def remove_left_lock(path: str | Path) -> None:
    """Remove the lock file of an output that nobody writes any more: a killed process leaves it there, unlocked."""
    if _place(Path(path)).exists():
        with suppress(InputError), only_writer_of(path):
            pass


def _place(path: Path) -> Path:
    return path.parent / f".{path.name[:100]}.lock"


def _locked(place: Path) -> int | None:
    """The lock file, opened and locked; None where another process has it."""
    while True:
        handle = os.open(place, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        if not lock(handle):
            os.close(handle)
            return None
        try:
            if os.path.samestat(os.fstat(handle), os.stat(place)):
                return handle
        except FileNotFoundError:
            pass
        os.close(handle)  # its last owner removed it before we locked it


def check_apart(outputs: Iterable[str | Path], inputs: Iterable[str | Path]) -> None:
    """Refuse an output that is one of the inputs, under whatever name or link."""
    known = [(Path(one), _identities(Path(one))) for one in inputs]
    for output in outputs:
        own = _identities(Path(output))
        for path, identities in known:
            if own & identities:
                raise InputError(f"{output}: the output would overwrite {path}, which is read: give another name")


def check_files(inputs: Iterable[str | Path], outputs: Iterable[str | Path]) -> None:
    """Refuse inputs without an end, and outputs that are inputs."""
    inputs = list(inputs)
    for path in inputs:
        check_regular(path)
    check_apart(outputs, inputs)


def check_inside(path: str | Path, folder: Path, name: str, advice: str) -> None:
    """Refuse a path that leads out of a folder, also over links."""
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise InputError(f"{name}: {path} lies outside the folder {folder or '.'}: {advice}")


def check_regular(path: str | Path) -> None:
    """Refuse a device or a pipe, which may have no end. What is missing is left to the reader."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InputError(f"{path}: is a device or a pipe: give a file")


def _identities(path: Path) -> set[object]:
    """What two names of one file have in common."""
    found: set[object] = {os.path.realpath(path)}
    try:
        state = path.stat()
        found.add((state.st_dev, state.st_ino))
    except (OSError, ValueError):
        pass
    return found
