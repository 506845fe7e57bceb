"""Scenes that need no download: pictures that come with scikit-image, with segments of them as masks."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from pnpladmm.workshop.experiments.coco import read_pixels
from pnpladmm.workshop.experiments.scenes import MIN_PIXELS, Array, Scene

PICTURES = {
    "tune": ("astronaut.png", "motorcycle_left.png"),
    "test": ("chelsea.png", "coffee.png", "rocket.jpg"),
}
"""Colour photographs inside the scikit-image package. No picture is in both splits."""
CROPS = 4
"""At most this many of each picture; they may overlap."""
THINGS = 12


def embedded_scenes(split: str) -> tuple[Scene, ...]:
    """The scenes of a split: first one crop of every picture, then a second one of each, and so on."""
    return tuple(
        Scene(f"embedded/{name}/{i}", f"{Path(name).stem}-{i}", partial(_read, name), "scikit-image's data")
        for i in range(CROPS)
        for name in PICTURES[split]
    )


def _read(name: str, ignored: Counter[str]) -> tuple[Array, tuple[tuple[str, Array], ...], str]:
    return _segmented(name)


@lru_cache
def _segmented(name: str) -> tuple[Array, tuple[tuple[str, Array], ...], str]:
    """The picture and its largest segments (Felzenszwalb), except the very largest: that is background."""
    import skimage.data
    from skimage.segmentation import felzenszwalb

    pixels, digest = read_pixels(Path(skimage.data.__file__).parent / name)
    labels = felzenszwalb(pixels, scale=400, sigma=1.2, min_size=2 * MIN_PIXELS)
    areas = np.bincount(labels.ravel())
    largest = np.argsort(-areas, kind="stable")[1 : THINGS + 1]
    return pixels, tuple((f"segment {i}", labels == i) for i in largest), digest
