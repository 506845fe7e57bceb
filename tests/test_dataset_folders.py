"""COCO folders that are not what they should be: what is bad is counted, and the rest is used."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skimage.data
from PIL import Image

import pnpladmm as pl
from dataset_cases import (
    HEIGHT,
    LOW,
    NUMPY_2,
    SIDE,
    WIDTH,
    box,
    good_things,
    load,
    same,
    thing,
    write_coco,
)
from pnpladmm.workshop.experiments.dataset import load_dataset

pytestmark = NUMPY_2


def break_json(folder: Path) -> None:
    path = folder / "instances_test.json"
    path.write_text(path.read_text()[:-40])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (break_json, "broken JSON"),
        (lambda f: (f / "instances_test.json").write_bytes(b"\xff\xfe\x00"), "broken JSON"),
        (lambda f: (f / "instances_test.json").write_text("[" * 100_000), "broken JSON"),
        (lambda f: (f / "instances_test.json").write_text("[]"), "no lists images"),
        (lambda f: (f / "instances_test.json").write_text('{"images": [], "annotations": 3}'), "no lists images"),
        (lambda f: (f / "instances_test.json").unlink(), "no instances_test.json"),
        (lambda f: write_coco(f, []), "3 no mask of more than 400 pixels"),
        (lambda f: write_coco(f, [], pictures=0), "nothing can be used"),
        (lambda f: [p.unlink() for p in (f / "images").iterdir()], "3 picture missing"),
    ],
)
def test_a_folder_of_which_nothing_is_left(coco: Path, spoil: Callable[[Path], Any], words: str) -> None:
    spoil(coco)
    with pytest.raises(pl.InputError, match=words):
        load(coco)


def test_bad_pictures_are_counted_and_the_others_used(coco: Path) -> None:
    """Missing, corrupt, truncated, grey, tiny, of another size, twice, without a name, leading out of the folder."""
    content = write_coco(coco, good_things())
    images = coco / "images"
    data = (images / "0.jpg").read_bytes()
    (images / "corrupt.jpg").write_bytes(b"\xff\xd8\xff" + bytes(500))
    (images / "truncated.jpg").write_bytes(data[: len(data) // 2])
    (images / "empty.jpg").write_bytes(b"")
    Image.fromarray(skimage.data.camera()[:HEIGHT, :WIDTH]).save(images / "grey.jpg")
    Image.fromarray(skimage.data.coffee()[:80, :WIDTH]).save(images / "tiny.jpg")
    (coco / "outside.jpg").write_bytes(data)
    size = {"height": HEIGHT, "width": WIDTH}
    content["images"] += [
        {"id": 40, "file_name": "missing.jpg", **size},
        {"id": 41, "file_name": "corrupt.jpg", **size},
        {"id": 42, "file_name": "truncated.jpg", **size},
        {"id": 43, "file_name": "empty.jpg", **size},
        {"id": 44, "file_name": "grey.jpg", **size},
        {"id": 45, "file_name": "tiny.jpg"},
        {"id": 46, "file_name": "0.jpg", "height": WIDTH, "width": HEIGHT},
        {"id": 47, "file_name": "0.jpg", "height": "tall", "width": None},
        {"id": 10, "file_name": "1.jpg"},
        {"id": "48", "file_name": "0.jpg"},
        {"id": 49, "file_name": ["0.jpg"]},
        {"id": 50, "file_name": "../outside.jpg"},
        {"id": 51, "file_name": "/etc/passwd"},
        {"id": 52, "file_name": "x\x00.jpg"},
        {"id": 53, "file_name": "x" * 5000},
        {"id": 54, "file_name": "\ud800.jpg"},
        {"id": True, "file_name": "0.jpg"},
        {},
        None,
        "0.jpg",
    ]
    whole = [box(20, 30, 70, 60)]
    content["annotations"] += [thing(200 + i, i, *whole) for i in range(40, 55)]
    content["licenses"] = {"id": "none"}
    (coco / "instances_test.json").write_text(json.dumps(content))
    dataset = load(coco)
    assert [s.origin.key for s in dataset] == ["coco/10", "coco/20", "coco/30", "coco/44"]
    assert dataset.skipped == {
        "picture missing": 3,
        "picture that cannot be decoded": 3,
        f"picture smaller than {SIDE}x{SIDE}": 1,
        "picture of another size than its entry says": 2,
        "id given twice": 1,
        "entry without id or file name": 9,
    }
    grey = dataset.samples[-1].sharp
    assert grey.shape == (1, 3, SIDE, SIDE)
    assert (grey == grey[:, :1]).all()
    assert "pictures left out: " in dataset.summary()
    for one, other in zip(dataset, load(coco, count=4), strict=True):
        same(one, other)


def test_bad_annotations_are_counted_and_the_others_used(coco: Path) -> None:
    mask = pytest.importorskip("pycocotools.mask")
    filled = np.zeros((HEIGHT, WIDTH), dtype=np.uint8, order="F")
    filled[20:100, 30:100] = 1
    text = mask.encode(filled)["counts"].decode()
    flat = filled.ravel(order="F")
    counts = np.diff([0, *np.flatnonzero(np.diff(flat)) + 1, flat.size]).tolist()
    runs = {"size": [HEIGHT, WIDTH], "counts": counts}
    total = HEIGHT * WIDTH
    bad: list[Any] = [
        thing(1, 10, iscrowd=1, segmentation=runs),
        thing(2, 10, segmentation={"size": [HEIGHT, WIDTH], "counts": [1, 2, 3]}),
        thing(3, 10, segmentation={"size": [WIDTH, HEIGHT], "counts": counts}),
        thing(4, 10, segmentation={"size": [HEIGHT, WIDTH], "counts": text[:-1] + "~"}),
        # The same in COCO's text: too short, too long, ended inside a number, a number of more than 32 bits.
        thing(21, 10, segmentation={"size": [HEIGHT, WIDTH], "counts": text[: len(text) // 2].rstrip(FOLLOWED)}),
        thing(22, 10, segmentation={"size": [HEIGHT, WIDTH], "counts": text + text}),
        thing(23, 10, segmentation={"size": [HEIGHT, WIDTH], "counts": text + "P"}),
        thing(24, 10, segmentation={"size": [HEIGHT, WIDTH], "counts": "o" * 20 + "0"}),
        thing(5, 10, segmentation={"size": [HEIGHT, WIDTH], "counts": [-5, total + 5]}),
        thing(6, 10, segmentation={"size": [HEIGHT, WIDTH], "counts": [1.5, total - 1.5]}),
        thing(7, 10, segmentation={}),
        thing(8, 10, segmentation=[]),
        thing(9, 10, segmentation=[[1, 2, 3, 4]]),
        thing(10, 10, segmentation=[[1, 2, 3, 4, 5, 6, 7]]),
        thing(11, 10, segmentation=[box(20, 30, 70, 60), ["a"] * 6]),
        thing(12, 10, segmentation=[[0, 0, 1e9, 0, 1e9, 1e9]]),
        thing(13, 10, segmentation=[[0, 0, float("nan"), 0, 50, 50]]),
        thing(14, 10, segmentation=[0, 0, 50, 0, 50, 50]),
        thing(15, 10, segmentation=None),
        thing(16, 10, segmentation="polygon"),
        thing(17, 99, box(20, 30, 70, 60)),
        thing(18, 10, box(20, 30, 70, 60), image_id="10"),
        None,
        7,
    ]
    good = [
        thing(50, 10, segmentation=runs),
        thing(51, 20, segmentation={"size": [HEIGHT, WIDTH], "counts": text}),
        {"image_id": 30, "segmentation": [box(20, 30, 80, 70)]},
    ]
    write_coco(coco, bad + good)
    dataset = load(coco)
    assert len(dataset) == 3
    assert dataset.skipped == {}
    assert dataset.ignored == {
        "crowd": 1,
        "broken run lengths": 10,
        "broken polygon": 7,
        "no segmentation": 2,
        "annotation without picture": 4,
    }
    # run lengths, their text form and the polygon give the same mask
    for sample in dataset:
        rows = slice(sample.origin.top, sample.origin.top + SIDE)
        columns = slice(sample.origin.left, sample.origin.left + SIDE)
        np.testing.assert_array_equal(sample.regions[0].numpy(), filled[rows, columns] > 0)


FOLLOWED = "".join(map(chr, range(ord("P"), ord("o") + 1)))
"""Characters of COCO's text that say that the number goes on."""

JUNK = [None, -1, 1.5, 1e300, float("nan"), "", "0.jpg", [], [1], {}, {"id": 1}, True, [[1] * 6], [[1e9] * 6]]
JUNK += [10**30, 10**400, {"counts": [1, 2], "size": [HEIGHT, WIDTH]}, 10, [[0, 0, 90, 0, 90, 90]]]


def test_junk_anywhere_in_the_json_is_survived(coco: Path) -> None:
    """Random places of a good file replaced by things that do not belong there."""
    good, rng, outcomes = write_coco(coco, good_things()), random.Random(0), set()
    for _ in range(60):
        content = json.loads(json.dumps(good))
        for _ in range(rng.randint(1, 6)):
            place, key = content, rng.choice(list(content))
            while isinstance(place[key], dict | list) and place[key] and rng.random() < 0.8:
                place = place[key]
                key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
            place[key] = json.loads(json.dumps(rng.choice(JUNK)))
        (coco / "instances_test.json").write_text(json.dumps(content))
        try:
            outcomes.add(len(load(coco)))
        except pl.InputError:
            outcomes.add(0)
    assert outcomes == {0, 1, 2, 3}


def test_cocos_own_folders_are_understood(coco: Path) -> None:
    dataset = load(coco)
    (coco / "annotations").mkdir()
    (coco / "instances_test.json").rename(coco / "annotations" / "instances_val2017.json")
    (coco / "images").rename(coco / "val2017")
    for one, other in zip(load(coco), dataset, strict=True):
        same(one, other)


def test_pycocotools_is_asked_for_by_its_extra(coco: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pycocotools", "pycocotools.mask"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(pl.InputError, match=r"pnpladmm\[experiments\]"):
        load(coco)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"split": "train"}, "split 'train'"),
        ({"task": "sr5"}, "task 'sr5'"),
        ({"sigma": 0}, "sigma = 0"),
        ({"sigma": float("nan")}, "sigma = nan"),
        ({"sigma": 10}, "of 1"),
        ({"count": 0}, "count = 0"),
        ({"size": 16}, "size = 16"),
        ({"size": 5000}, "picture smaller than 5000x5000"),
        ({"kernels": "gauss"}, "kernels 'gauss'"),
    ],
)
def test_bad_settings(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(pl.InputError, match=words):
        load_dataset(**({"split": "test", "sigma": LOW, "folder": "embedded", "size": 96} | settings))
