"""Fluorescence microscopy: a 16-bit TIFF with photon noise, and a stack of bead images with their positions.

Filaments and beads are simulated with a PSF that widens away from the axis. The program gets nine bead images, as a
microscopist would have them. Run it with `python examples/microscopy.py`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import tifffile
from common import PICTURES, pnpladmm, sheet

SIZE = 240
COUNT = 40.0  # grey levels per photon
DARK = 400.0  # grey levels without light


def make_scene() -> np.ndarray:
    """Curved filaments and point-like beads, in grey levels."""
    rng = np.random.default_rng(2)
    scene = np.zeros((SIZE, SIZE))
    for _ in range(14):
        row, column, angle = rng.uniform(0, SIZE), rng.uniform(0, SIZE), rng.uniform(0, 2 * np.pi)
        bend = rng.uniform(-0.01, 0.01)
        for _ in range(220):
            row, column, angle = row + np.sin(angle), column + np.cos(angle), angle + bend
            if 0 <= row < SIZE - 1 and 0 <= column < SIZE - 1:
                scene[int(row), int(column)] += 9000
    for row, column in rng.integers(15, SIZE - 15, (25, 2)):
        scene[row, column] += 45000
    return scene.clip(0, 60000)


def bead(row: float, column: float) -> np.ndarray:
    """The PSF at a place: the farther from the axis, the wider and the more elongated."""
    y, x = np.mgrid[-10:11, -10:11]
    dy, dx = (row - SIZE / 2) / SIZE, (column - SIZE / 2) / SIZE
    out, turn = np.hypot(dy, dx), np.arctan2(dy, dx)
    along, across = x * np.cos(turn) + y * np.sin(turn), -x * np.sin(turn) + y * np.cos(turn)
    image = np.exp(-0.5 * ((along / (1.6 + 2.0 * out)) ** 2 + (across / (1.6 + 0.8 * out)) ** 2))
    return image / image.sum()


def main(folder: Path) -> tuple[float, float]:
    """Simulate and restore. Return the PSNR before and after, relative to the brightest pixel of the scene."""
    scene = make_scene()
    tifffile.imwrite(
        folder / "scene.tif", scene.astype(np.uint16), imagej=True, resolution=(9.2, 9.2), metadata={"unit": "um"}
    )
    places = [(row, column) for row in (20, 120, 220) for column in (20, 120, 220)]
    tifffile.imwrite(folder / "beads.tif", np.stack([bead(*p) for p in places]).astype(np.float32))
    lines = ["x,y", *(f"{column},{row}" for row, column in places)]
    (folder / "beads.csv").write_text("\n".join(lines) + "\n")

    pnpladmm("inspect", folder / "beads.tif", "--picture", folder / "scene.tif", "-o", folder / "beads.png")
    counts = ["--gain", str(COUNT), "--background", str(DARK)]
    pnpladmm("simulate", folder / "scene.tif", "-b", folder / "beads.tif", *counts, "-o", folder / "cells.tif")
    pnpladmm(
        "restore", folder / "cells.tif", "-b", folder / "cells.tif.blur.npz", *counts, "--iterations", "16",
        "-o", folder / "sharp.tif",
    )  # fmt: skip
    frame, restored = (tifffile.imread(folder / name).astype(float) for name in ("cells.tif", "sharp.tif"))
    margin = (SIZE - frame.shape[0]) // 2
    truth = scene[margin : SIZE - margin, margin : SIZE - margin]
    white = np.percentile(restored, 99.7)
    sheet(
        PICTURES / "microscopy.png",
        {
            "recorded": (frame - DARK) / np.percentile(frame - DARK, 99.7),
            "restored": restored / white,
            "truth": truth / white,
        },
        zoom=2,
    )
    top = scene.max()
    return tuple(-10 * np.log10(np.mean(((image - truth) / top) ** 2)) for image in (frame - DARK, restored))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        before, after = main(Path(place))
        print(f"PSNR: {before:.2f} dB recorded, {after:.2f} dB restored")
