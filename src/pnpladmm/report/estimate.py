"""An estimated blur as one HTML page and one JSON file."""

from __future__ import annotations

import json
from pathlib import Path

from pnpladmm.blur import Blur, draw_blur
from pnpladmm.blur.arrays import Array
from pnpladmm.files import write_text
from pnpladmm.report.page import render
from pnpladmm.tensors import InputError


def write_estimate(folder: Path, blur: Blur, picture: Array, title: str) -> Path:
    """Write `report.html`, which needs no other file, `report.json`, and the drawings, for an estimated blur.

    `picture` (H, W) is drawn under the kernels.
    """
    estimate = blur.estimate
    if estimate is None:
        raise InputError(f"{title}: this blur was not estimated: there is nothing to report")
    draw_blur(blur, folder / "kernels.png", picture)
    draw_blur(blur, folder / "blur.png")
    facts = {
        "way": estimate.way,
        "blur": blur.source,
        "kernels": f"{len(blur.kernels)} of {blur.kernel_size[0]}x{blur.kernel_size[1]} pixels",
        "residual, relative to the noise": estimate.residual,
        "disagreement with neighbours (relative l2)": estimate.agreement,
        "expected error of the PSF (relative l2)": blur.uncertainty,
    }
    figures = {
        "The PSFs over the picture; the frame says how well each is determined": (folder / "kernels.png").read_bytes(),
        **estimate.figures,
        "The PSFs alone, the kernels and their weights": (folder / "blur.png").read_bytes(),
    }
    write_text(
        folder / "report.json",
        json.dumps({**facts, "warnings": list(estimate.warnings), "notes": list(blur.notes)}, indent=1) + "\n",
    )
    page = render(
        "estimate.html",
        title=f"The blur of {title}",
        facts=facts,
        warnings=estimate.warnings,
        notes=blur.notes,
        figures=figures,
        tables=estimate.tables,
    )
    write_text(folder / "report.html", page)
    return folder / "report.html"
