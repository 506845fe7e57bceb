"""Pictures of every step on the page, at two sizes, light and dark: `python tests/web_pictures.py FOLDER`.

With `--guide` only those of the guide are written, small enough for the repository.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import skimage.data
from PIL import Image
from scipy.ndimage import convolve

from pnpladmm.blur import motion
from web_cases import Server, png
from web_person import DESKTOP, TABLET, Person, chromium

GUIDE = {"shake": "web-shake.png", "preview": "web-preview.png", "result": "web-result.png", "region": "web-region.png"}
"""Steps that the guide shows, and what they are called there."""
WIDTH, COLOURS = 900, 200
"""Of the pictures of the guide."""


def shaken(scale: int = 1, seed: int = 0) -> np.ndarray:
    """A photograph with camera shake: 13 pixels at 35 degrees, all times `scale`."""
    sharp = np.kron(skimage.data.coffee(), np.ones((scale, scale, 1)))
    kernel = motion(13 * scale, 35).numpy()
    pixels = np.stack([convolve(sharp[..., c], kernel, mode="nearest") for c in range(3)], -1)
    noise = np.random.default_rng(seed).normal(0, 1.5, sharp.shape)
    return (pixels + noise).clip(0, 255).round().astype(np.uint8)


def steps(person: Person, photo: Path) -> Iterator[str]:
    """Walk over the page, and stop at every step."""
    page = person.page
    yield "start"
    person.open(photo)
    yield "opened"
    person.click("Camera shake", role="radio")
    person.drag((320, 190), (330.6, 182.5))
    yield "shake"
    person.click("Outline a region")
    for corner in ((60, 60), (200, 40), (260, 150), (150, 230)):
        person.touch(corner)
    page.mouse.move(*person.on_screen((60, 200)))
    yield "outline"
    page.keyboard.press("Enter")
    yield "outlined"
    person.click("Paint a region")
    person.drag((380, 240), (450, 250), (430, 300), (390, 290))
    yield "region"
    page.keyboard.press("Escape")
    for name in ("Soft", "Draw the path", "Click a star", "Find it for me"):
        person.click(name, role="radio")
        yield name.lower().replace(" ", "-")
    for _ in range(2):
        page.get_by_role("button", name="Remove region 1").click()
    person.sketch()
    person.preview()
    yield "preview"
    person.click("2 Settings", role="tab")
    person.click("I know it", role="radio")
    person.previewed()
    yield "settings"
    person.click("Measure it", role="radio")
    person.restore()
    person.restore()
    page.wait_for_selector("progress[value]")
    yield "running"
    person.click("Cancel", person.run(2, "waiting"))
    card = person.run(1, "done")
    page.locator("#divider").wait_for()
    person.pixel((300, 200))
    yield "result"
    person.click("Side by side", role="radio")
    person.pixel((300, 200))
    yield "side-by-side"
    card.get_by_text("Details, files and command line").click()
    yield "details"
    page.keyboard.press("?")
    yield "help"
    page.keyboard.press("Escape")
    person.click("1 Blur", role="tab")
    wrong = {"name": "blur.yaml", "mimeType": "text/plain", "buffer": b"kernel: nothing.npy"}
    page.set_input_files("#pick-blur", wrong)
    page.locator(".toast.bad").wait_for()
    yield "problem"
    page.locator("#home").click()
    page.locator(".recent canvas").first.wait_for()
    page.wait_for_timeout(500)
    yield "recent"


def small(picture: bytes) -> bytes:
    """A picture for the guide."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image = image.resize((WIDTH, round(image.height * WIDTH / image.width)), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return file.getvalue()


def walk(browser: Any, size: tuple[int, int], dark: bool, target: Path, guide: bool) -> None:
    """All pictures of one size in one scheme of colours."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photo = folder / "cup.png"
        photo.write_bytes(png(shaken()))
        server = Server(folder / "projects")
        person = Person(browser, server.address, size, dark)
        look = f"{size[0]}-{'dark' if dark else 'light'}"
        for number, step in enumerate(steps(person, photo), 1):
            person.page.wait_for_timeout(150)
            for problem in person.overlapping() + person.unreadable():
                print(f"{look} {step}: {problem}", file=sys.stderr)
            picture = person.page.screenshot()
            if not guide:
                (target / f"{look}-{number:02d}-{step}.png").write_bytes(picture)
            elif step in GUIDE:
                (target / GUIDE[step]).write_bytes(small(picture))
        if person.complaints:
            print(*person.complaints, sep="\n", file=sys.stderr)
        person.close()
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--guide", action="store_true")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    looks = [(DESKTOP, False)] if asked.guide else [(s, d) for s in (DESKTOP, TABLET) for d in (False, True)]
    with chromium() as browser:
        for size, dark in looks:
            walk(browser, size, dark, asked.folder, asked.guide)


if __name__ == "__main__":
    main()
