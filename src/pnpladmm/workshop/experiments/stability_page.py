"""The influence of the parameters drawn: curves inside and outside the theorem, and the map of stability."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pnpladmm.workshop.experiments.output import figure, label_log_axis, write_csv, write_page

TITLES = {
    "beta, tuned L_x": r"$\beta$ at tuned LADMM's $L_x$ (outside the theorem)",
    "beta, L_x inside": r"$\beta$ at $L_x = 4\, L_h\Vert H\Vert^2$",
    "L_x": r"$L_x$ at $\beta = 1.001\, L_h$",
}


def linear_limit(beta: float) -> float:
    """The limit of `r` for `beta` in units of `L_h`, where the denoiser leaves the strongest mode alone."""
    c = 1 / beta
    return 3 * c / (2 + 4 * c)


def draw_parameters(data: Mapping[str, Any], folder: Path) -> None:
    """`parameters.csv`, `parameters-limits.csv`, the figures and the page."""
    write_csv(folder / "parameters.csv", _curve_lines(data))
    write_csv(folder / "parameters-limits.csv", _limit_lines(data))
    levels = []
    for limits in data["limits"]:
        noise, (lowest, highest) = limits["noise"], limits["searched"]
        name = "parameters" if len(data["limits"]) == 1 else f"parameters-{noise:g}"
        panels = [panel for panel in data["panels"] if panel["noise"] == noise]
        with figure(folder, name, 10.5, 9.4) as drawing:
            places = drawing.subplots(2, 2).ravel()
            for axes, panel in zip(places, panels, strict=False):
                _panel(axes, panel)
            _map(places[3], limits)
        levels.append(
            {
                "noise": noise,
                "figure": folder / f"{name}.svg",
                "rows": [_limit_row(found, lowest, highest) for found in limits["betas"]],
                "caption": f"Noise {noise:g} of 255; searched between {lowest:g} and {highest:g}.",
            }
        )
    write_page(folder / "parameters.html", "parameters.html", "Influence of beta and L_x", data=data, levels=levels)


def _panel(axes: Any, panel: Mapping[str, Any]) -> None:
    """PSNR by iteration, one curve for each pair of parameters."""
    import matplotlib as mpl

    curves = panel["curves"]
    lowest = min(curve["psnr"][0] for curve in curves) - 2
    for i, curve in enumerate(curves):
        shade = mpl.colormaps["viridis"](0.92 * i / max(1, len(curves) - 1))
        steps = range(1, len(curve["psnr"]) + 1)
        style = "-" if curve["inside"] else "--"
        axes.plot(steps, curve["psnr"], style, color=shade, label=_label(panel["part"], curve))
        if curve["diverged"]:
            left = next((i for i, v in enumerate(curve["psnr"]) if v < lowest), len(steps) - 1)
            axes.plot(steps[left], max(curve["psnr"][left], lowest), "x", color=shade, clip_on=False)
    highest = max(max(curve["psnr"]) for curve in curves)
    axes.set_ylim(max(axes.get_ylim()[0], lowest), highest + 0.3)
    axes.set(xlabel="iteration", ylabel="PSNR (dB)", xscale="log")
    label_log_axis(axes.xaxis)
    axes.set_title(f"{TITLES[panel['part']]}\n" + rf"$\sigma_d$ = {panel['sigma_d']:.3g}/255")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False)
    axes.grid(alpha=0.3, which="both")


def _label(part: str, curve: Mapping[str, Any]) -> str:
    beta, r = rf"$\beta$ = {curve['beta']:.3g} $L_h$", f"r = {curve['r']:.3g}"
    lost = f", {curve['diverged']} of {curve['pictures']} diverge" if curve["diverged"] else ""
    return (r if part == "L_x" else f"{beta}, {r}") + lost


def _map(axes: Any, limits: Mapping[str, Any]) -> None:
    """`r` against `beta / L_h`: the theorem's corner, the measured limits, and the line of the linear mode."""
    lowest, _ = limits["searched"]
    betas = [found["beta"] for found in limits["betas"]]
    left, right = min(betas) / 2, max(betas) * 2
    grid = [left * (right / left) ** (i / 200) for i in range(201)]
    axes.fill_between([1, right], 1, 3, color="#56b4e9", alpha=0.25, linewidth=0, label="the theorem holds")
    axes.plot(grid, [linear_limit(b) for b in grid], color="0.2", label="limit of the strongest mode, 3c / (2 + 4c)")
    middles, errors = [], []
    for found in limits["betas"]:
        roots = [math.sqrt(a * b) for a, b in zip(found["low"], found["high"], strict=True)]
        middle = math.exp(sum(map(math.log, roots)) / len(roots))
        middles.append(middle)
        errors.append((middle - min(found["low"]), max(found["high"]) - middle))
    axes.errorbar(
        betas,
        middles,
        list(zip(*errors, strict=True)),
        fmt="o",
        color="#d55e00",
        capsize=3,
        label="measured: LADMM diverges below (bars: all pictures)",
    )
    axes.axhline(1, color="#0072b2", linewidth=0.8, linestyle=":")
    axes.axvline(1, color="#0072b2", linewidth=0.8, linestyle=":")
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(min(lowest * 2, 0.04), 3))
    axes.set(xlabel=r"$\beta / L_h$", ylabel=r"$r = L_x\, /\, (\beta \Vert H\Vert^2)$")
    axes.set_title("Where LADMM begins to diverge")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False)
    for axis in (axes.xaxis, axes.yaxis):
        label_log_axis(axis)
    axes.grid(alpha=0.3, which="both")


def _limit_row(found: Mapping[str, Any], lowest: float, highest: float) -> list[str]:
    """A row of the page's table: the smallest and the largest limit of all pictures, and the linear one."""
    smallest, largest = min(found["low"]), max(found["high"])
    last = f"{largest:.3f}" if largest < highest else f"above {highest:g}"
    between = f"below {lowest:g}" if largest <= lowest * 1.2 else f"{smallest:.3f} to {last}"
    return [f"{found['beta']:g}", between, f"{found['linear']:.3f}"]


def _curve_lines(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "noise": panel["noise"],
            "part": panel["part"],
            "sigma_d": panel["sigma_d"],
            "beta_over_L_h": curve["beta"],
            "r": curve["r"],
            "inside_theorem": curve["inside"],
            "diverged": curve["diverged"],
            "pictures": curve["pictures"],
            "iteration": i + 1,
            "psnr": value,
        }
        for panel in data["panels"]
        for curve in panel["curves"]
        for i, value in enumerate(curve["psnr"])
    ]


def _limit_lines(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "noise": limits["noise"],
            "beta_over_L_h": found["beta"],
            "picture": i,
            "diverges_at": low,
            # Nothing above the end of the search was tried.
            "does_not_at": high if high < limits["searched"][1] else None,
            "linear_limit": found["linear"],
        }
        for limits in data["limits"]
        for found in limits["betas"]
        for i, (low, high) in enumerate(zip(found["low"], found["high"], strict=True))
    ]
