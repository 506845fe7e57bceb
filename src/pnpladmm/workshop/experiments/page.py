"""How results are shown: CSV and JSON, figures as PNG and SVG, and one HTML page that needs no other file."""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pnpladmm.report import STYLE, write_text
from pnpladmm.workshop.experiments.store import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {
    "observed": "#9a9a9a",
    "richardson-lucy": "#5f5f5f",
    "ista": "#e69f00",
    "admm": "#009e73",
    "ladmm": "#0072b2",
    "certified": "#56b4e9",
    "fast-8": "#d55e00",
    "fast-24": "#8e3b8a",
}
"""One for each method, apart for most eyes (after Okabe and Ito)."""
MARKERS = {
    "observed": "x",
    "richardson-lucy": "v",
    "ista": "s",
    "admm": "D",
    "ladmm": "o",
    "certified": "^",
    "fast-8": "P",
    "fast-24": "*",
}
DPI = 130

PAGE_STYLE = """
figure.wide { max-width: 100%; flex: 1 1 100%; margin: 1rem 0 } figure.wide img { border: 0 }
table.figures td, table.figures th { padding: .22rem .7rem; text-align: right; font-variant-numeric: tabular-nums }
table.figures thead th { border-bottom: 2px solid #888; vertical-align: bottom }
table.figures td.name, table.figures th.name { text-align: left; white-space: nowrap }
table.figures td.text, table.figures th.text { text-align: left }
table.figures td.paper { color: #667; font-size: 90% }
table.figures tr.first td { border-top: 1px solid #ccc } table.figures caption { text-align: left; color: #555 }
table.figures td b { color: #003d66 } .scroll { overflow-x: auto } p.note { color: #555; font-size: 13.5px }
"""


def keep(folder: Path, name: str, data: Mapping[str, Any], draw: Callable[[Mapping[str, Any], Path], None]) -> None:
    """Write a result as `name.json` and draw it; where there is no matplotlib, it is drawn elsewhere from the JSON."""
    write_text(folder / f"{name}.json", json.dumps(data, indent=1, allow_nan=False) + "\n")
    try:
        draw(data, folder)
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("matplotlib"):
            raise
        print(f"{name}: no matplotlib here; draw it with `pnpladmm experiment draw {folder}`", file=sys.stderr)


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A table with the columns of its first row; None is empty, numbers are in full."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: "" if value is None else value for name, value in row.items()})
    write_text(path, text.getvalue())


@contextmanager
def figure(folder: Path, name: str, width: float, height: float) -> Iterator[Figure]:
    """A figure that is saved as `name.png` and `name.svg`, the same bytes every time."""
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
            buffer = io.BytesIO()
            drawing.savefig(buffer, format=kind, dpi=DPI, metadata=metadata)
            write_bytes(folder / f"{name}.{kind}", buffer.getvalue())


def write_page(path: Path, title: str, parts: Sequence[str]) -> None:
    """The report."""
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
    body = [head, f"<style>{STYLE}{PAGE_STYLE}</style><h1>{html.escape(title)}</h1>", *parts, "</html>"]
    write_text(path, "\n".join(body) + "\n")


def paragraph(text: str, note: bool = False) -> str:
    """Plain text."""
    return f"<p{' class=note' if note else ''}>{html.escape(text)}</p>"


def picture(path: Path, caption: str) -> str:
    """A picture file laid into the page, as wide as it."""
    kind = "image/svg+xml" if path.suffix == ".svg" else "image/png"
    content = base64.b64encode(path.read_bytes()).decode()
    return (
        f"<figure class=wide><img src='data:{kind};base64,{content}' alt='{html.escape(caption, quote=True)}'>"
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]], names: int = 1, caption: str = "") -> str:
    """A table of cells in HTML. The first `names` columns are text; a first cell that is not empty opens a group."""
    kinds = ["paper" if h.startswith("paper,") or h == "paper" else "" for h in header]
    kinds[:names] = ["name", *["text"] * (names - 1)]
    lines = ["<div class=scroll><table class=figures>", f"<caption>{html.escape(caption)}</caption>" if caption else ""]
    lines.append("<thead><tr>" + "".join(f"<th class='{k}'>{h}" for k, h in zip(kinds, header, strict=True)))
    lines.append("</thead><tbody>")
    for row in rows:
        lines.append(f"<tr class='{'first' if row[0] else ''}'>")
        lines.extend(f"<td class='{k}'>{cell}" for k, cell in zip(kinds, row, strict=True))
    return "\n".join([*lines, "</tbody></table></div>"])


def about(data: Mapping[str, Any]) -> str:
    """On what, with what and where the numbers were made."""
    lines = {
        "denoiser": data["denoiser"],
        "pictures": f"{data['count']} of {data['size']}x{data['size']} ({data['data']}), seed {data['seed']}",
        "settings": data["settings"],
        "machine": data["machine"],
    }
    if data.get("quick"):
        lines["quick"] = "few small pictures, few iterations: shows that it runs, not how good it is"
    rows = "".join(f"<tr><th>{name}<td>{html.escape(str(value))}" for name, value in lines.items())
    return f"<h2>How</h2><table>{rows}</table>"


def number(value: float | None, digits: int, missing: str = "") -> str:
    """So many digits behind the point."""
    return missing if value is None else f"{value:.{digits}f}"
