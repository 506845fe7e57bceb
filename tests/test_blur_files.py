"""Kernels, banks, weights and scattered PSFs as files: written by other tools, read, and shown by a point source."""

from __future__ import annotations

from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import scipy.io
import skimage.io
import tifffile
import torch
from astropy.io import fits
from PIL import Image

from blur_cases import (
    SIZE,
    check_shows,
    comet,
    one_thread,  # noqa: F401
    placed,
    shown,
    unit,
)
from pnpladmm.blur import Blur, read_blur, write_blur

KERNEL = unit(comet())


def write_kernel(path: Path, kernel: np.ndarray) -> None:
    levels = kernel / kernel.max()
    if path.name == "deep.png":
        path.write_bytes(imagecodecs.png_encode((levels * 65535).round().astype(np.uint16)))
    elif path.suffix == ".png":
        skimage.io.imsave(path, (levels * 255).round().astype(np.uint8), check_contrast=False)
    elif path.suffix == ".tif":
        tifffile.imwrite(path, kernel.astype(np.float32))
    elif path.suffix == ".npy":
        np.save(path, kernel)
    elif path.suffix == ".fits":
        fits.PrimaryHDU(kernel).writeto(path)
    elif path.suffix == ".mat":
        scipy.io.savemat(path, {"psf": kernel, "remark": "a kernel"})
    else:
        np.savez(path, kernel=kernel)


@pytest.mark.parametrize("name", ["k.png", "deep.png", "k.tif", "k.npy", "k.fits", "k.mat", "k.npz"])
@pytest.mark.parametrize("side", [11, 12])
def test_one_kernel(tmp_path: Path, name: str, side: int) -> None:
    kernel = unit(comet(side))
    write_kernel(tmp_path / name, kernel)
    blur = read_blur(tmp_path / name, SIZE)
    assert blur.size == SIZE
    assert len(blur.kernels) == 1
    check_shows(blur, 20, 33, placed(kernel, 20, 33))


def test_sixteen_bits_are_read_as_sixteen(tmp_path: Path) -> None:
    write_kernel(tmp_path / "deep.png", KERNEL)
    blur = read_blur(tmp_path / "deep.png", SIZE)
    assert np.abs(blur.kernels[0, 0].numpy() - KERNEL).max() < 1e-4 * KERNEL.max()
    assert any("normalised: divided by sums of" in note for note in blur.notes)


def test_colour_kernels(tmp_path: Path) -> None:
    colours = np.stack([unit(comet(turn=t)) for t in (10, 100, 190)], -1)
    tifffile.imwrite(tmp_path / "k.tif", colours, photometric="rgb")
    blur = read_blur(tmp_path / "k.tif", SIZE)
    assert blur.kernels.shape == (1, 3, 11, 11)
    for c in range(3):
        assert np.allclose(shown(blur, 20, 30)[c], placed(colours[..., c], 20, 30), atol=1e-8)


def test_centring_margins_and_background_are_reported(tmp_path: Path) -> None:
    padded = np.zeros((31, 35))
    padded[10:21, 12:23] = unit(comet(shift=(0.3, -0.2)))
    np.save(tmp_path / "k.npy", padded)
    kept = read_blur(tmp_path / "k.npy", SIZE)
    assert kept.kernel_size == (11, 11)
    assert any("31x35 are now 11x11" in note for note in kept.notes)
    assert any("centroids lie" in note for note in kept.notes)
    moved = read_blur(tmp_path / "k.npy", SIZE, recentre=True)
    picture = shown(moved, 24, 30)[0]
    y, x = np.mgrid[: SIZE[0], : SIZE[1]]
    assert (picture * x).sum() == pytest.approx(30, abs=0.02)
    assert (picture * y).sum() == pytest.approx(24, abs=0.02)
    assert any("recentred" in note for note in moved.notes)

    np.save(tmp_path / "b.npy", 1000 * KERNEL + 7)
    seen = read_blur(tmp_path / "b.npy", SIZE)
    assert any("a camera's offset is subtracted (background: 0 keeps it): 7." in note for note in seen.notes)
    assert np.allclose(seen.kernels[0, 0], KERNEL, atol=1e-3)
    assert read_blur(tmp_path / "b.npy", SIZE, background=0).kernels.min() > 0.003
    clean = read_blur(tmp_path / "b.npy", SIZE, background=7.0)
    assert np.allclose(clean.kernels[0, 0], KERNEL, atol=1e-9)


def test_an_oversampled_kernel_is_taken_at_pixel_centres(tmp_path: Path) -> None:
    from blur_cases import comet_at

    y, x = (np.mgrid[:45, :45] - 22) / 4
    np.save(tmp_path / "k.npy", comet_at(x, y))
    check_shows(read_blur(tmp_path / "k.npy", SIZE, oversampling=4), 20, 33, placed(KERNEL, 20, 33))


def test_negative_values_are_kept_and_reported(tmp_path: Path) -> None:
    kernel = KERNEL - 0.05 * np.roll(KERNEL, 3, 1)
    np.save(tmp_path / "k.npy", kernel)
    blur = read_blur(tmp_path / "k.npy", SIZE, normalise=False)
    assert any("negative values kept" in note for note in blur.notes)
    assert np.allclose(blur.kernels[0, 0], kernel)


# --- a bank and a label map ---------------------------------------------------------------------------------


def labels() -> np.ndarray:
    regions = np.zeros(SIZE, np.uint8)
    regions[:, 30:] = 1
    regions[30:, :20] = 2
    return regions


BANK = np.stack([unit(comet(turn=t)) for t in (20, 110, 250)])


@pytest.mark.parametrize("scale", [1, 100])
@pytest.mark.parametrize("suffix", [".png", ".npy"])
def test_bank_with_label_map(tmp_path: Path, suffix: str, scale: int) -> None:
    np.save(tmp_path / "bank.npy", 3 * BANK)
    path = tmp_path / f"map{suffix}"
    if suffix == ".png":
        skimage.io.imsave(path, labels() * scale, check_contrast=False)
    else:
        np.save(path, labels() * scale)
    blur = read_blur(tmp_path / "bank.npy", SIZE, labels=path, feather=1.0)
    assert torch.allclose(blur.weights.sum(0), torch.ones(SIZE))
    for row, column, kernel in ((12, 8, 0), (20, 48, 1), (40, 6, 2)):
        check_shows(blur, row, column, placed(BANK[kernel], row, column))
    assert ((blur.weights > 0.01) & (blur.weights < 0.99)).any()  # soft seams


def test_label_map_with_a_palette(tmp_path: Path) -> None:
    """Segmentation tools show label 0 black, label 1 red: the numbers count."""
    np.save(tmp_path / "bank.npy", BANK)
    picture = Image.fromarray(labels()).convert("P")
    picture.putpalette([0, 0, 0, 200, 0, 0, 0, 100, 50])
    picture.save(tmp_path / "map.png")
    blur = read_blur(tmp_path / "bank.npy", SIZE, labels=tmp_path / "map.png")
    check_shows(blur, 20, 48, placed(BANK[1], 20, 48))


def test_bank_finds_its_map_and_mat_cells(tmp_path: Path) -> None:
    cells = np.empty((1, 3), object)
    for i in range(3):
        cells[0, i] = unit(comet(9 + 2 * i, turn=120 * i))
    scipy.io.savemat(tmp_path / "bank.mat", {"kernels": cells})
    np.save(tmp_path / "bank.labels.npy", labels())
    blur = read_blur(tmp_path / "bank.mat")
    check_shows(blur, 20, 48, placed(cells[0, 1], 20, 48))
    one = read_blur(f"{tmp_path}/bank.mat#2", SIZE)
    check_shows(one, 20, 48, placed(cells[0, 2], 20, 48))


def test_matlab_73(tmp_path: Path) -> None:
    import h5py

    with h5py.File(tmp_path / "k.mat", "w", userblock_size=512) as file:
        file["psf"] = KERNEL.T
    with (tmp_path / "k.mat").open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(116) + bytes(8) + b"\x00\x02IM")
    check_shows(read_blur(tmp_path / "k.mat", SIZE), 20, 33, placed(KERNEL, 20, 33))


# --- kernels and weights ------------------------------------------------------------------------------------


def weights() -> np.ndarray:
    y, x = np.mgrid[: SIZE[0], : SIZE[1]] / np.array(SIZE).reshape(2, 1, 1)
    ramp = np.stack([(1 - x) * (1 - y), x * (1 - y), y])
    return ramp / ramp.sum(0)


def by_hand(kernels: np.ndarray, maps: np.ndarray, row: int, column: int, order: str) -> np.ndarray:
    """The response to a point source, written out."""
    total = np.zeros(SIZE)
    for kernel, weight in zip(kernels, maps, strict=True):
        spread = placed(kernel, row, column)
        total += spread * (weight if order == "convolve-then-weight" else weight[row, column])
    return total


@pytest.mark.parametrize("suffix", [".npz", ".mat"])
@pytest.mark.parametrize("matlab_axes", [False, True])
def test_the_papers_basis_and_kmap(tmp_path: Path, suffix: str, matlab_axes: bool) -> None:
    basis, kmap = BANK, weights()
    if matlab_axes:
        basis, kmap = np.moveaxis(basis, 0, -1), np.moveaxis(kmap, 0, -1)
    path = tmp_path / f"blur{suffix}"
    if suffix == ".npz":
        np.savez(path, basis=basis, kmap=kmap)
    else:
        scipy.io.savemat(path, {"basis": basis, "kmap": kmap})
    blur = read_blur(path, SIZE)
    assert blur.order == "convolve-then-weight"
    check_shows(blur, 20, 33, by_hand(BANK, weights(), 20, 33, blur.order))


def deepinv_forward(x: np.ndarray, multipliers: np.ndarray, filters: np.ndarray) -> np.ndarray:
    """deepinv's product convolution with `padding="constant"`, from its documentation: for each k the picture is
    weighted, padded by (k // 2, (k - 1) // 2), and correlated with the flipped filter."""
    h, w = filters.shape[-2:]
    total = torch.zeros(x.shape, dtype=torch.float64)
    for k in range(filters.shape[2]):
        weighted = torch.from_numpy(x * multipliers[0, 0, k])
        pad = (w // 2, w // 2 - (w - 1) % 2, h // 2, h // 2 - (h - 1) % 2)
        padded = torch.nn.functional.pad(weighted, pad)
        flipped = torch.from_numpy(filters[0, 0, k]).flip(-2, -1)
        total += torch.nn.functional.conv2d(padded[None, None], flipped[None, None])[0, 0]
    return total.numpy()


@pytest.mark.parametrize("side", [11, 10])
def test_deepinvs_filters_and_multipliers(tmp_path: Path, side: int) -> None:
    filters = np.stack([unit(comet(side, turn=t)) for t in (20, 110, 250)])[None, None]
    multipliers = weights()[None, None]
    np.savez(tmp_path / "blur.npz", filters=filters, multipliers=multipliers)
    blur = read_blur(tmp_path / "blur.npz", SIZE)
    assert blur.order == "weight-then-convolve"
    x = np.zeros(SIZE)
    x[20, 33] = 1
    check_shows(blur, 20, 33, deepinv_forward(x, multipliers, filters))


def test_deepinvs_multipliers_by_channel_and_of_a_larger_scene(tmp_path: Path) -> None:
    filters = np.stack([BANK, BANK[::-1]])[None]
    multipliers = np.stack([weights(), weights()[::-1]])[None]
    np.savez(tmp_path / "blur.npz", filters=filters, multipliers=multipliers)
    blur = read_blur(tmp_path / "blur.npz", SIZE)
    picture = shown(blur, 20, 33)
    for c in range(2):
        expected = by_hand(filters[0, c], multipliers[0, c], 20, 33, "weight-then-convolve")
        assert np.allclose(picture[c], expected, atol=1e-7)
    small = (SIZE[0] - 10, SIZE[1] - 10)
    np.savez(tmp_path / "valid.npz", filters=filters[:, :1], multipliers=multipliers[:, :1])
    valid = read_blur(tmp_path / "valid.npz", small)
    assert valid.size == small
    assert np.allclose(valid.weights.numpy(), weights()[:, 5:-5, 5:-5], atol=1e-6)


@pytest.mark.parametrize("order", ["convolve-then-weight", "weight-then-convolve"])
def test_write_and_read_back(tmp_path: Path, order: str) -> None:
    signed = weights() - 0.4
    blur = Blur(torch.from_numpy(BANK), torch.from_numpy(signed), order, (), "a test")  # type: ignore[arg-type]
    write_blur(tmp_path / "out" / "b.npz", blur)
    back = read_blur(tmp_path / "out" / "b.npz", SIZE)
    assert torch.equal(back.kernels, blur.kernels)
    assert torch.equal(back.weights, blur.weights)
    assert (back.order, back.source) == (order, "a test")
    assert any("signed" in note for note in back.notes)
    check_shows(back, 20, 33, by_hand(BANK, signed, 20, 33, order))


def test_even_kernels_with_weights_on_the_scene() -> None:
    """The scene begins one pixel later before an even kernel than before an odd one; so must the weights."""
    even, steep = BANK[:, 1:11, 1:9], np.random.default_rng(0).random((3, *SIZE))
    blur = Blur(torch.from_numpy(even), torch.from_numpy(steep), "weight-then-convolve")
    for row, column in ((20, 33), (5, 5), (40, 52)):
        check_shows(blur, row, column, by_hand(even, steep, row, column, blur.order))


@pytest.mark.parametrize("boundary", ["unknown", "circular", "zero", "replicate", "reflect"])
def test_every_boundary_shows_the_same_in_the_middle(boundary: str) -> None:
    blur = Blur(torch.from_numpy(BANK), torch.from_numpy(weights()), "weight-then-convolve")
    assert np.allclose(shown(blur, 20, 33, boundary), shown(blur, 20, 33, "zero"), atol=1e-12)
    assert blur.operator(boundary).observed == SIZE  # type: ignore[arg-type]


# --- scattered ----------------------------------------------------------------------------------------------

PLACES = np.array([[5, 6], [52, 8], [30, 22], [9, 40], [55, 43], [42, 31], [17, 14], [26, 44]], float)


def beads(places: np.ndarray = PLACES) -> np.ndarray:
    """PSFs that widen to the right and turn downwards."""
    return np.stack([unit(comet(13, 1.1 + x / 80, turn=20 + y)) for x, y in places])


@pytest.mark.parametrize("suffix", [".tif", ".npy", ".fits"])
def test_scattered_psfs_with_their_table(tmp_path: Path, suffix: str) -> None:
    stack = (4000 * beads()).astype(np.float32)
    path = tmp_path / f"beads{suffix}"
    if suffix == ".tif":
        tifffile.imwrite(path, stack, imagej=True, metadata={"axes": "ZYX"})
    elif suffix == ".npy":
        np.save(path, stack)
    else:
        fits.PrimaryHDU(stack).writeto(path)
    (tmp_path / "beads.csv").write_text("id,x,y\n" + "".join(f"{i},{x},{y}\n" for i, (x, y) in enumerate(PLACES)))
    for given in (path, tmp_path / "beads.csv"):
        blur = read_blur(given, SIZE, tolerance=0.003)
        assert blur.order == "weight-then-convolve"
        for (x, y), psf in zip(PLACES.astype(int), beads(), strict=True):
            check_shows(blur, y, x, placed(psf, y, x))
        for x, y in ((35, 30), (24, 26)):  # between them
            check_shows(blur, y, x, placed(beads(np.array([[x, y]]))[0], y, x), tolerance=0.03)
        assert any("low rank: 8 PSFs" in note for note in blur.notes)
        assert any("leave one out" in note for note in blur.notes)
        sums = torch.einsum("phw,p->hw", blur.weights.double(), blur.kernels.sum((1, 2, 3)))
        assert torch.allclose(sums, torch.ones(SIZE, dtype=torch.float64), atol=1e-5)


def test_sextractor_positions_count_from_one(tmp_path: Path) -> None:
    np.save(tmp_path / "s.npy", beads())
    (tmp_path / "p.csv").write_text("X_IMAGE;Y_IMAGE\n" + "".join(f"{x + 1};{y + 1}\n" for x, y in PLACES))
    blur = read_blur(tmp_path / "s.npy", SIZE, positions=tmp_path / "p.csv")
    check_shows(blur, 22, 30, placed(beads()[2], 22, 30))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_psfs_suffice(tmp_path: Path, count: int) -> None:
    np.save(tmp_path / "s.npy", beads()[:count])
    (tmp_path / "s.csv").write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in PLACES[:count]))
    blur = read_blur(tmp_path / "s.npy", SIZE)
    for (x, y), psf in zip(PLACES[:count].astype(int), beads(), strict=False):
        check_shows(blur, y, x, placed(psf, y, x))


def test_the_rank_is_no_larger_than_needed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    mixed = np.einsum("nr,rij->nij", rng.dirichlet([1, 1, 1], 20), BANK)
    np.save(tmp_path / "s.npy", mixed)
    places = rng.uniform(0, 47, (20, 2))
    (tmp_path / "s.csv").write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in places))
    assert len(read_blur(tmp_path / "s.npy", SIZE, tolerance=1e-6).kernels) == 3  # the mean and two vectors
