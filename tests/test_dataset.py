"""The paper's data: masks, kernels, weights and noise as specified; the same at every run; bad folders survived."""

from __future__ import annotations

import dataclasses
import json
import random
import socket
import sys
from collections.abc import Callable
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
from pnpladmm.experiments import scenes
from pnpladmm.experiments.coco import _uncompressed
from pnpladmm.experiments.dataset import (
    Dataset,
    Sample,
    SampleRecipe,
    load_dataset,
    read_dataset,
    regenerate,
    save_dataset,
    stack,
)
from pnpladmm.experiments.embedded import PICTURES
from pnpladmm.experiments.kernels import SIZE, gaussian_kernel, load_kernels, motion_kernel
from pnpladmm.experiments.samples import TASKS
from pnpladmm.metrics import psnr
from pnpladmm.places import shared_folder

# pycocotools has not followed numpy 2 yet.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

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


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    pytest.importorskip("pycocotools")
    write_coco(tmp_path / "coco", good_things())
    return tmp_path / "coco"


def load(folder: Path | str, sigma: float = LOW, **settings: Any) -> Dataset:
    return load_dataset("test", sigma, folder=folder, size=SIDE, **settings)


def same(a: Sample, b: Sample) -> None:
    """Bit for bit."""
    assert (a.name, a.sigma, a.task, a.recipe) == (b.name, b.sigma, b.task, b.recipe)
    tensors = [(s.sharp, s.observed, s.blur.kernels, s.blur.weights, s.regions, s.mask) for s in (a, b)]
    for one, other in zip(*tensors, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.dtype == other.dtype  # type: ignore[union-attr]
            assert torch.equal(one, other)  # type: ignore[arg-type]


# Kernels


def moments(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centroid from the centre, and covariance."""
    axis = np.arange(SIZE) - SIZE // 2
    x, y = np.meshgrid(axis, axis)
    points = np.stack([x.ravel(), y.ravel()])
    mean = points @ kernel.ravel()
    return mean, (points * kernel.ravel()) @ points.T - np.outer(mean, mean)


def test_gaussians_have_the_papers_variances() -> None:
    found = []
    for seed in range(200):
        kernel = gaussian_kernel(np.random.default_rng(seed))
        assert kernel.shape == (33, 33)
        assert (kernel >= 0).all()
        assert kernel.sum() == pytest.approx(1, abs=1e-14)
        mean, covariance = moments(kernel)
        np.testing.assert_allclose(mean, 0, atol=1e-12)
        found.append(np.linalg.eigvalsh(covariance))
    values = np.array(found)
    assert values.min() > 0.599
    assert values.max() < 12.001
    assert values.min() < 0.8
    assert values.max() > 11.5
    # uniform in between: the mean of all is (0.6 + 12) / 2
    assert values.mean() == pytest.approx(6.3, abs=0.5)
    assert (values[:, 1] / values[:, 0] > 2).mean() > 0.3  # anisotropic


def test_motion_kernels_are_centred_thin_and_differ() -> None:
    lengths, supports = [], []
    for seed in range(200):
        kernel = motion_kernel(np.random.default_rng(seed))
        assert kernel.shape == (33, 33)
        assert (kernel >= 0).all()
        assert kernel.sum() == pytest.approx(1, abs=1e-12)
        mean, covariance = moments(kernel)
        np.testing.assert_allclose(mean, 0, atol=1e-9)
        lengths.append(np.sqrt(np.linalg.eigvalsh(covariance)[1]))
        supports.append((kernel > 0).sum())
    assert min(lengths) < 1.5
    assert max(lengths) > 6
    assert np.median(supports) < 100  # a path, not a disc
    assert (np.sort(supports)[[0, -1]] > [4, 60]).all()


def test_half_of_the_kernels_are_motion() -> None:
    kernels = load_kernels("paper").draw(np.random.default_rng(0), 600)
    gaussian = np.abs(kernels - kernels[:, ::-1, ::-1]).max((1, 2)) < 1e-12
    assert gaussian.mean() == pytest.approx(0.5, abs=0.06)


def test_kernels_from_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    bank = [rng.random((k, k)) for k in (5, 9, 21)]
    from scipy.io import savemat

    cells = np.empty((1, 3), dtype=object)
    cells[0] = bank
    savemat(tmp_path / "bank.mat", {"kernels": cells})
    (tmp_path / "folder").mkdir()
    for i, kernel in enumerate(bank):
        np.save(tmp_path / "folder" / f"{i}.npy", kernel)
    (tmp_path / "folder" / "README").write_text("where they come from")
    for name in ("bank.mat", "folder"):
        kernels = load_kernels(str(tmp_path / name))
        assert kernels.bank is not None
        assert kernels.bank.shape == (3, 33, 33)
        np.testing.assert_allclose(kernels.bank.sum((1, 2)), 1, rtol=1e-14)
        for kernel, source in zip(kernels.bank, bank, strict=True):
            r = source.shape[0] // 2
            np.testing.assert_allclose(kernel[16 - r : 17 + r, 16 - r : 17 + r], source / source.sum())
        drawn = kernels.draw(np.random.default_rng(1), 5)
        assert len({k.tobytes() for k in drawn[:3]}) == 3  # each once before any comes twice
        np.testing.assert_array_equal(drawn[:2], kernels.draw(np.random.default_rng(1), 2))


@pytest.mark.parametrize(
    ("array", "words"), [(-np.eye(5), "negative"), (np.zeros((5, 5)), "0"), (np.ones((2, 2, 2, 2)), "shape")]
)
def test_bad_kernel_files(array: np.ndarray, words: str, tmp_path: Path) -> None:
    np.save(tmp_path / "k.npy", array)
    with pytest.raises(pl.InputError, match=words):
        load_kernels(str(tmp_path / "k.npy"))


def test_missing_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PNPLADMM_SHARED", str(tmp_path))
    with pytest.raises(pl.InputError, match="Levin09"):
        load_kernels("levin")
    with pytest.raises(pl.InputError, match="nowhere"):
        load_kernels(str(tmp_path / "nowhere"))
    with pytest.raises(pl.InputError, match="no kernels"):
        load_kernels(str(tmp_path))


@pytest.mark.shared
@pytest.mark.skipif(shared_folder("kernels") is None, reason="../shared/kernels is not there")
def test_levins_kernels() -> None:
    kernels = load_kernels("levin")
    assert kernels.bank is not None
    assert kernels.bank.shape == (8, 33, 33)
    sample = load("embedded", kernels="levin", count=1).samples[0]
    assert all(any(np.array_equal(k, b) for b in kernels.bank) for k in sample.blur.kernels[:, 0].numpy())


# Crops and weights


def things_of(*masks: np.ndarray) -> tuple[tuple[str, np.ndarray], ...]:
    return tuple((str(i), mask) for i, mask in enumerate(masks))


def rectangle(rows: slice, columns: slice) -> np.ndarray:
    mask = np.zeros((200, 200), dtype=bool)
    mask[rows, columns] = True
    return mask


PIXELS = np.zeros((200, 200, 3), dtype=np.uint8)


def test_a_crop_without_masks_is_not_used() -> None:
    """None at all, too small ones, one that fills every crop, one given twice: nothing varies over the crop."""
    rng = np.random.default_rng(0)
    whole = rectangle(slice(None), slice(None))
    cases = [
        ((), "no mask of more than 400"),
        ((rectangle(slice(0, 20), slice(0, 20)),), "no mask of more than 400"),  # 400 are not more than 400
        ((whole,), "no crop with two regions"),
        ((whole, whole), "no crop with two regions"),
        ((rectangle(slice(0, 199), slice(None)),), "no crop with two regions"),  # 100 pixels of background
    ]
    for masks, reason in cases:
        with pytest.raises(scenes.Unusable, match=reason):
            scenes.find_crop(PIXELS, things_of(*masks), 100, 0, rng)
    with pytest.raises(scenes.Unusable, match="smaller than 201x201"):
        scenes.find_crop(PIXELS, things_of(whole), 201, 0, rng)


def test_a_mask_in_the_corner_is_found() -> None:
    """Random crops mostly miss it; the one centred on it does not."""
    corner = rectangle(slice(0, 21), slice(179, 200))
    crops = [scenes.find_crop(PIXELS, things_of(corner), 64, 0, np.random.default_rng(seed)) for seed in range(20)]
    assert all(crop.masks.sum() > 400 for crop in crops)
    assert (0, 136) in {(crop.top, crop.left) for crop in crops}


def test_first_four_masks_in_the_files_order_and_what_overlaps() -> None:
    masks = [rectangle(slice(10 * i, 10 * i + 50), slice(20, 180)) for i in range(6)]
    masks.insert(1, rectangle(slice(0, 19), slice(0, 20)))
    crop = scenes.cut(PIXELS, things_of(*masks), 200, 0, 0)
    assert crop is not None
    assert crop.names == ("0", "2", "3", "4")
    assert crop.masks.sum(0).max() == 4  # overlaps are kept in all
    regions = scenes.with_background(crop.masks)
    assert len(regions) == 5
    np.testing.assert_array_equal(regions[4], ~crop.masks.any(0))


def test_masks_that_cover_everything_leave_no_background() -> None:
    left, right = rectangle(slice(None), slice(0, 120)), rectangle(slice(None), slice(110, 200))
    crop = scenes.cut(PIXELS, things_of(left, right), 200, 0, 0)
    assert crop is not None
    assert len(scenes.with_background(crop.masks)) == 2


def test_weights_are_smoothed_masks_normalised() -> None:
    rng = np.random.default_rng(0)
    masks = np.stack([rectangle(slice(20, 90), slice(30, 120)), rectangle(slice(60, 150), slice(100, 160))])
    regions = scenes.with_background(masks)[:, :150, :160]
    kernels = np.stack([motion_kernel(rng), gaussian_kernel(rng), motion_kernel(rng)])
    weights = scenes.soft_weights(regions, kernels)
    smooth = np.stack([convolve(r.astype(float), k, mode="wrap") for r, k in zip(regions, kernels, strict=True)])
    np.testing.assert_allclose(weights, smooth / smooth.sum(0), atol=2e-6)
    np.testing.assert_allclose(weights.sum(0), 1, atol=3e-7)
    assert weights.dtype == np.float32
    assert (weights >= 0).all()
    assert weights[0, 120:, 140:].max() == 0  # nothing far from its mask: not even rounding
    overlap = weights[:2, 75, 110]
    np.testing.assert_allclose(overlap, 0.5, atol=0.05)


def test_kernels_with_an_empty_centre_leave_no_holes() -> None:
    """Both carry all light two pixels away: at the seam nothing arrives, and the masks decide."""
    regions = np.zeros((2, 40, 40), dtype=bool)
    regions[0, :, :20] = True
    regions[1] = ~regions[0]
    kernels = np.zeros((2, 33, 33))
    kernels[0, 16, 13] = kernels[1, 16, 19] = 1
    weights = scenes.soft_weights(regions, kernels)
    assert np.isfinite(weights).all()
    np.testing.assert_allclose(weights.sum(0), 1, atol=1e-6)
    np.testing.assert_array_equal(weights[0, :, 18:20], 1)
    np.testing.assert_array_equal(weights[1, :, 20:22], 1)


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
        assert "103" not in sample.recipe.masks
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
        assert sample.recipe.credit.startswith("Attribution License, http://example.org/")


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
    top, left = sample.recipe.top, sample.recipe.left
    corners = {"100": [box(20, 30, 70, 60)], "101": [box(60, 70, 60, 70), box(10, 10, 8, 30)]}
    assert set(sample.recipe.masks) >= {"100", "101"}
    for name, polygons in corners.items():
        wanted = np.zeros((HEIGHT, WIDTH), dtype=bool)
        for polygon in polygons:
            wanted |= polygon2mask((HEIGHT, WIDTH), np.array(polygon).reshape(-1, 2)[:, ::-1] - 0.5)
        wanted = wanted[top : top + SIDE, left : left + SIDE]
        found = sample.regions[sample.recipe.masks.index(name)].numpy()
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
def test_recipes_make_the_sample_again(coco: Path, task: str) -> None:
    for sample in load(coco, task=task):
        recipe = SampleRecipe.from_dict(json.loads(json.dumps(sample.recipe.to_dict())))
        same(regenerate(recipe), sample)
    moved = coco.rename(coco.with_name("moved"))
    found = regenerate(sample.recipe, moved)
    assert torch.equal(found.observed, sample.observed)
    with pytest.raises(pl.InputError, match="no instances_test"):
        regenerate(sample.recipe)


def test_recipes_notice_what_has_changed(coco: Path) -> None:
    sample = load(coco, count=1).samples[0]
    for change, words in (
        ({"version": 0}, "version"),
        ({"top": sample.recipe.top + 1}, "top"),
        ({"kernels_sha256": "ab"}, "kernels_sha256"),
        ({"key": "coco/99"}, "coco/99"),
    ):
        with pytest.raises(pl.InputError, match=words):
            regenerate(dataclasses.replace(sample.recipe, **change))
    Image.fromarray(skimage.data.coffee()[:HEIGHT, 1 : WIDTH + 1]).save(coco / "images" / "0.jpg")
    with pytest.raises(pl.InputError, match="picture_sha256"):
        regenerate(sample.recipe)
    with pytest.raises(pl.InputError, match="recipe"):
        SampleRecipe.from_dict({"seed": 0})


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
    recipe = folder / "sample_0001.json"
    text = recipe.read_text()
    recipe.write_text(text.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(pl.InputError, match="sample_0001"):
        read_dataset(folder)
    recipe.write_text(text)
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


# Folders that are not what they should be


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
    assert [s.recipe.key for s in dataset] == ["coco/10", "coco/20", "coco/30", "coco/44"]
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
    counts = _uncompressed(text)
    assert counts is not None
    runs = {"size": [HEIGHT, WIDTH], "counts": counts}
    total = HEIGHT * WIDTH
    bad: list[Any] = [
        thing(1, 10, iscrowd=1, segmentation=runs),
        thing(2, 10, segmentation={"size": [HEIGHT, WIDTH], "counts": [1, 2, 3]}),
        thing(3, 10, segmentation={"size": [WIDTH, HEIGHT], "counts": counts}),
        thing(4, 10, segmentation={"size": [HEIGHT, WIDTH], "counts": text[:-1] + "~"}),
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
        "broken run lengths": 6,
        "broken polygon": 7,
        "no segmentation": 2,
        "annotation without picture": 4,
    }
    # run lengths, their text form and the polygon give the same mask
    for sample in dataset:
        rows = slice(sample.recipe.top, sample.recipe.top + SIDE)
        columns = slice(sample.recipe.left, sample.recipe.left + SIDE)
        np.testing.assert_array_equal(sample.regions[0].numpy(), filled[rows, columns] > 0)


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
        crops = {(s.name.partition("-")[0], s.recipe.top, s.recipe.left) for s in dataset}
        assert len(crops) == count
        first = {s.name.partition("-")[0] for s in dataset.samples[: len(PICTURES[split])]}
        assert len(first) == len(PICTURES[split])  # each picture once before any comes twice
        keys += [s.recipe.key.split("/")[1] for s in dataset]
        same(regenerate(dataset.samples[-1].recipe), dataset.samples[-1])
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
            assert (s.regions[: len(s.recipe.masks)].flatten(1).sum(1) > 400).all()
            assert s.regions.any(0).all()
            assert (s.blur.weights.amax((1, 2)) - s.blur.weights.amin((1, 2))).max() > 0.49  # it varies
        keys |= {s.recipe.key for s in dataset}
        save_dataset(dataset, tmp_path / split)
    assert len(keys) == 80
    size = sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file())
    assert size < 60e6
