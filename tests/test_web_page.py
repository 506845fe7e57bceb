"""The page in a real browser: what a person does, from a blurred picture to a saved sharp one."""

from __future__ import annotations

import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("fastapi", reason="needs the extra web")
pytest.importorskip("playwright", reason="needs the extra test")

from pnpladmm.blur import gaussian
from pnpladmm.pictures import read_picture
from web_cases import Server, picture_file, small_photo
from web_person import CHROMIUM, Person, chromium

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH: apt install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("projects"))
    yield server
    server.stop()


@pytest.fixture
def person(browser: Any, server: Server) -> Iterator[Person]:
    person = Person(browser, server.address)
    yield person
    assert person.complaints == []
    assert person.foreign == []
    person.close()


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """A shaken photograph in 16 bits with a colour profile and a description, under a name that is HTML."""
    return picture_file(tmp_path / "<img src=x onerror=document.title='hacked'>.png", small_photo(160))


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def pixels(path: Path) -> np.ndarray:
    picture = read_picture(path)
    assert picture.dtype == "uint16"
    return picture.pixels.numpy()


def restored_by_command(command: str, output: Path, **instead: Path) -> np.ndarray:
    """What the command line writes, with other files where given."""
    words = shlex.split(command)
    assert words[:2] == ["pnpladmm", "restore"]
    for option, path in {"out": output, **instead}.items():
        words[words.index(f"--{option}") + 1] = str(path)
    subprocess.run([sys.executable, "-m", *words], check=True, capture_output=True)
    return pixels(output)


def test_from_a_shaken_picture_to_a_saved_one(person: Person, server: Server, photo: Path, tmp_path: Path) -> None:
    person.open(photo)
    assert person.page.locator("#title").inner_text() == photo.name  # shown as text
    assert person.page.locator("#title *").count() == 0

    # A line along the streaks: pixels, and degrees counter-clockwise.
    person.click("Camera shake", role="radio")
    person.drag((30, 60), (36, 56.5))
    motion = person.sketch()["background"]["motion"]
    assert motion["length"] == pytest.approx(np.hypot(6, 3.5), abs=0.3)
    assert motion["angle"] == pytest.approx(np.degrees(np.arctan2(3.5, 6)), abs=2)

    # A region with a blur of its own; taken back, and done again.
    person.click("Paint a region")
    person.drag((70, 20), (85, 25), (70, 32))
    person.click("Soft", role="radio")
    region = person.sketch()["regions"][0]
    assert region["strokes"][0]["points"][0] == pytest.approx([70, 20], abs=0.6)
    for key, kernel in (("z", {"defocus": {"radius": 3}}), ("Shift+z", {"gaussian": {"sigma": 2, "angle": 0}})):
        person.page.keyboard.press(f"Control+{key}")
        assert {k: v for k, v in person.sketch()["regions"][0]["kernel"].items() if v is not None} == kernel

    # The preview follows a setting; its right half is another picture.
    before = person.pixel((80, 45))
    person.preview()
    assert person.pixel((80, 45)) != before
    person.click("2 Settings", role="tab")
    person.page.get_by_role("slider", name="Strength").fill("300")
    person.previewed()

    # Run; a second one waits meanwhile: cancel it, and run again. The first may be done before a person can press.
    person.restore()
    person.restore()
    person.click("Cancel", person.run(2, "waiting", "running"))
    person.click("Run again", person.run(2, "cancelled"))
    card = person.run(3, "done")

    # The result comes by itself, and what it shows can be chosen.
    person.page.locator("#divider").wait_for()
    person.click("After", role="radio")
    sharp = person.pixel((80, 45))
    person.click("Before", role="radio")
    assert person.pixel((80, 45)) == before
    assert sharp != before

    # The saved picture is what the command line makes of the saved blur file, with the same options.
    card.get_by_text("Details, files and command line").click()
    saved = person.save("Save picture", card, tmp_path)
    blur = person.save("Blur file", card, tmp_path)
    assert saved.name == "_img src_x onerror_document.title__hacked__-sharp.png"
    with zipfile.ZipFile(blur) as archive:
        archive.extractall(tmp_path / "blur")
    assert yaml.safe_load((tmp_path / "blur" / "blur.yaml").read_text())["background"]["motion"] == motion
    person.click("Copy the command", card)
    command = person.page.evaluate("navigator.clipboard.readText()")
    assert "--strength" in command
    again = restored_by_command(command, tmp_path / "again.png", blur=tmp_path / "blur" / "blur.yaml")
    assert np.array_equal(pixels(saved), again)
    assert not np.array_equal(pixels(saved), pixels(photo))
    assert read_picture(saved).metadata.icc == read_picture(photo).metadata.icc

    # All of it is there after the page was loaded again.
    sketch = person.sketch()
    person.reload()
    person.page.locator("#title").get_by_text(photo.name).wait_for()
    assert person.sketch() == sketch
    person.click("3 Results", role="tab")
    assert person.page.locator("[data-run]").count() == 3
    assert person.page.title() != "hacked"

    # A wrong key shows nothing; the address with the right one, pasted into the same tab, opens the picture again.
    project = person.page.url.partition("#")[2]
    person.page.evaluate("sessionStorage.setItem('pnpladmm-key', 'wrong')")
    person.reload()
    person.page.get_by_text("This page needs its key").wait_for()
    assert photo.name not in person.page.inner_text("body")
    person.page.goto(f"{server.address}&{project}")
    person.page.locator("#title").get_by_text(photo.name).wait_for()
    person.complaints.clear()  # the browser notes the refusal as well


def test_every_way_to_say_what_the_blur_is(person: Person, tmp_path: Path) -> None:
    """A star field: found, clicked, drawn, outlined, erased, taken back, saved and loaded."""
    stars, rng = 0.05 + 0.002 * rng_of(1).standard_normal((160, 200)), rng_of(2)
    for x, y in [(40, 50), *((x + rng.uniform(-3, 3), y) for y in (20, 90, 130) for x in (25, 75, 125, 175))]:
        left, top = round(x) - 8, round(y) - 8
        stars[top : top + 17, left : left + 17] += 12 * rng.uniform(0.5, 1) * gaussian(2.0).numpy()
    field = tmp_path / "stars.npy"
    np.save(field, (stars.clip(0, 1) * 65535).astype(np.uint16))
    person.drop(field)
    page = person.page

    person.click("Click a star", role="radio")
    person.touch((41, 51))
    page.locator(".thumb").wait_for()
    assert page.get_by_role("radio", name="Click a star").get_attribute("aria-checked") == "true"
    star = person.sketch()["background"]["kernel"]
    page.keyboard.press("Control+z")
    assert person.sketch()["background"] is None
    assert page.get_by_role("button", name="Restore picture").is_disabled()

    person.click("Draw the path", role="radio")
    pad = page.locator(".pad").bounding_box()
    page.mouse.move(pad["x"] + 60, pad["y"] + 90)
    page.mouse.down()
    page.mouse.move(pad["x"] + 190, pad["y"] + 170, steps=6)
    page.mouse.up()
    page.locator(".thumb").wait_for()
    drawn = person.sketch()["background"]["kernel"]
    assert drawn not in (None, star)

    # A region by its corners; the keys for the help, for closing and for removing.
    page.locator("#canvas").focus()
    for key in ("?", "Escape", "l"):
        page.keyboard.press(key)
    corners = [(20, 20), (60, 22), (58, 70), (22, 66)]
    for corner in corners:
        person.touch(corner)
    page.keyboard.press("Enter")
    assert np.allclose(person.sketch()["regions"][0]["polygon"], corners, atol=0.6)
    person.click("Soft", role="radio")
    page.get_by_label("Soft edge, px, number").fill("9")
    page.get_by_label("Soft edge, px, number").press("Enter")
    sketch = person.sketch()
    assert sketch["feather"] == 9
    assert person.unreadable() == []
    assert person.overlapping() == []
    packed = person.save("Save the blur file", into=tmp_path)
    page.locator("#canvas").focus()
    page.keyboard.press("Delete")
    assert person.sketch()["regions"] == []
    page.set_input_files("#pick-blur", packed)
    page.get_by_text("Region 1").wait_for()
    loaded = person.sketch()
    assert loaded["regions"] == sketch["regions"]
    assert loaded["feather"] == 9
    assert loaded["background"]["kernel"] not in (None, drawn)  # the file of the ZIP, under a new name

    # A file that names what did not come along is refused in one line, and changes nothing.
    wrong = {"name": "b.yaml", "mimeType": "text/plain", "buffer": b"background: {kernel: /etc/passwd}"}
    page.set_input_files("#pick-blur", wrong)
    assert "choose this file together with it" in page.locator(".toast.bad").inner_text()
    assert person.sketch() == loaded
    person.complaints.clear()  # the browser notes the refusal as well

    person.click("Find it for me", role="radio")
    person.click("Stars or beads", role="radio")
    person.click("Find the blur")
    page.get_by_text("Found in the picture. It is expected").wait_for()
    assert person.sketch()["file"] is not None
    assert page.locator(".thumb").is_visible()
