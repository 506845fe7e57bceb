"""How far an experiment is and how long it still takes: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

EVERY = 5.0
"""Seconds between two lines of a log."""


class Progress:
    """Counts work (in denoiser calls times pictures); the time left goes by the work done so far in this run."""

    def __init__(self, name: str, total: float, quiet: bool = False) -> None:
        self.name, self.total, self.quiet = name, total, quiet
        self.done, self.began, self.told = 0.0, time.monotonic(), time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        """Start the bar, where there is a terminal to draw it on."""
        if not self.quiet and self.total > 0 and sys.stderr.isatty():
            self._start_bar()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
        elif not self.quiet and self.total > 0 and kind is None:
            self.say(f"done in {time.monotonic() - self.began:.0f} s")

    def advance(self, work: float, what: str = "") -> None:
        """So much more is done; `what` says what comes next."""
        self.done += work
        if self._bar is not None:
            self._bar.update(self._task, completed=min(self.done, self.total), what=what)
        elif not self.quiet and time.monotonic() - self.told > EVERY:
            self.told = time.monotonic()
            left = (self.told - self.began) * (self.total / self.done - 1) if self.done else float("nan")
            self.say(f"{100 * self.done / self.total:3.0f} %, {left:.0f} s left  {what}")

    def say(self, text: str) -> None:
        """A line of its own."""
        if self._bar is not None:
            self._bar.console.print(f"{self.name}: {text}", markup=False, highlight=False)
        else:
            print(f"{self.name}: {text}", file=sys.stderr, flush=True)

    def _start_bar(self) -> None:
        try:
            from rich import progress
            from rich.console import Console
        except ImportError:
            return
        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.fields[what]}"),
        )
        self._bar = progress.Progress(*columns, console=Console(stderr=True), speed_estimate_period=120)
        self._task = self._bar.add_task(self.name, total=self.total, what="")
        self._bar.start()
