"""What the napari plugin does, without napari: napari-plugin/tests has the window."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import pnpladmm as pl

PLUGIN = Path(__file__).parent.parent / "napari-plugin" / "src"
sys.path.insert(0, str(PLUGIN))

from napari_pnpladmm import logic, samples  # noqa: E402  # after the path is set

SIZE = 24
PSF = np.outer([1, 2, 1], [1, 3, 1]) / 20.0
GREY = (np.add.outer(np.arange(SIZE), np.arange(SIZE)) % 17 * 12 + 20).astype(np.uint8)
HALVES = np.repeat([[3, 7]], SIZE, 0).repeat(SIZE // 2, 1)
BANK = np.stack([PSF, PSF.T])


def ask(**changes: Any) -> logic.Request:
    return logic.Request(**{"picture": GREY, "psf": PSF, "denoiser": "tv", "iterations": 2, **changes})


def test_a_plane_a_stack_and_rgb_come_back_as_they_are(tmp_path: Path) -> None:
    expected = np.asarray(pl.restore(GREY, PSF, denoiser="tv", iterations=2))
    np.testing.assert_array_equal(logic.restore(ask())[0], expected)
    stack = np.stack([GREY] * 3)
    np.testing.assert_array_equal(logic.restore(ask(picture=stack))[0], np.stack([expected] * 3))
    rgba = np.stack([GREY, GREY, GREY, np.arange(SIZE * SIZE, dtype=np.uint8).reshape(SIZE, SIZE)], -1)
    back, _ = logic.restore(ask(picture=rgba, rgb=True))
    assert back.shape == rgba.shape
    np.testing.assert_array_equal(back[..., 3], rgba[..., 3])
    np.save(tmp_path / "psf.npy", PSF)
    np.testing.assert_array_equal(logic.restore(ask(psf=tmp_path / "psf.npy"))[0], expected)


def test_labels_of_any_numbers_say_where_psfs_act() -> None:
    expected = np.asarray(pl.restore(GREY, BANK, labels=HALVES == 7, denoiser="tv", iterations=2))
    np.testing.assert_array_equal(logic.restore(ask(psf=BANK, regions=HALVES))[0], expected)


def test_noise_is_in_the_numbers_of_the_picture() -> None:
    assert logic.restore(ask(noise=3.0))[1][logic.KEY]["noise"] == pytest.approx(3.0, rel=1e-6)
    counts = logic.restore(ask(picture=GREY.astype(np.float32) * 10, gain=2.0, background=5.0))[1][logic.KEY]
    assert counts["noise"] > 0


def test_progress_is_told_and_cancelling_stops() -> None:
    steps: list[tuple[int, int]] = []
    logic.restore(ask(iterations=4), lambda done, total: steps.append((done, total)))
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
    done: list[int] = []
    request = ask(method="certified", iterations=500)
    _, made = logic.restore(request, lambda i, total: done.append(i), lambda: len(done) >= 3)
    assert made[logic.KEY]["iterations"] == 3
    assert made[logic.KEY]["status"].startswith("stopped")
    with pytest.raises(logic.Cancelled):
        logic.restore(ask(), cancelled=lambda: True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"psf": BANK}, "2 PSFs: choose the labels"),
        ({"psf": BANK, "regions": HALVES[:5]}, "they must match"),
        ({"psf": BANK, "regions": HALVES * 0}, "1 labels and 2 PSFs"),
        ({"psf": np.ones((40, 40))}, "exchange the two"),
        ({"psf": np.ones(3)}, r"shape \(3,\)"),
        ({"picture": np.zeros((2, 2, 9, 9), np.uint8)}, "give a plane, a stack of planes, or RGB"),
    ],
)
def test_what_cannot_be_restored_is_said_in_one_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(pl.InputError, match=words) as caught:
        logic.restore(ask(**changes))
    assert "\n" not in str(caught.value)


def test_metadata_are_plain() -> None:
    made = logic.restore(ask())[1]
    assert yaml.safe_load(yaml.safe_dump(made)) == made


def test_the_sample_can_be_restored() -> None:
    (picture, _, _), (psfs, _, _), (regions, _, kind) = samples.two_blurs()
    assert kind == "labels"
    assert set(np.unique(regions)) == {1, 2}
    logic.check(logic.Request(picture, psfs, regions))


def test_the_manifest_names_what_exists() -> None:
    manifest = yaml.safe_load((PLUGIN / "napari_pnpladmm" / "napari.yaml").read_text())
    commands = {c["id"]: c["python_name"] for c in manifest["contributions"]["commands"]}
    used = [w["command"] for kind in ("widgets", "sample_data") for w in manifest["contributions"][kind]]
    assert sorted(used) == sorted(commands)
    for name in commands.values():
        module, _, thing = name.partition(":")
        file = PLUGIN / (module.replace(".", "/") + ".py")
        assert f"def {thing}(" in file.read_text() or f"class {thing}(" in file.read_text()
