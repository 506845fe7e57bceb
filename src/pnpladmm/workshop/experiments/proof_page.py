"""The experiment `proof` drawn: what each certificate rests on, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from pnpladmm.report.page import fixed
from pnpladmm.workshop.experiments.output import figure, label_log_axis, write_csv, write_page

START_TITLES = {"observed": "from the observation", "warm": "after 8 annealed calls"}
START_COLOURS = {"observed": "#0072b2", "warm": "#d55e00"}
CERTIFIED = ("checked", "proved")


def draw_proof(data: Mapping[str, Any], folder: Path) -> None:
    """`proof.csv`, the figure, and the page."""
    curves = ("points", "psnr", "gradient", "x_change", "lagrangian")
    lines = [{k: v for k, v in run.items() if k not in curves} for run in data["runs"]]
    write_csv(folder / "proof.csv", [{**line, "failures": "; ".join(line["failures"])} for line in lines])
    _figure(data, folder)
    rows = summary(data)
    write_page(
        folder / "proof.html",
        "proof.html",
        "Runs with a proof",
        data=data,
        starts=START_TITLES,
        evidence=[_evidence(row) for row in rows],
        price_header=["PSNR (dB) at noise", *(f"{noise:g}" for noise in data["noise"])],
        price=_price(data, rows),
        figure=folder / "proof.svg",
    )


def summary(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each noise level and start."""
    rows = []
    for noise in data["noise"]:
        for start in START_TITLES:
            runs = [run for run in data["runs"] if run["noise"] == noise and run["start"] == start]
            converged = [run["converged_at"] for run in runs if run["converged_at"] is not None]
            rows.append(
                {
                    "noise": noise,
                    "start": start,
                    "sigma_d": runs[0]["sigma_d"],
                    "relaxation": runs[0]["relaxation"],
                    "runs": len(runs),
                    "certified": sum(run["certificate"] in CERTIFIED for run in runs),
                    "converged": len(converged),
                    "converged_at": median(converged) if converged else None,
                    "converged_last": max(converged, default=None),
                    "curvature": _most(runs, "curvature"),
                    "rise": _most(runs, "rise"),
                    "rounding": max(run["rounding"] for run in runs),
                    "gradient_fall": min(run["gradient_fall"] for run in runs),
                    "psnr_start": mean(run["psnr_start"] for run in runs),
                    "psnr_end": mean(run["psnr_end"] for run in runs),
                    "lost": max(max([run["psnr_start"], *_known(run["psnr"])]) - run["psnr_end"] for run in runs),
                }
            )
    return rows


def _most(runs: Sequence[Mapping[str, Any]], name: str) -> float | None:
    return max((run[name] for run in runs if run[name] is not None), default=None)


def _evidence(row: Mapping[str, Any]) -> list[str]:
    """A row of the page's table of evidence."""
    return [
        f"{row['noise']:g}" if row["start"] == "observed" else "",
        START_TITLES[row["start"]],
        f"{row['sigma_d']:.3g}",
        f"{row['relaxation']:.3g}",
        f"{row['certified']} of {row['runs']}",
        f"{row['converged']} of {row['runs']}",
        fixed(row["converged_at"], 0),
        fixed(row["converged_last"], 0),
        fixed(row["curvature"], 3),
        "" if row["rise"] is None else f"{row['rise']:.1e}",
        "" if row["rise"] is None else f"{row['rounding']:.1e}",
        f"{row['gradient_fall']:.0f}-fold",
        f"{row['psnr_start']:.2f}",
        f"{row['psnr_end']:.2f}",
        f"{row['lost']:.2f}",
    ]


def _price(data: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """PSNR at each noise level: certified runs from both starts, and the methods beside them."""
    lines = [
        [f"certified, {title}", *(f"{row['psnr_end']:.2f}" for row in rows if row["start"] == start)]
        for start, title in START_TITLES.items()
    ]
    for name, title in data["titles"].items():
        scores = [
            mean(s["psnr"] for s in data["scores"] if (s["method"], s["noise"]) == (name, noise))
            for noise in data["noise"]
        ]
        lines.append([title, *(f"{score:.2f}" for score in scores)])
    return lines


def _figure(data: Mapping[str, Any], folder: Path) -> None:
    levels = data["noise"]
    panels: tuple[tuple[str, str, Callable[[Mapping[str, Any]], list[float] | None]], ...] = (
        ("Lagrangian above its last value, of its first", "log", _excess),
        (r"$\Vert x^+ - x\Vert \;/\; \Vert x^+\Vert$", "log", lambda run: _known(run["x_change"])),
        (r"$\Vert\nabla E\Vert$, of its first", "log", lambda run: _relative(run["gradient"])),
        ("PSNR (dB)", "linear", lambda run: _known(run["psnr"])),
    )
    with figure(folder, "proof", 13.5, 3.0 * len(levels) + 0.6) as drawing:
        for row, noise in zip(drawing.subplots(len(levels), len(panels), squeeze=False), levels, strict=True):
            for axes, (label, scale, curve) in zip(row, panels, strict=True):
                for run in (run for run in data["runs"] if run["noise"] == noise):
                    values = curve(run)
                    if values is not None:
                        points = run["points"][: len(values)]
                        axes.plot(points, values, color=START_COLOURS[run["start"]], linewidth=0.6, alpha=0.7)
                axes.set(xscale="log", yscale=scale, xlabel="iteration", ylabel=label, title=f"noise {noise:g}")
                label_log_axis(axes.xaxis)
                axes.grid(alpha=0.3, which="major")
            row[1].axhline(data["converged"], color="0.4", linestyle=":", linewidth=1)
        from matplotlib.lines import Line2D

        handles = [Line2D([], [], color=START_COLOURS[start], label=title) for start, title in START_TITLES.items()]
        drawing.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)


def _known(values: Sequence[float | None]) -> list[float]:
    """A picture's values until it was done."""
    return [value for value in values if value is not None]


def _relative(values: Sequence[float | None]) -> list[float]:
    known = _known(values)
    return [value / known[0] for value in known] if known and known[0] else []


def _excess(run: Mapping[str, Any]) -> list[float] | None:
    if run["lagrangian"] is None:
        return None
    values = _known(run["lagrangian"])
    span = values[0] - values[-1] if values else 0.0
    above = [(value - values[-1]) / span for value in values] if span > 0 else []
    # The last one is 0 by definition and has no logarithm; before it rounding may reach 0, too.
    return above[: next(k for k, value in enumerate(above) if value <= 0)] if above else None
