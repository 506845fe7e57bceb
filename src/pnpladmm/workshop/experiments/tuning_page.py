"""Tuning drawn: the best PSNR after each number of trials, and the table of settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pnpladmm.workshop.experiments.output import figure, legend_below, style_of, write_csv, write_page

NEAR_BOUND = 1.05
"""A best value within this factor of a bound is marked: the range may be too narrow."""


def draw_tuning(data: Mapping[str, Any], folder: Path) -> None:
    """`tune.csv`, `tune.png`, `tune.svg` and `tune.html`."""
    write_csv(folder / "tune.csv", _lines(data))
    levels = data["noise"]
    columns = min(2, len(levels))
    rows = -(-len(levels) // columns)
    with figure(folder, "tune", 10.5, 3.4 * rows + 0.8) as drawing:
        places = drawing.subplots(rows, columns, squeeze=False).ravel()
        for axes in places[len(levels) :]:
            axes.axis("off")
        for axes, noise in zip(places, levels, strict=False):
            for search in (s for s in data["searches"] if s["noise"] == noise):
                scores = _best_so_far(search["trials"])
                style = {"color": style_of(search["method"])["color"], "label": data["titles"][search["method"]]}
                axes.plot(range(1, len(scores) + 1), scores, drawstyle="steps-post", **style)
            axes.set(xlabel="trials", ylabel="best PSNR so far (dB)", title=f"noise {noise:g}")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.grid(alpha=0.3)
        legend_below(drawing, places[0])
    title = f"Tuning: {data['task']}"
    write_page(
        folder / "tune.html", "tune.html", title, data=data, settings=_settings(data), figure=folder / "tune.svg"
    )


def _best_so_far(trials: Sequence[Mapping[str, Any]]) -> list[float]:
    best, found = float("nan"), []
    for trial in trials:
        value = trial["psnr"]
        if value is not None and not value <= best:
            best = value
        found.append(best)
    return found


def _settings(data: Mapping[str, Any]) -> list[list[str]]:
    """Rows of the page's table: the best settings of each method and noise level."""
    lines = []
    for method, title in data["titles"].items():
        for i, search in enumerate(s for s in data["searches"] if s["method"] == method):
            shown = [f"{name} = {value:.4g}{_mark(search, name)}" for name, value in search["parameters"].items()]
            stopped = sum(trial["psnr"] is None for trial in search["trials"])
            noise, score, trials = f"{search['noise']:g}", f"{search['psnr']:.3f}", str(len(search["trials"]))
            lines.append(["" if i else title, noise, ", ".join(shown), score, trials, str(stopped)])
    return lines


def _mark(search: Mapping[str, Any], name: str) -> str:
    if name not in search["bounds"]:
        return ""
    low, high = search["bounds"][name]
    value = search["parameters"][name]
    return "*" if value < low * NEAR_BOUND or value > high / NEAR_BOUND else ""


def _lines(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "noise": search["noise"],
            "method": search["method"],
            "trial": trial["number"],
            "psnr": trial["psnr"],
            "given_up": trial["psnr"] is None,
            "parameters": " ".join(f"{name}={value:.6g}" for name, value in trial["parameters"].items()),
        }
        for search in data["searches"]
        for trial in search["trials"]
    ]
