"""The protocols drawn: CSV, a figure, and the page."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pnpladmm.workshop.experiments.output import figure, legend_below, style_of, write_csv, write_page


def draw_protocols(data: Mapping[str, Any], folder: Path) -> None:
    """`protocols.csv`, `.png`, `.svg` and `.html`."""
    write_csv(folder / "protocols.csv", data["rows"])
    means = mean_rows(data)
    _figure(data, means, folder)
    write_page(
        folder / "protocols.html",
        "protocols.html",
        "Other blurs and pictures",
        data=data,
        means=[_cells(data, row) for row in means],
        kernels=[_cells(data, row, row["kernel"]) for row in data["rows"]],
        figure=folder / "protocols.svg",
    )


def mean_rows(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The means over the kernels of each protocol, by method and noise."""
    keys = list(dict.fromkeys((row["protocol"], row["method"], row["noise"]) for row in data["rows"]))
    found = []
    for protocol, method, noise in keys:
        rows = [r for r in data["rows"] if (r["protocol"], r["method"], r["noise"]) == (protocol, method, noise)]
        numbers = {
            name: statistics.fmean(r[name] for r in rows) for name in ("psnr", "ssim", "psnr_observed", "seconds")
        }
        found.append({"protocol": protocol, "method": method, "noise": noise, **numbers})
    return found


def _cells(data: Mapping[str, Any], row: Mapping[str, Any], kernel: str | None = None) -> list[str]:
    return [
        data["titles"][row["protocol"]],
        *([kernel] if kernel is not None else []),
        data["methods"][row["method"]],
        f"{row['noise']:g}",
        f"{row['psnr_observed']:.2f}",
        f"{row['psnr']:.2f}",
        f"{row['ssim']:.4f}",
        f"{row['seconds']:.3f}",
    ]


def _figure(data: Mapping[str, Any], means: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """One panel per protocol: PSNR against noise, the observation in grey."""
    names = list(data["titles"])
    with figure(folder, "protocols", 3.4 * len(names) + 0.6, 3.6) as drawing:
        panels = drawing.subplots(1, len(names), squeeze=False)[0]
        for panel, name in zip(panels, names, strict=True):
            for i, (method, title) in enumerate(data["methods"].items()):
                rows = [row for row in means if (row["protocol"], row["method"]) == (name, method)]
                noise = [row["noise"] for row in rows]
                if i == 0:
                    panel.plot(noise, [row["psnr_observed"] for row in rows], label="observed", **style_of("observed"))
                panel.plot(noise, [row["psnr"] for row in rows], label=title, **style_of(method))
            panel.set(title=data["titles"][name], xlabel="noise (of 255)", ylabel="PSNR (dB)")
            panel.grid(alpha=0.3)
        legend_below(drawing, panels[0])
