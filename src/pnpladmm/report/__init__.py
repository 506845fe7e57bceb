"""A run as one HTML page and one JSON file."""

from __future__ import annotations

import base64
import html
import io
import json
import math
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pnpladmm.solvers import Problem, Result, Status
from pnpladmm.solvers.certificate import Certificate
from pnpladmm.solvers.history import History
from pnpladmm.solvers.method import Method

CURVES = {
    "PSNR (dB)": (("psnr",), False),
    "relative change": (("x_change", "z_change", "u_change"), True),
    "objective and its parts": (("lagrangian", "objective", "data_fit"), False),
}

FAILED = (Status.DIVERGED, Status.NON_FINITE)

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h1 { font-weight: 600 } h2 { font-weight: 600; margin-top: 2rem }
.row { display: flex; flex-wrap: wrap; gap: 1rem } figure { margin: 0; flex: 1 1 15rem; max-width: 22rem }
figure img { width: 100%; border: 1px solid #ddd } figure svg { width: 100%; height: auto }
figure.small { flex: 0 1 20rem }
figcaption { color: #555; font-size: 13px } table { border-collapse: collapse }
td, th { padding: .15rem .8rem .15rem 0; text-align: left; vertical-align: top }
pre { background: #f6f6f6; padding: .8rem; white-space: pre-wrap } .good { color: #176b2c } .bad { color: #a02020 }
"""


def write_report(
    folder: Path,
    problem: Problem,
    result: Result,
    pictures: Mapping[str, Path],
    title: str,
    settings: Mapping[str, Any] | None = None,
) -> Path:
    """`report.html`, self-contained, and `report.json`, for the first picture of the run.

    `pictures` maps captions to PNG files that are laid into the page; the residual `y - Hx` is added.
    """
    summary = summarise(problem, result, settings)
    write_text(folder / "report.json", json.dumps(summary, indent=1))
    figures = [(caption, path.read_bytes()) for caption, path in pictures.items()]
    figures.append(("Residual y - Hx: noise without structure if blur and noise level fit", _residual(problem, result)))
    status = result.statuses[0]
    good = "good" if status in (Status.CONVERGED, Status.FINISHED) else "bad" if status in FAILED else "plain"
    page = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>",
        f"<style>{STYLE}</style><h1>{html.escape(title)}</h1>",
        f"<p><b class={good}>{status.label}</b> after {len(result.history)} iterations, "
        f"{float(result.history.seconds[-1]):.1f} s. {html.escape(status.advice)}</p>",
        "<div class=row>",
        *(
            f"<figure><img src='{_data_url(png)}'><figcaption>{html.escape(c)}</figcaption></figure>"
            for c, png in figures
        ),
        "</div><h2>Certificate</h2>",
        f"<pre>{html.escape(str(result.certificates[0]))}</pre>",
        "<h2>Curves</h2><div class=row>",
        *(f"<figure class=small>{svg}</figure>" for svg in _curves(result.history)),
        "</div><h2>Parameters</h2><table>",
        *(f"<tr><th>{html.escape(str(k))}<td>{html.escape(_show(v))}" for k, v in summary["parameters"].items()),
        "</table></html>",
    ]
    write_text(folder / "report.html", "\n".join(page))
    return folder / "report.html"


def summarise(problem: Problem, result: Result, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Everything about the first picture's run that is not a picture, ready for JSON."""
    norm = problem.norm_squared
    return {
        "status": result.statuses[0].label,
        "advice": result.statuses[0].advice,
        "iterations": len(result.history),
        "certificate": _certificate(result.certificates[0]),
        "parameters": {
            **(settings or {}),
            "method": result.method.name,
            **_parameters(result.method),
            "||H||^2": f"{float(norm.lower[0]):.6g} to {float(norm.upper[0]):.6g}",
            "L_h": float(problem.L_h()[0]),
        },
        "history": {f.name: _first(getattr(result.history, f.name)) for f in fields(History) if f.name != "rounding"},
    }


def write_text(path: Path, text: str) -> None:
    """Write beside and rename: a crash leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _parameters(method: Method) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for f in fields(method):  # type: ignore[arg-type]  # every method is a dataclass
        value = getattr(method, f.name)
        if isinstance(value, Tensor):  # of the first picture; a list where it has several
            value = value[0].tolist() if value.ndim > 1 else float(value.reshape(-1)[0])
        shown[f.name] = value if isinstance(value, int | float | str) or value is None else repr(value)
    return shown


def _certificate(certificate: Certificate) -> dict[str, Any]:
    return {
        "level": certificate.level.value,
        "statement": certificate.statement,
        "conditions": [str(condition) for condition in certificate.conditions],
        "failures": list(certificate.failures),
        "advice": certificate.advice,
    }


def _first(column: Tensor | None) -> list[float | None] | None:
    if column is None:
        return None
    values = column if column.ndim == 1 else column[:, 0]
    return [float(v) if math.isfinite(v) else None for v in values]


def _show(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _data_url(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _residual(problem: Problem, result: Result) -> bytes:
    """`y - Hx` of the first picture, averaged over channels, blue to red, at three noise levels' range."""
    from matplotlib import colormaps
    from PIL import Image

    residual = (problem.observed - problem.operator.forward(result.image))[0].mean(0)
    span = 3 * residual.std().clamp_min(torch.finfo(residual.dtype).tiny)
    shades = colormaps["RdBu_r"]((residual / span / 2 + 0.5).clamp(0, 1).cpu().numpy(), bytes=True)
    buffer = io.BytesIO()
    Image.fromarray(shades[..., :3]).save(buffer, "PNG")
    return buffer.getvalue()


def _curves(history: History) -> list[str]:
    from matplotlib.figure import Figure

    drawings = []
    for title, (names, logarithmic) in CURVES.items():
        columns = [(name, getattr(history, name)) for name in names if getattr(history, name) is not None]
        if not columns:
            continue
        figure = Figure(figsize=(4.2, 2.8), layout="constrained")
        axes = figure.add_subplot()
        for name, column in columns:
            axes.plot(range(1, len(column) + 1), column[:, 0].numpy(), label=name)
        axes.set(title=title, xlabel="iteration", yscale="log" if logarithmic else "linear")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg")
        drawings.append(buffer.getvalue()[buffer.getvalue().index("<svg") :])
    return drawings
