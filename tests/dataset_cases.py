"""What the tests of the paper's data share: a small COCO folder, and samples compared bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import skimage.data
import torch
from PIL import Image

from pnpladmm.workshop.experiments.dataset import Dataset, Sample, load_dataset

# pycocotools has not followed numpy 2 yet.
NUMPY_2 = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

SIDE = 96
HEIGHT, WIDTH = 150, 170
LOW = 10 / 255


def box(top: float, left: float, height: float, width: float) -> list[float]:
    """A rectangle as COCO's polygon: x, y, x, y, ..."""
    return [left, top, left + width, top, left + width, top + height, left, top + height]


def thing(number: int, picture: int, *polygons: list[float], **changes: Any) -> dict[str, Any]:
    return {"id": number, "image_id": picture, "segmentation": list(polygons), "iscrowd": 0} | changes


def write_coco(
    folder: Path, annotations: list[Any], pictures: int = 3, split: str = "test", **changes: Any
) -> dict[str, Any]:
    """A COCO folder of crops of real photographs, with ids 10, 20, 30, ..."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {
        "images": [],
        "annotations": annotations,
        "licenses": [{"id": 4, "name": "Attribution License", "url": ""}],
    }
    for i in range(pictures):
        pixels = skimage.data.coffee()[40 * i : 40 * i + HEIGHT, 90 * i : 90 * i + WIDTH]
        Image.fromarray(pixels).save(folder / "images" / f"{i}.jpg", quality=95)
        content["images"].append(
            {
                "id": 10 * (i + 1),
                "file_name": f"{i}.jpg",
                "height": HEIGHT,
                "width": WIDTH,
                "license": 4,
                "flickr_url": f"http://example.org/{i}",
            }
        )
    content |= changes
    (folder / f"instances_{split}.json").write_text(json.dumps(content))
    return content


def good_things() -> list[dict[str, Any]]:
    """In each picture things that overlap, of several sizes, all over it."""
    found = []
    for i, picture in enumerate((10, 20, 30)):
        found.append(thing(100 + 10 * i, picture, box(20, 30, 70, 60)))
        found.append(thing(101 + 10 * i, picture, box(60, 70, 60, 70), box(10, 10, 8, 30)))
        found.append(thing(102 + 10 * i, picture, [40, 100, 90, 60, 120, 130, 60.5, 140.25]))
        found.append(thing(103 + 10 * i, picture, box(30, 100, 10, 10)))  # 100 pixels: too small
    return found


def load(folder: Path | str, sigma: float = LOW, **settings: Any) -> Dataset:
    return load_dataset("test", sigma, folder=folder, size=SIDE, **settings)


def same(a: Sample, b: Sample) -> None:
    """Bit for bit."""
    assert (a.name, a.sigma, a.task, a.origin) == (b.name, b.sigma, b.task, b.origin)
    tensors = [(s.sharp, s.observed, s.blur.kernels, s.blur.weights, s.regions, s.mask) for s in (a, b)]
    for one, other in zip(*tensors, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert other is not None
            assert one.dtype == other.dtype
            assert torch.equal(one, other)
