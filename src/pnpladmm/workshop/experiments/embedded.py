"""Scenes that are always there: pictures that come with scikit-image, things in them found by segmentation."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from pnpladmm.workshop.experiments.coco import read_pixels
from pnpladmm.workshop.experiments.scenes import SMALLEST, Array, Scene

PICTURES = {
    "tune": ("astronaut.png", "motorcycle_left.png"),
    "test": ("chelsea.png", "coffee.png", "rocket.jpg"),
}
"""Colour photographs in scikit-image's package itself: nothing is downloaded. No picture is in both splits."""
CROPS = 4
"""Of each picture, at most; they may overlap."""
THINGS = 12


def embedded_scenes(split: str) -> tuple[Scene, ...]:
    """First one crop of every picture, then a second one of each, and so on."""
    return tuple(
        Scene(f"embedded/{name}/{i}", f"{Path(name).stem}-{i}", partial(_read, name), "scikit-image's data")
        for i in range(CROPS)
        for name in PICTURES[split]
    )


def _read(name: str, ignored: Counter[str]) -> tuple[Array, tuple[tuple[str, Array], ...], str]:
    return _segmented(name)


@lru_cache
def _segmented(name: str) -> tuple[Array, tuple[tuple[str, Array], ...], str]:
    """The picture and its largest segments (Felzenszwalb's), but for the largest: that is background."""
    import skimage.data
    from skimage.segmentation import felzenszwalb

    pixels, digest = read_pixels(Path(skimage.data.__file__).parent / name)
    labels = felzenszwalb(pixels, scale=400, sigma=1.2, min_size=2 * SMALLEST)
    areas = np.bincount(labels.ravel())
    largest = np.argsort(-areas, kind="stable")[1 : THINGS + 1]
    return pixels, tuple((f"segment {i}", labels == i) for i in largest), digest
