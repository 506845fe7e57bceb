"""The page: how fast a preview is, and whether panning and zooming a large picture stalls the browser.

    python benchmarks/page.py [preview] [large] [newcomer] [--out FILE]

Needs the extras `web` and `test`, and Chromium on the PATH. It uses the test suite's server and person.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import skimage.data
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from web_cases import Server, png
from web_person import Person, chromium
from web_pictures import shaken

PREVIEWS = 6
LARGE = (5792, 8688)  # rows and columns: 50.3 megapixels
SCALE = 3
"""The newcomer's picture: 600 x 400 times this."""
THINKING = 3.0
SPIN = 6.0
"""Seconds of panning and zooming."""

# Gaps between frames while pan and zoom go on, and the tasks that the browser itself calls long (50 ms and more).
WATCH = """() => {
    window.gaps = [];
    window.long = [];
    new PerformanceObserver((list) => window.long.push(...list.getEntries().map((e) => e.duration)))
        .observe({type: 'longtask'});
    let last = performance.now();
    const tick = (now) => { window.gaps.push(now - last); last = now; requestAnimationFrame(tick); };
    requestAnimationFrame(tick);
}"""


def previews(person: Person, folder: Path) -> dict[str, Any]:
    """From a changed setting to the restored 256x256 on the screen, as the page itself measures it."""
    photo = folder / "photo.png"
    photo.write_bytes(png(np.tile(skimage.data.astronaut(), (2, 2, 1))))
    person.open(photo)
    person.click("Camera shake", role="radio")
    person.drag((500, 500), (512, 505))
    person.preview()
    first = float(person.page.get_attribute("#preview-box", "data-seconds") or "nan")
    taken = []
    length = person.page.get_by_role("slider", name="Length", exact=False)
    for number in range(PREVIEWS):
        length.fill(str(480 + 10 * number))
        person.previewed()
        taken.append(float(person.page.get_attribute("#preview-box", "data-seconds") or "nan"))
    return {"first, s": first, "median, s": statistics.median(taken), "longest, s": max(taken)}


def large(person: Person, folder: Path) -> dict[str, Any]:
    """Pan and zoom over 50 megapixels, as a hand does it, in slider mode over picture and tiles that still come."""
    rows, columns = LARGE
    photo = folder / "large.png"
    tile = skimage.data.astronaut()
    photo.write_bytes(png(np.tile(tile, (-(-rows // 512), -(-columns // 512), 1))[:rows, :columns]))
    begun = time.monotonic()
    person.open(photo)
    opened = time.monotonic() - begun
    page = person.page
    page.evaluate(WATCH)
    box = page.locator("#canvas").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    end, step = time.monotonic() + SPIN, 0
    page.mouse.move(x, y)
    while time.monotonic() < end:
        for _ in range(25):  # in to single pixels, along, and out again
            page.mouse.wheel(0, -120)
        page.mouse.down()
        for k in range(40):
            page.mouse.move(x + 300 * np.sin(k / 6 + step), y + 200 * np.cos(k / 5))
        page.mouse.up()
        for _ in range(25):
            page.mouse.wheel(0, 120)
        step += 1
    gaps, long = page.evaluate("[window.gaps, window.long]")
    return {
        "opened, s": round(opened, 1),
        "frames": len(gaps),
        "median frame, ms": round(statistics.median(gaps), 1),
        "longest frame, ms": round(max(gaps), 1),
        "frames over 100 ms": sum(gap > 100 for gap in gaps),
        "longest task, ms": round(max(long, default=0), 1),
        "tasks over 100 ms": sum(task > 100 for task in long),
    }


def newcomer(person: Person, folder: Path) -> dict[str, Any]:
    """From the empty page to a saved result, with a pause before every click as a person makes it."""
    photo = folder / "shaken.png"
    photo.write_bytes(png(shaken(SCALE)))
    person.pause, begun = THINKING, time.monotonic()
    person.open(photo)
    person.click("Camera shake", role="radio")
    length, angle = SCALE * 13, np.radians(35)
    person.drag(
        (320 * SCALE, 190 * SCALE), (320 * SCALE + length * np.cos(angle), 190 * SCALE - length * np.sin(angle))
    )
    person.preview()
    person.restore()
    card = person.run(1, "done")
    saved = person.save("Save picture", card, folder)
    taken = time.monotonic() - begun
    sharp, blurred = (np.asarray(Image.open(path), float) for path in (saved, photo))
    true = np.kron(skimage.data.coffee(), np.ones((SCALE, SCALE, 1))) if SCALE > 1 else skimage.data.coffee()

    def quality(found: np.ndarray) -> float:
        return round(float(10 * np.log10(255**2 / np.mean((found - true)[32:-32, 32:-32] ** 2))), 2)

    return {
        "picture": f"{blurred.shape[1]} x {blurred.shape[0]}",
        "clicks": person.clicks,
        "pause before each click, s": THINKING,
        "all, s": round(taken, 1),
        "blurred, dB": quality(blurred),
        "restored, dB": quality(sharp),
    }


MEASURES = {"preview": previews, "large": large, "newcomer": newcomer}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="preview, large, newcomer; by default all")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("page-cpu.json"))
    asked = parser.parse_args()
    asked.names = asked.names or list(MEASURES)
    if wrong := set(asked.names) - set(MEASURES):
        parser.error(f"{', '.join(sorted(wrong))}: give preview, large or newcomer")
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        folder = Path(name)
        server = Server(folder / "projects")
        found: dict[str, Any] = json.loads(asked.out.read_text()) if asked.out.exists() else {}
        found["machine"] = {"cores": os.cpu_count(), "Chromium": browser.version, "Python": platform.python_version()}
        for called in asked.names:
            person = Person(browser, server.address)
            found[called] = {**MEASURES[called](person, folder), "load": round(os.getloadavg()[0], 1)}
            person.close()
            print(called, json.dumps(found[called]), flush=True)
            asked.out.write_text(json.dumps(found, indent=1) + "\n")
        server.stop()


if __name__ == "__main__":
    main()
