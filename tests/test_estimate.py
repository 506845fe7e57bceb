"""The frame of `estimate_blur`: ways by name, pages, saturation, blur files with how far to trust them, the report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import pnpladmm as pl
from estimate_cases import Guess
from pnpladmm.blur import Estimate, gaussian
from pnpladmm.estimate import way_given
from pnpladmm.estimate.scene import read_pages

pytestmark = pytest.mark.usefixtures("guess")


def test_a_way_gets_its_options_and_tells_its_steps() -> None:
    steps: list[tuple[str, float]] = []
    blur = pl.estimate_blur(np.zeros((20, 24)), "guess", width=2.0, callback=lambda *step: steps.append(step))
    assert torch.equal(blur.kernels[0, 0], gaussian(2.0))
    assert steps == [("guessing", 0.5)]


def test_a_blur_file_keeps_how_far_to_trust_it(tmp_path: Path) -> None:
    blur = pl.estimate_blur(np.zeros((20, 24)), "guess")
    pl.write_blur(tmp_path / "blur.npz", blur)
    back = pl.read_blur(tmp_path / "blur.npz", (20, 24))
    assert back.uncertainty == 0.2
    assert back.estimate is not None
    assert (back.estimate.way, back.estimate.residual, back.estimate.agreement) == ("guess", 1.5, 0.1)
    assert back.estimate.places.tolist() == [[3.0, 4.0]]
    assert back.estimate.confidence.tolist() == [0.25]
    assert back.estimate.warnings == ("seen nothing",)
    assert "seen nothing" in back.notes


def test_a_blur_without_an_estimate_stays_without(tmp_path: Path) -> None:
    pl.write_blur(tmp_path / "blur.npz", pl.Blur(gaussian(1.0)[None], torch.ones(1, 20, 24)))
    back = pl.read_blur(tmp_path / "blur.npz")
    assert back.uncertainty is None
    assert back.estimate is None


def test_a_broken_record_is_refused(tmp_path: Path) -> None:
    kernels, weights = gaussian(1.0)[None].numpy(), np.ones((1, 20, 24))
    for extra in ({"estimate": np.array("{}")}, {"uncertainty": np.array(-1.0)}, {"uncertainty": np.ones(3)}):
        np.savez(tmp_path / "b.npz", kernels=kernels, weights=weights, **extra)
        with pytest.raises(pl.InputError, match=r"estimate|uncertainty"):
            pl.read_blur(tmp_path / "b.npz")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"way": "nothing"}, "choose one of"),
        ({"way": "guess", "height": 3}, "no option 'height': it takes width"),
        ({"way": "guess", "page": 2}, "page 2: it has 2"),
        ({"way": "guess"}, "has 2 pages: say which"),
        ({"way": "guess", "page": 0, "saturation": -1.0}, "saturation = -1"),
    ],
)
def test_wrong_options_are_refused(options: dict, words: str) -> None:
    with pytest.raises(pl.InputError, match=words):
        pl.estimate_blur(np.zeros((2, 20, 24)), axes="BHW", **options)


def test_a_tiny_picture_is_refused() -> None:
    with pytest.raises(pl.InputError, match="too small"):
        pl.estimate_blur(np.zeros((8, 40)), "guess")


def test_saturated_and_missing_pixels_are_known() -> None:
    counts = np.full((20, 24), 100, np.uint16)
    counts[3, 4] = 65535
    (scene,) = read_pages(counts, None, False, None)
    assert np.argwhere(scene.saturated).tolist() == [[3, 4]]
    (scene,) = read_pages(counts, None, False, 100.0)
    assert scene.saturated.all()
    floats = np.linspace(0, 1, 480).reshape(20, 24)
    floats[0, 0] = np.nan
    (scene,) = read_pages(floats, None, False, None)
    assert np.argwhere(~scene.valid).tolist() == [[0, 0]]
    assert not scene.saturated.any(), "one peak is no limit of the sensor"
    floats[5, 5:10] = 2.0
    (scene,) = read_pages(floats, None, False, None)
    assert np.argwhere(scene.saturated).tolist() == [[5, c] for c in range(5, 10)]


def test_one_way_is_given_on_the_command_line() -> None:
    with pytest.raises(pl.InputError, match="no way is given: choose one of --points, --edges"):
        way_given({"points": None, "edges": False})
    with pytest.raises(pl.InputError, match="several ways"):
        way_given({"points": "auto", "edges": True})


def test_a_way_that_loses_light_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Guess,
        "estimate",
        lambda self, scene, tell: pl.Blur(
            torch.full((1, 3, 3), 0.1), torch.ones(1, *scene.size), estimate=Estimate("guess")
        ),
    )
    with pytest.raises(RuntimeError, match="sum to one"):
        pl.estimate_blur(np.zeros((20, 24)), "guess")


def test_files_tables_and_report(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pnpladmm.blur_jobs import run_estimate

    picture = tmp_path / "p.png"
    pl.write_picture(picture, pl.Picture.from_array(np.full((32, 40), 50, np.uint8)))
    found = run_estimate(picture, tmp_path / "b.npz", "guess", report=True)
    assert found.warnings == ["seen nothing"]
    assert (tmp_path / "b.rows.csv").read_text().split() == ["a", "1"]
    page = (tmp_path / "b.npz.report" / "report.html").read_text()
    assert "seen nothing" in page
    assert "0.2" in page
    code, _, err = run("inspect", "b.npz")
    assert code == 0, err


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(pl.InputError, match="device 'nowhere'"):
        pl.estimate_blur(np.zeros((32, 32)), "blind", device="nowhere")


def test_finished_rows_of_a_benchmark_are_not_measured_again(tmp_path: Path) -> None:
    from pnpladmm.workshop.bench.parts import Parts
    from pnpladmm.workshop.bench.report import Options

    options = Options(torch.device("cpu"), folder=tmp_path)
    assert Parts(options, "some").row("a", lambda: {"value": 1.5}) == {"value": 1.5}
    again = Parts(options, "some")
    assert again.row("a", lambda: pytest.fail("measured again")) == {"value": 1.5}
    assert again.row("b", lambda: {"value": 2}) == {"value": 2}
