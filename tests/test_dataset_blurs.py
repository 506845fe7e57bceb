"""What the paper's blurs are made of: kernels, the masks of a crop, and weights smoothed from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import convolve

import pnpladmm as pl
from dataset_cases import load
from pnpladmm.places import shared_folder
from pnpladmm.workshop.experiments import scenes
from pnpladmm.workshop.experiments.kernels import SIZE, gaussian_kernel, load_kernels, motion_kernel

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
