"""A blur as a picture: its kernels laid over the maps of where they act."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pnpladmm.operators import SpatiallyVaryingBlur

# Soft colours that stay apart for most eyes, one for each kernel in turn.
COLOURS = np.array(
    [[0.55, 0.75, 0.95], [0.98, 0.80, 0.50], [0.65, 0.87, 0.62], [0.93, 0.65, 0.68], [0.80, 0.72, 0.92]]
)
KERNEL_SHARE = 0.22
"""Side of a drawn kernel, as a share of the picture's shorter side."""


def draw_blur(blur: SpatiallyVaryingBlur, path: Path) -> None:
    """Weight maps in colours, each kernel drawn where its weight is greatest; the first picture's blur."""
    from matplotlib.figure import Figure

    weights = blur.weights[0, :, 0].cpu().numpy()
    kernels = blur.kernels[0].mean(1).cpu().numpy()
    height, width = weights.shape[-2:]
    shares = np.abs(weights) / np.abs(weights).sum(0).clip(1e-12)
    colours = COLOURS[np.arange(len(weights)) % len(COLOURS)]
    field = np.einsum("phw,pc->hwc", shares, colours)

    figure = Figure(figsize=(5, 5 * height / width + 0.1))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(field, extent=(0, width, height, 0))
    side = KERNEL_SHARE * min(height, width)
    for kernel, share in zip(kernels, shares, strict=True):
        y, x = _middle(share, side)
        shade = np.zeros((*kernel.shape, 4))
        shade[..., 3] = (np.abs(kernel) / np.abs(kernel).max()) ** 0.5  # so that faint tails show
        axes.imshow(shade, extent=(x - side / 2, x + side / 2, y + side / 2, y - side / 2), zorder=2)
        axes.add_patch(_frame(x, y, side))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _middle(share: np.ndarray, side: float) -> tuple[float, float]:
    """The point deepest inside a weight's region, kept so far from the border that the kernel fits."""
    from scipy.ndimage import distance_transform_edt

    inside = np.pad(share > 0.5 * share.max(), 1)
    y, x = np.unravel_index(distance_transform_edt(inside).argmax(), inside.shape)
    height, width = share.shape
    return (
        float(np.clip(y - 1, side / 2 + 1, height - side / 2 - 1)),
        float(np.clip(x - 1, side / 2 + 1, width - side / 2 - 1)),
    )


def _frame(x: float, y: float, side: float):  # type: ignore[no-untyped-def]
    from matplotlib.patches import Rectangle

    return Rectangle(
        (x - side / 2, y - side / 2), side, side, fill=False, edgecolor="0.3", linewidth=0.7, zorder=3
    )
