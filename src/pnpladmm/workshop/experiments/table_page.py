"""Table 1 drawn: CSV, a figure, and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pnpladmm.workshop.experiments import page
from pnpladmm.workshop.experiments.page import COLOURS, MARKERS, number
from pnpladmm.workshop.experiments.scoring import METRICS

TITLES = {
    "deblur": "Deblurring",
    "sr2": "Super-resolution, factor 2",
    "sr3": "Super-resolution, factor 3",
    "sr4": "Super-resolution, factor 4",
    "inpainting": "Inpainting",
}
RETUNED = "The settings are those tuned for deblurring: nothing was tuned for this task."
NO_WEIGHTS = "<span title='no LPIPS weights on this machine'>no weights</span>"


def draw_table(data: Mapping[str, Any], folder: Path, name: str) -> None:
    """`name.csv`, `name-pictures.csv`, `name.png`, `name.svg` and `name.html`."""
    rows = data["rows"]
    page.write_csv(folder / f"{name}.csv", [_flat(row) for row in rows])
    page.write_csv(folder / f"{name}-pictures.csv", [line for row in rows for line in _pictures(row)])
    _figure(data, folder, name)
    _page(data, folder, name)


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
    """Left: PSNR. Right: what each gains over LADMM, ours and (hollow) the paper's."""
    levels = sorted({row["noise"] for row in data["rows"]})
    places = {noise: i for i, noise in enumerate(levels)}
    with page.figure(folder, name, 10.5, 4.6) as drawing:
        left, right = drawing.subplots(1, 2)
        for i, (method, title) in enumerate(data["titles"].items()):
            rows = sorted((r for r in data["rows"] if r["method"] == method), key=lambda r: r["noise"])
            style = {"color": COLOURS[method], "marker": MARKERS[method], "markersize": 6, "linewidth": 1.3}
            left.plot([places[r["noise"]] for r in rows], [r["psnr"] for r in rows], label=title, **style)
            # Side by side where they would cover each other.
            shift = 0.06 * (i - len(data["titles"]) / 2)
            if method not in ("observed", "richardson-lucy"):
                gained = [r for r in rows if r["gain"] is not None]
                right.errorbar(
                    [places[r["noise"]] + shift for r in gained],
                    [r["gain"] for r in gained],
                    [r["gain_error"] or 0.0 for r in gained],
                    linestyle="none",
                    capsize=2,
                    label=title if gained else None,
                    **{key: value for key, value in style.items() if key != "linewidth"},
                )
                _printed(right, data["rows"], rows, places, shift, method)
        left.set(ylabel="PSNR (dB), 17-pixel border left out", title="PSNR")
        right.set(ylabel="dB over PnP-LADMM (bars: standard error)", title="Gain over PnP-LADMM; hollow: the paper's")
        right.axhline(0, color=COLOURS["ladmm"], linewidth=1)
        for axes in (left, right):
            axes.set_xticks(range(len(levels)), [f"{noise:g}" for noise in levels])
            axes.set_xlim(-0.5, len(levels) - 0.5)
            axes.set_xlabel("noise standard deviation (of 255)")
            axes.grid(alpha=0.3)
        handles, labels = left.get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)


def _printed(
    axes: Any, every: Sequence[Any], rows: Sequence[Any], places: Mapping[float, int], shift: float, method: str
) -> None:
    base = {r["noise"]: r["paper"]["psnr"] for r in every if r["method"] == "ladmm" and r["paper"]}
    points = [
        (places[r["noise"]] + shift, r["paper"]["psnr"] - base[r["noise"]])
        for r in rows
        if r["paper"] and r["noise"] in base and method != "ladmm"
    ]
    for x, y in points:
        axes.plot(x, y, marker=MARKERS[method], color=COLOURS[method], markerfacecolor="none", markersize=8)


def _page(data: Mapping[str, Any], folder: Path, name: str) -> None:
    title = f"{TITLES[data['task']]}: methods against noise"
    parts = [
        page.paragraph(
            "PSNR and SSIM of each picture inside a border of 17 pixels, the estimate clipped to [0, 1]; LPIPS with "
            "the alex trunk; means over the pictures. Grey: the paper's Table 1. Bold: best of a noise level. Gain: "
            "mean over the pictures of the PSNR above PnP-LADMM's on the same picture, with its standard error."
        ),
        *([] if data["tuned_for"] == data["task"] else [page.paragraph(RETUNED)]),
        _main_table(data),
        page.picture(folder / f"{name}.svg", "PSNR by noise level, and the gain over PnP-LADMM."),
    ]
    if data["task"] == "deblur" and not data["quick"]:
        parts += ["<h2>As the published code computes them</h2>", _code_table(data)]
    parts += ["<h2>Settings</h2>", _settings_table(data), page.about(data)]
    parts.append(
        page.paragraph(
            "Seconds: wall time of the iterations on the whole batch divided by its pictures, without the bound of "
            "||H||^2 (found once for a blur, its own column in the CSV), reading and scoring. The paper prints a "
            "runtime per method without saying of how many pictures.",
            note=True,
        )
    )
    page.write_page(folder / f"{name}.html", title, parts)


def _main_table(data: Mapping[str, Any]) -> str:
    printed = any(row["paper"] for row in data["rows"])
    names = ["PSNR", "SSIM", "LPIPS"]
    header = ["method", "noise", "PSNR dB", *(["paper"] if printed else []), "gain dB"]
    for metric in names[1:]:
        header += [metric, *(["paper"] if printed else [])]
    header += ["calls", "s / picture", *(["paper, s"] if printed else [])]
    best = {metric: _best(data["rows"], metric) for metric in ("psnr", "ssim", "lpips")}
    lines = []
    for row in data["rows"]:
        first = row["noise"] == data["noise"][0]
        paper = row["paper"] or {}

        def cell(metric: str, digits: int, row: Mapping[str, Any] = row) -> str:
            text = number(row[metric], digits, NO_WEIGHTS if metric == "lpips" else "")
            return f"<b>{text}</b>" if row["method"] in best[metric].get(row["noise"], ()) else text

        line = [data["titles"][row["method"]] if first else "", f"{row['noise']:g}", cell("psnr", 2)]
        line += [number(paper.get("psnr"), 1)] if printed else []
        line.append(_gain(row))
        for metric, digits in (("ssim", 3), ("lpips", 3)):
            line.append(cell(metric, digits))
            line += [number(paper.get(metric), 2)] if printed else []
        line += [str(row["calls"]) if row["iterations"] else "", _seconds(row)]
        line += [number(row["paper_seconds"], 0) if first else ""] if printed else []
        lines.append(line)
    return page.table(header, lines)


def _gain(row: Mapping[str, Any]) -> str:
    if row["gain"] is None:
        return ""
    error = "" if row["gain_error"] is None else f" &plusmn; {row['gain_error']:.2f}"
    failed = f" ({row['failed']} diverged)" if row["failed"] else ""
    return f"{row['gain']:+.2f}{error}{failed}"


def _seconds(row: Mapping[str, Any]) -> str:
    if not row["iterations"]:
        return ""
    return f"{row['seconds']:.4f}" if row["seconds"] < 0.1 else f"{row['seconds']:.2f}"


def _best(rows: Sequence[Mapping[str, Any]], metric: str) -> dict[float, set[str]]:
    """The best methods of each noise level, to the digits shown."""
    found: dict[float, set[str]] = {}
    digits, sign = (2, 1) if metric == "psnr" else (3, 1 if metric == "ssim" else -1)
    for noise in {row["noise"] for row in rows}:
        values = {row["method"]: row[metric] for row in rows if row["noise"] == noise and row[metric] is not None}
        if values:
            top = max(round(sign * value, digits) for value in values.values())
            found[noise] = {method for method, value in values.items() if round(sign * value, digits) == top}
    return found


def _code_table(data: Mapping[str, Any]) -> str:
    header = ["method", "noise", "PSNR dB", "paper", "SSIM", "paper", "LPIPS (vgg)", "paper"]
    lines = []
    for row in data["rows"]:
        paper = row["paper"] or {}
        lines.append(
            [
                data["titles"][row["method"]] if row["noise"] == data["noise"][0] else "",
                f"{row['noise']:g}",
                number(row["psnr_code"], 2),
                number(paper.get("psnr"), 1),
                number(row["ssim_code"], 3),
                number(paper.get("ssim"), 2),
                number(row["lpips_code"], 3, NO_WEIGHTS),
                number(paper.get("lpips"), 2),
            ]
        )
    text = (
        "The squared errors of four pictures pooled before the logarithm, SSIM with the range it finds, LPIPS with the "
        "VGG trunk on pictures in [0, 1] where [-1, 1] is expected: comparable with the paper's figures, not good ones."
    )
    return page.paragraph(text, note=True) + page.table(header, lines)


def _settings_table(data: Mapping[str, Any]) -> str:
    lines = [
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
    header = ["method", "noise", "parameters (noise levels of 255)", "iterations", "certificate"]
    return page.table(header, lines, names=3)
