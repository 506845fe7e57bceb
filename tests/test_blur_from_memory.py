"""`as_blur`: what people have in memory gives the blur that the same numbers in a file give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from blur_cases import (
    SIZE,
    check_shows,
    comet,
    one_thread,  # noqa: F401
    placed,
    shown,
    unit,
)
from pnpladmm.blur import Blur, as_blur, defocus, gaussian, motion, read_blur
from pnpladmm.tensors import InputError

KERNEL = unit(comet())
BANK = np.stack([unit(comet(turn=t)) for t in (20, 110, 250)])
LABELS = np.zeros(SIZE, np.uint8)
LABELS[:, 30:] = 1
LABELS[30:, :20] = 2
AT = {0: (12, 8), 1: (20, 48), 2: (40, 6)}
"""A pixel well inside each label."""


def ramp() -> np.ndarray:
    y, x = np.mgrid[: SIZE[0], : SIZE[1]] / np.array(SIZE).reshape(2, 1, 1)
    maps = np.stack([(1 - x) * (1 - y), x * (1 - y), y])
    return maps / maps.sum(0)


KINDS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": np.asarray,
    "float32": lambda a: a.astype(np.float32),
    "tensor": torch.from_numpy,
    "tensor that needs gradients": lambda a: torch.from_numpy(a).requires_grad_(),
    "list": lambda a: a.tolist(),
    "list of tensors": lambda a: list(torch.from_numpy(a)),
    "tuple": lambda a: tuple(map(tuple, a.tolist())) if a.ndim == 2 else tuple(a),
}


@pytest.mark.parametrize("kind", KINDS)
def test_one_kernel(kind: str) -> None:
    blur = as_blur(KINDS[kind](3 * KERNEL), SIZE)
    check_shows(blur, 20, 33, placed(KERNEL, 20, 33))
    assert any("normalised: divided by sums of 3" in note for note in blur.notes)


@pytest.mark.parametrize("shape", [(1, 11, 11), (1, 1, 11, 11), (11, 11, 1)])
def test_one_kernel_with_axes_of_one(shape: tuple[int, ...]) -> None:
    check_shows(as_blur(KERNEL.reshape(shape), SIZE), 20, 33, placed(KERNEL, 20, 33))


@pytest.mark.parametrize("axes", ["(k, k, 3)", "(1, 3, k, k)"])
def test_a_kernel_for_each_colour(axes: str) -> None:
    given = np.moveaxis(BANK, 0, -1) if axes == "(k, k, 3)" else BANK[None]
    blur = as_blur(given, SIZE)
    assert blur.kernels.shape == (1, 3, 11, 11)
    for c in range(3):
        assert np.allclose(shown(blur, 20, 30)[c], placed(BANK[c], 20, 30), atol=1e-8)


def test_three_planes_may_be_colours_or_places_so_it_asks() -> None:
    with pytest.raises(InputError, match=r"holds 3 kernels: say where .*\(k, k, 3\)"):
        as_blur(BANK, SIZE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", ["array", "list", "tensor", "file"])
def test_a_bank_with_labels(tmp_path: Path, kind: str, source: str) -> None:
    if source == "file":
        np.save(tmp_path / "labels.npy", LABELS)
    labels = {
        "array": LABELS,
        "list": LABELS.tolist(),
        "tensor": torch.from_numpy(LABELS),
        "file": tmp_path / "labels.npy",
    }[source]
    blur = as_blur(KINDS[kind](BANK), SIZE, labels=labels, feather=0.5)
    for index, (row, column) in AT.items():
        check_shows(blur, row, column, placed(BANK[index], row, column))
    assert blur.size == SIZE


def test_kernels_of_different_sizes_with_labels() -> None:
    kernels = [gaussian(1.0), motion(9, 30), torch.from_numpy(KERNEL)]
    blur = as_blur(kernels, SIZE, labels=LABELS, feather=0.5)
    for index, (row, column) in AT.items():
        check_shows(blur, row, column, placed(np.asarray(kernels[index]), row, column))
    check_shows(as_blur(kernels, SIZE, index=1), 20, 30, placed(motion(9, 30).numpy(), 20, 30))


def test_the_same_as_from_files(tmp_path: Path) -> None:
    np.save(tmp_path / "k.npy", 5 * np.pad(KERNEL, 4) + 1)
    np.save(tmp_path / "bank.npy", 2 * BANK)
    np.save(tmp_path / "map.npy", LABELS)
    np.savez(tmp_path / "w.npz", kernels=BANK, weights=ramp() - 0.2)
    places = [[5.0, 6.0], [52.0, 8.0], [30.0, 40.0]]
    (tmp_path / "p.csv").write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in places))
    depth = np.tile(np.linspace(0.5, 2, SIZE[1]), (SIZE[0], 1))
    np.save(tmp_path / "depth.npy", depth)
    cases: list[tuple[Blur, Blur]] = [
        (
            read_blur(tmp_path / "k.npy", SIZE, background="border"),
            as_blur(5 * np.pad(KERNEL, 4) + 1, SIZE, background="border"),
        ),
        (
            read_blur(tmp_path / "bank.npy", SIZE, labels=tmp_path / "map.npy"),
            as_blur(2 * BANK, SIZE, labels=LABELS),
        ),
        (read_blur(tmp_path / "bank.npy", SIZE, labels=LABELS), as_blur((2 * BANK, LABELS), SIZE)),
        (read_blur(tmp_path / "w.npz", SIZE), as_blur((BANK, ramp() - 0.2), SIZE)),
        (read_blur(tmp_path / "w.npz"), as_blur({"kernels": BANK, "weights": torch.from_numpy(ramp() - 0.2)})),
        (
            read_blur(tmp_path / "bank.npy", SIZE, positions=tmp_path / "p.csv"),
            as_blur(2 * BANK, SIZE, positions=places),
        ),
        (read_blur(tmp_path / "depth.npy", SIZE, kind="defocus"), as_blur(depth, SIZE, kind="defocus")),
    ]
    for file, memory in cases:
        assert torch.equal(file.kernels, memory.kernels)
        assert torch.equal(file.weights, memory.weights)
        assert (file.order, file.notes, file.source) == (memory.order, memory.notes, memory.source)
        assert file.size == SIZE


@pytest.mark.parametrize("form", ["tuple", "list", "tensors", "dict", "paper", "deepinv", "batch of one", "matlab"])
def test_kernels_with_weights(form: str) -> None:
    weights = ramp()
    given = {
        "tuple": (BANK, weights),
        "list": [BANK.tolist(), weights.tolist()],
        "tensors": (torch.from_numpy(BANK), torch.from_numpy(weights)),
        "dict": {"kernels": BANK, "weights": weights, "order": "convolve-then-weight"},
        "paper": {"basis": torch.from_numpy(BANK), "kmap": torch.from_numpy(weights)},
        "batch of one": (BANK, weights[None]),
        "matlab": (np.moveaxis(BANK, 0, -1), np.moveaxis(weights, 0, -1)),
        "deepinv": {"filters": BANK[None, None], "multipliers": weights[None, None], "mask_first": False},
    }[form]
    blur = as_blur(given, SIZE)
    expected = sum(w * placed(k, 20, 33) for w, k in zip(weights, BANK, strict=True))
    check_shows(blur, 20, 33, expected)


def test_one_kernel_with_a_weight_map_of_its_own() -> None:
    weight = np.tile(np.linspace(0.5, 1.5, SIZE[1]), (SIZE[0], 1))
    check_shows(as_blur((KERNEL, weight), SIZE), 20, 33, weight * placed(KERNEL, 20, 33))


def test_kernels_and_labels_in_a_dictionary() -> None:
    blur = as_blur({"kernels": BANK, "labels": LABELS}, SIZE, feather=0.5)
    check_shows(blur, *AT[2], placed(BANK[2], *AT[2]))


def test_kernels_of_different_sizes_in_a_dictionary() -> None:
    kernels = [torch.from_numpy(unit(comet(side))) for side in (9, 11, 12)]
    for given in (
        {"kernels": kernels, "labels": LABELS},
        {"kernels": kernels, "weights": np.arange(3).reshape(3, 1, 1) == LABELS},
    ):
        blur = as_blur(given, SIZE, feather=0)
        for index, (row, column) in AT.items():
            expected = placed(kernels[index].numpy(), row, column) * (index == LABELS)
            check_shows(blur, row, column, expected)


def test_a_dictionary_with_a_map() -> None:
    blur = as_blur({"sigma": np.full(SIZE, 2.0)}, SIZE)
    check_shows(blur, 20, 30, placed(gaussian(2.0).numpy(), 20, 30))


def test_polygons_and_masks(tmp_path: Path) -> None:
    """The pair list, a polygon as x, y: not square and not centred, so that exchanged axes show."""
    np.save(tmp_path / "psf.npy", KERNEL)
    polygon = [(30, 0), (59, 0), (59, 20), (30, 20)]
    mask = np.zeros(SIZE, bool)
    mask[28:, 36:] = True
    pairs = [(None, gaussian(1.0)), (polygon, motion(7, 30)), (torch.from_numpy(mask), tmp_path / "psf.npy")]
    text = (
        "background: {gaussian: {sigma: 1.0}}\nfeather: 0.5\nregions:\n"
        "  - polygon: [[30, 0], [59, 0], [59, 20], [30, 20]]\n    motion: {length: 7, angle: 30}\n"
        "  - mask: mask.npy\n    kernel: psf.npy\n"
    )
    np.save(tmp_path / "mask.npy", mask.astype(np.uint8))
    (tmp_path / "b.yaml").write_text(text)
    written = read_blur(tmp_path / "b.yaml", SIZE)
    for given in (pairs, tuple(pairs), [list(pair) for pair in pairs]):
        blur = as_blur(given, SIZE, feather=0.5)
        assert torch.equal(blur.weights, written.weights)
        assert torch.allclose(blur.kernels, written.kernels, atol=1e-15)
    check_shows(blur, 10, 45, placed(motion(7, 30).numpy(), 10, 45))
    check_shows(blur, 39, 49, placed(KERNEL, 39, 49))
    sharp = as_blur(pairs[1:], SIZE, feather=0.5)
    check_shows(sharp, 10, 10, placed(np.ones((1, 1)), 10, 10))
    assert "no background: outside the regions the picture is sharp" in sharp.notes
    assert sharp.source == "2 regions"


def test_a_blur_and_a_path(tmp_path: Path) -> None:
    blur = as_blur(KERNEL, SIZE)
    assert as_blur(blur, SIZE) is blur
    assert as_blur(blur) is blur
    with pytest.raises(InputError, match="the blur is for 48x60, the picture is 60x48"):
        as_blur(blur, (60, 48))
    np.savez(tmp_path / "bank.npz", kernels=BANK)
    for given in (tmp_path / "bank.npz", str(tmp_path / "bank.npz")):
        check_shows(as_blur(given, SIZE, labels=LABELS, feather=0.5), *AT[1], placed(BANK[1], *AT[1]))
    check_shows(as_blur(f"{tmp_path}/bank.npz#1", SIZE), 20, 33, placed(BANK[1], 20, 33))


def test_only_a_constant_rim_may_be_an_offset() -> None:
    """A bead on an offset with noise has one; a disc that fills its array has none, however bright its rim is."""
    for radius in (2.9, 3.0, 3.5, 4.5, 7.5):
        assert not any("offset" in note for note in as_blur(defocus(radius), SIZE).notes)
    assert not any("offset" in note for note in as_blur(np.ones((9, 9)), SIZE).notes)
    sky = 20 + 5 * np.random.default_rng(0).standard_normal((17, 17))
    bead = 300 * gaussian(2.0, size=17).numpy() / float(gaussian(2.0).max()) + sky
    (note,) = [note for note in as_blur(bead, SIZE).notes if "offset" in note]
    assert "background: 0 keeps it" in note


def test_numbers_may_be_numpys() -> None:
    chosen = as_blur(BANK, np.array(SIZE), index=np.int64(1), background=np.float32(0))  # type: ignore[arg-type]
    check_shows(chosen, 20, 33, placed(BANK[1], 20, 33))


MASKED = np.ma.masked_array(KERNEL, mask=0.01 * KERNEL.max() > KERNEL)
BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "None": (None, {}, r"a NoneType is no blur: give a PSF \(k, k\)"),
    "a number": (3.0, {}, r"has shape \(\)"),
    "a function": (gaussian, {}, "a function is no blur"),
    "an empty list": ([], {}, "holds no numbers"),
    "an empty dictionary": ({}, {}, "holds nothing"),
    "words": (["a", "b"], {}, "a list is no blur"),
    "ragged": ([[1.0, 2.0], [3.0]], {}, "a list is no blur"),
    "complex": (KERNEL + 1j, {}, "real numbers"),
    "NaN": (np.where(np.equal(KERNEL, KERNEL.max()), np.nan, KERNEL), {}, "1 values are NaN"),
    "masked": (MASKED, {}, "values are NaN"),
    "five axes": (np.ones((1, 1, 1, 3, 3)), {}, "shape"),
    "no size": (KERNEL, {"size": None}, "give the picture's size"),
    "a bank alone": (np.stack([KERNEL] * 5), {}, "holds 5 kernels: say where each acts"),
    "a list alone": ([KERNEL, KERNEL.T], {}, "holds 2 kernels"),
    "labels of another size": (BANK, {"labels": LABELS.T}, "labels are 60x48, the picture is 48x60"),
    "labels with three axes": (BANK, {"labels": ramp()}, r"\(kernels, weights\)"),
    "labels between": (BANK, {"labels": LABELS + 0.5}, "whole numbers"),
    "labels in words": (BANK, {"labels": np.full(SIZE, "a")}, "real numbers"),
    "labels and positions": (BANK, {"labels": LABELS, "positions": [[1, 2]] * 3}, "give one of them"),
    "positions with three columns": (BANK, {"positions": np.ones((3, 3))}, r"positions: shape \(3, 3\)"),
    "positions of another number": (BANK, {"positions": [[1, 2]]}, "3 PSFs, 1 places"),
    "labels of another size in a tuple": ((BANK, LABELS.T), {}, "labels are 60x48, the picture is 48x60"),
    "weights of another number": ((BANK, ramp()[:2]), {}, "kernels: 3, weights: 2: they must match"),
    "weights of another size": ((BANK, np.ones((3, 9, 9))), {}, "weights are 9x9, the picture is 48x60"),
    "a larger kernel": (np.ones((9, 61)), {}, "a kernel must fit"),
    "as large as the picture": (np.ones(SIZE), {}, "as large as the picture"),
    "a map without a kind": (np.full(SIZE, 2.0), {}, "kind: gaussian, defocus or motion"),
    "a line for a polygon": ([([(0, 0), (5, 5)], KERNEL)], {}, "at least three corners"),
    "a mask of another size": ([(np.ones((9, 9)), KERNEL)], {}, "give a mask 48x60"),
    "two backgrounds": ([(None, KERNEL), (None, KERNEL)], {}, "one background"),
    "a region with two kernels": ([(np.ones(SIZE), BANK[:2])], {}, "give one kernel"),
    "regions and labels": ([(np.ones(SIZE), KERNEL)], {"labels": LABELS}, "labels: regions say themselves"),
    "regions without a size": ([(np.ones(SIZE), KERNEL)], {"size": None}, "give the picture's size"),
    "a Blur and labels": (Blur(KERNEL[None], np.ones((1, *SIZE))), {"labels": LABELS}, "leave out labels"),  # type: ignore[arg-type]
    "a missing file": ("no-such-file.npy", {}, "no such file"),
    "unknown names": ({"foo": KERNEL, "bar": KERNEL}, {}, "holds foo, bar"),
    "a bad index": (BANK, {"index": -1}, "index -1"),
    "an index in words": (BANK, {"index": "one"}, "index 'one'"),
    "half an index": (BANK, {"index": 1.5}, "index 1.5: give a whole number"),
    "a kind that is an array": (KERNEL, {"kind": KERNEL}, "kind array.*choose one of"),
    "a background that is an array": (KERNEL, {"background": KERNEL}, "background array"),
    "a size that is a picture": (KERNEL, {"size": KERNEL}, "size array.*give the picture's"),
    "no tolerance": (KERNEL, {"tolerance": None}, "tolerance None"),
    "too few kernels": (KERNEL, {"most": 0}, "most 0: give a whole number of 1 or more"),
    "normalise in words": (KERNEL, {"normalise": "no"}, "normalise 'no'"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_blur_gives_one_line(case: str) -> None:
    thing, settings, message = BAD[case]
    with pytest.raises(InputError, match=message) as caught:
        as_blur(thing, **{"size": SIZE, **settings})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
