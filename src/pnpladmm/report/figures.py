"""The drawings of a report: the residual and the curves."""

from __future__ import annotations

import io

import torch
from torch import Tensor

from pnpladmm.solvers import History, Problem

CURVES = {
    "PSNR (dB)": (("psnr",), False),
    "relative change": (("x_change", "z_change", "u_change"), True),
    "objective and its parts": (("lagrangian", "objective", "data_fit"), False),
}
"""Title, columns of the history, and whether the axis is logarithmic."""


def residual_png(problem: Problem, x: Tensor) -> bytes:
    """`y - Hx` of the first picture, averaged over channels, blue to red over three standard deviations."""
    from matplotlib import colormaps
    from PIL import Image

    residual = (problem.observed - problem.operator.forward(x))[0].mean(0)
    span = 3 * residual.std().clamp_min(torch.finfo(residual.dtype).tiny)
    shades = colormaps["RdBu_r"]((residual / span / 2 + 0.5).clamp(0, 1).cpu().numpy(), bytes=True)
    return _png(Image.fromarray(shades[..., :3]))


def picture_png(picture: Tensor) -> bytes:
    """The first picture of (B, C, H, W) in [0, 1] as PNG: in colour if it has 3 channels, else its first channel."""
    import numpy as np
    from PIL import Image

    channels = [0, 1, 2] if picture.shape[1] == 3 else [0]
    values = (picture[0, channels].clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy()
    return _png(Image.fromarray(values if len(channels) == 3 else np.squeeze(values, -1)))


def curves(history: History) -> list[bytes]:
    """Drawings in SVG of the first picture's columns; columns that were not measured are left out."""
    from matplotlib.figure import Figure

    drawings = []
    for title, (names, logarithmic) in CURVES.items():
        columns = [(name, getattr(history, name)) for name in names if getattr(history, name) is not None]
        if not columns or not len(history):
            continue
        figure = Figure(figsize=(4.2, 2.8), layout="constrained")
        axes = figure.add_subplot()
        for name, column in columns:
            axes.plot(
                range(1, len(column) + 1), column[:, 0].numpy(), label=name, marker="." if len(column) < 20 else ""
            )
        logarithmic = logarithmic and any(bool((column[:, 0] > 0).any()) for _, column in columns)
        axes.set(title=title, xlabel="iteration", yscale="log" if logarithmic else "linear")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg")
        drawings.append(buffer.getvalue())
    return drawings


def _png(image: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")  # type: ignore[attr-defined]  # a picture of Pillow, which is imported late
    return buffer.getvalue()
