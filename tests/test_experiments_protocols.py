"""The protocols: what blurs which pictures, scores that can be computed again, and what is stored."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from skimage.data import astronaut

from conftest import Run
from pnpladmm.metrics import STANDARD, psnr
from pnpladmm.tensors import InputError
from pnpladmm.workshop.experiments.comparison import chosen_methods
from pnpladmm.workshop.experiments.everything import redraw
from pnpladmm.workshop.experiments.protocols import PROTOCOLS, Source, make_protocols, sharp_picture
from pnpladmm.workshop.experiments.setup import Setup


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with three pictures of two sizes, and two kernels."""
    folder = tmp_path / "data"
    (folder / "cbsd68").mkdir(parents=True)
    (folder / "kernels" / "levin_png").mkdir(parents=True)
    for i, (h, w) in enumerate([(67, 90), (90, 67), (67, 90)]):
        Image.fromarray(astronaut()[40 * i : 40 * i + h, 100 : 100 + w]).save(folder / "cbsd68" / f"{i}.png")
    for name, length in (("levin_1", 5), ("levin_4", 9)):
        kernel = np.zeros((9, 9), np.uint8)
        kernel[4, :length] = 200
        Image.fromarray(kernel).save(folder / "kernels" / "levin_png" / f"{name}.png")
    monkeypatch.setenv("PNPLADMM_SHARED", str(folder))
    return folder


def test_scores_are_those_of_the_pictures(data: Path, tmp_path: Path) -> None:
    setup = Setup(tmp_path / "out", "soft", batch=2, quiet=True)
    methods = chosen_methods("fast-8")
    found = make_protocols(setup, methods, ["levin", "grey"])
    rows = {(row["protocol"], row["kernel"], row["noise"]): row for row in found["rows"]}
    assert len(rows) == 2 * 4 + 2 * 2
    assert all(row["pictures"] == 3 for row in rows.values())
    row = rows["levin", "levin_1", 7.65]
    # By hand: a line of five pixels whose centre is two pixels to the left of the kernel's.
    observed = []
    for i in range(3):
        pixels = np.asarray(Image.open(data / "cbsd68" / f"{i}.png")) / 255.0
        h, w = (n - n % 8 for n in pixels.shape[:2])
        sharp = np.moveaxis(pixels[:h, :w], -1, 0)[None]
        blurred = np.mean([np.roll(sharp, shift, -1) for shift in (-4, -3, -2, -1, 0)], 0)
        noisy = blurred + 7.65 / 255 * np.random.default_rng(0).standard_normal(sharp.shape)
        observed.append(float(psnr(torch.from_numpy(noisy), torch.from_numpy(sharp), STANDARD)))
    assert row["psnr_observed"] == pytest.approx(np.mean(observed), abs=1e-4)
    assert row["psnr"] > row["psnr_observed"] + 1
    again = make_protocols(setup, methods, ["levin", "grey"])
    assert again["rows"] == found["rows"]  # seconds too: from the store
    assert json.loads((tmp_path / "out" / "protocols.json").read_text())["rows"] == found["rows"]
    page = (tmp_path / "out" / "protocols.html").read_text()
    assert "CBSD68, grey, Levin&#39;s kernels" in page
    (tmp_path / "out" / "protocols.csv").unlink()
    assert redraw(tmp_path / "out") == ["protocols"]
    assert len((tmp_path / "out" / "protocols.csv").read_text().splitlines()) == 13


def test_an_unknown_border_is_scored_on_what_was_observed(data: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        border = PROTOCOLS["border"]
        patch.setitem(PROTOCOLS, "border", type(border)(
            border.title, "cbsd68", border.kernels, (2.0,), 56, 1, boundary="unknown"
        ))  # fmt: skip
        found = make_protocols(Setup(tmp_path, "light", quiet=True), chosen_methods("fast-8"), ["border"])
    assert [row["kernel"] for row in found["rows"]] == ["levin_1", "levin_4"]
    # Scored on the padded scene, or with another border, both would be far below the observation.
    assert all(row["psnr"] > row["psnr_observed"] + 3 for row in found["rows"]), found["rows"]


def test_kernels_sum_to_one_and_pictures_are_cut(data: Path) -> None:
    for protocol in PROTOCOLS.values():
        for kernels in protocol.kernels().values():
            assert kernels.ndim == 3
            torch.testing.assert_close(kernels.sum((-2, -1)).double(), torch.ones(len(kernels), dtype=torch.float64))
    source = Source("x", lambda: astronaut()[:67, :90])
    assert sharp_picture(source, PROTOCOLS["levin"]).shape == (1, 3, 64, 88)
    assert sharp_picture(source, PROTOCOLS["grey"]).shape == (1, 1, 64, 88)


def test_what_is_missing_is_named(data: Path, tmp_path: Path, run: Run) -> None:
    setup = Setup(tmp_path, "soft", quiet=True)
    with pytest.raises(InputError, match="protocol 'levine': choose among levin, discs"):
        make_protocols(setup, chosen_methods("fast-8"), ["levine"])
    with pytest.raises(InputError, match="no folder coco beside the checkout"):
        make_protocols(setup, chosen_methods("fast-8"), ["discs"])
    code, out, err = run(
        "experiment", "protocols", "--only", "grey", "--denoiser", "soft", "--count", "1", "--out", "o"
    )
    assert code == 0, err
    assert out.count(" dB\n") == 2
