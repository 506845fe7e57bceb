"""Samples of the paper's data: as specified, the same at every run, in batches, on disk and without COCO."""

from __future__ import annotations

import dataclasses
import json
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skimage.data
import torch
from PIL import Image
from scipy.ndimage import convolve
from skimage.draw import polygon2mask

import pnpladmm as pl
from dataset_cases import (
    HEIGHT,
    LOW,
    NUMPY_2,
    SIDE,
    WIDTH,
    box,
    load,
    same,
)
from pnpladmm.metrics import psnr
from pnpladmm.places import shared_folder
from pnpladmm.workshop.experiments.dataset import (
    SampleOrigin,
    load_dataset,
    read_dataset,
    regenerate,
    save_dataset,
    stack,
)
from pnpladmm.workshop.experiments.embedded import PICTURES
from pnpladmm.workshop.experiments.samples import TASKS

pytestmark = NUMPY_2

# Samples


@pytest.mark.parametrize("task", TASKS)
def test_samples_are_as_specified(coco: Path, task: str) -> None:
    dataset = load(coco, task=task)
    assert len(dataset) == 3
    assert dataset.skipped == dataset.ignored == {}
    factor = {"sr2": 2, "sr3": 3, "sr4": 4}.get(task, 1)
    side = SIDE - SIDE % factor
    for sample in dataset:
        assert sample.sharp.shape == (1, 3, side, side)
        assert sample.sharp.dtype == sample.observed.dtype == torch.float32
        assert sample.observed.shape == (1, 3, side // factor, side // factor)
        assert 0 <= sample.sharp.min() < sample.sharp.max() <= 1
        assert sample.regions.any(0).all()
        assert sample.regions.flatten(1).any(1).all()
        assert (sample.regions[:-1].flatten(1).sum(1) > 400).all()
        assert not (sample.regions[-1] & sample.regions[:-1].any(0)).any()  # background is what no mask covers
        assert "103" not in sample.origin.masks
        count = len(sample.blur.kernels)
        if task == "inpainting":
            assert sample.blur.kernels.shape == (1, 1, 1, 1)
            assert sample.mask is not None
            assert sample.mask.mean() == 0.5
            assert (sample.observed[sample.mask.expand_as(sample.observed) == 0] == 0).all()
        else:
            assert 2 <= count <= 5
            assert count == len(sample.regions)
            assert sample.blur.kernels.shape[1:] == (1, 33, 33)
            torch.testing.assert_close(sample.blur.kernels.sum((1, 2, 3)), torch.ones(count).double())
            torch.testing.assert_close(sample.blur.weights.sum(0), torch.ones(side, side), rtol=0, atol=3e-7)
        assert sample.origin.credit.startswith("Attribution License, http://example.org/")


@pytest.mark.parametrize("sigma", [1 / 255, 40 / 255])
@pytest.mark.parametrize("task", TASKS)
def test_the_noise_is_white_gaussian_and_unclipped(coco: Path, task: str, sigma: float) -> None:
    sample = load(coco, sigma, task=task, count=1).samples[0]
    clean = sample.operator().forward(sample.sharp.double())
    noise = (sample.observed.double() - clean)[sample.observed != 0]
    n = noise.numel()
    assert noise.std() == pytest.approx(sigma, rel=4 / np.sqrt(2 * n))
    assert abs(noise.mean()) < 4 * sigma / np.sqrt(n)
    assert ((noise / sigma) ** 4).mean() == pytest.approx(3, abs=4 * np.sqrt(96 / n))
    # whole steps of 1/8192
    steps = sample.observed * 8192
    assert torch.equal(steps, steps.round())


def test_the_blur_is_the_papers_formula(coco: Path) -> None:
    """`sum_i U_i (k_i * x)`, true convolution, circular, by scipy."""
    sample = load(coco, count=1).samples[0]
    x = sample.sharp[0].double().numpy()
    kernels, weights = sample.blur.kernels[:, 0].numpy(), sample.blur.weights.double().numpy()
    wanted = sum(w * np.stack([convolve(c, k, mode="wrap") for c in x]) for w, k in zip(weights, kernels, strict=True))
    np.testing.assert_allclose(sample.operator().forward(sample.sharp.double())[0], wanted, atol=1e-12)
    assert not np.allclose(wanted, x, atol=0.05)


def test_masks_are_cocos(coco: Path) -> None:
    """Against scikit-image's own polygons, on the crop."""
    sample = load(coco, count=1).samples[0]
    top, left = sample.origin.top, sample.origin.left
    corners = {"100": [box(20, 30, 70, 60)], "101": [box(60, 70, 60, 70), box(10, 10, 8, 30)]}
    assert set(sample.origin.masks) >= {"100", "101"}
    for name, polygons in corners.items():
        wanted = np.zeros((HEIGHT, WIDTH), dtype=bool)
        for polygon in polygons:
            wanted |= polygon2mask((HEIGHT, WIDTH), np.array(polygon).reshape(-1, 2)[:, ::-1] - 0.5)
        wanted = wanted[top : top + SIDE, left : left + SIDE]
        found = sample.regions[sample.origin.masks.index(name)].numpy()
        assert (found & wanted).sum() / (found | wanted).sum() > 0.97


def test_nothing_depends_on_order_count_or_sigma(coco: Path, tmp_path: Path) -> None:
    dataset = load(coco)
    for one, other in zip(dataset, load(coco), strict=True):
        same(one, other)
    for one, other in zip(load(coco, count=2), dataset, strict=False):
        same(one, other)
    # another order in the file, and a picture less: the others stay what they are
    content = json.loads((coco / "instances_test.json").read_text())
    content["images"] = content["images"][:0:-1]
    (coco / "instances_test.json").write_text(json.dumps(content))
    for one, other in zip(load(coco), dataset.samples[1:], strict=True):
        same(one, other)
    for one, other in zip(load(coco, 20 / 255), load(coco, LOW), strict=True):
        assert torch.equal(one.sharp, other.sharp)
        assert torch.equal(one.blur.kernels, other.blur.kernels)
        assert torch.equal(one.blur.weights, other.blur.weights)
        noises = [(s.observed - s.operator().forward(s.sharp)).flatten() / s.sigma for s in (one, other)]
        assert abs(float(torch.corrcoef(torch.stack(noises))[0, 1])) < 0.05  # other noise, not scaled
    assert not torch.equal(load(coco, seed=1).samples[0].sharp, load(coco).samples[0].sharp)


@pytest.mark.parametrize("task", TASKS)
def test_origins_make_the_sample_again(coco: Path, task: str) -> None:
    for sample in load(coco, task=task):
        origin = SampleOrigin.from_dict(json.loads(json.dumps(sample.origin.to_dict())))
        same(regenerate(origin), sample)
    moved = coco.rename(coco.with_name("moved"))
    found = regenerate(sample.origin, moved)
    assert torch.equal(found.observed, sample.observed)
    with pytest.raises(pl.InputError, match="no instances_test"):
        regenerate(sample.origin)


def test_origins_notice_what_has_changed(coco: Path) -> None:
    sample = load(coco, count=1).samples[0]
    for change, words in (
        ({"version": 0}, "version"),
        ({"top": sample.origin.top + 1}, "top"),
        ({"kernels_sha256": "ab"}, "kernels_sha256"),
        ({"key": "coco/99"}, "coco/99"),
    ):
        with pytest.raises(pl.InputError, match=words):
            regenerate(dataclasses.replace(sample.origin, **change))
    Image.fromarray(skimage.data.coffee()[:HEIGHT, 1 : WIDTH + 1]).save(coco / "images" / "0.jpg")
    with pytest.raises(pl.InputError, match="picture_sha256"):
        regenerate(sample.origin)
    with pytest.raises(pl.InputError, match="origin"):
        SampleOrigin.from_dict({"seed": 0})


# Batches


@pytest.mark.parametrize("task", TASKS)
def test_a_batch_is_its_samples(coco: Path, task: str) -> None:
    samples = (*load(coco, task=task), *load(coco, 20 / 255, task=task, count=1), *load("embedded", task=task, count=1))
    problem, sharp = stack(samples)
    assert sharp.shape == (5, 3, SIDE, SIDE)
    assert torch.equal(problem.observed, torch.cat([s.observed for s in samples]))
    x = torch.randn(sharp.shape, dtype=torch.float64)
    y = torch.randn(problem.observed.shape, dtype=torch.float64)
    for i, sample in enumerate(samples):
        one = sample.operator()
        together = problem.operator.forward(x)[i : i + 1], problem.operator.adjoint(y)[i : i + 1]
        torch.testing.assert_close(together[0], one.forward(x[i : i + 1]), rtol=0, atol=1e-12)
        torch.testing.assert_close(together[1], one.adjoint(y[i : i + 1]), rtol=0, atol=1e-12)
    assert pl.check_adjoint(problem.operator, tuple(sharp.shape)) < 1e-14
    # its noise levels too
    torch.testing.assert_close(problem.L_h(), torch.tensor([1 / s.sigma**2 for s in samples]).double())
    if task == "deblur":
        assert len({len(s.blur.kernels) for s in samples}) > 1  # P differs
        gain = psnr(problem.observed, sharp) - torch.cat([psnr(s.observed, s.sharp) for s in samples])
        assert (gain == 0).all()


def test_what_cannot_be_stacked(coco: Path) -> None:
    with pytest.raises(pl.InputError, match="no samples"):
        stack([])
    with pytest.raises(pl.InputError, match="deblur and sr2"):
        stack([*load(coco, count=1), *load(coco, task="sr2", count=1)])
    other = load_dataset("test", LOW, folder=coco, size=64, count=1)
    with pytest.raises(pl.InputError, match="one task and size"):
        stack([*load(coco, count=1), *other])


# On disk


@pytest.mark.parametrize("task", ["deblur", "sr4", "inpainting"])
def test_a_dataset_is_read_back_bit_for_bit(
    coco: Path, tmp_path: Path, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = dataclasses.replace(load(coco, 40 / 255, task=task), skipped={"picture missing": 2}, ignored={"crowd": 1})
    save_dataset(dataset, tmp_path / "stored")
    save_dataset(dataset, tmp_path / "stored")  # again over it
    for name in ("pycocotools", "pycocotools.mask"):
        monkeypatch.setitem(sys.modules, name, None)
    found = read_dataset(tmp_path / "stored")
    assert (found.skipped, found.ignored) == (dataset.skipped, dataset.ignored)
    for one, other in zip(found, dataset, strict=True):
        same(one, other)
    assert not list((tmp_path / "stored").glob(".*"))


def test_changed_or_unfinished_datasets_are_refused(
    coco: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = load(coco)
    folder = tmp_path / "stored"
    save_dataset(dataset, folder)
    origin = folder / "sample_0001.json"
    text = origin.read_text()
    origin.write_text(text.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(pl.InputError, match="sample_0001"):
        read_dataset(folder)
    origin.write_text(text)
    assert len(read_dataset(folder)) == 3
    (folder / "sample_0002.npz").write_bytes(b"PK")
    with pytest.raises(pl.InputError, match="sample_0002"):
        read_dataset(folder)
    with pytest.raises(pl.InputError, match="No such file"):
        read_dataset(tmp_path / "nowhere")
    (tmp_path / "dataset.json").write_text('{"samples": 3}')
    with pytest.raises(pl.InputError, match="not a dataset"):
        read_dataset(tmp_path)
    # killed while it is written: no index, so nobody takes it for whole
    calls = []

    def dies(*_: Any, **__: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez_compressed", dies)
    with pytest.raises(KeyboardInterrupt):
        save_dataset(dataset, folder)
    with pytest.raises(pl.InputError, match=r"dataset\.json"):
        read_dataset(folder)


# Without COCO


def test_the_embedded_pictures_serve_without_data_or_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("PNPLADMM_SHARED", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pycocotools", None)
    assert not set(PICTURES["tune"]) & set(PICTURES["test"])
    keys = []
    for split, count in (("tune", 8), ("test", 12)):
        dataset = load_dataset(split, LOW)  # type: ignore[arg-type]
        assert len(dataset) == count
        assert len({s.name for s in dataset}) == count
        assert dataset.samples[0].sharp.shape == (1, 3, 256, 256)
        assert all(2 <= len(s.blur.kernels) <= 5 for s in dataset)
        crops = {(s.name.partition("-")[0], s.origin.top, s.origin.left) for s in dataset}
        assert len(crops) == count
        first = {s.name.partition("-")[0] for s in dataset.samples[: len(PICTURES[split])]}
        assert len(first) == len(PICTURES[split])  # each picture once before any comes twice
        keys += [s.origin.key.split("/")[1] for s in dataset]
        same(regenerate(dataset.samples[-1].origin), dataset.samples[-1])
    assert len(set(keys)) == 5


# The real thing


@pytest.mark.shared
@pytest.mark.skipif(shared_folder("coco") is None, reason="../shared/coco is not there")
def test_shared_coco_gives_20_and_60_samples(tmp_path: Path) -> None:
    keys: set[str] = set()
    for split, count in (("tune", 20), ("test", 60)):
        dataset = load_dataset(split, 40 / 255)  # type: ignore[arg-type]
        assert len(dataset) == count
        assert dataset.skipped == {}
        for s in dataset:
            assert s.sharp.shape == s.observed.shape == (1, 3, 256, 256)
            assert 2 <= len(s.blur.kernels) <= 5
            assert (s.regions[: len(s.origin.masks)].flatten(1).sum(1) > 400).all()
            assert s.regions.any(0).all()
            assert (s.blur.weights.amax((1, 2)) - s.blur.weights.amin((1, 2))).max() > 0.49  # it varies
        keys |= {s.origin.key for s in dataset}
        save_dataset(dataset, tmp_path / split)
    assert len(keys) == 80
    size = sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file())
    assert size < 60e6
