"""What is drawn on the page, as the blur file that the command line reads, and back."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

pytest.importorskip("fastapi")

from pnpladmm.blur import common_size, defocus, gaussian, motion, read_blur
from pnpladmm.jobs import Job
from pnpladmm.pictures import Picture
from pnpladmm.solvers import Progress, State
from pnpladmm.tensors import InputError
from pnpladmm.web import blur_tasks, words
from pnpladmm.web.blur_files import load_yaml, sketch_of, with_own_names, write_blur_file
from pnpladmm.web.brush import painted
from pnpladmm.web.desk import Desk
from pnpladmm.web.limits import Refused
from pnpladmm.web.live import Watcher
from pnpladmm.web.loading import load_blur, unpack
from pnpladmm.web.pyramid import Shades, tile, write_levels
from pnpladmm.web.sketch import Box, Kernel, Region, Sketch, Stroke

SIZE = (80, 100)
STROKES = [{"radius": 9, "points": [[10, 60], [50, 60]]}, {"radius": 3, "points": [[6, 52]], "erase": True}]
KERNEL_ID, MASK_ID = "0123456789ab", "ba9876543210"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "files"
    folder.mkdir()
    np.save(folder / f"{KERNEL_ID}.npy", gaussian(1.2).numpy())
    mask = np.zeros(SIZE, np.uint8)
    mask[50:70, 5:30] = 1
    np.save(folder / f"{MASK_ID}.npy", mask)
    return {name: str(folder / f"{name}.npy") for name in (KERNEL_ID, MASK_ID)}


def square(kernel: torch.Tensor) -> torch.Tensor:
    """A kernel with zeros round it, its centre in the middle of a square."""
    rows, columns = kernel.shape
    side = max(rows, columns)
    left, top = side // 2 - columns // 2, side // 2 - rows // 2
    return torch.nn.functional.pad(kernel, (left, side - columns - left, top, side - rows - top))


def everything() -> Sketch:
    """A sketch with every kind of region and kernel."""
    regions = [
        {"polygon": [[60, 5], [95, 8], [90, 40], [62.5, 38]], "kernel": {"defocus": {"radius": 3}}},
        {"rectangle": [5, 5, 30, 25], "kernel": {"gaussian": {"sigma": [2, 1], "angle": 30}}},
        {"mask": MASK_ID, "strokes": STROKES, "kernel": {"kernel": KERNEL_ID}},
    ]  # fmt: skip
    return Sketch.model_validate(
        {"background": {"motion": {"length": 7, "angle": 20}}, "regions": regions, "feather": 2.0}
    )


def test_a_sketch_becomes_the_blur_that_it_shows(files: dict[str, str], tmp_path: Path) -> None:
    path = write_blur_file(everything(), SIZE, lambda n: Path(files[n]), tmp_path / "out")
    blur = read_blur(path, SIZE)
    for (row, column), kernel in {
        (70, 80): motion(7, 20),
        (20, 78): defocus(3),
        (15, 15): gaussian((2, 1), 30),
        (60, 45): gaussian(1.2),
    }.items():
        both = common_size([kernel, square(blur.psf_at(row, column)[0])])
        assert float((both[0] - both[1]).abs().max()) < 2e-3, (row, column)
    assert blur.psf_at(52, 6)[0].numpy().max() < 0.16  # erased: the background's motion


def test_a_sketch_survives_its_blur_file(files: dict[str, str], tmp_path: Path) -> None:
    sketch = everything().model_copy(update={"regions": everything().regions[:2]})
    path = write_blur_file(sketch, SIZE, lambda n: Path(files[n]), tmp_path / "out")
    assert sketch_of(load_yaml(path), SIZE) == sketch


def test_fractions_become_pixels() -> None:
    content = {"units": "fraction", "regions": [{"rectangle": [0, 0, 0.5, 1], "defocus": {"radius": 2}}]}
    found = sketch_of(content, SIZE)
    assert found is not None
    assert found.regions[0].rectangle == (-0.5, -0.5, 49.5, 79.5)


def test_a_preview_sees_the_blur_of_its_place(files: dict[str, str], tmp_path: Path) -> None:
    """The blur of a box is the crop of the whole blur, away from the rim where the feathering sees the border."""
    picture = Picture.from_array(np.zeros(SIZE, np.uint8))
    sketch = everything()
    whole = read_blur(write_blur_file(sketch, SIZE, lambda n: Path(files[n]), tmp_path / "whole"), SIZE)
    box = Box.model_construct(left=20, top=12, width=64, height=56)
    part = blur_tasks.for_box(sketch, picture, box, files, tmp_path / "part")
    for row in range(8, 48, 5):
        for column in range(8, 56, 5):
            a, b = part.psf_at(row, column)[0], whole.psf_at(row + 12, column + 20)[0]
            margin = [(m - n) // 2 for n, m in zip(a.shape, b.shape, strict=True)]
            inner = b[margin[0] : b.shape[0] - margin[0], margin[1] : b.shape[1] - margin[1]]
            assert torch.allclose(a, inner, atol=1e-6), (row, column)


def test_a_brush_paints_and_erases() -> None:
    strokes = [Stroke(radius=5, points=[(20, 20), (60, 20)]), Stroke(radius=3, points=[(40, 20)], erase=True)]
    mask = painted(SIZE, strokes)
    assert mask[20, 25] == 255
    assert mask[20, 40] == 0
    assert mask[27, 25] == 0
    area = (painted(SIZE, strokes[:1]) > 0).sum()
    assert area == pytest.approx(40 * 10 + np.pi * 25, rel=0.12)
    assert np.array_equal(painted((40, 50), strokes, origin=(10, 5)), mask[5:45, 10:60])


@pytest.mark.parametrize("name", ["../../../etc/passwd", "/etc/passwd", "psf.npy", "..\\x.npy"])
def test_a_blur_file_opens_only_what_came_with_it(name: str) -> None:
    for content in ({"background": {"kernel": name}}, {"regions": [{"mask": name, "defocus": {"radius": 2}}]},
                    {"kernels": name, "labels": "x.png"}, {"blur": name}):  # fmt: skip
        with pytest.raises(Refused, match="choose this file together with it"):
            with_own_names(content, {"other.npy": KERNEL_ID, "x.png": MASK_ID})
    assert with_own_names({"background": {"kernel": "a/psf.npy"}}, {"psf.npy": KERNEL_ID}) == {
        "background": {"kernel": KERNEL_ID}
    }


def test_a_yaml_bomb_is_refused(tmp_path: Path) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{b}: &{b} [{', '.join(['*' + a] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    bomb = tmp_path / "bomb.yaml"
    bomb.write_text("\n".join(lines))
    with pytest.raises(Refused, match="aliases"):
        load_yaml(bomb)
    bomb.write_text("regions: " + "[" * 20_000)
    with pytest.raises(Refused):
        load_yaml(bomb)
    bomb.write_text("!!python/object/apply:os.system ['true']")
    with pytest.raises(Refused):
        load_yaml(bomb)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A desk whose helper works in this process."""
    from pnpladmm.web.tasks import TASKS

    desk = Desk(tmp_path / "projects")
    monkeypatch.setattr(
        desk.helper, "ask", lambda task, seconds, only_latest=None, **v: TASKS[task](lambda m: None, **v)
    )
    yield desk
    desk.close()


def project_of(desk: Desk, pixels: Any) -> str:
    with desk.projects.arriving() as folder:
        np.save(folder / "picture.npy", pixels)
        return desk.open(folder, "picture.npy", "a.npy")


def test_a_blur_in_a_zip_comes_back_as_it_went(desk: Desk, files: dict[str, str], tmp_path: Path) -> None:
    project = project_of(desk, np.zeros(SIZE, np.uint8))
    path = write_blur_file(everything(), SIZE, lambda n: Path(files[n]), tmp_path / "out")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for file in path.parent.iterdir():
            archive.write(file, f"../../{file.name}")  # its names are no places
    (tmp_path / "b.zip").write_bytes(packed.getvalue())
    sketch = Sketch.model_validate(unpack(desk, project, tmp_path / "b.zip")["sketch"])
    back = write_blur_file(sketch, SIZE, lambda n: desk.projects.file(project, n), tmp_path / "back")
    one, two = read_blur(path, SIZE), read_blur(back, SIZE)
    assert torch.equal(one.kernels, two.kernels)
    assert torch.equal(one.weights, two.weights)


def test_other_forms_stay_one_file(desk: Desk, tmp_path: Path) -> None:
    project = project_of(desk, np.zeros(SIZE, np.uint8))
    bank, labels = np.stack([gaussian(1.0, size=9).numpy(), gaussian(2.0, size=9).numpy()]), np.zeros(SIZE, np.uint8)
    labels[:, 50:] = 1
    sent = {}
    for name, array in (("bank.npy", bank), ("labels.npy", labels)):
        identity, place = desk.projects.new_file(project, name)
        np.save(place, array)
        desk.projects.add_file(project, identity, name, place)
        sent[name] = identity
    identity, place = desk.projects.new_file(project, "b.yaml")
    place.write_text(yaml.safe_dump({"kernels": "bank.npy", "labels": "labels.npy", "feather": 0}))
    desk.projects.add_file(project, identity, "b.yaml", place)
    found = load_blur(desk, project, identity, sent)
    assert any("2 of 9x9" in line for line in found["words"])
    sketch = Sketch.model_validate(found["sketch"])
    blur = read_blur(write_blur_file(sketch, SIZE, lambda n: desk.projects.file(project, n), tmp_path / "out"), SIZE)
    assert blur.psf_at(10, 90)[0].numpy().max() == pytest.approx(float(gaussian(2.0, size=9).max()), rel=1e-6)


def test_a_star_becomes_a_psf(desk: Desk) -> None:
    rng, sky = np.random.default_rng(0), 0.1
    pixels = sky + 0.002 * rng.standard_normal((60, 70))
    pixels[20 : 20 + 17, 30 : 30 + 17] += 6 * gaussian(2.0).numpy()
    project = project_of(desk, (pixels.clip(0, 1) * 65535).astype(np.uint16))
    path = str(desk.projects.picture(project))
    made = desk.make_file(project, "a star", "star", 10, path=path, x=40, y=26, side=25)
    assert (made["x"], made["y"]) == (38, 28)
    psf = np.load(desk.projects.file(project, made["id"]))
    assert psf.sum() == pytest.approx(1)
    rows, columns = np.indices(psf.shape) - np.array(psf.shape)[:, None, None] // 2
    assert abs((psf * rows).sum()) < 0.02
    assert abs((psf * columns).sum()) < 0.02
    assert np.sqrt((psf * (rows**2 + columns**2)).sum() / 2) == pytest.approx(2.0, rel=0.1)
    with pytest.raises(InputError, match="no bright point"):
        desk.make_file(project, "a star", "star", 10, path=path, x=15, y=48, side=15)
    with pytest.raises(InputError, match="border"):
        desk.make_file(project, "a star", "star", 10, path=path, x=38, y=28, side=71)


def test_a_drawn_kernel_keeps_the_picture_in_place(tmp_path: Path) -> None:
    rows = np.zeros((21, 21))
    rows[3, 4:9] = 1  # far from the centre
    blur_tasks.write_drawn(rows.tolist(), tmp_path / "k.npy")
    psf = np.load(tmp_path / "k.npy")
    assert psf.sum() == pytest.approx(1)
    y, x = np.indices(psf.shape) - np.array(psf.shape)[:, None, None] // 2
    assert abs((psf * x).sum()) < 0.05
    assert abs((psf * y).sum()) < 0.05
    with pytest.raises(InputError, match="nothing was drawn"):
        blur_tasks.write_drawn(np.zeros((9, 9)).tolist(), tmp_path / "e.npy")


def test_levels_hold_the_picture(tmp_path: Path) -> None:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (700, 1101, 3), dtype=np.uint8)
    picture = Picture.from_array(pixels)
    assert write_levels(picture, tmp_path, Shades.of(picture)) == 3

    def shown(level: int, row: int, column: int) -> np.ndarray:
        return np.asarray(Image.open(io.BytesIO(tile(tmp_path, level, row, column))))

    assert np.array_equal(shown(0, 1, 2), pixels[512:, 1024:])
    assert shown(2, 0, 0).shape == (175, 276, 3)
    means = pixels[:700, :1100].reshape(350, 2, 550, 2, 3).mean((1, 3))
    assert np.abs(shown(1, 0, 0)[:350, :512] - means[:, :512]).max() <= 0.75
    with pytest.raises(Refused):
        tile(tmp_path, 0, 2, 0)
    dark = Picture.from_array(np.linspace(0, 1e-3, 5000, dtype=np.float32).reshape(50, 100))
    assert Shades.of(dark).white < 1.1e-3
    assert Shades.of(picture) == Shades()


def test_a_verdict_gives_advice() -> None:
    outcome: dict[str, Any] = {"status": "finished", "warnings": [], "noise": 2.04, "certificate": {"level": "outside"}}
    assert words.verdict(outcome)["mark"] == "good"
    from pnpladmm.restoration.noise import ResidualCheck

    for check, advice in (
        (ResidualCheck(1.0, 0.3), "length or width"),
        (ResidualCheck(2.0, 0.0), "higher noise"),
        (ResidualCheck(0.5, 0.0), "lower noise"),
    ):
        found = words.verdict({**outcome, "warnings": list(check.problems)})
        assert found["mark"] == "check"
        assert advice in " ".join(found["advice"])
    assert words.verdict({**outcome, "status": "diverged"})["mark"] == "bad"


def test_regions_need_one_shape() -> None:
    for more in ({}, {"rectangle": (0, 0, 1, 1), "strokes": []}):
        with pytest.raises(ValueError, match="one shape"):
            Region(kernel=Kernel.model_validate({"motion": {"length": 3}}), **more)


def test_a_run_in_tiles_is_watched(tmp_path: Path) -> None:
    """The steps of all tiles count, and a tile is not taken for the picture."""
    job = Job(picture="a.png", blur="b.yaml", output="c.png", iterations=3)
    said: list[dict[str, Any]] = []
    watcher = Watcher(said.append, tmp_path, job, Shades(), [96, 160, 1])
    for number in range(4):
        for step in range(1, 4):
            watcher(Progress(step, State(x=torch.zeros(1, 1, 40, 50)), {}, number, 4))
    assert said[4] == {"step": 5, "steps": 12, "tile": 2, "tiles": 4}
    assert said[-1]["step"] == said[-1]["steps"]
    assert not (tmp_path / "live.png").exists()
    watcher = Watcher(said.append, tmp_path, job, Shades(), [96, 160, 1])
    watcher(Progress(1, State(x=torch.ones(1, 1, 104, 172)), {}))  # with the scene beyond the border
    assert said[-1] == {"step": 1, "steps": 3, "live": 1}
    from PIL import Image

    assert Image.open(tmp_path / "live.png").size == (160, 96)
