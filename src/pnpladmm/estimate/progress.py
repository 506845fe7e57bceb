"""A progress bar of an estimate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pnpladmm.estimate.way import Tell


@contextmanager
def progress_bar(name: str, show: bool, callback: Tell | None) -> Iterator[Tell]:
    """What a way calls with its steps: a bar on stderr if it is to be shown, and the caller's function."""
    if not show:
        yield callback or _silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    fields = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[step]}"), TimeElapsedColumn())
    with Progress(*fields, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(name, total=1.0, step="")

        def tell(step: str, share: float) -> None:
            bars.update(task, completed=share, step=step)
            if callback is not None:
                callback(step, share)

        yield tell


def _silent(step: str, share: float) -> None:
    pass
