"""Curves drawn: PSNR against time and denoiser calls, and the changes of the splitting variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pnpladmm.workshop.experiments.output import figure, label_log_axis, legend_below, style_of, write_csv, write_page


def draw_convergence(data: Mapping[str, Any], folder: Path) -> None:
    """`convergence.csv`, the figure, and the page."""
    write_csv(folder / "convergence.csv", _lines(data, ("psnr", "calls", "seconds"), first=0))
    levels = data["noise"]
    with figure(folder, "convergence", 10.5, 3.9 * len(levels) + 0.7) as drawing:
        for row, noise in zip(drawing.subplots(len(levels), 2, squeeze=False), levels, strict=True):
            curves = [curve for curve in data["curves"] if curve["noise"] == noise]
            for axes, across in zip(row, ("seconds", "calls"), strict=True):
                _psnr_curves(axes, curves, data["titles"], across)
                axes.set_title(f"noise {noise:g}: PSNR against {'time' if across == 'seconds' else 'denoiser calls'}")
        legend_below(drawing, drawing.axes[0])
    ends = [_end(data["titles"][curve["method"]], curve) for curve in data["curves"]]
    picture = folder / "convergence.svg"
    write_page(folder / "convergence.html", "convergence.html", "Convergence", data=data, ends=ends, figure=picture)


def _psnr_curves(axes: Any, curves: Sequence[Mapping[str, Any]], titles: Mapping[str, str], across: str) -> None:
    for curve in curves:
        name = curve["method"]
        style = style_of(name)
        points = [(x, y) for x, y in zip(curve[across], curve["psnr"], strict=True) if y is not None and x > 0]
        if across == "calls" and not points:  # no denoiser: a line at its best, for comparison
            best = max(y for y in curve["psnr"] if y is not None)
            axes.axhline(best, color=style["color"], linestyle=":", label=f"{titles[name]} (best, no calls)")
            continue
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, color=style["color"], linewidth=1.4, label=titles[name])
        axes.plot(xs[-1], ys[-1], markersize=6, **style)
    low, high = axes.get_ylim()
    # A run that diverges must not flatten the others.
    axes.set_ylim(max(low, min(curve["psnr"][0] for curve in curves) - 1.5), high)
    axes.set(xscale="log", ylabel="PSNR (dB)")
    axes.set_xlabel("seconds per picture" if across == "seconds" else "denoiser calls")
    label_log_axis(axes.xaxis)
    axes.grid(alpha=0.3, which="both")


def _end(title: str, curve: Mapping[str, Any]) -> list[str]:
    """A row of the page's table: where a curve ends, and when it came near that."""
    final = next(v for v in reversed(curve["psnr"]) if v is not None)
    near = next(i for i, v in enumerate(curve["psnr"]) if v is not None and v >= final - 0.05)
    return [
        title,
        f"{curve['noise']:g}",
        f"{final:.2f}",
        f"{max(v for v in curve['psnr'] if v is not None):.2f}",
        str(near),
        f"{1000 * curve['seconds'][near]:.1f}",
        f"{1000 * curve['seconds'][-1]:.1f}",
    ]


def draw_splitting(data: Mapping[str, Any], folder: Path) -> None:
    """`splitting.csv`, the figure, and the page."""
    write_csv(folder / "splitting.csv", _lines(data, ("x_change", "z_change"), first=1))
    levels = data["noise"]
    with figure(folder, "splitting", 10.5, 3.9 * len(levels) + 0.5) as drawing:
        for row, noise in zip(drawing.subplots(len(levels), 2, squeeze=False), levels, strict=True):
            for axes, label in zip(row, ("x", "z"), strict=True):
                for curve in (c for c in data["curves"] if c["noise"] == noise and c[f"{label}_change"] is not None):
                    values = [float("nan") if v is None else v for v in curve[f"{label}_change"]]
                    colour, title = style_of(curve["method"])["color"], data["titles"][curve["method"]]
                    axes.plot(range(1, len(values) + 1), values, color=colour, label=title)
                axes.set(xscale="log", yscale="log", xlabel="iteration")
                label_log_axis(axes.xaxis)
                axes.set_ylabel(rf"$\Vert {label}^+ - {label}\Vert \;/\; \Vert {label}^+\Vert$")
                axes.set_title(f"noise {noise:g}: change of {label}")
                axes.grid(alpha=0.3, which="both")
        legend_below(drawing, drawing.axes[0])
    write_page(
        folder / "splitting.html", "splitting.html", "Splitting variables", data=data, figure=folder / "splitting.svg"
    )


def _lines(data: Mapping[str, Any], names: Sequence[str], first: int) -> list[dict[str, Any]]:
    return [
        {
            "noise": curve["noise"],
            "method": curve["method"],
            "iteration": first + i,
            **{name: None if curve[name] is None else curve[name][i] for name in names},
        }
        for curve in data["curves"]
        for i in range(len(curve["calls"]))
    ]
