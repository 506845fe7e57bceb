"""Faults inside a process, at its Nth look at the file system. Python's audit hooks report each of them."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DAY = 86400.0
WRITES = ("os.rename", "os.mkdir", "os.remove", "os.link", "os.symlink", "tempfile.mkstemp", "sqlite3.connect")


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and at which event of the process."""

    kind: str
    event: int
    share: float
    """Between 0 and 1: how much memory or disk is left, or when a signal comes."""


@dataclass
class Injector:
    """Counts the events that name a path below `folder`, and strikes at one of them."""

    folder: Path
    fault: Fault | None
    inputs: tuple[Path, ...]
    largest: int
    """Bytes of the largest output."""
    count: int = 0
    busy: bool = False

    def install(self) -> None:
        """From now on, in this process."""
        if self.fault is not None and self.fault.kind == "half a file":
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(self.fault.share * self.largest), resource.RLIM_INFINITY))
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: tuple[object, ...]) -> None:
        """Count, and strike."""
        if self.busy or (event != "open" and event not in WRITES) or not self._is_ours(arguments):
            return
        self.count += 1
        if self.fault is None or self.count < self.fault.event:
            return
        self.busy = True
        try:
            STRIKES[self.fault.kind](self, event, arguments)
        finally:
            self.busy = False

    def _is_ours(self, arguments: tuple[object, ...]) -> bool:
        paths = [os.fspath(one) for one in arguments[:2] if isinstance(one, str | bytes | os.PathLike)]
        names = [one.decode(errors="replace") if isinstance(one, bytes) else one for one in paths]
        return any(os.path.abspath(name).startswith(str(self.folder)) for name in names)


def _signal(number: int) -> Callable[[Injector, str, tuple[object, ...]], None]:
    def strike(injector: Injector, event: str, arguments: tuple[object, ...]) -> None:
        if injector.fault is not None and injector.count == injector.fault.event:
            os.kill(os.getpid(), number)

    return strike


def _refuse(number: int) -> Callable[[Injector, str, tuple[object, ...]], None]:
    """From here on nothing can be opened for writing, renamed or made."""

    def strike(injector: Injector, event: str, arguments: tuple[object, ...]) -> None:
        flags = arguments[2] if event == "open" and len(arguments) > 2 else None
        opened = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if (event in WRITES and event != "os.remove") or opened:
            raise OSError(number, os.strerror(number), str(arguments[0]))

    return strike


def _vanish(injector: Injector, event: str, arguments: tuple[object, ...]) -> None:
    for path in injector.inputs:
        path.unlink(missing_ok=True)


def _jump(injector: Injector, event: str, arguments: tuple[object, ...]) -> None:
    """The clock of the wall jumps back and forth by a day, at every event."""
    true, step = time.time_ns, (-1) ** injector.count * DAY
    if not hasattr(time, "_true_time_ns"):
        time._true_time_ns = true  # type: ignore[attr-defined]
    now: Callable[[], int] = time._true_time_ns  # type: ignore[attr-defined]
    time.time_ns = lambda: int(now() + step * 1e9)
    time.time = lambda: now() / 1e9 + step


def _starve(injector: Injector, event: str, arguments: tuple[object, ...]) -> None:
    """From here on the process gets hardly more memory than it has."""
    if injector.fault is not None and injector.count == injector.fault.event:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + int(injector.fault.share * (8 << 20))
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def _nothing(injector: Injector, event: str, arguments: tuple[object, ...]) -> None:
    """What strikes elsewhere: from outside, or by a limit."""


STRIKES: dict[str, Callable[[Injector, str, tuple[object, ...]], None]] = {
    "SIGKILL": _signal(signal.SIGKILL),
    "SIGTERM": _signal(signal.SIGTERM),
    "SIGINT": _signal(signal.SIGINT),
    "SIGKILL at any time": _nothing,
    "full disk": _refuse(errno.ENOSPC),
    "half a file": _nothing,
    "read-only folder": _refuse(errno.EROFS),
    "input vanishes": _vanish,
    "clock jumps": _jump,
    "two at once": _nothing,
    "out of memory": _starve,
}
FAULTS = tuple(STRIKES)
