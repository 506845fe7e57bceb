"""Pictures to look at: what each method makes of the same picture, whole and enlarged, with its PSNR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpladmm.metrics import PAPER, psnr
from pnpladmm.tensors import InputError
from pnpladmm.workshop.experiments.batches import Batch
from pnpladmm.workshop.experiments.comparison import Compared
from pnpladmm.workshop.experiments.output import figure, write_csv, write_page, write_result
from pnpladmm.workshop.experiments.setup import Setup
from pnpladmm.workshop.experiments.store import write_npz
from pnpladmm.workshop.experiments.units import Advance, Run, Unit, run_units

COUNT = 3
ZOOM = 4
"""The enlarged part is a quarter of the picture's side."""
SHARP, OBSERVED = "sharp", "observed"


def make_gallery(setup: Setup, methods: Sequence[Compared]) -> dict[str, Any]:
    """Restore a few test pictures with every method; write `gallery.json`, the pictures, and a sheet a noise level."""
    units: list[Unit] = []
    loaded = setup.samples("test", count=COUNT)
    for noise, samples in loaded.items():
        for batch in setup.batches(samples):
            units.append(_given_unit(setup, batch, noise))
            units += [_unit(Run(setup, batch, method, noise)) for method in methods]
    sheets: dict[float, dict[str, list[dict[str, Any]]]] = {noise: {} for noise in setup.noise}
    for unit, values in run_units(setup, "gallery", units):
        for name, part in values["columns"].items():
            pixels = values[f"pixels_{name}"]
            tiles = zip(unit.key["pictures"], part, pixels, strict=True)
            sheets[unit.key["noise"]].setdefault(name, []).extend(
                {"picture": picture, "psnr": score, "pixels": tile} for picture, score, tile in tiles
            )
    titles = {SHARP: "Sharp", OBSERVED: "Observed", **{m.name: m.title_of_run(setup.quick) for m in methods}}
    data: dict[str, Any] = {"experiment": "gallery", **setup.described(loaded), "titles": titles, "sheets": []}
    for noise, columns in sheets.items():
        file = f"gallery-{noise:g}"
        write_npz(setup.out / f"{file}.npz", {name: np.stack([t["pixels"] for t in c]) for name, c in columns.items()})
        scores = {
            name: [{key: tile[key] for key in ("picture", "psnr")} for tile in tiles] for name, tiles in columns.items()
        }
        data["sheets"].append({"noise": noise, "file": file, "columns": scores})
    write_result(setup.out, "gallery", data, draw_gallery)
    return data


def _unit(run: Run) -> Unit:
    def compute(advance: Advance) -> dict[str, Any]:
        image = run.solve(run.make_method(), advance).image
        scores = psnr(image, run.batch.sharp, PAPER).tolist()
        return {"columns": {run.compared.name: scores}, f"pixels_{run.compared.name}": _bytes(image)}

    return run.unit("gallery", compute)


def _given_unit(setup: Setup, batch: Batch, noise: float) -> Unit:
    def compute(advance: Advance) -> dict[str, Any]:
        return {
            "columns": {SHARP: [None] * len(batch.names), OBSERVED: psnr(batch.start, batch.sharp, PAPER).tolist()},
            f"pixels_{SHARP}": _bytes(batch.sharp),
            f"pixels_{OBSERVED}": _bytes(batch.start),
        }

    key = setup.unit_key("gallery", batch, method=OBSERVED, noise=noise)
    return Unit(key, batch, 0.1 * len(batch.names), "as observed", compute)


def _bytes(x: Tensor) -> Any:
    """(B, H, W, 3) uint8."""
    return (x.clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()


def draw_gallery(data: Mapping[str, Any], folder: Path) -> None:
    """`gallery.csv`, a sheet for each noise level, and the page."""
    lines = [
        {"noise": sheet["noise"], "picture": tile["picture"], "method": name, "psnr": tile["psnr"]}
        for sheet in data["sheets"]
        for name, tiles in sheet["columns"].items()
        for tile in tiles
    ]
    write_csv(folder / "gallery.csv", lines)
    for sheet in data["sheets"]:
        try:
            with np.load(folder / f"{sheet['file']}.npz") as stored:
                pixels = {name: stored[name] for name in sheet["columns"]}
        except (OSError, KeyError, ValueError):
            raise InputError(f"{folder / sheet['file']}.npz: missing or broken: run the gallery again") from None
        _sheet(data, sheet, pixels, folder)
    figures = [folder / f"{sheet['file']}.png" for sheet in data["sheets"]]
    write_page(folder / "gallery.html", "gallery.html", "Gallery", data=data, figures=figures)


def _sheet(data: Mapping[str, Any], sheet: Mapping[str, Any], pixels: Mapping[str, Any], folder: Path) -> None:
    from matplotlib.patches import Rectangle

    names = list(sheet["columns"])
    pictures = len(sheet["columns"][names[0]])
    with figure(folder, sheet["file"], 1.72 * len(names), 3.85 * pictures) as drawing:
        grid = drawing.subplots(2 * pictures, len(names), squeeze=False)
        for p in range(pictures):
            top, left, side = _window(pixels[SHARP][p], pixels[OBSERVED][p])
            scores = [sheet["columns"][name][p]["psnr"] for name in names]
            best = max(score for score in scores if score is not None)
            for c, name in enumerate(names):
                whole, part = grid[2 * p, c], grid[2 * p + 1, c]
                whole.imshow(pixels[name][p], interpolation="antialiased")
                corner = (left - 0.5, top - 0.5)
                whole.add_patch(Rectangle(corner, side, side, fill=False, edgecolor="#ffd000", linewidth=1.2))
                part.imshow(pixels[name][p][top : top + side, left : left + side], interpolation="nearest")
                if p == 0:
                    whole.set_title(data["titles"][name], fontsize=10)
                score = scores[c]
                text = sheet["columns"][name][p]["picture"] if score is None else f"{score:.2f} dB"
                part.set_xlabel(text, fontsize=10, fontweight="bold" if score == best else "normal")
                for axes in (whole, part):
                    axes.set_xticks([])
                    axes.set_yticks([])


def _window(sharp: Any, observed: Any) -> tuple[int, int, int]:
    """(top, left, side) of the window with the largest squared error, away from the border."""
    height, width = sharp.shape[:2]
    side = min(height, width) // ZOOM
    if observed.shape != sharp.shape:
        return height // 2 - side // 2, width // 2 - side // 2, side
    error = np.square(sharp.astype(np.int64) - observed.astype(np.int64)).sum(-1)
    total = np.pad(error.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    windows = total[side:, side:] - total[:-side, side:] - total[side:, :-side] + total[:-side, :-side]
    edge = min(PAPER.border, (min(height, width) - side) // 2)
    inner = windows[edge : windows.shape[0] - edge, edge : windows.shape[1] - edge]
    top, left = np.unravel_index(int(inner.argmax()), inner.shape)
    return int(top) + edge, int(left) + edge, side
