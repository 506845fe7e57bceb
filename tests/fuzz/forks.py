"""The processes of the sandbox as forks of this one, which has the parsers already: they start in milliseconds."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import astropy.io.fits  # noqa: F401  # imported once, for all forks
import h5py  # noqa: F401
import scipy.io  # noqa: F401
import tifffile  # noqa: F401

from pnpladmm import sandbox
from pnpladmm.sandbox import worker

SET_LIMITS = worker._set_limits


class Forked:
    """What the sandbox needs of `subprocess.Popen`."""

    def __init__(self, command: list[str], **options: Any) -> None:
        inside, outside = os.pipe(), os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                os.dup2(inside[0], 0)
                os.dup2(outside[1], 1)
                worker.sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
                for handle in (*inside, *outside):
                    os.close(handle)
                worker._set_limits = limits_above(addresses())
                worker.main()
            finally:
                os._exit(1)
        os.close(inside[0])
        os.close(outside[1])
        self.stdin, self.stdout = os.fdopen(inside[1], "wb"), os.fdopen(outside[0], "rb")
        self.code: int | None = None

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdin.close()
        self.stdout.close()
        self.wait()

    def kill(self) -> None:
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code


def addresses() -> int:
    """Bytes of addresses that this process has."""
    return os.sysconf("SC_PAGE_SIZE") * int(Path("/proc/self/statm").read_text().split()[0])


def limits_above(own: int) -> Callable[[int, float, float], None]:
    """The limits of a worker, for one that begins with the addresses of the process that it is a fork of."""
    return lambda memory, seconds, clock: SET_LIMITS(own + memory, seconds, clock)


def fork_workers() -> None:
    """From now on the sandbox forks."""
    sandbox.subprocess.Popen = Forked  # type: ignore[misc,assignment]
