"""How results are written: JSON, CSV, figures as PNG and SVG, and one HTML page that needs no other file."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pnpladmm.files import replacing, write_text
from pnpladmm.report.page import render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

STYLES = {
    "observed": ("#9a9a9a", "x"),
    "richardson-lucy": ("#5f5f5f", "v"),
    "ista": ("#e69f00", "s"),
    "admm": ("#009e73", "D"),
    "ladmm": ("#0072b2", "o"),
    "certified": ("#56b4e9", "^"),
    "fast-8": ("#d55e00", "P"),
    "fast-24": ("#8e3b8a", "*"),
}
"""Colour and marker of the methods in the paper's comparison; most people can tell the colours apart (after Okabe and
Ito)."""
OTHER_STYLES = (("#cc79a7", "<"), ("#b8a800", ">"), ("#a0522d", "h"), ("#20b2aa", "p"), ("#6a5acd", "d"))
DPI = 130


def style_of(method: str) -> dict[str, str]:
    """Colour and marker of a method, the same in all figures."""
    other = OTHER_STYLES[zlib.crc32(method.encode()) % len(OTHER_STYLES)]
    colour, marker = STYLES.get(method, other)
    return {"color": colour, "marker": marker}


def write_result(
    folder: Path, name: str, data: Mapping[str, Any], draw: Callable[[Mapping[str, Any], Path], None]
) -> None:
    """Write a result as `name.json` and draw it. Without matplotlib it can be drawn later, from the JSON."""
    write_text(folder / f"{name}.json", json.dumps(data, indent=1, allow_nan=False) + "\n")
    try:
        draw(data, folder)
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("matplotlib"):
            raise
        print(f"{name}: matplotlib is missing; draw it with `pnpladmm experiment draw {folder}`", file=sys.stderr)


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table with the columns of its first row. Numbers have all their digits; None is an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def write_page(path: Path, template: str, title: str, **values: Any) -> None:
    """Write a page from one of the templates of the experiments."""
    write_text(path, render(template, package=__package__, title=title, **values))


@contextmanager
def figure(folder: Path, name: str, width: float, height: float) -> Iterator[Figure]:
    """A figure that is saved as `name.png` and `name.svg`, the same bytes every time. Sizes are in inches."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style: Any = {
        "svg.hashsalt": name,
        "font.size": 9,
        "axes.titlesize": 10,
        "legend.fontsize": 8,
        "axes.axisbelow": True,
    }
    with mpl.rc_context(style):
        drawing = Figure(figsize=(width, height), layout="constrained")
        yield drawing
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            with replacing(folder / f"{name}.{kind}") as beside:
                drawing.savefig(beside, format=kind, dpi=DPI, metadata=metadata)


def label_log_axis(axis: Axis) -> None:
    """Plain numbers at 1, 2 and 5 times the powers of ten, and nowhere else: they would cover each other."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def legend_below(drawing: Figure, axes: Axes) -> None:
    """One legend for all panels, below them, with the labels of `axes`."""
    handles, labels = axes.get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)


def finite(values: Sequence[float]) -> list[float | None]:
    """Numbers for JSON: None for NaN and infinity."""
    return [value if math.isfinite(value) else None for value in values]
