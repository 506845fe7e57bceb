"""How a result shows itself in a notebook: before and after, how the run ended, its certificate, its curves.

One fragment of HTML without scripts; everything that is text is escaped, pictures are inside it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pnpladmm.pictures import Picture
from pnpladmm.report.certificates import summarise_certificate
from pnpladmm.report.figures import curves, picture_png
from pnpladmm.report.page import render
from pnpladmm.restoration import Restoration
from pnpladmm.solvers import Result, Status

LONGEST_SIDE = 512
"""Pixels; larger pictures are shown smaller."""
SHOWN = (0.005, 0.995)
"""Quantiles of the picture before that become black and white, for numbers that are not in [0, 1] by themselves."""


def as_html(result: Result) -> str:
    """The first picture of a result as HTML.

    Parameters
    ----------
    result : Result
        Of `solve` or `restore`. A `Restoration` also shows the picture before, the noise, warnings and notes.

    Returns
    -------
    str
        A fragment of HTML.

    Examples
    --------
    >>> import numpy as np, pnpladmm as pl
    >>> result = pl.restore(np.eye(16) / 2, np.ones((3, 3)), noise=0.02, denoiser="tv", iterations=3)
    >>> html = as_html(result)
    >>> html.count("<img") >= 2, "<script" in html
    (True, False)
    """
    status = result.statuses[0]
    facts: dict[str, Any] = {"method": result.method.name, "iterations": len(result.history)}
    if len(result.history):
        facts["seconds"] = f"{float(result.history.seconds[-1]):.2f}"
        facts["denoiser calls"] = int(result.history.denoiser_calls[-1])
    run = result if isinstance(result, Restoration) else None
    if run is not None:
        facts["noise"] = f"{255 * float(run.noise[0]):.3g} of 255 (standard deviation)"
    if len(result.image) > 1:
        facts["pictures"] = f"{len(result.image)}, the first is shown"
    return render(
        "notebook.html",
        pictures=_pictures(result),
        status=status,
        good=status in (Status.CONVERGED, Status.FINISHED),
        facts=facts,
        warnings=() if run is None else run.warnings,
        notes=() if run is None else run.notes,
        certificate=summarise_certificate(result.certificates[0]),
        curves=curves(result.history),
    )


def _pictures(result: Result) -> dict[str, bytes]:
    if not isinstance(result, Restoration):
        return {"image": picture_png(_smaller(result.image))}
    before, after = result.before.from_linear(), result.picture.from_linear()
    low, span = _shown(before)
    return {
        "before": picture_png(_smaller((before.pixels - low) / span)),
        "after": picture_png(_smaller((after.pixels - low) / span)),
    }


def _shown(picture: Picture) -> tuple[float, float]:
    """What becomes black, and how much above it is white."""
    values = picture.pixels[0].flatten()
    if not picture.dtype.startswith("float") or (
        picture.scale == 1 and 0 <= float(values.min()) <= float(values.max())
    ):
        return 0.0, 1.0
    values = values[:: -(-len(values) // 1_000_000)]  # quantiles of a sample will do
    low, high = (float(torch.quantile(values, q)) for q in SHOWN)
    return low, max(high - low, 1e-12)


def _smaller(pictures: Tensor) -> Tensor:
    """The first picture, with at most `LONGEST_SIDE` pixels along a side."""
    first = torch.nan_to_num(pictures[:1].detach().float().cpu())
    step = max(first.shape[-2:]) / LONGEST_SIDE
    if step <= 1:
        return first
    size = [max(1, round(n / step)) for n in first.shape[-2:]]
    return torch.nn.functional.interpolate(first, size, mode="area")
