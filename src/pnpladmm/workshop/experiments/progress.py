"""How far an experiment is and how long it will still take: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich import progress
from rich.console import Console

INTERVAL = 5.0
"""Seconds between two lines of a log."""


class Progress:
    """Counts work (denoiser calls times pictures). The remaining time is estimated from the work of this run."""

    def __init__(self, name: str, total: float, quiet: bool = False) -> None:
        self.name, self.total, self.quiet = name, total, quiet
        self.done, self.began, self.last_line = 0.0, time.monotonic(), time.monotonic()
        self._bar: progress.Progress | None = None

    def __enter__(self) -> Progress:
        """Start the bar, where there is a terminal to draw it on."""
        if not self.quiet and self.total > 0 and sys.stderr.isatty():
            columns = (
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.TaskProgressColumn(),
                progress.TimeRemainingColumn(),
                progress.TextColumn("{task.fields[label]}"),
            )
            self._bar = progress.Progress(*columns, console=Console(stderr=True), speed_estimate_period=120)
            self._task = self._bar.add_task(self.name, total=self.total, label="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
        elif self.total > 0 and kind is None:
            self.say(f"done in {time.monotonic() - self.began:.0f} s")

    def advance(self, work: float, label: str = "") -> None:
        """Count work that was done; `label` says what is done next."""
        self.done += work
        if self._bar is not None:
            self._bar.update(self._task, completed=min(self.done, self.total), label=label)
        elif time.monotonic() - self.last_line > INTERVAL:
            self.last_line = time.monotonic()
            left = (self.last_line - self.began) * (self.total / self.done - 1) if self.done else float("nan")
            self.say(f"{100 * self.done / self.total:3.0f} %, {left:.0f} s left  {label}")

    @contextmanager
    def part(self, cost: float, label: str) -> Iterator[Callable[[float], None]]:
        """A part of the work: gives a function that counts, never more than `cost`; at its end all of it counts."""
        left = cost

        def advance(work: float) -> None:
            nonlocal left
            work = min(work, left)
            left -= work
            self.advance(work, label)

        advance(0.0)
        yield advance
        advance(left)

    def say(self, text: str) -> None:
        """Print a line, unless the experiment is quiet."""
        if self._bar is not None:
            self._bar.console.print(f"{self.name}: {text}", markup=False, highlight=False)
        elif not self.quiet:
            print(f"{self.name}: {text}", file=sys.stderr, flush=True)
