"""What tuning found, drawn: the best PSNR so far against the number of trials, and the table of settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pnpladmm.workshop.experiments import page
from pnpladmm.workshop.experiments.page import COLOURS

NEAR_BOUND = 1.05
"""A best value within this factor of a bound is marked: the range may be too narrow."""


def draw_tuning(data: Mapping[str, Any], folder: Path) -> None:
    """`tune.csv`, `tune.png`, `tune.svg` and `tune.html`."""
    page.write_csv(folder / "tune.csv", _lines(data))
    levels = data["noise"]
    columns = min(2, len(levels))
    rows = -(-len(levels) // columns)
    with page.figure(folder, "tune", 10.5, 3.4 * rows + 0.8) as drawing:
        places = drawing.subplots(rows, columns, squeeze=False).ravel()
        for axes in places[len(levels) :]:
            axes.axis("off")
        for axes, noise in zip(places, levels, strict=False):
            for search in (s for s in data["searches"] if s["noise"] == noise):
                colour = COLOURS[search["method"]]
                numbers = range(1, len(search["trials"]) + 1)
                title = data["titles"][search["method"]]
                axes.plot(numbers, _best_so_far(search["trials"]), color=colour, drawstyle="steps-post", label=title)
            axes.set(xlabel="trials", ylabel="best PSNR so far (dB)", title=f"noise {noise:g}")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.grid(alpha=0.3)
        handles, labels = places[0].get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    parts = [
        page.paragraph(
            f"{data['trials']} trials for each method and noise level, on the tuning pictures only; the value is the "
            "mean PSNR inside a 17-pixel border. Trials whose early PSNR was not among the best were given up, and "
            "count. A value marked with * lies at the end of the range it was searched in."
        ),
        _settings(data),
        page.picture(folder / "tune.svg", "The best PSNR against the number of trials."),
        page.about(data),
    ]
    page.write_page(folder / "tune.html", f"Tuning: {data['task']}", parts)


def _best_so_far(trials: Sequence[Mapping[str, Any]]) -> list[float]:
    best, found = float("nan"), []
    for trial in trials:
        value = trial["psnr"]
        if value is not None and not value <= best:
            best = value
        found.append(best)
    return found


def _settings(data: Mapping[str, Any]) -> str:
    lines = []
    for method, title in data["titles"].items():
        for i, search in enumerate(s for s in data["searches"] if s["method"] == method):
            given_up = sum(trial["psnr"] is None for trial in search["trials"])
            shown = [f"{name} = {value:.4g}{_mark(search, name)}" for name, value in search["parameters"].items()]
            lines.append(
                [
                    "" if i else title,
                    f"{search['noise']:g}",
                    ", ".join(shown),
                    f"{search['psnr']:.3f}",
                    f"{len(search['trials'])}",
                    str(given_up),
                ]
            )
    header = ["method", "noise", "parameters (noise levels of 255)", "PSNR dB", "trials", "given up"]
    return page.table(header, lines, names=3)


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
