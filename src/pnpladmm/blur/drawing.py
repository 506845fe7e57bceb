"""A blur as a picture: its PSFs over the field, and maps of where each kernel acts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from pnpladmm.blur.arrays import Array
from pnpladmm.blur.model import Blur
from pnpladmm.files import replacing
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.tensors import InputError

# Soft colours that stay apart for most eyes, one for each kernel in turn.
COLOURS = np.array([[0.55, 0.75, 0.95], [0.98, 0.80, 0.50], [0.65, 0.87, 0.62], [0.93, 0.65, 0.68], [0.80, 0.72, 0.92]])
KERNEL_SHARE = 0.22
"""Side of a drawn kernel, as a share of the picture's shorter side."""
ACROSS = 5
"""PSFs along the longer side of the field."""
DRAWN_KERNELS = 12
"""The most kernels drawn with their weights; the caption gives the number of the others."""


def draw_blur(blur: Blur | SpatiallyVaryingBlur, path: str | Path, picture: Array | None = None) -> None:
    """Draw a blur into a picture file.

    Parameters
    ----------
    blur : Blur or SpatiallyVaryingBlur
        Of a `Blur` its PSFs over the field are drawn, then its kernels beside their weight maps; of an operator the
        regions and their kernels.
    path : str or Path
        PNG, PDF or SVG, by the suffix.
    picture : array (H, W), optional
        Draw the PSFs of a `Blur` over this picture, and nothing else. The frames of an estimated blur go from red
        (taken from neighbours) to green (well determined).
    """
    if isinstance(blur, Blur) and picture is not None:
        _draw_over(blur, picture, Path(path))
    elif isinstance(blur, Blur):
        _draw_sheet(blur, Path(path))
    else:
        _draw_regions(blur, Path(path))


def _save(figure: Any, path: Path) -> None:
    form = path.suffix.lower().lstrip(".")
    if form not in figure.canvas.get_supported_filetypes():
        raise InputError(f"{path}: drawings are written as .png, .pdf or .svg")
    with replacing(path) as beside:
        figure.savefig(beside, dpi=110, format=form)


def _draw_sheet(blur: Blur, path: Path) -> None:
    from matplotlib.figure import Figure

    height, width = blur.size
    shown = min(len(blur.kernels), DRAWN_KERNELS)
    columns = min(shown, 4)
    rows = math.ceil(shown / columns)
    tall = 7 * min(max(height / width, 0.4), 2.0)
    figure = Figure(figsize=(8, tall + 0.8 + 1.5 * rows), layout="constrained")
    top, bottom = np.asarray(figure.subfigures(2, 1, height_ratios=(tall + 0.5, 1.5 * rows + 0.3))).tolist()
    _draw_field(blur, top.subplots())
    axes = np.atleast_1d(bottom.subplots(rows, 2 * columns, squeeze=False)).reshape(-1, 2)
    for number, (left, right) in enumerate(axes):
        for axis in (left, right):
            axis.axis("off")
        if number < shown:
            _draw_term(blur, number, left, right)
    if shown < len(blur.kernels):
        bottom.suptitle(f"the first {shown} of {len(blur.kernels)} kernels with their weights", fontsize=9)
    _save(figure, path)


def _draw_over(blur: Blur, picture: Array, path: Path) -> None:
    """The picture, pale, with a PSF at each place of the lattice."""
    from matplotlib.figure import Figure

    height, width = blur.size
    if picture.shape != (height, width):
        raise InputError(f"{path}: the picture is {picture.shape}, the blur is for {(height, width)}: they must match")
    figure = Figure(figsize=(8, 8 * min(max(height / width, 0.4), 2.0)), layout="constrained")
    axes = figure.subplots()
    low, high = np.percentile(picture, (1, 99.5))
    shown = ((picture - low) / max(high - low, 1e-12)).clip(0, 1)
    axes.imshow(0.35 + 0.65 * shown, cmap="gray", vmin=0, vmax=1, extent=(-0.5, width - 0.5, height - 0.5, -0.5))
    places, psfs, spacing = _lattice(blur)
    side, peak = 0.46 * spacing, max(float(np.abs(psf).max()) for psf in psfs)
    colours = _trust_colours(blur, places)
    for (r, c), psf, colour in zip(places, psfs, colours, strict=True):
        axes.imshow(_signed(psf / peak), extent=(c - side / 2, c + side / 2, r + side / 2, r - side / 2), zorder=2)
        frame = _frame(c, r, side)
        frame.set(edgecolor=colour, linewidth=1.8)
        axes.add_patch(frame)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), aspect="equal")
    axes.axis("off")
    _save(figure, path)


def _trust_colours(blur: Blur, places: list[tuple[int, int]]) -> list[Any]:
    """A colour for each place by the confidence of the nearest place that was looked at; grey if nothing is known."""
    estimate = blur.estimate
    if estimate is None or not len(estimate.places):
        return ["0.3"] * len(places)
    from matplotlib import colormaps

    at = np.array([(c, r) for r, c in places], dtype=float)
    nearest = ((at[:, None] - estimate.places[None]) ** 2).sum(-1).argmin(1)
    return [colormaps["RdYlGn"](float(estimate.confidence[i])) for i in nearest]


def _lattice(blur: Blur) -> tuple[list[tuple[int, int]], list[Array], float]:
    """Places (row, column) over the field, the PSF at each, and their distance."""
    height, width = blur.size
    spacing = max(height, width) / ACROSS
    places = [
        (int(r), int(c))
        for r in np.linspace(0, height, max(1, round(height / spacing)) * 2 + 1)[1::2]
        for c in np.linspace(0, width, max(1, round(width / spacing)) * 2 + 1)[1::2]
    ]
    return places, [blur.psf_at(r, c).mean(0).numpy() for r, c in places], spacing


def _draw_field(blur: Blur, axes: Any) -> None:
    """PSFs as point sources show them, at a lattice of places, all on one scale."""
    height, width = blur.size
    places, psfs, spacing = _lattice(blur)
    side, peak = 0.86 * spacing, max(float(np.abs(psf).max()) for psf in psfs)
    for (r, c), psf in zip(places, psfs, strict=True):
        box = (c - side / 2, c + side / 2, r + side / 2, r - side / 2)
        axes.imshow(_signed(psf / peak), extent=box, zorder=2, interpolation="nearest")
        axes.add_patch(_frame(c, r, side))
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), facecolor="0.97", aspect="equal")
    kh, kw = blur.kernel_size
    axes.set_title(f"{blur.source}: PSFs ({kh}x{kw} pixels each) over the {height}x{width} field", fontsize=9)
    axes.tick_params(labelsize=7)


def _draw_term(blur: Blur, number: int, left: Any, right: Any) -> None:
    kernel = blur.kernels[number].mean(0).numpy()
    left.imshow(_signed(kernel / max(float(np.abs(kernel).max()), 1e-300)), interpolation="nearest")
    weight = blur.weights[number, :: max(1, blur.size[0] // 256), :: max(1, blur.size[1] // 256)].numpy()
    limit = max(float(np.abs(weight).max()), 1e-12)
    right.imshow(weight, cmap="RdBu_r", vmin=-limit, vmax=limit)
    left.set_title(f"kernel {number}", fontsize=7)
    right.set_title(f"{weight.min():.2g} .. {weight.max():.2g}", fontsize=7)


def _signed(values: Array) -> Array:
    """[-1, 1] as colours: dark where positive, red where negative; the root shows faint tails."""
    depth = np.sqrt(np.abs(values).clip(0, 1))
    colour = np.ones((*values.shape, 3))
    colour -= depth[..., None] * np.where(values[..., None] < 0, [0.15, 0.85, 0.85], [0.95, 0.9, 0.75])
    return colour.clip(0, 1)


def _draw_regions(blur: SpatiallyVaryingBlur, path: Path) -> None:
    """Weight maps in colours, each kernel drawn where its weight is greatest; the first picture's blur."""
    from matplotlib.figure import Figure

    weights = blur.weights[0, :, 0].cpu().numpy()
    kernels = blur.kernels[0].mean(1).cpu().numpy()
    height, width = weights.shape[-2:]
    shares = np.abs(weights) / np.abs(weights).sum(0).clip(1e-12)
    colours = COLOURS[np.arange(len(weights)) % len(COLOURS)]
    field = np.einsum("phw,pc->hwc", shares, colours)

    figure = Figure(figsize=(5, 5 * height / width))
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
    _save(figure, path)


def _middle(share: Array, side: float) -> tuple[float, float]:
    """The point deepest inside a weight's region, far enough from the border that the kernel fits."""
    from scipy.ndimage import distance_transform_edt

    inside = np.pad(share > 0.5 * share.max(), 1)
    y, x = np.unravel_index(distance_transform_edt(inside).argmax(), inside.shape)
    height, width = share.shape
    return (
        float(np.clip(y - 1, side / 2 + 1, height - side / 2 - 1)),
        float(np.clip(x - 1, side / 2 + 1, width - side / 2 - 1)),
    )


def _frame(x: float, y: float, side: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - side / 2, y - side / 2), side, side, fill=False, edgecolor="0.3", linewidth=0.7, zorder=3)
