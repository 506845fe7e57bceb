"""Work in processes of their own: it can be cancelled at once, its memory comes back, and a crash stays there.

Server and process exchange lines of JSON. The process ends when the server does, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from pnpladmm.web.limits import Refused

COMMAND = (sys.executable, "-m", "pnpladmm.web.worker")
Event = Callable[[dict[str, Any]], None]


class Ended(Refused):
    """The process ended before it answered: it was cancelled, took too long, or crashed."""

    def __init__(self, message: str) -> None:
        super().__init__(500, message)


class Process:
    """One process that does one task at a time."""

    def __init__(self, command: tuple[str, ...] = COMMAND) -> None:
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=_environment()
        )

    @property
    def pid(self) -> int:
        """The number that the system gave it."""
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._child.poll() is None

    def ask(self, task: str, seconds: float, on_event: Event | None = None, **values: Any) -> dict[str, Any]:
        """Let it do a task, and wait for the answer. What was wrong with the input is `Refused`."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        late = threading.Event()

        def stop() -> None:
            late.set()
            self.kill()

        timer = threading.Timer(seconds, stop)
        timer.daemon = True
        timer.start()
        try:
            with contextlib.suppress(OSError, ValueError):
                self._child.stdin.write(json.dumps({"task": task, **values}) + "\n")
                self._child.stdin.flush()
            for line in self._child.stdout:
                message = json.loads(line)
                if "error" in message:
                    raise Refused(422, message["error"])
                if "done" in message:
                    done: dict[str, Any] = message["done"]
                    return done
                if on_event is not None:
                    on_event(message)
        finally:
            timer.cancel()
        self._child.wait()  # it is gone, and is seen to be gone
        if late.is_set():
            raise Ended(f"it took longer than {seconds:.0f} seconds and was stopped")
        raise Ended("the work ended early: out of memory, or cancelled")

    def kill(self) -> None:
        """End it now, and wait until it is gone."""
        self._child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(10)


class Helper:
    """One warm process for all short work: its libraries and its network stay loaded.

    Of orders of the same kind that wait, only the latest is done: a slider that moves asks many times.
    """

    def __init__(self, command: tuple[str, ...] = COMMAND) -> None:
        self._command = command
        self._process: Process | None = None
        self._busy = threading.Lock()
        self._latest: dict[str, int] = {}
        self._counting = threading.Lock()

    def ask(self, task: str, seconds: float, only_latest: str | None = None, **values: Any) -> dict[str, Any]:
        """Let it do a task; `only_latest` names the kind of which only the latest order counts."""
        number = self._number(only_latest)
        while not self._busy.acquire(timeout=0.05):
            self._check_latest(only_latest, number)
        try:
            self._check_latest(only_latest, number)
            if self._process is None or not self._process.alive:
                self._process = Process(self._command)
            return self._process.ask(task, seconds, **values)
        finally:
            self._busy.release()

    def warm(self) -> None:
        """Start it now, so that the first order need not wait."""
        with contextlib.suppress(Refused):
            self.ask("warm", 120)

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()

    def _check_latest(self, kind: str | None, number: int) -> None:
        if kind is not None and number != self._latest[kind]:
            raise Refused(409, "a newer order replaced this one")

    def _number(self, kind: str | None) -> int:
        if kind is None:
            return 0
        with self._counting:
            self._latest[kind] = self._latest.get(kind, 0) + 1
            return self._latest[kind]


def _environment() -> dict[str, str]:
    """The server's own, with the places where it found this package."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONUNBUFFERED": "1"}
