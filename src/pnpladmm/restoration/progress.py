"""A progress bar on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pnpladmm.solvers import Progress
from pnpladmm.solvers.loop import Callback


@contextmanager
def progress_bar(name: str, total: int) -> Iterator[Callback]:
    """A bar for about `total` iterations, to be called after each of them; it appears at the first call."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    fields = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[change]}"), TimeRemainingColumn())
    bars = Bars(*fields, console=Console(stderr=True))
    task = bars.add_task(name, total=total, change="")
    done = 0

    def show(step: Progress) -> None:
        nonlocal done
        bars.start()
        done += 1
        where = f"{name}, tile {step.tile + 1} of {step.tiles}" if step.tiles > 1 else name
        whole = max(total * step.tiles, done)
        bars.update(task, description=where, completed=done, total=whole, change=_words(step))

    try:
        yield show
        bars.update(task, total=done)
    finally:
        if bars.live.is_started:  # stopping what never started prints an empty line
            bars.stop()


def both(first: Callback, second: Callback | None) -> Callback:
    """A callback that calls both; the run stops if one of them returns True."""

    def call(step: Progress) -> bool:
        stop = bool(first(step))
        return bool(second is not None and second(step)) or stop

    return call


def _words(step: Progress) -> str:
    change, fit = step.row["x_change"], step.row["data_fit"]
    if change is None:
        return ""
    words = f"change {float(change.max()):.1e}"
    if fit is None:
        return words
    # sqrt(2 h / pixels) is the residual in units of the noise: about 1 when the picture fits the data.
    return f"{words}, residual {(2 * float(fit.max()) / step.state.x[0].numel()) ** 0.5:.2f} of the noise"
