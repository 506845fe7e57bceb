"""Runs followed iteration by iteration: PSNR against time and calls (Figure 2), and the splitting variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pnpladmm.metrics import PAPER, psnr
from pnpladmm.tensors import InputError
from pnpladmm.workshop.experiments import page
from pnpladmm.workshop.experiments.page import COLOURS, MARKERS
from pnpladmm.workshop.experiments.protocol import Compared
from pnpladmm.workshop.experiments.running import Batch, Clock, Setup, Unit, run, run_units, warm_up

CONVERGENCE_NOISE = (10.0,)
"""Figure 2's."""
CONVERGENCE_COUNT = 40
SPLITTING_COUNT = 20
SPLITTING_ITERATIONS = 200
QUICK_SPLITTING_ITERATIONS = 12


def make_convergence(setup: Setup, methods: Sequence[Compared]) -> dict[str, Any]:
    """PSNR of every method after every iteration, with the seconds and denoiser calls it took."""
    return _make(setup, "convergence", methods, CONVERGENCE_COUNT, _convergence_unit, draw_convergence)


def make_splitting(setup: Setup, methods: Sequence[Compared]) -> dict[str, Any]:
    """Relative changes of `x` and `z` of every iterative method, all for the same number of iterations."""
    chosen = iterative(methods)
    if not chosen:
        names = ", ".join(method.name for method in methods)
        raise InputError(f"splitting of {names}: none of them iterates to a fixed point; add ladmm, admm or ista")
    return _make(setup, "splitting", chosen, SPLITTING_COUNT, _splitting_unit, draw_splitting)


def iterative(methods: Sequence[Compared]) -> list[Compared]:
    """Those that iterate to a fixed point."""
    return [method for method in methods if method.kind != "fast" and method.iterations is not None]


def _make(
    setup: Setup,
    name: str,
    methods: Sequence[Compared],
    most: int,
    unit_of: Callable[[Setup, Batch, Compared, float], Unit],
    draw: Callable[[Mapping[str, Any], Path], None],
) -> dict[str, Any]:
    units: list[Unit] = []
    loaded = setup.samples("test", count=most)
    for noise, samples in loaded.items():
        units += [unit_of(setup, batch, m, noise) for batch in setup.batches(samples) for m in methods]
    found: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for unit, values in run_units(setup, name, units):
        found.setdefault((unit.key["method"], unit.key["noise"]), []).append(values)
    data = {
        "experiment": name,
        **setup.described(loaded),
        "titles": {method.name: method.title for method in methods},
        "curves": [_curve(m.name, noise, found[m.name, noise]) for noise in setup.noise for m in methods],
    }
    page.keep(setup.out, name, data, draw)
    return data


def _convergence_unit(setup: Setup, batch: Batch, method: Compared, noise: float) -> Unit:
    row = setup.row(method, noise)
    iterations = method.length(row, setup.quick)
    pictures = len(batch.names)

    def compute(told: Callable[[float], None]) -> dict[str, Any]:
        problem, sharp = batch.problem, batch.sharp
        made = method.make(setup.denoiser, problem, row, setup.quick)
        warm_up(batch, made, iterations)
        clock, seconds = Clock(setup.where), [0.0]
        scores = [psnr(batch.start, sharp, PAPER)]

        def look(step: Any) -> None:
            seconds.append(clock.read())
            clock.pause(lambda: scores.append(psnr(step.state.x, sharp, PAPER)))
            told(pictures)

        clock.start()
        run(batch, made, iterations, callback=look)
        return {
            "psnr": _columns(scores),
            "seconds": seconds,
            "calls": [made.calls_after(k) for k in range(iterations + 1)],
        }

    key = setup.unit_key("convergence", batch, method=method.name, noise=noise, parameters=row, iterations=iterations)
    return Unit(key, batch, pictures * iterations, f"{method.title}, noise {noise:g}", compute)


def _splitting_unit(setup: Setup, batch: Batch, method: Compared, noise: float) -> Unit:
    row = setup.row(method, noise)
    iterations = QUICK_SPLITTING_ITERATIONS if setup.quick else SPLITTING_ITERATIONS
    pictures = len(batch.names)

    def compute(told: Callable[[float], None]) -> dict[str, Any]:
        made = method.make(setup.denoiser, batch.problem, row, setup.quick)
        result = run(batch, made, iterations, callback=lambda _: told(pictures), record=True)
        h = result.history
        return {
            "x_change": _columns(h.x_change),
            "z_change": None if h.z_change is None else _columns(h.z_change),
            "calls": [made.calls_after(k) for k in range(iterations + 1)],
        }

    key = setup.unit_key("splitting", batch, method=method.name, noise=noise, parameters=row, iterations=iterations)
    return Unit(key, batch, pictures * iterations, f"{method.title}, noise {noise:g}", compute)


def _columns(rows: Sequence[Tensor] | Tensor) -> list[list[float | None]]:
    """One list a picture; None where the picture is done."""
    values = torch.stack(list(rows)).T.tolist()
    return [[v if v == v and abs(v) != float("inf") else None for v in picture] for picture in values]


def _curve(method: str, noise: float, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A method at a noise level: arithmetic means of PSNR, geometric means of changes; time per picture."""
    curve: dict[str, Any] = {"method": method, "noise": noise}
    pictures = 0
    for name in ("psnr", "x_change", "z_change"):
        if name in parts[0]:
            columns = None if parts[0][name] is None else [column for part in parts for column in part[name]]
            curve[name] = None if columns is None else _mean(columns, geometric=name != "psnr")
            pictures = len(columns) if columns is not None else pictures
    length = len(curve.get("psnr") or curve["x_change"])
    first = 0 if "psnr" in curve else 1
    curve["calls"] = parts[0]["calls"][first : first + length]
    if "seconds" in parts[0]:
        totals = [sum(part["seconds"][i] for part in parts) for i in range(length)]
        curve["seconds"] = [total / pictures for total in totals]
    return curve


def _mean(columns: Sequence[Sequence[float | None]], geometric: bool) -> list[float | None]:
    """Over the pictures that are still running."""
    means: list[float | None] = []
    for row in zip(*columns, strict=True):
        values = torch.tensor([v for v in row if v is not None], dtype=torch.float64)
        if not len(values):
            means.append(None)
        elif geometric:
            means.append(float(values.clamp_min(1e-300).log().mean().exp()))
        else:
            means.append(float(values.mean()))
    return means


def draw_convergence(data: Mapping[str, Any], folder: Path) -> None:
    """`convergence.csv`, the figure, and the page."""
    page.write_csv(folder / "convergence.csv", _lines(data, ("psnr", "calls", "seconds"), first=0))
    levels = data["noise"]
    with page.figure(folder, "convergence", 10.5, 3.9 * len(levels) + 0.7) as drawing:
        for row, noise in zip(drawing.subplots(len(levels), 2, squeeze=False), levels, strict=True):
            curves = [curve for curve in data["curves"] if curve["noise"] == noise]
            for axes, across in zip(row, ("seconds", "calls"), strict=True):
                _psnr_curves(axes, curves, data["titles"], across, _floor(curves))
                axes.set_title(f"noise {noise:g}: PSNR against {'time' if across == 'seconds' else 'denoiser calls'}")
        handles, labels = drawing.axes[0].get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    text = (
        "PSNR (17-pixel border left out), mean over the pictures, after every iteration. Time is wall time of a batch "
        "divided by its pictures, measured with the device's work finished at each point; scoring is not counted. "
        "The bound of ||H||^2 is not counted. A mark stands at each method's end."
    )
    parts = [
        page.paragraph(text),
        page.picture(folder / "convergence.svg", "PSNR against time and denoiser calls: the paper's Figure 2."),
    ]
    page.write_page(folder / "convergence.html", "Convergence", [*parts, _ends(data), page.about(data)])


def _floor(curves: Sequence[Mapping[str, Any]]) -> float:
    """Bottom of the axis: a run that breaks down must not flatten the others."""
    start = min(curve["psnr"][0] for curve in curves)
    return float(start - 1.5)


def _psnr_curves(
    axes: Any, curves: Sequence[Mapping[str, Any]], titles: Mapping[str, str], across: str, floor: float
) -> None:
    for curve in curves:
        name = curve["method"]
        points = [(x, y) for x, y in zip(curve[across], curve["psnr"], strict=True) if y is not None and x > 0]
        if across == "calls" and not points:  # no denoiser: a line at its best, for comparison
            best = max(y for y in curve["psnr"] if y is not None)
            axes.axhline(best, color=COLOURS[name], linestyle=":", label=f"{titles[name]} (best, no calls)")
            continue
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, color=COLOURS[name], linewidth=1.4, label=titles[name])
        axes.plot(xs[-1], ys[-1], color=COLOURS[name], marker=MARKERS[name], markersize=6)
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, floor), high)
    axes.set(xscale="log", ylabel="PSNR (dB)")
    axes.set_xlabel("seconds per picture" if across == "seconds" else "denoiser calls")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3, which="both")


def _ends(data: Mapping[str, Any]) -> str:
    lines = []
    for curve in data["curves"]:
        final = next(v for v in reversed(curve["psnr"]) if v is not None)
        near = next(i for i, v in enumerate(curve["psnr"]) if v is not None and v >= final - 0.05)
        lines.append(
            [
                data["titles"][curve["method"]],
                f"{curve['noise']:g}",
                f"{final:.2f}",
                f"{max(v for v in curve['psnr'] if v is not None):.2f}",
                str(near),
                f"{1000 * curve['seconds'][near]:.1f}",
                f"{1000 * curve['seconds'][-1]:.1f}",
            ]
        )
    header = ["method", "noise", "last PSNR", "best PSNR", "iterations to last - 0.05 dB", "ms until then", "ms in all"]
    return page.table(header, lines, caption="Time per picture.")


def draw_splitting(data: Mapping[str, Any], folder: Path) -> None:
    """`splitting.csv`, the figure, and the page."""
    page.write_csv(folder / "splitting.csv", _lines(data, ("x_change", "z_change"), first=1))
    levels = data["noise"]
    with page.figure(folder, "splitting", 10.5, 3.9 * len(levels) + 0.5) as drawing:
        for row, noise in zip(drawing.subplots(len(levels), 2, squeeze=False), levels, strict=True):
            curves = [curve for curve in data["curves"] if curve["noise"] == noise]
            for axes, name, label in zip(row, ("x_change", "z_change"), ("x", "z"), strict=True):
                for curve in curves:
                    if curve[name] is not None:
                        steps = range(1, len(curve[name]) + 1)
                        values = [float("nan") if v is None else v for v in curve[name]]
                        axes.plot(steps, values, color=COLOURS[curve["method"]], label=data["titles"][curve["method"]])
                axes.set(xscale="log", yscale="log", xlabel="iteration")
                axes.xaxis.set_major_formatter("{x:g}")
                axes.set_ylabel(rf"$\Vert {label}^+ - {label}\Vert \;/\; \Vert {label}^+\Vert$")
                axes.set_title(f"noise {noise:g}: change of {label}")
                axes.grid(alpha=0.3, which="both")
        handles, labels = drawing.axes[0].get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    text = (
        "Relative change of an iterate, geometric mean over the pictures. PnP-ISTA has no z. In ADMM z is the copy of "
        "x that fits the data, in LADMM the blurred picture. Annealed schedules do not iterate to a fixed point and "
        "are left out."
    )
    parts = [page.paragraph(text), page.picture(folder / "splitting.svg", "Convergence of the splitting variables.")]
    page.write_page(folder / "splitting.html", "Splitting variables", [*parts, page.about(data)])


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
