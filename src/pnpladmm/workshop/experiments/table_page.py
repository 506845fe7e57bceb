"""Table 1 drawn: CSV, a figure, and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pnpladmm.workshop.experiments.output import figure, legend_below, style_of, write_csv, write_page
from pnpladmm.workshop.experiments.scoring import METRICS

TITLES = {
    "deblur": "Deblurring",
    "sr2": "Super-resolution, factor 2",
    "sr3": "Super-resolution, factor 3",
    "sr4": "Super-resolution, factor 4",
    "inpainting": "Inpainting",
}
BASELINE = "ladmm"
"""The others are compared with this method, picture by picture."""


def draw_table(data: Mapping[str, Any], folder: Path, name: str) -> None:
    """`name.csv`, `name-pictures.csv`, `name.png`, `name.svg` and `name.html`."""
    rows = data["rows"]
    write_csv(folder / f"{name}.csv", [_flat(row) for row in rows])
    write_csv(folder / f"{name}-pictures.csv", [line for row in rows for line in _pictures(row)])
    _figure(data, folder, name)
    write_page(
        folder / f"{name}.html",
        "table.html",
        f"{TITLES[data['task']]}: methods against noise",
        data=data,
        best=_best(rows),
        settings=_settings(data),
        figure=folder / f"{name}.svg",
    )


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in row.items() if key not in ("pictures", "parameters", "paper")}
    printed = row["paper"] or {}
    return {
        **kept,
        **{f"paper_{metric}": printed.get(metric) for metric in ("psnr", "ssim", "lpips")},
        "parameters": " ".join(f"{key}={value:.6g}" for key, value in row["parameters"].items()),
    }


def _pictures(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    each = row["pictures"]
    return [
        {
            "method": row["method"],
            "noise": row["noise"],
            "picture": picture,
            **{metric: None if each[metric] is None else each[metric][i] for metric in METRICS},
        }
        for i, picture in enumerate(each["names"])
    ]


def _figure(data: Mapping[str, Any], folder: Path, name: str) -> None:
    """Left: PSNR. Right: the gain over LADMM, ours and (hollow) the paper's."""
    levels = sorted({row["noise"] for row in data["rows"]})
    baseline = {r["noise"]: r["paper"]["psnr"] for r in data["rows"] if r["method"] == BASELINE and r["paper"]}
    with figure(folder, name, 10.5, 4.6) as drawing:
        left, right = drawing.subplots(1, 2)
        for i, (method, title) in enumerate(data["titles"].items()):
            rows = sorted((r for r in data["rows"] if r["method"] == method), key=lambda r: r["noise"])
            style = {**style_of(method), "markersize": 6}
            left.plot(range(len(levels)), [r["psnr"] for r in rows], label=title, linewidth=1.3, **style)
            # Without a denoiser a method is so far below that it would hide the differences between the others.
            if any(row["calls"] for row in rows):
                # Side by side where they would cover each other.
                shift = 0.06 * (i - len(data["titles"]) / 2)
                _gains(right, [(levels.index(r["noise"]) + shift, r) for r in rows], baseline, style)
        left.set(ylabel="PSNR (dB), 17-pixel border left out", title="PSNR")
        right.set(ylabel="dB over PnP-LADMM (bars: standard error)", title="Gain over PnP-LADMM; hollow: the paper's")
        right.axhline(0, color=style_of(BASELINE)["color"], linewidth=1)
        for axes in (left, right):
            axes.set_xticks(range(len(levels)), [f"{noise:g}" for noise in levels])
            axes.set_xlim(-0.5, len(levels) - 0.5)
            axes.set_xlabel("noise standard deviation (of 255)")
            axes.grid(alpha=0.3)
        legend_below(drawing, left)


def _gains(
    axes: Any,
    places: Sequence[tuple[float, Mapping[str, Any]]],
    baseline: Mapping[float, float],
    style: Mapping[str, Any],
) -> None:
    """A method's gain at each noise level, with its standard error, and the gain that the paper printed."""
    ours = [(x, row["gain"], row["gain_error"] or 0.0) for x, row in places if row["gain"] is not None]
    if ours:
        axes.errorbar(*zip(*ours, strict=True), linestyle="none", capsize=2, **style)
    for x, row in places:
        if row["paper"] and row["noise"] in baseline and row["method"] != BASELINE:
            hollow = {**style, "markersize": 8, "markerfacecolor": "none"}
            axes.plot(x, row["paper"]["psnr"] - baseline[row["noise"]], **hollow)


def _best(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, float], set[str]]:
    """The best methods for each metric and noise level, to the digits that the page shows."""
    found: dict[tuple[str, float], set[str]] = {}
    for metric, digits, sign in (("psnr", 2, 1), ("ssim", 3, 1), ("lpips", 3, -1)):
        for noise in {row["noise"] for row in rows}:
            values = {row["method"]: row[metric] for row in rows if row["noise"] == noise and row[metric] is not None}
            top = max((round(sign * value, digits) for value in values.values()), default=None)
            found[metric, noise] = {name for name, value in values.items() if round(sign * value, digits) == top}
    return found


def _settings(data: Mapping[str, Any]) -> list[list[str]]:
    """Rows of the table of settings."""
    return [
        [
            data["titles"][row["method"]] if row["noise"] == data["noise"][0] else "",
            f"{row['noise']:g}",
            ", ".join(f"{key} = {value:.4g}" for key, value in row["parameters"].items()),
            str(row["iterations"]),
            row["certificate"] or "",
        ]
        for row in data["rows"]
        if row["iterations"]
    ]
