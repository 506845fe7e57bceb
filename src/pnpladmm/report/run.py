"""Runs of `restore` as one HTML page and one JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pnpladmm.blur import Blur, draw_blur
from pnpladmm.files import write_bytes, write_text
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.report.figures import curves, picture_png, residual_png
from pnpladmm.report.page import render
from pnpladmm.report.summary import summarise
from pnpladmm.restoration import Restoration
from pnpladmm.solvers import Status

GOOD = (Status.CONVERGED, Status.FINISHED)


@dataclass(frozen=True)
class Section:
    """One run on the page."""

    title: str
    run: Restoration
    figures: Mapping[str, bytes]
    """PNG by caption; the residual is added."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    quality: Mapping[str, float] = field(default_factory=dict)
    """PSNR in dB by the name of the picture, where the sharp picture is known."""


def write_report(folder: Path, title: str, sections: Sequence[Section], text: str = "") -> Path:
    """Write `report.html`, which needs no other file, and `report.json`, for the first picture of each run."""
    summaries = [summarise(s.run, {**s.settings, **s.quality}) for s in sections]
    content = summaries[0] if len(summaries) == 1 else dict(zip((s.title for s in sections), summaries, strict=True))
    write_text(folder / "report.json", json.dumps(content, indent=1) + "\n")
    shown = [
        {
            "section": section,
            "summary": summary,
            "mark": "good" if section.run.statuses[0] in GOOD else "bad" if section.run.statuses[0].failed else "",
            "residual": residual_png(section.run.problem, section.run.state.x),
            "curves": curves(section.run.history),
        }
        for section, summary in zip(sections, summaries, strict=True)
    ]
    write_text(folder / "report.html", render("run.html", title=title, text=text, runs=shown))
    return folder / "report.html"


def write_restoration(folder: Path, run: Restoration, title: str, settings: Mapping[str, Any]) -> Path:
    """The report of one run of `restore`; its pictures are also written as files of their own."""
    return write_report(folder, title, [Section("", run, figures_of(run, folder), settings)])


def figures_of(run: Restoration, folder: Path) -> dict[str, bytes]:
    """Before and after of the first page, and the blur where it has kernels; written into `folder` by those names."""
    figures = {
        "Before": picture_png(run.before.from_linear().pixels),
        "After": picture_png(run.picture.from_linear().pixels),
    }
    for caption, png in figures.items():
        write_bytes(folder / f"{caption.lower()}.png", png)
    if isinstance(run.blur, Blur | SpatiallyVaryingBlur):
        draw_blur(run.blur, folder / "blur.png")
        figures["The blur: its kernels where they act"] = (folder / "blur.png").read_bytes()
    return figures
